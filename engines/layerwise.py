"""A decode step compiled in three parts: its beginning, ONE decoder layer for all layers, its end.

A compiler that is given the whole step works through every layer, though all of them are the same
program with other weights: more than a minute for 28 layers. Here the weights and the KV store of
a layer are inputs of one compiled program, which is then called layer after layer. What is lost is
fusion across the boundary between two layers: one kernel or none.

The parts are cut out of the model's own forward, so that embedding, masks and rotary tables stay
the library's. With witnesses standing in for the layers it computes what the layers are called
with, and with one layer that already knows the answer it computes what comes after them; the rest
of either pass is dead code to the compiler.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from transformers.cache_utils import Cache

from engines.cache import decode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from transformers import PreTrainedModel

    from engines.decode_state import DecodeState

    Compiler = Callable[[Callable[..., Any]], Callable[..., Any]]


class Witness(nn.Module):
    """Stands where a layer stood: passes the hidden state on and keeps how it was called."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.attention_type = getattr(layer, "attention_type", None)
        self.seen: tuple[torch.Tensor, tuple[Any, ...], dict[str, Any]] = (torch.empty(0), (), {})

    def forward(self, hidden: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        """The hidden state, [B, 1, hidden], unchanged."""
        self.seen = (hidden, args, kwargs)
        return hidden


class Known(nn.Module):
    """Stands where all layers stood: whatever it is given, it returns the state after them."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.attention_type = getattr(layer, "attention_type", None)
        self.hidden: torch.Tensor | None = None

    def forward(self, *_: Any, **__: Any) -> torch.Tensor | None:
        """The hidden state that was computed elsewhere."""
        return self.hidden


class LayerwiseStep:
    """`DecodeState.decode_one_token` in parts; the first call compiles them."""

    def __init__(self, state: DecodeState, compiler: Compiler) -> None:
        layers = decoder_layers(state.model)
        if layers is None:
            raise ValueError(f"{type(state.model).__name__} has no list of decoder layers")
        self._state = state
        self._layers = layers
        self._witnesses = [Witness(layer) for layer in layers]
        self._standing_in = nn.ModuleList(self._witnesses)
        self._known = Known(layers[0])
        self._known_alone = nn.ModuleList([self._known])
        self._begin = compiler(self._decode)
        self._layer = compiler(run_layer)
        self._end = compiler(state.decode_one_token)

    def __call__(self) -> None:
        """One step of all rows."""
        with running_over(self._state.model, self._standing_in):
            hidden, calls = self._begin()
        stores = self._state.cache.layers
        for layer, store, (args, kwargs) in zip(self._layers, stores, calls, strict=True):
            positional = [_own(store, value) for value in args]
            named = {name: _own(store, value) for name, value in kwargs.items()}
            hidden = self._layer(layer, hidden, positional, named)
        self._known.hidden = hidden
        with running_over(self._state.model, self._known_alone):
            self._end()

    def _decode(self) -> tuple[torch.Tensor, Sequence[Any]]:
        """The hidden state before the first layer, and the other arguments of every layer."""
        decode(self._state.model, self._state.tokens, self._state.cache)
        seen = [witness.seen for witness in self._witnesses]
        return seen[0][0], [call[1:] for call in seen]


def run_layer(
    layer: nn.Module, hidden: torch.Tensor, args: Sequence[Any], kwargs: dict[str, Any]
) -> torch.Tensor:
    """One decoder layer, [B, 1, hidden] to [B, 1, hidden], whichever layer it is."""
    output = layer(hidden, *args, **kwargs)
    state: torch.Tensor = output[0] if isinstance(output, tuple) else output
    return state


def decoder_layers(model: PreTrainedModel) -> nn.ModuleList | None:
    """The model's list of decoder layers, None where no list is as long as its config says."""
    place = _place_of_layers(model)
    return None if place is None else getattr(*place)


@contextmanager
def running_over(model: PreTrainedModel, modules: nn.ModuleList) -> Iterator[None]:
    """Let the model run over other modules than its decoder layers."""
    place = _place_of_layers(model)
    assert place is not None
    layers = getattr(*place)
    setattr(*place, modules)
    try:
        yield
    finally:
        setattr(*place, layers)


def _place_of_layers(model: PreTrainedModel) -> tuple[nn.Module, str] | None:
    """Who owns the list of decoder layers, and under which name."""
    count = model.config.get_text_config().num_hidden_layers
    for owner in model.base_model.modules():
        for name, child in owner.named_children():
            if isinstance(child, nn.ModuleList) and len(child) == count:
                return owner, name
    return None


def _own(store: Any, value: Any) -> Any:
    """A layer's own store takes the cache's place: nothing is left that depends on its number."""
    return store if isinstance(value, Cache) else value
