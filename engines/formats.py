"""Weights in other widths: quantized formats and LoRA adapters, in parameters and bytes.

bitsandbytes replaces every `nn.Linear` but the head. Embeddings, norms and the head stay in half
precision, and the scales take room: halving the bits of a model with a large vocabulary does not
halve its bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING

from engines import cost

if TYPE_CHECKING:
    from engines.linear import Linear
    from engines.shape import ModelShape


@dataclass(frozen=True, slots=True)
class WeightFormat:
    """How the matrices of the layers are stored; `group` None means one scale per output row."""

    name: str
    bytes_per_weight: float
    scale_bytes: float
    group: int | None = None


INT8 = WeightFormat("int8", 1.0, scale_bytes=4)
"""LLM.int8() of bitsandbytes: one byte a weight, one fp32 scale per output row."""
NF4 = WeightFormat("nf4", 0.5, scale_bytes=4, group=64)
"""4-bit NormalFloat of bitsandbytes: half a byte a weight, one fp32 scale per 64 weights."""


def quantized_weight_bytes(
    shape: ModelShape, weights: WeightFormat, bytes_elsewhere: float = 2.0
) -> int:
    """Weights and scales stored, everything but the layers' matrices unquantized [bytes]."""
    return cost.weight_bytes(shape, bytes_elsewhere) - _saved_bytes(shape, weights, bytes_elsewhere)


def decode_quantized_weight_bytes(
    shape: ModelShape, weights: WeightFormat, bytes_elsewhere: float = 2.0
) -> int:
    """Weights and scales that one decode step at batch 1 reads [bytes]."""
    read = cost.decode_weight_bytes(shape, bytes_elsewhere)
    return read - _saved_bytes(shape, weights, bytes_elsewhere)


def lora_parameters(shape: ModelShape, rank: int) -> int:
    """Values of a LoRA adapter of this rank on all linear layers but the head.

    A matrix [outputs, inputs] gets A [rank, inputs] and B [outputs, rank].
    """
    if rank < 1:
        raise ValueError(f"rank is {rank}, expected 1 or more")
    return sum(count * rank * (linear.inputs + linear.outputs) for count, linear in _modules(shape))


def _modules(shape: ModelShape) -> list[tuple[int, Linear]]:
    """The matrices that are modules of their own, each with how often it occurs."""
    return [
        (layer.count, linear) for layer in shape.layers for linear in layer.linears if linear.module
    ]


def _saved_bytes(shape: ModelShape, weights: WeightFormat, before: float) -> int:
    saved = 0.0
    for count, linear in _modules(shape):
        scales = linear.outputs if weights.group is None else ceil(linear.weights / weights.group)
        after = linear.weights * weights.bytes_per_weight + scales * weights.scale_bytes
        saved += count * (linear.weights * before - after)
    return round(saved)
