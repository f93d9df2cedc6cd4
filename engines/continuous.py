"""Continuous batching: a request enters when a slot is free and leaves the moment it is done.

Decode waits for weights to arrive, and one pass over them can serve many rows. So all running
requests share ONE forward per step, each at its own position, and whoever finishes frees a slot
that the very next step fills.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engines.answer import Answer
from engines.engine import RequestRejected
from engines.slot_engine import SlotEngine

if TYPE_CHECKING:
    from engines.records import Completion, Request


class Continuous(SlotEngine):
    """The chapter's scheduler: a deque of waiting requests, B slots, and `step()`."""

    name = "continuous"

    def submit(self, request: Request) -> None:
        """Queue a request: it waits for a slot. RequestRejected if it fits into none, ever."""
        if reason := self.refusal(request):
            raise RequestRejected(reason)
        self.waiting.append(Answer(request, self.clock.now_s()))

    def cancel(self, request_id: str) -> None:
        """Nobody waits for this request any more: the next step frees its place."""
        self.cancelled.append(request_id)

    def step(self) -> list[Completion]:
        """One iteration: drop, decode a token for every running row, admit. Returns who ended.

        A slot that decoding frees is filled at once, and a first token need not wait for a second.
        """
        return [*self._drop(), *self._decode(), *self._admit()]

    def _drop(self) -> list[Completion]:
        done = []
        while self.cancelled:
            unwanted = self.cancelled.popleft()
            for answer in [a for a in self.waiting if a.request.request_id == unwanted]:
                self.waiting.remove(answer)
                done.append(answer.completion(self.clock))
            slots = [s for s, a in self.running.items() if a.request.request_id == unwanted]
            done += [self._retire(slot) for slot in slots]
        return done

    def _admit(self) -> list[Completion]:
        """Prefill a waiting request into each free slot, which also gives its first token."""
        done = []
        while self.slots.free and (answer := self._next()):
            slot, token = self.slots.prefill(answer.request.prompt_ids)
            self.running[slot] = answer
            done += self._hand_out({slot: token})
        return done

    def _next(self) -> Answer | None:
        return self.waiting.popleft() if self.waiting else None

    def _decode(self) -> list[Completion]:
        if not self.running:
            return []
        tokens = self.slots.decode()
        return self._hand_out({slot: tokens[slot] for slot in self.running})

    def _hand_out(self, tokens: dict[int, int]) -> list[Completion]:
        """Give each row its token; a row that has its last one leaves its slot at once."""
        stamp = self.clock.stamp()
        rows = self.running
        ended = [s for s, t in tokens.items() if not rows[s].accept(t, stamp, self.on_token)]
        return [self._retire(slot) for slot in ended]

    def _retire(self, slot: int) -> Completion:
        self.slots.release(slot)
        return self.running.pop(slot).completion(self.clock)
