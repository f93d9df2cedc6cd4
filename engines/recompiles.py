"""How often a decode step has to be compiled again, with a cache that grows and one that does not.

A growing cache has another shape at every token. The compiler first compiles for the exact shape,
then, seeing it change, again for shapes that are marked dynamic, which rules out a captured graph
and the kernels tuned for one shape. A preallocated cache never changes its shape.

The compiler's front end is what decides this, so nothing is generated here: a backend that only
counts the graphs it is given makes the question cheap on any device. And all decoder layers are one
program with other weights, so the step runs over the model's first two.
"""

from __future__ import annotations

import itertools
from contextlib import nullcontext
from dataclasses import dataclass
from types import FunctionType
from typing import TYPE_CHECKING, Any

import torch
from transformers.cache_utils import DynamicCache

from engines.cache import cache_argument
from engines.decode_state import DecodeState
from engines.layerwise import decoder_layers, running_over

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from transformers import PreTrainedModel

LAYERS = 2
_numbers = itertools.count()


@dataclass(slots=True)
class CompileCount:
    """Graphs handed to the backend, in all and after the first step; whether shapes are dynamic."""

    graphs: int = 0
    after_first_step: int = 0
    dynamic: bool = False

    def backend(self, graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        """Count the graph and run it as it is."""
        self.graphs += 1
        self.dynamic |= any(isinstance(value, torch.SymInt) for value in inputs)
        return graph.forward


def count_growing(model: PreTrainedModel, tokens: int = 64) -> CompileCount:
    """Compile a decode step over a growing cache and run it for this many tokens."""
    cache = DynamicCache()
    name = cache_argument(model)
    token = torch.zeros(1, 1, dtype=torch.long, device=model.device)

    def step() -> None:
        logits = model(input_ids=token, use_cache=True, **{name: cache}).logits
        token.copy_(logits[:, -1:].argmax(dim=-1))

    with torch.no_grad(), _over_first_layers(model):
        step()  # the prompt, of one token, is not compiled
        return _count(step, tokens)


def count_static(model: PreTrainedModel, tokens: int = 64) -> CompileCount:
    """The same over a preallocated cache."""
    state = DecodeState(model, 1, tokens + 2)
    with torch.no_grad():
        state.allocate()
        state.prefill(state.tokens[:, None], [0])
    with torch.no_grad(), _over_first_layers(model):
        return _count(lambda: state.decode_one_token(), tokens)


def _over_first_layers(model: PreTrainedModel) -> AbstractContextManager[None]:
    layers = decoder_layers(model)
    return nullcontext() if layers is None else running_over(model, layers[:LAYERS])


def _count(step: Callable[[], None], tokens: int) -> CompileCount:
    count = CompileCount()
    compiled = torch.compile(_unseen(step), backend=count.backend)
    compiled()
    first = count.graphs
    for _ in range(tokens - 1):
        compiled()
    count.after_first_step = count.graphs - first
    return count


def _unseen(step: Callable[[], None]) -> Callable[[], None]:
    """The same function under a name of its own.

    The compiler remembers per code object what it compiled and which shapes it saw change; without
    this an earlier count, or another engine, would answer for this one.
    """
    assert isinstance(step, FunctionType)
    code = step.__code__.replace(co_name=f"{step.__name__}_{next(_numbers)}")
    return FunctionType(code, step.__globals__, code.co_name, None, step.__closure__)
