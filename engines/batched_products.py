"""Launches of a batched step's products, and of what is added and normed between them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import triton

from engines import batched_kernels

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

    from engines.batched_buffers import Buffers
    from engines.fused_weights import LayerWeights


def embed(buffers: Buffers, rows: int) -> None:
    """Tokens to residual, normed for the first layer."""
    weights = buffers.weights
    batched_kernels.embed_and_norm[(rows,)](
        buffers.tokens, buffers.slots, buffers.state.tokens, weights.embedding,
        weights.layers[0].attention_norm, buffers.residual, buffers.x, weights.epsilon,
        **_hidden(buffers),
    )  # fmt: skip


def qkv(buffers: Buffers, rows: int, layer: LayerWeights) -> None:
    """Queries, keys and values of all rows."""
    sizes, matrices = buffers.weights.sizes, [m.codes for m in (layer.q, layer.k, layer.v)]
    borders = (sizes.query, sizes.query + sizes.key, sizes.query + 2 * sizes.key)
    _product(buffers, "qkv", rows, buffers.x, matrices, borders, buffers.qkv)


def o(buffers: Buffers, rows: int, layer: LayerWeights) -> None:
    """The attention's output projection."""
    _to_hidden(buffers, "o", rows, buffers.attended, layer.o.codes)


def down(buffers: Buffers, rows: int, layer: LayerWeights) -> None:
    """The second half of the feed-forward layer."""
    _to_hidden(buffers, "down", rows, buffers.inner, layer.down.codes)


def add(buffers: Buffers, rows: int, gain: torch.Tensor, splits: int) -> None:
    """Residual and norm."""
    batched_kernels.add_and_norm[(rows,)](
        buffers.added, buffers.residual, gain, buffers.x, buffers.stride, buffers.weights.epsilon,
        SPLITS=splits, **_hidden(buffers),
    )  # fmt: skip


def add_outputs(buffers: Buffers, outputs: int, splits: int) -> None:
    """The same before the head, of the rows whose next token is wanted."""
    weights = buffers.weights
    batched_kernels.add_and_norm_outputs[(outputs,)](
        buffers.added, buffers.residual, weights.norm, buffers.outputs, buffers.x, buffers.stride,
        weights.epsilon, SPLITS=splits, **_hidden(buffers),
    )  # fmt: skip


def ffn(buffers: Buffers, rows: int, layer: LayerWeights) -> None:
    """The first half of the feed-forward layer."""
    sizes, tiles = buffers.weights.sizes, buffers.tiles(rows)
    grid = (triton.cdiv(sizes.ffn, tiles.ffn.outs), 1, tiles.row_blocks(rows))
    batched_kernels.gate_and_up[grid](
        buffers.x, layer.gate.codes, layer.up.codes, buffers.inner,
        FFN=sizes.ffn, COLUMNS=sizes.hidden, **tiles.cut("ffn", rows, buffers.value_bytes),
    )  # fmt: skip


def head(buffers: Buffers, outputs: int) -> None:
    """Logits; the best token of each program."""
    sizes, tiles = buffers.weights.sizes, buffers.tiles(outputs)
    programs = triton.cdiv(sizes.vocab, tiles.head.outs)
    batched_kernels.head_maxima[(programs, 1, tiles.row_blocks(outputs))](
        buffers.x, buffers.weights.head, buffers.best, buffers.best_rows,
        VOCAB=sizes.vocab, COLUMNS=sizes.hidden, PROGRAMS=programs,
        **tiles.cut("head", outputs, buffers.value_bytes),
    )  # fmt: skip


def pick(buffers: Buffers, outputs: int) -> None:
    """The best token of each output."""
    programs = triton.cdiv(buffers.weights.sizes.vocab, buffers.tiles(outputs).head.outs)
    batched_kernels.pick_tokens[(outputs,)](
        buffers.best, buffers.best_rows, buffers.outputs, buffers.slots, buffers.state.tokens,
        buffers.chosen, PROGRAMS=programs, ALL=triton.next_power_of_2(programs), num_warps=4,
    )  # fmt: skip


def _to_hidden(
    buffers: Buffers, name: str, rows: int, x: torch.Tensor, matrix: torch.Tensor
) -> None:
    borders = (buffers.weights.sizes.hidden,) * 3
    _product(buffers, name, rows, x, [matrix] * 3, borders, buffers.added)


def _product(
    buffers: Buffers, name: str, rows: int, x: torch.Tensor, matrices: Sequence[torch.Tensor],
    borders: Sequence[int], parts: torch.Tensor,
) -> None:  # fmt: skip
    (first, second, outs), tiles = borders, buffers.tiles(rows)
    tile = getattr(tiles, name)
    grid = (triton.cdiv(outs, tile.outs), tile.splits, tiles.row_blocks(rows))
    batched_kernels.product[grid](
        x, *matrices, parts, buffers.stride, FIRST=first, SECOND=second, OUTS=outs,
        COLUMNS=x.shape[1], SPLITS=tile.splits, **tiles.cut(name, rows, buffers.value_bytes),
    )  # fmt: skip


def _hidden(buffers: Buffers) -> dict[str, Any]:
    hidden = buffers.weights.sizes.hidden
    return {"COLUMNS": hidden, "ALL": triton.next_power_of_2(hidden), "num_warps": 4}
