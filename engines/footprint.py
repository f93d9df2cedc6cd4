"""Bytes that a loaded model holds, counted from its tensors, and bytes that its steps must read."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from engines import cost

if TYPE_CHECKING:
    import torch
    from transformers.cache_utils import Cache

    from engines.models import LoadedModel


def weight_bytes(model: torch.nn.Module) -> int:
    """Bytes of all parameters and buffers; tied tensors and shared storage are counted once."""
    storages = {
        tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes()
        for tensor in chain(model.parameters(), model.buffers())
    }
    return sum(storages.values())


def cache_bytes(cache: Cache) -> int:
    """Bytes of the keys and values that a cache holds now, a preallocated rest included."""
    held = [layer for layer in cache.layers if getattr(layer, "keys", None) is not None]
    return sum(t.numel() * t.element_size() for layer in held for t in (layer.keys, layer.values))


def decode_step_bytes(loaded: LoadedModel, context_tokens: int, batch_size: int) -> int:
    """Bytes one decode step must read: the weights once, and every row's KV at this context."""
    size = loaded.bytes_per_value
    return cost.decode_step_bytes(loaded.shape, context_tokens, batch_size, size, size)
