"""The tensors of a batched step, on addresses that never change.

The table has a column for each row: its token, slot and position, and how many rows it begins (see
`batched_attention.attend_placed`). The table's last row lists the rows whose next token is wanted,
−1 for none. What passes between kernels is a few thousand numbers per row, which stay in the cache
of the chip.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch
import triton

from engines.batched_tiles import INTERPRETED, ON_A_GPU
from engines.fused_weights import FusedWeights
from engines.shared_memory import shared_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

    from engines.batched_tiles import Cuts, Tiles
    from engines.decode_state import DecodeState

MOST_SPLITS = 16
ROWS_OF_TABLE = 5
FEWEST_OUTS = 16
"""Rows of the head's smallest tile."""


class Buffers:
    """For at most `most_rows` rows over the slots of a state.

    Of the state a step uses the cache, and the last token of each slot.
    """

    def __init__(self, state: DecodeState, most_rows: int, cuts: Cuts | None = None) -> None:
        self.state = state
        self.weights = FusedWeights.of(state.model, state.cache.capacity)
        device, dtype, sizes = state.tokens.device, state.model.dtype, self.weights.sizes
        cuts = cuts or (ON_A_GPU if device.type == "cuda" else INTERPRETED)
        shared = shared_bytes(device)
        self.cuts = tuple((rows, tiles.fitting(sizes, shared)) for rows, tiles in cuts)
        self.stride = max(16, int(triton.next_power_of_2(most_rows)))
        zeros = partial(torch.zeros, device=device)
        ints = partial(zeros, dtype=torch.int32)
        self.table = ints(ROWS_OF_TABLE, self.stride)
        self.tokens, self.slots, self.positions, self.counts, self.outputs = self.table
        self.chosen = ints(self.stride)
        values = partial(zeros, dtype=dtype)
        self.x = values(self.stride, sizes.hidden)
        self.queries = values(self.stride, sizes.query)
        self.attended = values(self.stride, sizes.query)
        self.inner = values(self.stride, sizes.ffn)
        self.residual = zeros(self.stride, sizes.hidden)
        splits = self._most(lambda tiles: tiles.qkv.splits)
        self.qkv = zeros(splits, self.stride, sizes.query + 2 * sizes.key)
        splits = self._most(lambda tiles: max(tiles.o.splits, tiles.down.splits))
        self.added = zeros(splits, self.stride, sizes.hidden)
        split_rows = min(self.stride, self._most(lambda tiles: tiles.programs))
        self.averages = zeros(split_rows, MOST_SPLITS, sizes.query)
        self.sums = zeros(split_rows, MOST_SPLITS, sizes.heads)
        self.best = zeros(self.stride, triton.cdiv(sizes.vocab, FEWEST_OUTS))
        self.best_rows = torch.zeros_like(self.best, dtype=torch.int32)

    @property
    def value_bytes(self) -> int:
        """Bytes of a weight, and of what it is multiplied with."""
        return self.x.element_size()

    def tiles(self, rows: int) -> Tiles:
        """How a step of this many rows is cut."""
        return next(tiles for most, tiles in self.cuts if most is None or rows <= most)

    def _most(self, of: Callable[[Tiles], int]) -> int:
        return max(of(tiles) for _, tiles in self.cuts)
