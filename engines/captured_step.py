"""Ways to run one decode step: as it is, as a CUDA graph, or compiled and then as a CUDA graph.

A decode step of a small model is hundreds of kernels of a few microseconds; launching them from
Python takes longer than running them. A CUDA graph records the launches once and replays them all
with one call, on the same addresses, which is why every tensor of a step is preallocated. Compiling
first fuses kernels, so that fewer have to be replayed; `max-autotune` matters at few rows, where
the library's matrix products are not made for one row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, get_args

import torch

StepKind = Literal["eager", "graph", "compiled", "compiled_graph"]
Step = Callable[[], None]
WARM_UP_STEPS = 3
COMPILE_MODE = "max-autotune-no-cudagraphs"


def build_step(
    kind: StepKind, step: Step, device: torch.device, *, compile_mode: str | None = COMPILE_MODE
) -> Step:
    """The same step, faster to launch. It is run a few times on idle rows while being built."""
    if kind not in get_args(StepKind):
        raise ValueError(
            f"unknown decode step {kind!r}: expected one of {', '.join(get_args(StepKind))}"
        )
    if kind.endswith("graph") and device.type != "cuda":
        raise ValueError(
            f"decode step {kind!r} is a CUDA graph, the model is on {device.type}: use eager"
        )
    if kind.startswith("compiled"):
        step = torch.compile(step, fullgraph=True, dynamic=False, mode=compile_mode)
    if kind == "compiled":
        step()
    return captured(step) if kind.endswith("graph") else step


def captured(step: Step) -> Step:
    """Record the step's kernels into a CUDA graph; the returned call replays them."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):  # capture needs lazy initialization to be over, on another stream
        for _ in range(WARM_UP_STEPS):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay
