"""One thread that runs the steps of a batching engine beside the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from typing import TYPE_CHECKING

from engines.engine import ClientGone, RequestRejected
from engines.serving.drivers import OnlineEngine, Ticket, call_soon, ended

if TYPE_CHECKING:
    from engines.records import Completion, Request

_LOG = logging.getLogger(__name__)


class StepDriver:
    """Hands in what has arrived, makes one step, sends the new tokens back; no one else steps."""

    def __init__(self, engine: OnlineEngine) -> None:
        self.failed: str | None = None
        self._engine = engine
        self._loop = asyncio.get_running_loop()
        self._tickets: dict[str, Ticket] = {}
        self._inbox: list[Ticket] = []
        self._fresh: list[tuple[Ticket, int | Completion]] = []
        self._ready = threading.Condition()
        self._closing = False
        engine.on_token = self._keep
        self._thread = threading.Thread(target=self._run, name="step loop", daemon=True)
        self._thread.start()

    def submit(self, ticket: Ticket) -> None:
        """Hand the request to the step thread."""
        with self._ready:
            self._inbox.append(ticket)
            self._ready.notify()

    def cancel(self, ticket: Ticket) -> None:
        """A ticket that is handed in again after its client left is taken out."""
        ticket.gone = True
        self.submit(ticket)

    def close(self) -> None:
        """End the thread after its current step."""
        with self._ready:
            self._closing = True
            self._ready.notify()
        self._thread.join(timeout=30)

    def _run(self) -> None:
        while (arrived := self._wait()) is not None:
            try:
                for ticket in arrived:
                    self._take(ticket)
                if not self._engine.is_idle:
                    self._finish(self._engine.step())
            except Exception as fault:
                _LOG.exception("the engine failed in a step")
                self._fail(f"{type(fault).__name__}: {fault}")
            self._publish()

    def _wait(self) -> list[Ticket] | None:
        """Sleep while there is nothing to do; None when closing."""
        with self._ready:
            self._ready.wait_for(lambda: self._inbox or self._closing or self._has_work)
            arrived, self._inbox = self._inbox, []
            return None if self._closing else arrived

    @property
    def _has_work(self) -> bool:
        return self.failed is None and not self._engine.is_idle

    def _take(self, ticket: Ticket) -> None:
        request_id = ticket.request.request_id
        if self.failed:
            self._fresh.append((ticket, ended(ticket, "error", self.failed)))
        elif ticket.gone:
            if self._tickets.pop(request_id, None) is not None:
                self._engine.cancel(request_id)
            self._fresh.append((ticket, ended(ticket, "cancelled", "the client left")))
        else:
            self._admit(ticket)

    def _admit(self, ticket: Ticket) -> None:
        self._tickets[ticket.request.request_id] = ticket
        try:
            self._engine.submit(ticket.request)
        except RequestRejected as reason:
            del self._tickets[ticket.request.request_id]
            self._fresh.append((ticket, ended(ticket, "rejected", str(reason))))

    def _keep(self, request: Request, token_id: int) -> None:
        ticket = self._tickets.get(request.request_id)
        if ticket is None:
            raise ClientGone
        self._fresh.append((ticket, token_id))

    def _finish(self, done: list[Completion]) -> None:
        for completion in done:
            ticket = self._tickets.pop(completion.request.request_id, None)
            if ticket is not None:
                self._fresh.append((ticket, completion))

    def _fail(self, why: str) -> None:
        """An engine that broke inside a step has unknown state: everything in it has failed."""
        self.failed = why
        self._fresh += [(ticket, ended(ticket, "error", why)) for ticket in self._tickets.values()]
        self._tickets.clear()

    def _publish(self) -> None:
        """One wake-up of the loop for all tokens of a step."""
        fresh, self._fresh = self._fresh, []
        if fresh:
            with contextlib.suppress(ClientGone):
                call_soon(self._loop, _deliver, fresh)


def _deliver(fresh: list[tuple[Ticket, int | Completion]]) -> None:
    for ticket, event in fresh:
        ticket.events.put_nowait(event)
