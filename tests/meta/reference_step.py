"""What a step of many rows has to compute, by the plain model: for testing who sits in which row.

Rows of one slot are run one after the other, those of different slots together; slots without a
row write into their last place, which is overwritten before it is ever read.
"""

from __future__ import annotations


class ReferenceStep:
    """Stands in for `BatchedStep` where there is no GPU and no time to interpret its kernels."""

    def __init__(self, state, most_rows: int) -> None:
        import torch

        self.state = state
        self.most_rows = most_rows
        self.table = torch.zeros(5, most_rows * 2, dtype=torch.int32)
        self.chosen = torch.zeros(most_rows * 2, dtype=torch.int32)

    def rows_together(self, rows: int) -> int:
        """Nothing depends on it here."""
        return rows

    def __call__(self, bucket) -> None:
        """Tokens, slots, positions, counts and outputs are the rows of the table."""
        waves: list[dict[int, int]] = []
        _, slots, positions, _, outputs = self.table[:, : bucket.rows].tolist()
        for row in (row for row, position in enumerate(positions) if position >= 0):
            wave = next((w for w in waves if slots[row] not in w), None)
            if wave is None:
                waves.append(wave := {})
            wave[slots[row]] = row
        assert len(waves) <= 1 or not bucket.apart
        wanted = {row: output for output, row in enumerate(outputs[: bucket.outputs]) if row >= 0}
        for wave in waves:
            self._run(wave, wanted)

    def _run(self, wave: dict[int, int], wanted: dict[int, int]) -> None:
        from engines.cache import decode

        state = self.state
        tokens = state.tokens.clone()
        state.cache.positions.fill_(state.cache.capacity - 1)
        for slot, row in wave.items():
            given = int(self.table[0, row])
            tokens[slot] = tokens[slot] if given < 0 else given
            state.cache.positions[slot] = int(self.table[2, row])
        chosen = decode(state.model, tokens, state.cache).argmax(dim=-1)
        for slot, row in wave.items():
            if row in wanted:
                self.chosen[wanted[row]] = state.tokens[slot] = chosen[slot]
