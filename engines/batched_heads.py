"""Launches of a batched step's attention: which programs there are, over which buffers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import triton

from engines import batched_attention
from engines.batched_buffers import MOST_SPLITS

if TYPE_CHECKING:
    import torch

    from engines.batched_buffers import Buffers
    from engines.fused_weights import LayerWeights


def attend(buffers: Buffers, rows: int, layer: LayerWeights, index: int) -> None:
    """Each row's attention; two kernels where there are too few rows to fill the device."""
    sizes, tiles = buffers.weights.sizes, buffers.tiles(rows)
    cached, splits = buffers.state.cache.layers[index], context_splits(buffers, rows)
    batched_attention.attend[(rows, sizes.kv_heads, splits)](
        *_rotation(buffers, layer), cached.keys, cached.values, buffers.attended,
        buffers.averages, buffers.sums, buffers.stride, buffers.weights.epsilon,
        **_heads(buffers), **_normed(buffers, rows, layer), **_blocks(buffers, rows),
        SPLITS=splits, TILE=max(16, triton.next_power_of_2(sizes.heads // sizes.kv_heads)),
    )  # fmt: skip
    if splits > 1:
        batched_attention.combine[(rows, sizes.heads)](
            buffers.averages, buffers.sums, buffers.positions, buffers.attended,
            HEADS=sizes.heads, HEAD_DIM=sizes.head_dim, SPLITS=splits, KV_BLOCK=tiles.kv_block,
            num_warps=4,
        )  # fmt: skip


def context_splits(buffers: Buffers, rows: int) -> int:
    """Parts of the context: a power of two, so that a small bucket fills the device too."""
    tiles, programs = buffers.tiles(rows), rows * buffers.weights.sizes.kv_heads
    blocks = triton.cdiv(buffers.state.cache.capacity, tiles.kv_block)
    most = min(MOST_SPLITS, triton.next_power_of_2(blocks))
    splits = 1
    while splits < most and programs * splits < tiles.programs:
        splits *= 2
    return splits


def place(buffers: Buffers, rows: int, layer: LayerWeights, index: int) -> None:
    """Norms and rotation; keys and values into the cache."""
    cached, sizes = buffers.state.cache.layers[index], buffers.weights.sizes
    batched_attention.place_heads[(rows, sizes.heads + 2 * sizes.kv_heads)](
        *_rotation(buffers, layer), buffers.queries, cached.keys, cached.values, buffers.stride,
        buffers.weights.epsilon, **_heads(buffers), **_normed(buffers, rows, layer), num_warps=1,
    )  # fmt: skip


def attend_placed(buffers: Buffers, rows: int, index: int) -> None:
    """Attention of rows that are consecutive tokens, several in a program."""
    cached = buffers.state.cache.layers[index]
    batched_attention.attend_placed[(rows, buffers.weights.sizes.kv_heads)](
        buffers.queries, cached.keys, cached.values, buffers.slots, buffers.positions,
        buffers.counts, buffers.attended, **_heads(buffers), **_blocks(buffers, rows),
        TILE=buffers.tiles(rows).queries,
    )  # fmt: skip


def rows_together(buffers: Buffers, rows: int) -> int:
    """Consecutive tokens that one program of the attention takes."""
    sizes = buffers.weights.sizes
    return buffers.tiles(rows).queries // (sizes.heads // sizes.kv_heads)


def _rotation(buffers: Buffers, layer: LayerWeights) -> tuple[torch.Tensor, ...]:
    """What a head is normed and rotated with, and where its row stands."""
    gains = (layer.query_norm, layer.key_norm)
    return (
        buffers.qkv, *(buffers.qkv if gain is None else gain for gain in gains),
        buffers.weights.cosines, buffers.weights.sines, buffers.slots, buffers.positions,
    )  # fmt: skip


def _normed(buffers: Buffers, rows: int, layer: LayerWeights) -> dict[str, Any]:
    return {
        "QKV_SPLITS": buffers.tiles(rows).qkv.splits,
        "NORMED": layer.query_norm is not None,
    }


def _blocks(buffers: Buffers, rows: int) -> dict[str, int]:
    head_bytes = buffers.weights.sizes.head_dim * buffers.value_bytes
    return buffers.tiles(rows).attention(head_bytes)


def _heads(buffers: Buffers) -> dict[str, int]:
    sizes = buffers.weights.sizes
    return {
        "HEADS": sizes.heads,
        "KV_HEADS": sizes.kv_heads,
        "HEAD_DIM": sizes.head_dim,
        "CAPACITY": buffers.state.cache.capacity,
    }
