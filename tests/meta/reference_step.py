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
        self.table = torch.zeros(4, most_rows * 2, dtype=torch.int32)
        self.chosen = torch.zeros(most_rows * 2, dtype=torch.int32)

    def __call__(self, rows: int, *, apart: bool) -> None:
        """Tokens, slots and positions are the first three rows of the table."""
        waves: list[dict[int, int]] = []
        for row, (_, slot, position, _) in enumerate(self.table.T[:rows].tolist()):
            if position >= 0:
                wave = next((w for w in waves if slot not in w), None)
                if wave is None:
                    waves.append(wave := {})
                wave[slot] = row
        assert len(waves) <= 1 or not apart
        for wave in waves:
            self._run(wave)

    def _run(self, wave: dict[int, int]) -> None:
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
            self.chosen[row] = chosen[slot]
            if self.table[3, row]:
                state.tokens[slot] = chosen[slot]
