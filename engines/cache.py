"""A preallocated KV cache whose rows stand at different positions.

A static cache keeps one position for the whole batch, so all rows would have to be equally long.
Here row b writes its next key and value at `positions[b]`, which lets requests of different
lengths share one forward, and lets a slot be given to the next request. Nothing ever grows or
moves: a compiled step or a captured graph can be replayed on the same addresses.

Rows are prefilled by an ordinary forward into a growing cache, which is then copied in.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import torch
from transformers.cache_utils import Cache, DynamicCache, StaticLayer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from transformers import PreTrainedModel


def cache_argument(model: PreTrainedModel) -> str:
    """The keyword under which this model's forward takes its cache: `cache` or `past_key_values`.

    transformers renamed it; the wrong name vanishes in `**kwargs` and nothing is cached at all.
    """
    parameters = inspect.signature(type(model).forward).parameters
    for name in ("cache", "past_key_values"):
        if name in parameters:
            return name
    raise TypeError(
        f"{type(model).__name__}.forward takes neither cache nor past_key_values: "
        "load a causal language model with a KV cache"
    )


class RaggedLayer(StaticLayer):  # type: ignore[misc]  # transformers is untyped
    """Keys and values of one layer, [B, heads, capacity, head_dim]."""

    def __init__(self, capacity: int, positions: torch.Tensor, rows: torch.Tensor) -> None:
        super().__init__(max_cache_len=capacity)
        self.positions = positions
        self.rows = rows

    def update(
        self,
        key_states: torch.Tensor,
        value_states: torch.Tensor,
        *args: Any,  # noqa: ARG002  # the caller passes layer details that differ between versions
        **kwargs: Any,  # noqa: ARG002  # as above
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Store one decoded token per row, [B, heads, 1, head_dim], and return the whole layer."""
        self.keys[self.rows, :, self.positions] = key_states[:, :, 0]
        self.values[self.rows, :, self.positions] = value_states[:, :, 0]
        return self.keys, self.values

    def insert(self, rows: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Copy prefilled keys and values, [R, heads, S, head_dim], into the start of these rows."""
        if not self.is_initialized:
            batch = len(self.rows)
            self.lazy_initialization(
                keys.new_empty((batch, keys.shape[1], 0, keys.shape[-1])),
                values.new_empty((batch, values.shape[1], 0, values.shape[-1])),
            )
        self.keys[rows, :, : keys.shape[2]] = keys
        self.values[rows, :, : values.shape[2]] = values


class RaggedCache(Cache):  # type: ignore[misc]  # transformers is untyped
    """`batch_size` slots of `capacity` tokens; `positions[b]` is where row b's next token goes.

    An idle row keeps position 0: it computes something that nobody reads.
    """

    def __init__(self, model: PreTrainedModel, batch_size: int, capacity: int) -> None:
        config = model.config.get_text_config()
        device = model.device
        self.capacity = capacity
        self.positions = torch.zeros(batch_size, dtype=torch.long, device=device)
        self.rows = torch.arange(batch_size, device=device)
        self.columns = torch.arange(capacity, device=device)
        self.windows = _windows(config)
        layers = [
            RaggedLayer(capacity, self.positions, self.rows)
            for _ in range(config.num_hidden_layers)
        ]
        super().__init__(layers=layers)

    def insert(self, rows: Sequence[int], prefilled: Cache) -> None:
        """Give these slots the prompts held by a prefilled cache of R rows, all of one length."""
        index = torch.tensor(list(rows), device=self.positions.device)
        for mine, theirs in zip(self.layers, prefilled.layers, strict=True):
            mine.insert(index, theirs.keys, theirs.values)
        self.positions[index] = prefilled.layers[0].keys.shape[2]

    def release(self, row: int) -> None:
        """Make the slot idle; its stale values are masked until the next prompt overwrites them."""
        self.positions[row] = 0

    def reset(self) -> None:
        """Forget every row. The tensors stay where they are, as captured graphs require."""
        for layer in self.layers:
            layer.reset()
        self.positions.zero_()

    def decode_mask(self) -> torch.Tensor | dict[str, torch.Tensor]:
        """Which columns each row may attend to in this step: boolean, [B, 1, 1, capacity].

        A model with windowed layers gets one mask for each of its layer types.
        """
        masks = {kind: self._mask(window) for kind, window in self.windows.items()}
        return masks if len(masks) > 1 else next(iter(masks.values()))

    def _mask(self, window: int | None) -> torch.Tensor:
        seen = self.columns <= self.positions[:, None]
        if window is not None:
            seen = seen & (self.columns > self.positions[:, None] - window)
        return seen[:, None, None, :]

    def allocated_bytes(self) -> int:
        """Bytes of the preallocated keys and values; 0 before the first prompt was inserted."""
        tensors = [
            t for layer in self.layers if layer.is_initialized for t in (layer.keys, layer.values)
        ]
        return sum(t.numel() * t.element_size() for t in tensors)


def _windows(config: Any) -> dict[str, int | None]:
    """Attention window per layer type, `None` for full attention."""
    window = getattr(config, "sliding_window", None)
    if getattr(config, "use_sliding_window", True) is False:
        window = None
    kinds = getattr(config, "layer_types", None) or [
        "sliding_attention" if window else "full_attention"
    ]
    return {kind: window if kind == "sliding_attention" else None for kind in dict.fromkeys(kinds)}


def prefill(
    model: PreTrainedModel, prompt_ids: torch.Tensor, cache: RaggedCache, rows: Sequence[int]
) -> torch.Tensor:
    """Run R prompts of one length, ids [R, S], into these slots; the next token of each, [R]."""
    prefilled = DynamicCache()
    output = model(
        input_ids=prompt_ids,
        use_cache=True,
        logits_to_keep=1,
        **{cache_argument(model): prefilled},
    )
    if not prefilled.layers:
        raise RuntimeError(
            f"{type(model).__name__} stored nothing in its cache: wrong cache argument"
        )
    cache.insert(rows, prefilled)
    logits: torch.Tensor = output.logits
    return logits[:, -1].argmax(dim=-1)


def decode(model: PreTrainedModel, token_ids: torch.Tensor, cache: RaggedCache) -> torch.Tensor:
    """One decode step of all rows, ids [B] at `cache.positions`; logits [B, vocabulary].

    Positions are left alone: the caller advances the rows that are in use.
    """
    output = model(
        input_ids=token_ids[:, None],
        attention_mask=cache.decode_mask(),
        position_ids=cache.positions[:, None],
        use_cache=True,
        **{cache_argument(model): cache},
    )
    logits: torch.Tensor = output.logits
    return logits[:, -1]
