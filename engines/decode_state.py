"""The tensors of a decode step that needs no host: token in, token out, on fixed addresses.

Shapes and addresses never change, so one step can be compiled once and captured in one graph.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from engines.cache import RaggedCache, decode, prefill

if TYPE_CHECKING:
    from collections.abc import Sequence

    from transformers import PreTrainedModel


class DecodeState:
    """Everything that a decode step reads and writes, allocated once.

    tokens  [B]                the input of the next step
    active  [B]                1 for a row that still moves on, 0 for an idle or finished one
    history [B, capacity + 1]  the token at each position; the last column takes what nobody wants
    """

    def __init__(self, model: PreTrainedModel, batch_size: int, capacity: int) -> None:
        self.model = model
        self.cache = RaggedCache(model, batch_size, capacity)
        positions = self.cache.positions
        self.tokens = torch.zeros_like(positions)
        self.active = torch.zeros_like(positions)
        self.history = positions.new_zeros((batch_size, capacity + 1))

    def allocate(self) -> None:
        """Give the cache its tensors: a prompt of one token shows their shapes and dtype."""
        prefill(self.model, self.tokens[:1, None], self.cache, [0])
        self.clear()

    def prefill(self, prompt_ids: torch.Tensor, rows: Sequence[int]) -> None:
        """Prompts of one length, [R, S], into these rows; their first tokens are ready then."""
        first = prefill(self.model, prompt_ids, self.cache, rows)
        index = torch.tensor(list(rows), device=first.device)
        self.tokens[index] = first
        self.active[index] = 1
        self.history[index, prompt_ids.shape[1]] = first

    def decode_one_token(self) -> None:
        """One step of all rows: this is the unit that is compiled and captured."""
        tokens = decode(self.model, self.tokens, self.cache).argmax(dim=-1)
        positions = self.cache.positions + self.active
        scratch = self.history.shape[1] - 1
        column = torch.where(self.active.bool(), positions, scratch)
        self.history[self.cache.rows, column] = tokens
        self.tokens.copy_(tokens)
        self.cache.positions.copy_(positions)

    def retire(self, rows: Sequence[int]) -> None:
        """These rows stop where they are; the step goes on computing them, and nobody reads it."""
        for row in rows:
            self.active[row] = 0

    def clear(self) -> None:
        """Make all rows idle. Stale keys stay, masked, until the next prompt overwrites them."""
        self.cache.positions.zero_()
        self.active.zero_()
