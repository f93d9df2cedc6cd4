"""B slots in front of one model: prefill a request into a slot, decode one token for every slot.

The scheduler (`continuous.py`) decides who sits where. The tensors (`decode_state.py`) are
allocated once and never move, so the decode step can be captured as a CUDA graph and replayed.

A decode step runs all B rows whether they are busy or idle, because its shape is fixed. An idle row
keeps position 0 and computes something that nobody reads: the share of busy rows, the slot
utilisation, is what a scheduler can win or waste. The host reads the tokens of all rows once per
step, since a scheduler has to see stop tokens; that read is also the step's only wait.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from engines import cost
from engines.captured_step import StepKind, build_step, check_kind
from engines.decode_state import DecodeState

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from engines.models import LoadedModel


@dataclass(slots=True)
class Counters:
    """Forwards so far, and how many of the rows that the decode forwards computed were busy."""

    prefill_forwards: int = 0
    decode_forwards: int = 0
    busy_rows: int = 0
    computed_rows: int = 0

    @property
    def slot_utilisation(self) -> float | None:
        """Busy rows over computed rows, 0 to 1; None before the first decode step."""
        return self.busy_rows / self.computed_rows if self.computed_rows else None


class Slots:
    """Row b of the decode state belongs to slot b."""

    def __init__(
        self,
        loaded: LoadedModel,
        count: int,
        capacity: int,
        *,
        step: StepKind = "eager",
        compiler: Mapping[str, Any] | None = None,
        kv_budget_bytes: int | None = None,
    ) -> None:
        _check_size(loaded, count, capacity)
        _check_budget(loaded, count, capacity, kv_budget_bytes)
        check_kind(step, loaded.device)
        self.loaded = loaded
        self.count = count
        self.capacity = capacity
        self.step_kind = step
        self.compiler = dict(compiler or {})
        self.built_in_s = 0.0
        self.counters = Counters()
        self.free = set(range(count))
        self.state = DecodeState(loaded.model, count, capacity)
        with torch.no_grad():
            self.state.allocate()
        self._step: Callable[[], None] | None = None

    @property
    def busy(self) -> int:
        """Slots that hold a running request."""
        return self.count - len(self.free)

    @torch.no_grad()
    def prefill(self, prompt_ids: Sequence[int]) -> tuple[int, int]:
        """Take a free slot and run the prompt into it, alone: the slot and its first new token."""
        self.prepare()
        slot = min(self.free)
        ids = torch.tensor([list(prompt_ids)], device=self.state.tokens.device)
        self.state.prefill(ids, [slot])
        self.free.remove(slot)
        self.counters.prefill_forwards += 1
        return slot, int(self.state.tokens[slot])

    @torch.no_grad()
    def decode(self) -> list[int]:
        """One forward for all rows: the next token of every slot, meaningless for idle ones."""
        self.prepare()()
        self.counters.decode_forwards += 1
        self.counters.busy_rows += self.busy
        self.counters.computed_rows += self.count
        tokens: list[int] = self.state.tokens.tolist()
        return tokens

    def release(self, slot: int) -> None:
        """Give the slot back. Its old K and V stay: a column is masked until its row writes it."""
        self.state.retire([slot])
        self.state.cache.release(slot)
        self.free.add(slot)

    @torch.no_grad()
    def prepare(self) -> Callable[[], None]:
        """The decode step, compiled and captured at the first call, which must not be timed.

        Building runs the step on idle rows, so it comes before the first request takes a slot.
        """
        if self._step is None:
            start = time.perf_counter()
            self._step = build_step(self.step_kind, self.state, self.loaded, **self.compiler)
            self.built_in_s = time.perf_counter() - start
        return self._step

    def allocated_bytes(self) -> int:
        """Bytes of the whole KV store, which never changes."""
        return self.state.cache.allocated_bytes()


def _check_size(loaded: LoadedModel, count: int, capacity: int) -> None:
    if count < 1:
        raise ValueError(f"batch_size must be at least 1, got {count}: one slot serves one request")
    if capacity < 2:
        raise ValueError(f"max_tokens must be at least 2 (prompt and answer), got {capacity}")
    longest = getattr(loaded.model.config.get_text_config(), "max_position_embeddings", None)
    if longest is not None and capacity > longest:
        raise ValueError(
            f"max_tokens is {capacity}, {loaded.name} knows {longest} positions: "
            f"ask for at most {longest}"
        )


def _check_budget(loaded: LoadedModel, count: int, capacity: int, budget: int | None) -> None:
    slot_bytes = capacity * cost.kv_bytes_per_token(loaded.shape, loaded.bytes_per_value)
    if budget is not None and count * slot_bytes > budget:
        raise ValueError(
            f"{count} slots of {capacity} tokens need {count * slot_bytes} bytes of KV, the budget "
            f"is {budget} and holds {budget // slot_bytes} slots: lower batch_size or max_tokens"
        )
