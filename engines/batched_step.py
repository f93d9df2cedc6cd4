"""One step of many rows, each a token of some request: a graph of kernels for each bucket of rows.

A row says in which slot it stands, at which position, and which token it is: a given one of a
prompt, or whatever its slot produced last. So one step can decode the running requests and feed
prompts at the same time, and the host never has to know a token in order to launch the step that
continues it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from math import gcd
from typing import TYPE_CHECKING, Any

import torch
import triton

from engines import batched_attention, batched_kernels
from engines.fused_weights import FusedWeights

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engines.decode_state import DecodeState
    from engines.fused_weights import LayerWeights, Sizes

    Ahead = torch.Tensor | None

MOST_SPLITS = 16


@dataclass(frozen=True, slots=True)
class Tile:
    """How one product is cut: weight rows and columns of a tile, parts along the columns."""

    outs: int
    columns: int
    splits: int = 1
    warps: int = 4
    stages: int = 4
    swapped: bool = False


@dataclass(frozen=True, slots=True)
class Tiles:
    """The cuts of all products of a step."""

    qkv: Tile = Tile(32, 128)
    o: Tile = Tile(32, 128, splits=4)
    ffn: Tile = Tile(32, 128, stages=3)
    down: Tile = Tile(32, 128, splits=4)
    head: Tile = Tile(128, 64)
    kv_block: int = 64
    attention_warps: int = 4
    attention_stages: int = 3
    programs: int = 128
    """Programs that the attention should have: about one for each multiprocessor."""
    ahead_bytes: int = 8 << 20
    """Bytes of a later matrix that a kernel asks for."""


INTERPRETED = Tiles(
    qkv=Tile(64, 64),
    o=Tile(64, 64, splits=2),
    ffn=Tile(64, 64),
    down=Tile(64, 64, splits=2),
    head=Tile(64, 64),
    kv_block=16,
    ahead_bytes=0,
)
"""Triton's interpreter takes its time per program."""


def fitting(tiles: Tiles, sizes: Sizes) -> Tiles:
    """Tiles of a model: the three matrices of QKV meet between tiles, and all parts are equal."""
    outs = min(tiles.qkv.outs, gcd(sizes.query, sizes.key, tiles.qkv.outs))
    return replace(
        tiles,
        qkv=replace(tiles.qkv, outs=outs, splits=gcd(tiles.qkv.splits, sizes.hidden)),
        o=replace(tiles.o, splits=gcd(tiles.o.splits, sizes.query)),
        down=replace(tiles.down, splits=gcd(tiles.down.splits, sizes.ffn)),
    )


class BatchedStep:
    """Buffers for at most `most_rows` rows over the slots of a state, and one step's kernels.

    Of the state it uses the cache and the last token of each slot; positions come with the rows.
    """

    def __init__(
        self,
        state: DecodeState,
        most_rows: int,
        *,
        tiles: Tiles | None = None,
        dependent_launch: bool = False,
    ) -> None:
        self.state = state
        self.most_rows = most_rows
        self.weights = FusedWeights.of(state.model, state.cache.capacity)
        self.dependent_launch = dependent_launch
        device, dtype = state.tokens.device, state.model.dtype
        sizes = self.weights.sizes
        tiles = fitting(tiles or (Tiles() if device.type == "cuda" else INTERPRETED), sizes)
        self.tiles = tiles
        self.stride = max(16, int(triton.next_power_of_2(most_rows)))
        zeros = partial(torch.zeros, device=device)
        ints = partial(zeros, dtype=torch.int32)
        self.row_tokens, self.row_slots, self.row_positions, self.row_keeps = self.table = ints(
            4, self.stride
        )
        self.chosen = ints(self.stride)
        rows = partial(zeros, dtype=dtype)
        self.x = rows(self.stride, sizes.hidden)
        self.queries = rows(self.stride, sizes.query)
        self.attended = rows(self.stride, sizes.query)
        self.inner = rows(self.stride, sizes.ffn)
        self.residual = zeros(self.stride, sizes.hidden)
        self.qkv = zeros(tiles.qkv.splits, self.stride, sizes.query + 2 * sizes.key)
        self.added = zeros(max(tiles.o.splits, tiles.down.splits), self.stride, sizes.hidden)
        split_rows = min(self.stride, max(1, 512 // sizes.kv_heads))
        self.parts = zeros(split_rows, MOST_SPLITS, sizes.query)
        self.sums = zeros(split_rows, MOST_SPLITS, sizes.heads)
        self.head_programs = triton.cdiv(sizes.vocab, tiles.head.outs)
        self.best = zeros(self.stride, self.head_programs)
        self.best_rows = ints(self.stride, self.head_programs)

    def __call__(self, rows: int, *, apart: bool) -> None:
        """Run the first `rows` rows of the table; `apart` says that no two share a slot."""
        self.embed(rows)
        for index in range(len(self.weights.layers)):
            self.layer(rows, index, apart=apart)
        self.head(rows)
        self.pick(rows)

    def layer(self, rows: int, index: int, *, apart: bool) -> None:
        """The kernels of one layer; most of them ask for weights that a later one will read."""
        layers = self.weights.layers
        layer, following = layers[index], layers[(index + 1) % len(layers)]
        last = index + 1 == len(layers)
        self.qkv_product(rows, layer, ahead=layer.o.codes)
        if not apart:
            self.place(rows, layer, index)
        self.attend(rows, layer, index, places=apart, ahead=layer.gate.codes)
        self.o_product(rows, layer, ahead=layer.up.codes)
        self.add(rows, layer.ffn_norm, self.tiles.o.splits)
        self.ffn(rows, layer, ahead=layer.down.codes)
        self.down_product(rows, layer, ahead=self.weights.head if last else following.q.codes)
        gain = self.weights.norm if last else following.attention_norm
        self.add(rows, gain, self.tiles.down.splits, ahead=None if last else following.k.codes)

    def embed(self, rows: int) -> None:
        """Tokens to residual, normed for the first layer."""
        weights = self.weights
        self._launch(
            batched_kernels.embed_and_norm, (rows,),
            self.row_tokens, self.row_slots, self.state.tokens, weights.embedding,
            weights.layers[0].attention_norm, self.residual, self.x, weights.epsilon,
            **self._hidden(),
        )  # fmt: skip

    def qkv_product(self, rows: int, layer: LayerWeights, ahead: Ahead = None) -> None:
        """Queries, keys and values of all rows."""
        sizes, matrices = self.weights.sizes, [m.codes for m in (layer.q, layer.k, layer.v)]
        borders = (sizes.query, sizes.query + sizes.key, sizes.query + 2 * sizes.key)
        self._product(rows, self.tiles.qkv, self.x, matrices, borders, self.qkv, ahead)

    def place(self, rows: int, layer: LayerWeights, index: int) -> None:
        """Norms and rotation; keys and values into the cache."""
        cached, sizes = self.state.cache.layers[index], self.weights.sizes
        self._launch(
            batched_attention.place_heads, (rows, sizes.heads + 2 * sizes.kv_heads),
            *self._rotation(layer), self.queries, cached.keys, cached.values, self.stride,
            self.weights.epsilon, **self._heads(layer), num_warps=1,
        )  # fmt: skip

    def attend(
        self,
        rows: int,
        layer: LayerWeights,
        index: int,
        *,
        places: bool = True,
        ahead: Ahead = None,
    ) -> None:
        """Attention of all rows; two kernels where there are too few rows to fill the device."""
        sizes, tiles, splits = self.weights.sizes, self.tiles, self.splits(rows)
        cached = self.state.cache.layers[index]
        self._launch(
            batched_attention.attend, (rows, sizes.kv_heads, splits),
            *self._rotation(layer), self.queries, cached.keys, cached.values, self.attended,
            self.parts, self.sums, self.stride, self.weights.epsilon,
            **self._heads(layer), PLACES=places, SPLITS=splits, KV_BLOCK=tiles.kv_block,
            TILE=max(16, triton.next_power_of_2(sizes.heads // sizes.kv_heads)),
            num_warps=tiles.attention_warps, num_stages=tiles.attention_stages,
            **self._fetched(ahead),
        )  # fmt: skip
        if splits > 1:
            self._launch(
                batched_attention.combine, (rows, sizes.heads),
                self.parts, self.sums, self.row_positions, self.attended,
                HEADS=sizes.heads, HEAD_DIM=sizes.head_dim, SPLITS=splits,
                KV_BLOCK=tiles.kv_block, num_warps=4,
            )  # fmt: skip

    def splits(self, rows: int) -> int:
        """Parts of the context: a power of two, so that a small bucket fills the device too."""
        programs = rows * self.weights.sizes.kv_heads
        blocks = triton.cdiv(self.state.cache.capacity, self.tiles.kv_block)
        most = min(MOST_SPLITS, triton.next_power_of_2(blocks))
        splits = 1
        while splits < most and programs * splits < self.tiles.programs:
            splits *= 2
        return splits

    def o_product(self, rows: int, layer: LayerWeights, ahead: Ahead = None) -> None:
        """The attention's output projection."""
        self._to_hidden(rows, self.tiles.o, self.attended, layer.o.codes, ahead)

    def down_product(self, rows: int, layer: LayerWeights, ahead: Ahead = None) -> None:
        """The second half of the feed-forward layer."""
        self._to_hidden(rows, self.tiles.down, self.inner, layer.down.codes, ahead)

    def add(self, rows: int, gain: torch.Tensor, splits: int, ahead: Ahead = None) -> None:
        """Residual and norm."""
        self._launch(
            batched_kernels.add_and_norm, (rows,),
            self.added, self.residual, gain, self.x, self.stride, self.weights.epsilon,
            SPLITS=splits, **self._hidden(), **self._fetched(ahead),
        )  # fmt: skip

    def ffn(self, rows: int, layer: LayerWeights, ahead: Ahead = None) -> None:
        """The first half of the feed-forward layer."""
        sizes, tile = self.weights.sizes, self.tiles.ffn
        self._launch(
            batched_kernels.gate_and_up, (triton.cdiv(sizes.ffn, tile.outs), 1, _blocks(rows)),
            self.x, layer.gate.codes, layer.up.codes, self.inner,
            FFN=sizes.ffn, COLUMNS=sizes.hidden, **_cut(tile, rows), **self._fetched(ahead),
        )  # fmt: skip

    def head(self, rows: int) -> None:
        """Logits; the best token of each program."""
        sizes, tile = self.weights.sizes, self.tiles.head
        self._launch(
            batched_kernels.head_maxima, (self.head_programs, 1, _blocks(rows)),
            self.x, self.weights.head, self.best, self.best_rows,
            VOCAB=sizes.vocab, COLUMNS=sizes.hidden, PROGRAMS=self.head_programs,
            **_cut(tile, rows),
        )  # fmt: skip

    def pick(self, rows: int) -> None:
        """The best token of each row."""
        self._launch(
            batched_kernels.pick_tokens, (rows,),
            self.best, self.best_rows, self.row_slots, self.row_keeps, self.state.tokens,
            self.chosen, PROGRAMS=self.head_programs,
            ALL=triton.next_power_of_2(self.head_programs), num_warps=4,
        )  # fmt: skip

    def _to_hidden(
        self, rows: int, tile: Tile, x: torch.Tensor, matrix: torch.Tensor, ahead: Ahead
    ) -> None:
        borders = (self.weights.sizes.hidden,) * 3
        self._product(rows, tile, x, [matrix] * 3, borders, self.added, ahead)

    def _product(
        self, rows: int, tile: Tile, x: torch.Tensor, matrices: Sequence[torch.Tensor],
        borders: Sequence[int], parts: torch.Tensor, ahead: Ahead,
    ) -> None:  # fmt: skip
        first, second, outs = borders
        self._launch(
            batched_kernels.product, (triton.cdiv(outs, tile.outs), tile.splits, _blocks(rows)),
            x, *matrices, parts, self.stride, FIRST=first, SECOND=second, OUTS=outs,
            COLUMNS=x.shape[1], SPLITS=tile.splits, **_cut(tile, rows), **self._fetched(ahead),
        )  # fmt: skip

    def _fetched(self, ahead: Ahead) -> dict[str, Any]:
        """A matrix to ask for while other work is done; not more of it than the cache can spare."""
        if ahead is None or not self.tiles.ahead_bytes:
            return {"ahead": self.residual, "AHEAD": 0}
        most = self.tiles.ahead_bytes // ahead.element_size()
        return {"ahead": ahead, "AHEAD": min(ahead.numel(), most)}

    def _hidden(self) -> dict[str, int]:
        hidden = self.weights.sizes.hidden
        return {"COLUMNS": hidden, "ALL": triton.next_power_of_2(hidden), "num_warps": 4}

    def _rotation(self, layer: LayerWeights) -> tuple[torch.Tensor, ...]:
        """What a head is normed and rotated with, and where its row stands."""
        gains = (layer.query_norm, layer.key_norm)
        return (
            self.qkv, *(self.qkv if gain is None else gain for gain in gains),
            self.weights.cosines, self.weights.sines, self.row_slots, self.row_positions,
        )  # fmt: skip

    def _heads(self, layer: LayerWeights) -> dict[str, Any]:
        sizes = self.weights.sizes
        return {
            "HEADS": sizes.heads,
            "KV_HEADS": sizes.kv_heads,
            "HEAD_DIM": sizes.head_dim,
            "CAPACITY": self.state.cache.capacity,
            "QKV_SPLITS": self.tiles.qkv.splits,
            "NORMED": layer.query_norm is not None,
        }

    def _launch(self, kernel: Any, grid: tuple[int, ...], *args: Any, **options: Any) -> None:
        if self.dependent_launch:
            options["launch_pdl"] = True
        kernel[grid](*args, **options, PDL=self.dependent_launch)


def _row_block(rows: int) -> int:
    """Rows of a tile: what a matrix unit takes at least, and at most 64."""
    return min(64, max(16, int(triton.next_power_of_2(rows))))


def _blocks(rows: int) -> int:
    return -(-rows // _row_block(rows))


def _cut(tile: Tile, rows: int) -> dict[str, Any]:
    return {
        "BM": _row_block(rows),
        "BN": tile.outs,
        "BK": tile.columns,
        "SWAPPED": tile.swapped,
        "num_warps": tile.warps,
        "num_stages": tile.stages,
    }
