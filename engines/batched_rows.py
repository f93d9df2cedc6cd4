"""Steps of a batch that are launched before the tokens of the step before have been read.

A step is given as pieces: consecutive tokens of a slot, mostly one. Their table goes to the device
with the step, from pinned memory, and the tokens come back the same way, so neither waits for the
other side. The host reads a step's tokens while the next one is already running.

How many rows a step has varies; a CUDA graph's shape does not. There is a graph for each bucket of
rows, and what a step leaves empty in its bucket is rows that stand nowhere.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

import torch

from engines.batched_step import Bucket
from engines.captured_step import captured

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from engines.batched_step import BatchedStep
    from engines.clock import Clock, Stamp

PRODUCED = (-1,)
"""The tokens of a piece that goes on with whatever its slot has produced last."""
NOWHERE = -1
IN_FLIGHT = 2
"""Steps between launch and reading: one is computed while the one before is read."""


class Piece(NamedTuple):
    """Consecutive tokens of a slot; `ends` says that what follows the last of them is wanted."""

    slot: int
    position: int
    tokens: tuple[int, ...] = PRODUCED
    ends: bool = True


class Flight:
    """A launched step."""

    def __init__(self, tokens: torch.Tensor, stamp: Stamp) -> None:
        self._tokens = tokens
        self.stamp = stamp

    def tokens(self) -> list[int]:
        """What follows each piece that ends, in order; waits for this step, and for no other."""
        if not isinstance(self.stamp, float):
            self.stamp.synchronize()
        tokens: list[int] = self._tokens.tolist()
        return tokens


def bucket_sizes(most_rows: int) -> list[int]:
    """Powers of two up to 64, where the products take no longer for it; then multiples of 64."""
    found = [1]
    while found[-1] < most_rows:
        found.append(found[-1] + min(found[-1], 64))
    return found


def holding(rows: int) -> int:
    """The smallest bucket of at least this many rows."""
    return 1 << (rows - 1).bit_length() if rows <= 64 else -(-rows // 64) * 64


class RowBatches:
    """Launches steps of up to `step.most_rows` rows, each in the smallest bucket that has room."""

    def __init__(self, step: BatchedStep, clock: Clock) -> None:
        self.step = step
        self.clock = clock
        self.built_in_s = 0.0
        self._replay: dict[Bucket, Callable[[], None]] = {}
        self._on_device = step.table.device.type == "cuda"
        # One more than can be in flight: the one that is being written.
        self._tables = [self._host_copy(step.table) for _ in range(IN_FLIGHT + 1)]
        self._tokens = [self._host_copy(step.chosen) for _ in range(IN_FLIGHT + 1)]
        self._turn = 0

    @torch.no_grad()
    def prepare(self) -> None:
        """Compile and capture all buckets, once; while this runs, no row may stand anywhere."""
        if self._replay:
            return
        start = time.perf_counter()
        self.step.table.copy_(_filled(self._tables[0], [], 1))
        slots = len(self.step.state.tokens)
        for rows in bucket_sizes(self.step.most_rows):
            for apart in (True, False):
                if rows < 2 * slots or not apart:
                    bucket = self._bucket(rows, apart=apart)
                    self._replay[bucket] = self._built(bucket)
        self.built_in_s = time.perf_counter() - start

    @torch.no_grad()
    def launch(self, pieces: Sequence[Piece]) -> Flight:
        """Run the step that computes these; of those launched before, one may be unread."""
        self.prepare()
        rows = sum(len(piece.tokens) for piece in pieces)
        bucket = self._bucket(rows, apart=rows == len(pieces))
        self._turn = (self._turn + 1) % len(self._tables)
        table = _filled(self._tables[self._turn], pieces, self.step.rows_together(bucket.rows))
        self.step.table.copy_(table, non_blocking=True)
        self._replay[bucket]()
        tokens = self._tokens[self._turn]
        tokens.copy_(self.step.chosen, non_blocking=True)
        return Flight(tokens[: sum(piece.ends for piece in pieces)], self.clock.stamp())

    def _bucket(self, rows: int, *, apart: bool) -> Bucket:
        """Where rows share slots, few of them end a piece: at most one for each slot."""
        size = holding(rows)
        slots = holding(len(self.step.state.tokens))
        return Bucket(size, size if apart else min(size, slots), apart)

    def _built(self, bucket: Bucket) -> Callable[[], None]:
        def run() -> None:
            self.step(bucket)

        if not self._on_device:
            return run
        run()
        return captured(run)

    def _host_copy(self, tensor: torch.Tensor) -> torch.Tensor:
        return torch.zeros(tensor.shape, dtype=tensor.dtype, pin_memory=self._on_device)


def _filled(table: torch.Tensor, pieces: Sequence[Piece], together: int) -> torch.Tensor:
    """Tokens, slots, positions, counts and outputs of the step, in `BatchedStep.table`'s order."""
    tokens: list[int] = []
    slots: list[int] = []
    positions: list[int] = []
    counts: list[int] = []
    outputs: list[int] = []
    for slot, position, ids, ends in pieces:
        length = len(ids)
        tokens += ids
        slots += [slot] * length
        positions += range(position, position + length)
        for start in range(0, length, together):
            count = min(together, length - start)
            counts += [count, *[0] * (count - 1)]
        if ends:
            outputs.append(len(tokens) - 1)
    table.zero_()
    table[2] = table[4] = NOWHERE
    if tokens:
        columns = torch.tensor([tokens, slots, positions, counts], dtype=torch.int32)
        table[:4, : len(tokens)] = columns
        table[4, : len(outputs)] = torch.tensor(outputs, dtype=torch.int32)
    return table
