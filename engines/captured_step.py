"""Ways to run one decode step: as it is, as a CUDA graph, or compiled and then as a CUDA graph.

A decode step of a small model is hundreds of kernels of a few microseconds; launching them from
Python takes longer than running them. A CUDA graph records the launches once and replays them all
with one call, on the same addresses, which is why every tensor of a step is preallocated. Compiling
first fuses kernels, so that fewer have to be replayed, and writes the matrix products for few rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

import torch

from engines.attention import using_attention
from engines.layerwise import LayerwiseStep, decoder_layers
from engines.precision import settings_here
from engines.quiet import inductor_notices_ignored

if TYPE_CHECKING:
    from engines.decode_state import DecodeState
    from engines.models import LoadedModel

CompiledUnit = Literal["layer", "step"]
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


def uncompiled_step(loaded: LoadedModel) -> StepKind:
    """The fastest step that is ready at once: a graph of the library's own kernels where it can be.

    Launching them from Python hides what batching does: every batch size then takes equally long.
    LLM.int8() asks the host about outliers in every layer, so quantized models stay eager.
    """
    quantized = getattr(loaded.model, "is_quantized", False)
    return "graph" if loaded.device == "cuda" and not quantized else "eager"


def build_step(kind: StepKind, state: DecodeState, loaded: LoadedModel, **compiler: Any) -> Step:
    """`state.decode_one_token`, faster to launch; `compiler` holds what `compiled` takes.

    While being built the step runs a few times, so all rows must be idle.
    """
    check_kind(kind, loaded.device)
    step: Step = state.decode_one_token
    with torch._dynamo.config.patch(recompile_limit=RECOMPILE_LIMIT), inductor_notices_ignored():
        if kind.startswith("compiled"):
            step = compiled(state, loaded, **compiler)
            step()
        return captured(step) if kind.endswith("graph") else step


def compiled(
    state: DecodeState,
    loaded: LoadedModel,
    *,
    backend: str = "inductor",
    options: Mapping[str, Any] | None = None,
    attention: str | None = None,
    unit: CompiledUnit = "layer",
    tuned_batches: bool = True,
) -> Step:
    """The step as fused programs, built when it first runs; defaults are the device's best.

    Trying out kernels for the products of several rows takes 50 s on an H200; `tuned_batches` says
    whether to. One row is always tuned.
    `unit` is what the compiler is given at once: one layer for all layers, or the whole step, which
    takes it many times longer and is also what is done with a model whose layers are not found.
    """
    settings = settings_here(loaded.device)
    alone = state.tokens.numel() == 1
    batched = settings.batched_compile_options if tuned_batches else settings.untuned_options
    best = settings.compile_options if alone else batched
    chosen: dict[str, Any] = dict(best if options is None else options)

    def fuse(function: Callable[..., Any]) -> Callable[..., Any]:
        fused: Callable[..., Any] = torch.compile(
            function,
            backend=backend,
            fullgraph=True,
            dynamic=False,
            options=chosen if backend == "inductor" else None,
        )
        return fused

    by_layer = unit == "layer" and decoder_layers(loaded.model) is not None
    fused = LayerwiseStep(state, fuse) if by_layer else fuse(state.decode_one_token)

    def run() -> None:
        with using_attention(loaded.model, attention or settings.decode_attention):
            fused()

    return run


@dataclass(frozen=True, slots=True)
class Replay:
    """A captured step. A graph knows addresses, not tensors: the step is kept, and all it holds."""

    graph: torch.cuda.CUDAGraph
    step: Step

    def __call__(self) -> None:
        """Launch all kernels of the step."""
        self.graph.replay()


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
    return Replay(graph, step)
