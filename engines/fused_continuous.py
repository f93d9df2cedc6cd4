"""Continuous batching near the limit: the same scheduling, over steps that the host never delays.

`continuous` asks the device for a step's tokens before it launches the next. Here step n + 1 is
launched first, and the tokens of step n are read and handed out while it runs: the device takes
each row's token from its own memory, and how far a row has come is known without its tokens. The
price is one wasted row when an answer ends at a stop token, since by then its next row is under
way.

Prompts are not run apart from the others: their tokens are rows like any other, as many per step
as there is room for beside the rows that decode, so that no running stream waits for a long prompt
(chunked prefill: Agrawal et al. 2023, "SARATHI").
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from engines.batched_rows import Piece, RowBatches, holding
from engines.continuous import Continuous
from engines.footprint import decode_step_bytes
from engines.fused import check_triton
from engines.fused_weights import FusedNotAvailable, FusedWeights
from engines.precision import settings_here

if TYPE_CHECKING:
    from engines.answer import Answer
    from engines.batched_rows import Flight
    from engines.engine import WarmUp
    from engines.models import LoadedModel
    from engines.records import Completion

ROWS = 512
"""Rows of a step while no more requests decode than are being fed."""
ROWS_RUNNING = 256
"""Rows of a step while more of them decode, each of which waits for it."""


@dataclass(eq=False, slots=True)
class Seat:
    """A request in its slot: how much of it is still to be launched, and where its next row is."""

    slot: int
    answer: Answer
    prompt: tuple[int, ...]
    unfed: int
    unasked: int
    position: int = 0

    @classmethod
    def of(cls, slot: int, answer: Answer) -> Seat:
        """Nothing launched yet."""
        request = answer.request
        return cls(
            slot, answer, request.prompt_ids, len(request.prompt_ids), request.max_new_tokens
        )

    def next_token(self) -> Piece:
        """The row that continues what the slot produced last."""
        piece = Piece(self.slot, self.position)
        self.position += 1
        self.unasked -= 1
        return piece

    def next_of_prompt(self, most: int) -> Piece:
        """The next tokens of the prompt; the last one of all asks for the first new token."""
        start, end = self.position, self.position + min(self.unfed, most)
        self.position = end
        self.unfed -= end - start
        self.unasked -= not self.unfed
        return Piece(self.slot, start, self.prompt[start:end], ends=not self.unfed)


class FusedContinuous(Continuous):
    """Qwen3 and Llama on sm_80 and newer; results, queue and slots are those of `Continuous`."""

    name = "fused_continuous"

    def __init__(
        self,
        loaded: LoadedModel,
        *,
        rows: int = ROWS,
        rows_running: int = ROWS_RUNNING,
        **shared: Any,
    ) -> None:
        check_triton(loaded.device)
        _check_dot(loaded.device)
        super().__init__(loaded, step="eager", **shared)
        self.rows_running = max(rows_running, self.batch_size + 1)
        self.rows = max(rows, self.rows_running)
        self.batches = RowBatches(self._step(self.rows), self.clock)
        self.seats: dict[int, Seat] = {}
        self.flights: deque[tuple[Flight, list[Seat]]] = deque()

    def warm_up(self, prompt_tokens: int, max_new_tokens: int) -> WarmUp:
        """Build all buckets, then as every engine over slots."""
        self.batches.prepare()
        self.slots.built_in_s = self.batches.built_in_s
        return super().warm_up(prompt_tokens, max_new_tokens)

    def bytes_per_step(self, context_tokens: int) -> int:
        """Weights once for all rows, and of every row the keys and values that there are."""
        return decode_step_bytes(self.loaded, context_tokens, self.batch_size)

    def step(self) -> list[Completion]:
        """Launch the next step, then hand out the tokens of the one before."""
        done = self._drop()
        self._seat()
        pieces, wanted = self._plan()
        if pieces:
            self.flights.append((self.batches.launch(pieces), wanted))
        if self.flights and (len(self.flights) > 1 or not pieces):
            done += self._land(*self.flights.popleft())
        return done

    def _seat(self) -> None:
        """Give each free slot to a waiting request; nothing is computed yet."""
        while self.slots.free and (answer := self._next()):
            slot = min(self.slots.free)
            self.slots.free.remove(slot)
            self.running[slot] = answer
            self.seats[slot] = Seat.of(slot, answer)

    def _plan(self) -> tuple[list[Piece], list[Seat]]:
        """The next step: who decodes, and as much of the prompts as there is room for beside."""
        seats = self.seats.values()
        wanted = [seat for seat in seats if seat.unasked and not seat.unfed]
        pieces = [seat.next_token() for seat in wanted]
        decoding, feeding = len(pieces), [seat for seat in seats if seat.unfed]
        room = (self.rows_running if decoding > len(feeding) else self.rows) - decoding
        for seat in feeding[:room]:
            piece = seat.next_of_prompt(room)
            room -= len(piece.tokens)
            pieces.append(piece)
            if piece.ends:
                wanted.append(seat)
            if not room:
                break
        self._count(pieces, decoding)
        return pieces, wanted

    def _count(self, pieces: list[Piece], decoding: int) -> None:
        if not pieces:
            return
        counters, rows = self.slots.counters, sum(len(piece.tokens) for piece in pieces)
        counters.decode_forwards += decoding > 0
        counters.prefill_forwards += decoding == 0
        counters.busy_rows += rows
        counters.computed_rows += holding(rows)

    def _land(self, flight: Flight, wanted: list[Seat]) -> list[Completion]:
        ended = []
        for token, seat in zip(flight.tokens(), wanted, strict=True):
            if self.seats.get(seat.slot) is not seat:
                continue  # it ended when this step was already under way
            if not seat.answer.accept(token, flight.stamp, self.on_token):
                ended.append(seat.slot)
        return [self._retire(slot) for slot in ended]

    def _retire(self, slot: int) -> Completion:
        """Nothing has to be told to the device: a slot is a number in a row."""
        del self.seats[slot]
        self.slots.free.add(slot)
        return self.running.pop(slot).completion(self.clock)

    def _step(self, most_rows: int) -> Any:
        from engines.batched_step import BatchedStep

        return BatchedStep(self.slots.state, most_rows)


def why_not_available(loaded: LoadedModel) -> str | None:
    """Why this model cannot be run by this engine here, in one line; None if it can."""
    try:
        FusedWeights.of(loaded.model, 1)
        check_triton(loaded.device)
        _check_dot(loaded.device)
    except FusedNotAvailable as missing:
        return str(missing)
    return None


def _check_dot(device: str) -> None:
    if device == "cuda" and not settings_here(device).triton_fp16_dot:
        raise FusedNotAvailable(
            "fused_continuous multiplies on matrix units through Triton, which needs sm_80: "
            "use the engine continuous_graph"
        )
