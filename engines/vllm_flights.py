"""The requests of one run of vLLM, from the queue to their completions.

vLLM's own `generate` tells no time per token, so its engine is driven step by step: a step returns
the new tokens of every row when they are on the host, and that moment is their time. A request is
handed in when its scheduled time has come, as the schedulers of this project do it.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from engines.answer import Answer, rejected, too_long
from engines.slot_engine import SHORT_SLEEP_S

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engines.clock import Clock
    from engines.engine import OnToken
    from engines.records import Completion, Request
    from engines.vllm_start import Started


@dataclass
class Flight:
    """One request on its way, and whether several of its tokens ever came at once."""

    index: int
    answer: Answer
    chunked: bool = False

    def accept(self, ids: Sequence[int], at_s: float, on_token: OnToken | None) -> bool:
        """Append these tokens; True while more are wanted."""
        self.chunked |= len(ids) > 1
        for token in ids:
            self.answer.accept(int(token), at_s, on_token)
        return self.answer.finish_reason is None


class Flights:
    """At most `rows` requests in flight; the next one is handed in when one has ended."""

    def __init__(self, started: Started, rows: int, max_tokens: int, clock: Clock) -> None:
        self._started = started
        self._rows = rows
        self._max_tokens = max_tokens
        self._clock = clock
        self._flying: dict[str, Flight] = {}
        self._done: dict[int, Completion] = {}

    def serve(self, requests: Sequence[Request], on_token: OnToken | None) -> list[Completion]:
        """Run until every request has ended; completions in the order of the requests."""
        waiting = deque(sorted(enumerate(requests), key=lambda one: one[1].scheduled_s))
        while waiting or self._flying:
            self._hand_in(waiting)
            if not self._flying:
                time.sleep(SHORT_SLEEP_S)
                continue
            for output in self._started.engine.step():
                self._take(output, on_token)
        return [self._done[index] for index in range(len(requests))]

    def _hand_in(self, waiting: deque[tuple[int, Request]]) -> None:
        while waiting and len(self._flying) < self._rows and self._is_due(waiting[0][1]):
            index, request = waiting.popleft()
            if reason := too_long(request, self._max_tokens):
                self._done[index] = rejected(request, reason, self._clock.now_s())
                continue
            self._flying[str(index)] = Flight(index, Answer(request, self._clock.now_s()))
            prompt = {"type": "token", "prompt_token_ids": list(request.prompt_ids)}
            self._started.engine.add_request(str(index), prompt, self._sampling(request))

    def _is_due(self, request: Request) -> bool:
        return request.scheduled_s <= self._clock.now_s()

    def _sampling(self, request: Request) -> Any:
        sampling = self._started.sampling
        return sampling.SamplingParams(
            temperature=0.0,
            max_tokens=request.max_new_tokens,
            ignore_eos=True,
            stop_token_ids=sorted(request.stop_ids),
            detokenize=False,
            output_kind=sampling.RequestOutputKind.DELTA,
        )

    def _take(self, output: Any, on_token: OnToken | None) -> None:
        """The new tokens of one row; one that has ended, or is not wanted any more, leaves."""
        flight = self._flying.get(output.request_id)
        if flight is None:  # what was still on its way when the request was given up
            return
        wanted = flight.accept(output.outputs[0].token_ids, self._clock.now_s(), on_token)
        if not (output.finished or wanted):
            self._started.engine.abort_request([output.request_id])
        if output.finished or not wanted:
            del self._flying[output.request_id]
            completion = flight.answer.completion(self._clock)
            self._done[flight.index] = replace(completion, chunked=flight.chunked)
