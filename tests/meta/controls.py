"""Negative controls of timed claims, by claim; those under load: test_serving_controls.py."""

from __future__ import annotations

from tests.meta import (
    controls_batching,
    controls_causes,
    controls_ceiling,
    controls_fused,
    controls_vllm,
)

CONTROLS = {
    **controls_ceiling.CONTROLS,
    **controls_batching.CONTROLS,
    **controls_causes.CONTROLS,
    **controls_fused.CONTROLS,
    **controls_vllm.CONTROLS,
}
