"""The same scheduler with its batched decode step compiled and captured in one CUDA graph."""

from __future__ import annotations

from typing import Any

from engines.continuous import Continuous


class ContinuousGraph(Continuous):
    """Needs CUDA; scheduling, slots and results are those of `Continuous`."""

    name = "continuous_graph"

    def __init__(self, *args: Any, tuned_batches: bool = True, **kwargs: Any) -> None:
        compiler = {"tuned_batches": tuned_batches}
        super().__init__(*args, step="compiled_graph", compiler=compiler, **kwargs)
