"""Floating-point operations of a prefill and of a decode step.

A matrix product with a weight [outputs, inputs] is 2 · outputs · inputs operations per token, a
multiply-add counted as two. Attention adds, for each pair of a query and a key within the window,
one product with K and one with V per query head. Norms, rotary embedding and softmax are left out:
they are a fraction of a percent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from engines.layers import Layer
    from engines.shape import ModelShape

Logits = Literal["all", "last"]
"""Whether a prefill applies the head to every prompt token or to the last one only."""


def decode_flops(shape: ModelShape, context_tokens: int = 0, batch_size: int = 1) -> int:
    """Operations of one decode step over all rows of the batch [FLOP]."""
    if context_tokens < 0 or batch_size < 1:
        raise ValueError(
            f"context_tokens {context_tokens}, batch_size {batch_size}: expected at least 0 and 1"
        )
    attention = sum(
        _pair_flops(layer) * layer.tokens_kept(context_tokens) for layer in shape.layers
    )
    return batch_size * (_layer_flops(shape) + _head_flops(shape) + attention)


def prefill_flops(
    shape: ModelShape, prompt_tokens: int, batch_size: int = 1, logits: Logits = "last"
) -> int:
    """Operations of a prefill of `batch_size` prompts, each causal pair counted once [FLOP]."""
    if prompt_tokens < 1 or batch_size < 1:
        raise ValueError(
            f"prompt_tokens {prompt_tokens}, batch_size {batch_size}: expected 1 or more of each"
        )
    with_logits = {"all": prompt_tokens, "last": 1}[logits]
    attention = sum(_pair_flops(layer) * _pairs(layer, prompt_tokens) for layer in shape.layers)
    linear = prompt_tokens * _layer_flops(shape) + with_logits * _head_flops(shape)
    return batch_size * (linear + attention)


def _layer_flops(shape: ModelShape) -> int:
    """Operations of all layers for one token, attention scores excepted."""
    return sum(
        2 * layer.count * linear.active * linear.weights
        for layer in shape.layers
        for linear in layer.linears
    )


def _head_flops(shape: ModelShape) -> int:
    return 2 * shape.embedding_parameters


def _pair_flops(layer: Layer) -> int:
    return 2 * layer.count * layer.query_heads * (layer.key_dim + layer.value_dim)


def _pairs(layer: Layer, prompt_tokens: int) -> int:
    """Pairs of a query and a key that it may see: the triangle, cut off at the window."""
    kept = layer.tokens_kept(prompt_tokens)
    return kept * (kept + 1) // 2 + (prompt_tokens - kept) * kept
