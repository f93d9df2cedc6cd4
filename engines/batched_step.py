"""One step of many rows, each a token of some request, as Triton kernels on fixed addresses.

A row says in which slot it stands, at which position, and which token it is: a given one of a
prompt, or whatever its slot produced last. So one step can decode the running requests and feed
prompts at the same time, and the host never has to know a token in order to launch the step that
continues it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
import triton

from engines import batched_attention, batched_kernels
from engines.batched_tiles import FEW_ROWS, Tiles, tiles_for
from engines.fused_weights import FusedWeights

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engines.decode_state import DecodeState
    from engines.fused_weights import LayerWeights

MOST_SPLITS = 16
ROWS_OF_TABLE = 5


@dataclass(frozen=True, slots=True)
class Bucket:
    """Room of a step: `apart` says that no two rows share a slot."""

    rows: int
    outputs: int
    apart: bool


class BatchedStep:
    """Buffers for at most `most_rows` rows over the slots of a state, and one step's kernels.

    Of the state it uses the cache and the last token of each slot; positions come with the rows.
    The table has a column per row: token, slot, position, how many rows it begins (see
    `attend_placed`); its last row lists the rows whose next token is wanted, −1 for none.
    """

    def __init__(
        self,
        state: DecodeState,
        most_rows: int,
        *,
        few: Tiles | None = None,
        many: Tiles | None = None,
    ) -> None:
        self.state = state
        self.most_rows = most_rows
        self.weights = FusedWeights.of(state.model, state.cache.capacity)
        device, dtype, sizes = state.tokens.device, state.model.dtype, self.weights.sizes
        usual = tiles_for(device.type)
        self.few, self.many = (
            (t or u).fitting(sizes) for t, u in zip((few, many), usual, strict=True)
        )
        self.stride = max(16, int(triton.next_power_of_2(most_rows)))
        zeros = partial(torch.zeros, device=device)
        ints = partial(zeros, dtype=torch.int32)
        self.table = ints(ROWS_OF_TABLE, self.stride)
        self.tokens, self.slots, self.positions, self.counts, self.outputs = self.table
        self.chosen = ints(self.stride)
        rows = partial(zeros, dtype=dtype)
        self.x = rows(self.stride, sizes.hidden)
        self.queries = rows(self.stride, sizes.query)
        self.attended = rows(self.stride, sizes.query)
        self.inner = rows(self.stride, sizes.ffn)
        self.residual = zeros(self.stride, sizes.hidden)
        splits = self._most(lambda t: t.qkv.splits)
        self.qkv = zeros(splits, self.stride, sizes.query + 2 * sizes.key)
        splits = self._most(lambda t: max(t.o.splits, t.down.splits))
        self.added = zeros(splits, self.stride, sizes.hidden)
        split_rows = min(self.stride, self._most(lambda t: t.programs))
        self.parts = zeros(split_rows, MOST_SPLITS, sizes.query)
        self.sums = zeros(split_rows, MOST_SPLITS, sizes.heads)
        self.best = zeros(self.stride, triton.cdiv(sizes.vocab, 16))
        self.best_rows = torch.zeros_like(self.best, dtype=torch.int32)

    def __call__(self, bucket: Bucket) -> None:
        """Run the first rows of the table, and its first outputs."""
        self.embed(bucket.rows)
        for index in range(len(self.weights.layers)):
            self.layer(bucket, index)
        self.head(bucket.outputs)
        self.pick(bucket.outputs)

    def layer(self, bucket: Bucket, index: int) -> None:
        """The kernels of one layer: seven, or eight where rows share slots."""
        layers, rows = self.weights.layers, bucket.rows
        layer, following = layers[index], layers[(index + 1) % len(layers)]
        last = index + 1 == len(layers)
        self.qkv_product(rows, layer)
        if bucket.apart:
            self.attend(rows, layer, index)
        else:
            self.place(rows, layer, index)
            self.attend_placed(rows, index)
        self.o_product(rows, layer)
        self.add(rows, layer.ffn_norm, self.tiles(rows).o.splits)
        self.ffn(rows, layer)
        self.down_product(rows, layer)
        splits = self.tiles(rows).down.splits
        if last:
            self.add_outputs(bucket.outputs, splits)
        else:
            self.add(rows, following.attention_norm, splits)

    def tiles(self, rows: int) -> Tiles:
        """How a step of this many rows is cut."""
        return self.few if rows <= FEW_ROWS else self.many

    def embed(self, rows: int) -> None:
        """Tokens to residual, normed for the first layer."""
        weights = self.weights
        self._launch(
            batched_kernels.embed_and_norm, (rows,),
            self.tokens, self.slots, self.state.tokens, weights.embedding,
            weights.layers[0].attention_norm, self.residual, self.x, weights.epsilon,
            **self._hidden(),
        )  # fmt: skip

    def qkv_product(self, rows: int, layer: LayerWeights) -> None:
        """Queries, keys and values of all rows."""
        sizes, matrices = self.weights.sizes, [m.codes for m in (layer.q, layer.k, layer.v)]
        borders = (sizes.query, sizes.query + sizes.key, sizes.query + 2 * sizes.key)
        self._product("qkv", rows, self.x, matrices, borders, self.qkv)

    def place(self, rows: int, layer: LayerWeights, index: int) -> None:
        """Norms and rotation; keys and values into the cache."""
        cached, sizes = self.state.cache.layers[index], self.weights.sizes
        self._launch(
            batched_attention.place_heads, (rows, sizes.heads + 2 * sizes.kv_heads),
            *self._rotation(layer), self.queries, cached.keys, cached.values, self.stride,
            self.weights.epsilon, **self._heads(), **self._normed(rows, layer), num_warps=1,
        )  # fmt: skip

    def attend(self, rows: int, layer: LayerWeights, index: int) -> None:
        """Each row's attention; two kernels where there are too few rows to fill the device."""
        sizes, tiles, splits = self.weights.sizes, self.tiles(rows), self.splits(rows)
        cached = self.state.cache.layers[index]
        self._launch(
            batched_attention.attend, (rows, sizes.kv_heads, splits),
            *self._rotation(layer), cached.keys, cached.values, self.attended,
            self.parts, self.sums, self.stride, self.weights.epsilon,
            **self._heads(), **self._normed(rows, layer), **self._blocks(tiles), SPLITS=splits,
            TILE=max(16, triton.next_power_of_2(sizes.heads // sizes.kv_heads)),
        )  # fmt: skip
        if splits > 1:
            self._launch(
                batched_attention.combine, (rows, sizes.heads),
                self.parts, self.sums, self.positions, self.attended, HEADS=sizes.heads,
                HEAD_DIM=sizes.head_dim, SPLITS=splits, KV_BLOCK=tiles.kv_block, num_warps=4,
            )  # fmt: skip

    def splits(self, rows: int) -> int:
        """Parts of the context: a power of two, so that a small bucket fills the device too."""
        tiles, programs = self.tiles(rows), rows * self.weights.sizes.kv_heads
        blocks = triton.cdiv(self.state.cache.capacity, tiles.kv_block)
        most = min(MOST_SPLITS, triton.next_power_of_2(blocks))
        splits = 1
        while splits < most and programs * splits < tiles.programs:
            splits *= 2
        return splits

    def attend_placed(self, rows: int, index: int) -> None:
        """Attention of rows that are consecutive tokens, several in a program."""
        tiles, cached = self.tiles(rows), self.state.cache.layers[index]
        self._launch(
            batched_attention.attend_placed, (rows, self.weights.sizes.kv_heads),
            self.queries, cached.keys, cached.values, self.slots, self.positions, self.counts,
            self.attended, **self._heads(), **self._blocks(tiles), TILE=tiles.queries,
        )  # fmt: skip

    def rows_together(self, rows: int) -> int:
        """Consecutive tokens that one program of the attention takes."""
        sizes = self.weights.sizes
        return self.tiles(rows).queries // (sizes.heads // sizes.kv_heads)

    def o_product(self, rows: int, layer: LayerWeights) -> None:
        """The attention's output projection."""
        self._to_hidden("o", rows, self.attended, layer.o.codes)

    def down_product(self, rows: int, layer: LayerWeights) -> None:
        """The second half of the feed-forward layer."""
        self._to_hidden("down", rows, self.inner, layer.down.codes)

    def add(self, rows: int, gain: torch.Tensor, splits: int) -> None:
        """Residual and norm."""
        self._launch(
            batched_kernels.add_and_norm, (rows,),
            self.added, self.residual, gain, self.x, self.stride, self.weights.epsilon,
            SPLITS=splits, **self._hidden(),
        )  # fmt: skip

    def add_outputs(self, outputs: int, splits: int) -> None:
        """The same before the head, of the rows whose next token is wanted."""
        self._launch(
            batched_kernels.add_and_norm_outputs, (outputs,),
            self.added, self.residual, self.weights.norm, self.outputs, self.x, self.stride,
            self.weights.epsilon, SPLITS=splits, **self._hidden(),
        )  # fmt: skip

    def ffn(self, rows: int, layer: LayerWeights) -> None:
        """The first half of the feed-forward layer."""
        sizes, tiles = self.weights.sizes, self.tiles(rows)
        grid = (triton.cdiv(sizes.ffn, tiles.ffn.outs), 1, tiles.row_blocks(rows))
        self._launch(
            batched_kernels.gate_and_up, grid,
            self.x, layer.gate.codes, layer.up.codes, self.inner, FFN=sizes.ffn,
            COLUMNS=sizes.hidden, **tiles.cut("ffn", rows),
        )  # fmt: skip

    def head(self, outputs: int) -> None:
        """Logits; the best token of each program."""
        sizes, tiles = self.weights.sizes, self.tiles(outputs)
        programs = triton.cdiv(sizes.vocab, tiles.head.outs)
        self._launch(
            batched_kernels.head_maxima, (programs, 1, tiles.row_blocks(outputs)),
            self.x, self.weights.head, self.best, self.best_rows, VOCAB=sizes.vocab,
            COLUMNS=sizes.hidden, PROGRAMS=programs, **tiles.cut("head", outputs),
        )  # fmt: skip

    def pick(self, outputs: int) -> None:
        """The best token of each output."""
        programs = triton.cdiv(self.weights.sizes.vocab, self.tiles(outputs).head.outs)
        self._launch(
            batched_kernels.pick_tokens, (outputs,),
            self.best, self.best_rows, self.outputs, self.slots, self.state.tokens, self.chosen,
            PROGRAMS=programs, ALL=triton.next_power_of_2(programs), num_warps=4,
        )  # fmt: skip

    def _most(self, of: Any) -> int:
        return max(of(self.few), of(self.many))

    def _to_hidden(self, name: str, rows: int, x: torch.Tensor, matrix: torch.Tensor) -> None:
        borders = (self.weights.sizes.hidden,) * 3
        self._product(name, rows, x, [matrix] * 3, borders, self.added)

    def _product(
        self, name: str, rows: int, x: torch.Tensor, matrices: Sequence[torch.Tensor],
        borders: Sequence[int], parts: torch.Tensor,
    ) -> None:  # fmt: skip
        (first, second, outs), tiles = borders, self.tiles(rows)
        tile = getattr(tiles, name)
        self._launch(
            batched_kernels.product,
            (triton.cdiv(outs, tile.outs), tile.splits, tiles.row_blocks(rows)),
            x, *matrices, parts, self.stride, FIRST=first, SECOND=second, OUTS=outs,
            COLUMNS=x.shape[1], SPLITS=tile.splits, **tiles.cut(name, rows),
        )  # fmt: skip

    def _hidden(self) -> dict[str, int]:
        hidden = self.weights.sizes.hidden
        return {"COLUMNS": hidden, "ALL": triton.next_power_of_2(hidden), "num_warps": 4}

    def _rotation(self, layer: LayerWeights) -> tuple[torch.Tensor, ...]:
        """What a head is normed and rotated with, and where its row stands."""
        gains = (layer.query_norm, layer.key_norm)
        return (
            self.qkv, *(self.qkv if gain is None else gain for gain in gains),
            self.weights.cosines, self.weights.sines, self.slots, self.positions,
        )  # fmt: skip

    def _normed(self, rows: int, layer: LayerWeights) -> dict[str, Any]:
        return {
            "QKV_SPLITS": self.tiles(rows).qkv.splits,
            "NORMED": layer.query_norm is not None,
        }

    def _blocks(self, tiles: Tiles) -> dict[str, int]:
        return {
            "KV_BLOCK": tiles.kv_block,
            "num_warps": tiles.attention_warps,
            "num_stages": tiles.attention_stages,
        }

    def _heads(self) -> dict[str, int]:
        sizes = self.weights.sizes
        return {
            "HEADS": sizes.heads,
            "KV_HEADS": sizes.kv_heads,
            "HEAD_DIM": sizes.head_dim,
            "CAPACITY": self.state.cache.capacity,
        }

    def _launch(self, kernel: Any, grid: tuple[int, ...], *args: Any, **options: Any) -> None:
        kernel[grid](*args, **options)
