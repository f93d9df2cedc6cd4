"""Bytes of weights as loaded, quantized or not: what is held, and what a decode step reads of it.

Counted from the tensors themselves. The scales of quantized layers are attributes, not parameters,
so a count of parameters is too small by 5 % for nf4: it would put the ceiling too high.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from engines.footprint import decode_step_bytes, weight_bytes
from engines.quantized_layers import levels, quantized_layers, scales

if TYPE_CHECKING:
    import torch
    from torch import nn

    from engines.models import LoadedModel


@dataclass(frozen=True, slots=True)
class HeldBytes:
    """Bytes of a model's weights as loaded."""

    codes: int
    """The quantized weights themselves."""
    scales: int
    """fp32: one per output row (int8), one per 64 weights (nf4)."""
    tables: int
    """The 16 levels of nf4, which bitsandbytes keeps once per layer (64 bytes each)."""
    plain: int
    """What stays in the compute dtype: embedding, head, norms, biases; and the model's buffers."""

    @property
    def total(self) -> int:
        """All of them."""
        return self.codes + self.scales + self.tables + self.plain


def held_bytes(model: nn.Module) -> HeldBytes:
    """Count what is held, tensor by tensor."""
    layers = [layer for _, layer in quantized_layers(model)]
    codes = sum(_size(layer.weight) for layer in layers)
    tables = {t.data_ptr(): t for layer in layers if (t := levels(layer)) is not None}
    return HeldBytes(
        codes=codes,
        scales=sum(_size(scales(layer)) for layer in layers),
        tables=sum(_size(table) for table in tables.values()),
        plain=weight_bytes(model) - codes,
    )


def step_bytes(loaded: LoadedModel, context_tokens: int, batch_size: int) -> int:
    """Bytes that a decode step of this many rows reads: what it would plain, less what is saved."""
    return decode_step_bytes(loaded, context_tokens, batch_size) - _saved(loaded)


def _saved(loaded: LoadedModel) -> int:
    """Bytes by which the quantized layers shrank, their scales and tables counted against it."""
    layers = [layer for _, layer in quantized_layers(loaded.model)]
    weights: int = sum(layer.in_features * layer.out_features for layer in layers)
    held = held_bytes(loaded.model)
    return weights * loaded.bytes_per_value - held.codes - held.scales - held.tables


def _size(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()
