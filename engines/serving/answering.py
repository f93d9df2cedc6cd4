"""One request from admission to its last piece, whatever ends it.

The handler reads pieces; when it stops reading (the client left, a stop string came) the engine's
slot is freed. The metrics see each request exactly once at either end.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engines.records import Completion
from engines.serving.drivers import Driver, Ticket
from engines.serving.limits import Limits, Refusal
from engines.serving.replies import Piece
from engines.serving.text import StopStrings, TextStream, Tokenizer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from engines.serving.jobs import Job
    from engines.serving.metrics import ServerMetrics


@dataclass
class Service:
    """The parts that answer requests together."""

    driver: Driver
    metrics: ServerMetrics
    limits: Limits
    tokenizer: Tokenizer

    @contextlib.asynccontextmanager
    async def admitted(self, job: Job) -> AsyncIterator[Answering]:
        """The job's answer, while its request holds a place; 503 when there is none."""
        if self.driver.failed:
            raise Refusal(503, f"the engine stopped: {self.driver.failed}; restart the server")
        if self.metrics.in_flight >= self.limits.max_in_flight:
            retry = {"Retry-After": str(self.limits.retry_after_s)}
            full = f"{self.metrics.in_flight} requests are in flight already: try again later"
            raise Refusal(503, full, code="queue_full", headers=retry)
        answering = Answering(job, self)
        self.metrics.admitted()
        try:
            self.driver.submit(answering.ticket)
            yield answering
        finally:
            answering.leave()


class Answering:
    """The events of one ticket as pieces of text."""

    def __init__(self, job: Job, service: Service) -> None:
        self.ticket = Ticket(job.request)
        self._job = job
        self._service = service
        self._text = TextStream(service.tokenizer)
        self._stop = StopStrings(job.stops)
        self._tokens = 0
        self._ended: str | None = None

    async def pieces(self) -> AsyncIterator[Piece]:
        """One piece per token, then one that carries the finish reason; Refusal if it failed."""
        while self._ended is None:
            event = await self.ticket.events.get()
            if isinstance(event, Completion):
                yield self._end(event)
            else:
                yield self._token(event)
                if self._stop.found:
                    self._ended = "stop"
                    self.cancel()
                    yield Piece("", finish_reason="stop")

    def _token(self, token_id: int) -> Piece:
        metrics = self._service.metrics
        if not self._tokens:
            metrics.first_token(len(self._job.request.prompt_ids))
        metrics.token()
        self._tokens += 1
        return Piece(self._stop.push(self._text.push(token_id)), token_id)

    def _end(self, done: Completion) -> Piece:
        self._ended = done.finish_reason
        if done.finish_reason == "rejected":
            raise Refusal(400, done.error or "the engine rejected the request", "prompt")
        if done.finish_reason == "error":
            raise Refusal(500, f"the engine failed: {done.error}")
        rest = self._stop.push(self._text.finish())
        return Piece(rest + self._stop.finish(), finish_reason=done.finish_reason)

    def cancel(self) -> None:
        """The client is gone: the engine ends the request, and the pieces end with it."""
        self._service.driver.cancel(self.ticket)

    def leave(self) -> None:
        """Account for the request; one that nobody read to its end is cancelled."""
        if self._ended is None:
            self._ended = "cancelled"
            self.cancel()
        held = len(self._job.request.prompt_ids) + self._tokens if self._tokens else 0
        self._service.metrics.left(self._ended, held)
