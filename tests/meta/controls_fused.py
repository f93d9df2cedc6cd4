"""Negative controls of the claims about the fused step (C56, C57)."""

from __future__ import annotations

from reports.verdict import Outcome
from tests import test_b_fused_measured as fused
from tests.chapter import QWEN3
from tests.meta.bench import COPY_BYTES_PER_S, FLOOR_S, WEIGHT_BYTES
from tests.meta.control import Control, Fault

READ_FLOOR_S = FLOOR_S * 320e9 / COPY_BYTES_PER_S
"""A step of the scripted T4 that does nothing but read its fp16 weights."""


def overhead(bench, *, layer_s=8e-6, **options):
    """C57: this many seconds per layer beyond the weights; KV adds a little."""
    bench.steps |= {"fused": READ_FLOOR_S + 160e-6 + layer_s * QWEN3.num_layers}
    bench.engine_options |= options
    bench.call(fused.test_the_fused_step_takes_little_more_than_its_bytes)


def fewer_bytes(bench, *, int8=1.7, nf4=2.2):
    """C56: how many times faster than fp16 the two formats are, on a shape taken as large."""
    step = 3 * READ_FLOOR_S
    bench.monkeypatch.setattr(fused, "EIGHT_BILLION", 0)
    for name in ("int8", "nf4"):
        bench.monkeypatch.setitem(WEIGHT_BYTES, f"fused_{name}", WEIGHT_BYTES[name])
    bench.steps |= {"fused": step, "fused_int8": step / int8, "fused_nf4": step / nf4}
    bench.call(fused.test_half_the_bytes_decode_faster_when_the_kernel_does_not_eat_the_gain)


CONTROLS = {
    "C56": Control(
        fewer_bytes,
        {
            "a kernel that eats the gain": Fault(
                Outcome.REFUTED, {"int8": 1.1}, "speed over fused fp16"
            ),
            "weights that are stored small and read large": Fault(
                Outcome.REFUTED, {"int8": 0.6}, "speed over fused fp16"
            ),
        },
    ),
    "C57": Control(
        overhead,
        {
            "a launch from the host per kernel": Fault(
                Outcome.REFUTED, {"layer_s": 40e-6}, "per layer"
            ),
            "the clock is read while work is queued": Fault(
                Outcome.FAULT, {"hidden_s": 10.0}, "per layer"
            ),
        },
    ),
}
