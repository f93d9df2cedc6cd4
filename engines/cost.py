"""Bytes and FLOPs of a prefill and of a decode step, and the ceilings and budgets they imply.

Pure arithmetic on a `ModelShape`. The one idea behind it: a decode step must read every weight that
it uses and all KV of its rows, once; no engine can be faster than memory delivers these bytes.
What is *stored* (`weight_bytes`, `kv_cache_bytes`) sets how much fits, what is *read*
(`decode_weight_bytes`, `decode_kv_bytes`) sets how fast it can go, and they are not the same.

Bytes are whole numbers, GB and GB/s are decimal. Activations are left out: at batch 1 they are
thousands of times smaller than the weights.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engines.flops import decode_flops as decode_flops  # part of this module's interface
from engines.flops import prefill_flops as prefill_flops  # as above

if TYPE_CHECKING:
    from engines.layers import Layer
    from engines.shape import ModelShape


def weight_bytes(shape: ModelShape, bytes_per_weight: float = 2.0) -> int:
    """Weights stored, every parameter at the same width [bytes]."""
    return round(shape.num_parameters * _positive("bytes_per_weight", bytes_per_weight))


def decode_weight_bytes(
    shape: ModelShape, bytes_per_weight: float = 2.0, batch_size: int = 1
) -> int:
    """Weights that one decode step reads [bytes].

    An input embedding that is not tied to the head, and a learned position table, give one row per
    sequence. Of a mixture's experts those that the batch picks are read: exactly the active ones at
    batch 1, and beyond that the average under uniform routing (`Linear.copies_read`).
    """
    _positive("batch_size", batch_size)
    tables = (not shape.tie_word_embeddings) + (shape.position_rows > 0)
    outer = tables * batch_size * shape.hidden_size + shape.outer_vector_parameters
    inside = sum(layer.count * _values_read(layer, batch_size) for layer in shape.layers)
    return round(
        (shape.head_parameters + outer + inside) * _positive("bytes_per_weight", bytes_per_weight)
    )


def kv_bytes_per_token(shape: ModelShape, bytes_per_value: float = 2) -> int:
    """KV cache per token and sequence, below any window [bytes].

    2 · layers · kv_heads · head_dim · bytes for ordinary attention; the latent for MLA.
    """
    return kv_cache_bytes(shape, 1, 1, bytes_per_value)


def kv_cache_bytes(
    shape: ModelShape, context_tokens: int, batch_size: int = 1, bytes_per_value: float = 2
) -> int:
    """KV cache stored for `batch_size` sequences of `context_tokens` each [bytes].

    A layer with a window W keeps the last W tokens, as a static cache does. The dynamic cache of
    transformers keeps W − 1 between steps, the new token being the last.
    """
    if context_tokens < 0:
        raise ValueError(f"context_tokens is {context_tokens}, expected 0 or more")
    values = sum(
        layer.count * layer.kv_values * layer.tokens_kept(context_tokens) for layer in shape.layers
    )
    width = _positive("bytes_per_value", bytes_per_value)
    return round(values * _positive("batch_size", batch_size) * width)


def decode_kv_bytes(
    shape: ModelShape,
    context_tokens: int,
    batch_size: int = 1,
    bytes_per_value: float = 2,
    allocated_tokens: int | None = None,
) -> int:
    """KV that one decode step reads at this context [bytes].

    A static cache whose attention runs over its whole length reads `allocated_tokens` per row,
    whatever the context.
    """
    read = context_tokens if allocated_tokens is None else max(context_tokens, allocated_tokens)
    return kv_cache_bytes(shape, read, batch_size, bytes_per_value)


def decode_step_bytes(
    shape: ModelShape,
    context_tokens: int = 0,
    batch_size: int = 1,
    bytes_per_weight: float = 2.0,
    bytes_per_value: float = 2,
) -> int:
    """All that one decode step reads: weights once, KV of every row [bytes]."""
    weights = decode_weight_bytes(shape, bytes_per_weight, batch_size)
    return weights + decode_kv_bytes(shape, context_tokens, batch_size, bytes_per_value)


def decode_ceiling_tokens_per_s(
    shape: ModelShape,
    bandwidth_bytes_per_s: float,
    context_tokens: int = 0,
    batch_size: int = 1,
    bytes_per_weight: float = 2.0,
    bytes_per_value: float = 2,
) -> float:
    """Decode rate that memory bandwidth allows, over all rows of the batch [tokens/s]."""
    step = decode_step_bytes(shape, context_tokens, batch_size, bytes_per_weight, bytes_per_value)
    return ceiling_tokens_per_s(step, bandwidth_bytes_per_s, batch_size)


def ceiling_tokens_per_s(
    bytes_per_step: float, bandwidth_bytes_per_s: float, batch_size: int = 1
) -> float:
    """The ceiling of an engine whose step reads `bytes_per_step`, all rows together [tokens/s]."""
    bandwidth = _positive("bandwidth_bytes_per_s", bandwidth_bytes_per_s)
    return batch_size * bandwidth / _positive("bytes_per_step", bytes_per_step)


def layer_overhead_s(
    step_s: float, bytes_per_step: float, bandwidth_bytes_per_s: float, num_layers: int
) -> float:
    """What a decode step takes beyond moving its bytes, per layer [s].

    Bytes and bandwidth differ between machines and models; what is left is launches, gaps and
    kernels that are too small, which is why this figure travels. Negative above the bandwidth.
    """
    floor_s = bytes_per_step / _positive("bandwidth_bytes_per_s", bandwidth_bytes_per_s)
    return (step_s - floor_s) / _positive("num_layers", num_layers)


def max_sequences(
    shape: ModelShape,
    memory_bytes: float,
    context_tokens: int,
    bytes_per_weight: float = 2.0,
    bytes_per_value: float = 2,
) -> float:
    """Sequences of `context_tokens` that fit beside the weights, as a fraction, not rounded [1].

    0 when the weights alone do not fit.
    """
    _positive("context_tokens", context_tokens)
    free = memory_bytes - weight_bytes(shape, bytes_per_weight)
    return max(0.0, free / kv_cache_bytes(shape, context_tokens, 1, bytes_per_value))


def context_tokens_that_fill(
    shape: ModelShape,
    memory_bytes: float,
    batch_size: int = 1,
    bytes_per_weight: float = 2.0,
    bytes_per_value: float = 2,
) -> float | None:
    """Context at which weights and the KV of `batch_size` sequences fill a memory [tokens].

    Not rounded; 0 when the weights alone do not fit; None when no context does, because every layer
    has a window.
    """
    free = max(0.0, memory_bytes - weight_bytes(shape, bytes_per_weight))
    values = free / bytes_per_value / _positive("batch_size", batch_size)
    reached = 0.0
    for window in sorted({layer.window or 0 for layer in shape.layers} - {0}):
        per_token = _values_per_token(shape, beyond=reached)
        if values <= per_token * (window - reached):
            return reached + values / per_token
        values -= per_token * (window - reached)
        reached = window
    per_token = _values_per_token(shape, beyond=reached)
    return reached + values / per_token if per_token else None


def prefill_bytes(
    shape: ModelShape,
    prompt_tokens: int,
    batch_size: int = 1,
    bytes_per_weight: float = 2.0,
    bytes_per_value: float = 2,
) -> int:
    """Bytes that a prefill has to move: weights read once, KV written once [bytes]."""
    tokens = prompt_tokens * batch_size
    weights = decode_weight_bytes(shape, bytes_per_weight, tokens)
    return weights + kv_cache_bytes(shape, prompt_tokens, batch_size, bytes_per_value)


def _values_read(layer: Layer, batch_size: int) -> float:
    """Weights of one layer that a step of so many rows reads."""
    linears = sum(
        each.parameters / each.copies * each.copies_read(batch_size) for each in layer.linears
    )
    return layer.vector_parameters + linears


def _values_per_token(shape: ModelShape, beyond: float) -> int:
    """KV values that one more token adds at a context of `beyond` tokens."""
    growing = (layer for layer in shape.layers if layer.window is None or layer.window > beyond)
    return sum(layer.count * layer.kv_values for layer in growing)


def _positive(name: str, value: float) -> float:
    if value > 0:
        return value
    raise ValueError(f"{name} is {value}, expected more than 0")
