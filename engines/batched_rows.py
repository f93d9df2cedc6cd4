"""Steps of a batch that are launched before the tokens of the step before have been read.

A step is given as rows: slot, position, token. The table of rows goes to the device with the step,
from pinned memory, and the tokens come back the same way, so neither waits for the other side. The
host reads a step's tokens while the next one is already running.

How many rows a step has varies; a CUDA graph's shape does not. There is one graph for each bucket
of rows, and what a step leaves empty in its bucket is rows that stand nowhere.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

import torch

from engines.captured_step import captured

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from engines.batched_step import BatchedStep
    from engines.clock import Clock, Stamp

PRODUCED = -1
"""The token of a row that goes on with whatever its slot has produced last."""
NOWHERE = -1
POSITIONS = 2
"""Rows of the table: tokens, slots, positions, whether the row ends its sequence so far."""
IN_FLIGHT = 2
"""Steps between launch and reading: one is computed while the one before is read."""


class Row(NamedTuple):
    """One token to compute, as a column of the table; PRODUCED is the last one of its slot.

    `ends` says that what follows the token is wanted: its slot keeps it.
    """

    token: int
    slot: int
    position: int
    ends: bool = True


class Flight:
    """A launched step."""

    def __init__(self, tokens: torch.Tensor, stamp: Stamp) -> None:
        self._tokens = tokens
        self.stamp = stamp

    def tokens(self) -> list[int]:
        """The token after each row of the step, in order; waits for the step, and for no other."""
        if not isinstance(self.stamp, float):
            self.stamp.synchronize()
        tokens: list[int] = self._tokens.tolist()
        return tokens


def buckets(most_rows: int) -> list[int]:
    """Powers of two up to 64, where the products take no longer for it; then multiples of 64."""
    found = [1]
    while found[-1] < most_rows:
        found.append(found[-1] + min(found[-1], 64))
    return found


class RowBatches:
    """Launches steps of up to `step.most_rows` rows, each in the smallest bucket that has room."""

    def __init__(self, step: BatchedStep, clock: Clock) -> None:
        self.step = step
        self.clock = clock
        self.built_in_s = 0.0
        self.buckets = buckets(step.most_rows)
        self._replay: dict[tuple[int, bool], Callable[[], None]] = {}
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
        self.step.table.copy_(self._filled(self._tables[0], []))
        slots = len(self.step.state.tokens)
        for bucket in self.buckets:
            self._replay[bucket, False] = self._built(bucket, apart=False)
            if bucket < 2 * slots:
                self._replay[bucket, True] = self._built(bucket, apart=True)
        self.built_in_s = time.perf_counter() - start

    def bucket(self, rows: int) -> int:
        """The smallest bucket of at least this many rows."""
        return next(bucket for bucket in self.buckets if bucket >= rows)

    @torch.no_grad()
    def launch(self, rows: Sequence[Row]) -> Flight:
        """Run the step that computes these rows; of those launched before, one may be unread."""
        self.prepare()
        self._turn = (self._turn + 1) % len(self._tables)
        table = self._filled(self._tables[self._turn], rows)
        self.step.table.copy_(table, non_blocking=True)
        apart = len({row.slot for row in rows}) == len(rows)
        self._replay[self.bucket(len(rows)), apart]()
        tokens = self._tokens[self._turn]
        tokens.copy_(self.step.chosen, non_blocking=True)
        return Flight(tokens[: len(rows)], self.clock.stamp())

    def _filled(self, table: torch.Tensor, rows: Sequence[Row]) -> torch.Tensor:
        table.zero_()
        table[POSITIONS] = NOWHERE
        if rows:
            table[:, : len(rows)] = torch.tensor(rows, dtype=torch.int32).T
        return table

    def _built(self, bucket: int, *, apart: bool) -> Callable[[], None]:
        def run() -> None:
            self.step(bucket, apart=apart)

        if not self._on_device:
            return run
        run()
        return captured(run)

    def _host_copy(self, tensor: torch.Tensor) -> torch.Tensor:
        return torch.zeros(tensor.shape, dtype=tensor.dtype, pin_memory=self._on_device)
