"""Ways to run one decode step: as it is, as a CUDA graph, or compiled and then as a CUDA graph.

A decode step of a small model is hundreds of kernels of a few microseconds; launching them from
Python takes longer than running them. A CUDA graph records the launches once and replays them all
with one call, on the same addresses, which is why every tensor of a step is preallocated. Compiling
first fuses kernels, so that fewer have to be replayed, and writes the matrix products for few rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, get_args

import torch

from engines.attention import using_attention
from engines.precision import settings_here
from engines.quiet import inductor_notices_ignored

if TYPE_CHECKING:
    from engines.models import LoadedModel

StepKind = Literal["eager", "graph", "compiled", "compiled_graph"]
Step = Callable[[], None]
WARM_UP_STEPS = 3
RECOMPILE_LIMIT = 256
"""Each engine compiles the same code for its own shape; the default allows eight of them."""


def check_kind(kind: str, device: str) -> None:
    """Refuse, in one line, a kind that does not exist or that the device cannot do."""
    if kind not in get_args(StepKind):
        known = ", ".join(get_args(StepKind))
        raise ValueError(f"unknown decode step {kind!r}: expected one of {known}")
    if kind.endswith("graph") and device != "cuda":
        raise ValueError(
            f"decode step {kind!r} is a CUDA graph, the model is on {device}: use eager"
        )


def build_step(kind: StepKind, step: Step, loaded: LoadedModel, **compiler: Any) -> Step:
    """The same step, faster to launch; `compiler` holds what `compiled` takes.

    While being built the step runs a few times, so all rows must be idle.
    """
    check_kind(kind, loaded.device)
    with torch._dynamo.config.patch(recompile_limit=RECOMPILE_LIMIT), inductor_notices_ignored():
        if kind.startswith("compiled"):
            step = compiled(step, loaded, **compiler)
            step()
        return captured(step) if kind.endswith("graph") else step


def compiled(
    step: Step,
    loaded: LoadedModel,
    *,
    backend: str = "inductor",
    options: Mapping[str, Any] | None = None,
    attention: str | None = None,
) -> Step:
    """The step as one fused program, built when it first runs; defaults are the device's best."""
    settings = settings_here(loaded.device)
    chosen: dict[str, Any] = dict(settings.compile_options if options is None else options)
    fused = torch.compile(
        step,
        backend=backend,
        fullgraph=True,
        dynamic=False,
        options=chosen if backend == "inductor" else None,
    )

    def run() -> None:
        with using_attention(loaded.model, attention or settings.decode_attention):
            fused()

    return run


def captured(step: Step) -> Step:
    """Record the step's kernels into a CUDA graph; the returned call replays them."""
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]  # torch leaves its constructor untyped
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):  # capture needs lazy initialization to be over, on another stream
        for _ in range(WARM_UP_STEPS):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay
