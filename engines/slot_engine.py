"""What an engine over slots needs in order to be measured: a warm-up, an offline run, its bytes.

The schedulers inherit this, so that their own files hold nothing but scheduling.
"""

from __future__ import annotations

import time
from collections import defaultdict, deque
from typing import TYPE_CHECKING, Any

from engines.answer import Answer, rejected, too_long, warm_up_request
from engines.captured_step import uncompiled_step
from engines.engine import Memory, OnToken, RequestRejected, WarmUp
from engines.held_bytes import held_bytes, step_bytes
from engines.slots import Counters, Slots

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from engines.captured_step import StepKind
    from engines.clock import Clock
    from engines.models import LoadedModel
    from engines.records import Completion, Request

SHORT_SLEEP_S = 2e-4
"""Between looks at the clock while there is nothing to run: far below any measured latency."""


class SlotEngine:
    """Rows and slots of a scheduler; the scheduler itself is `submit` and `step`."""

    name = "slots"

    def __init__(
        self,
        loaded: LoadedModel,
        *,
        batch_size: int,
        max_tokens: int,
        clock: Clock,
        step: StepKind | None = None,
        compiler: Mapping[str, Any] | None = None,
        kv_budget_bytes: int | None = None,
    ) -> None:
        self.loaded = loaded
        self.batch_size = batch_size
        self.clock = clock
        self.slots = Slots(
            loaded,
            batch_size,
            max_tokens,
            step=step or uncompiled_step(loaded),
            compiler=compiler,
            kv_budget_bytes=kv_budget_bytes,
        )
        self.on_token: OnToken | None = None
        self.due: deque[Request] = deque()
        self.waiting: deque[Answer] = deque()
        self.running: dict[int, Answer] = {}
        self.cancelled: deque[str] = deque()

    @property
    def is_idle(self) -> bool:
        """Nothing waits and nothing runs."""
        return not (self.waiting or self.running)

    @property
    def counters(self) -> Counters:
        """Forwards and busy rows since the warm-up."""
        return self.slots.counters

    def submit(self, request: Request) -> None:
        """Queue a request; RequestRejected if it can never fit."""
        raise NotImplementedError

    def step(self) -> list[Completion]:
        """One iteration; the requests that ended in it."""
        raise NotImplementedError

    def run(self, requests: Sequence[Request], on_token: OnToken | None = None) -> list[Completion]:
        """Serve the requests, each entering the queue when its `scheduled_s` has come."""
        before, self.on_token = self.on_token, on_token
        self.due = deque(sorted(requests, key=lambda request: request.scheduled_s))
        done: list[Completion] = []
        try:
            while self.due or not self.is_idle:
                done += [*self._take_due(), *self.step()]
                if self.due and not self.running and not self._is_due():
                    time.sleep(SHORT_SLEEP_S)
        finally:
            self.on_token = before
        return _in_order(requests, done)

    def warm_up(self, prompt_tokens: int, max_new_tokens: int) -> WarmUp:
        """Build the decode step, then fill all slots twice with requests of the timed shape.

        What building took is reported also where the step had been built by an earlier request.
        """
        request = warm_up_request(self.loaded, prompt_tokens, max_new_tokens)
        if reason := self.refusal(request):
            raise RequestRejected(reason)
        self.slots.prepare()
        start = self.clock.synchronized_s()
        for _ in range(2):
            self.run([request] * self.batch_size)
        self.slots.counters = Counters()
        compile_s = self.slots.built_in_s
        total_s = compile_s + self.clock.synchronized_s() - start
        return WarmUp(2, compile_s, total_s, prompt_tokens, max_new_tokens)

    def refusal(self, request: Request) -> str | None:
        """Why this request can never be served, in one line; None if it fits into a slot."""
        return too_long(request, self.slots.capacity)

    def bytes_per_step(self, context_tokens: int) -> int:
        """Weights once for all rows, and each row's whole preallocated KV, however full it is."""
        length = max(context_tokens, self.slots.capacity)
        return step_bytes(self.loaded, length, self.batch_size)

    def memory(self) -> Memory:
        """Weights as loaded, and the whole preallocated KV store."""
        return Memory(held_bytes(self.loaded.model).total, self.slots.allocated_bytes())

    def _take_due(self) -> list[Completion]:
        """Submit what is due now; what can never fit is over at once, the others go on."""
        refused = []
        while self._is_due():
            request = self.due.popleft()
            try:
                self.submit(request)
            except RequestRejected as reason:
                refused.append(rejected(request, str(reason), self.clock.now_s()))
        return refused

    def _is_due(self) -> bool:
        return bool(self.due) and self.due[0].scheduled_s <= self.clock.now_s()


def _in_order(requests: Sequence[Request], done: Sequence[Completion]) -> list[Completion]:
    """Completions in the order of their requests; the same request given twice has two of them."""
    by_request: defaultdict[int, deque[Completion]] = defaultdict(deque)
    for completion in done:
        by_request[id(completion.request)].append(completion)
    return [by_request[id(request)].popleft() for request in requests]
