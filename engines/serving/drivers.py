"""How requests that arrive on an event loop reach an engine that blocks.

`ThreadPoolDriver` is the chapter's handler: each request is one blocking call in the thread pool
that FastAPI runs synchronous handlers in. The pool has 40 threads, so up to 40 calls enter the
engine at once; with `locked` they go one at a time, in order of arrival. An engine that batches by
itself is driven step by step (`stepping.py`).
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Protocol

import anyio.to_thread

from engines.engine import ClientGone, Engine, OnToken, RequestRejected
from engines.records import Completion, FinishReason, Request

if TYPE_CHECKING:
    from collections.abc import Callable

_LOG = logging.getLogger(__name__)


class Ticket:
    """One admitted request; its handler awaits `events`: token ids, then a Completion."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.events: asyncio.Queue[int | Completion] = asyncio.Queue()
        self.gone = False


class Driver(Protocol):
    """Feeds one engine from the event loop."""

    failed: str | None
    """Why the engine cannot go on; None while it can."""

    def submit(self, ticket: Ticket) -> None:
        """Start or queue the request."""
        ...

    def cancel(self, ticket: Ticket) -> None:
        """Nobody waits any more: free the slot as soon as the engine allows."""
        ...

    def close(self) -> None:
        """Take no more work."""
        ...


class ThreadPoolDriver:
    """One blocking call per request, as many at once as the pool has threads, or one."""

    failed: str | None = None

    def __init__(self, engine: Engine, *, locked: bool = False) -> None:
        self._engine = engine
        self._turn = asyncio.Semaphore(1) if locked else None
        self._tasks: set[asyncio.Task[None]] = set()

    def submit(self, ticket: Ticket) -> None:
        """Run the request in a thread of the pool."""
        task = asyncio.get_running_loop().create_task(self._serve(ticket))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def cancel(self, ticket: Ticket) -> None:
        """The next token of this request raises ClientGone inside the engine."""
        ticket.gone = True

    def close(self) -> None:
        """Calls that are under way end by themselves."""

    async def _serve(self, ticket: Ticket) -> None:
        if self._turn is None:
            done = await anyio.to_thread.run_sync(self._call, ticket, _sender(ticket))
        else:
            async with self._turn:
                done = await anyio.to_thread.run_sync(self._call, ticket, _sender(ticket))
        ticket.events.put_nowait(done)

    def _call(self, ticket: Ticket, send: Callable[[int], None]) -> Completion:
        def on_token(_request: Request, token_id: int) -> None:
            if ticket.gone:
                raise ClientGone
            send(token_id)

        if ticket.gone:
            return ended(ticket, "cancelled", "the client left before its turn")
        try:
            return self._engine.run([ticket.request], on_token)[0]
        except RequestRejected as reason:
            return ended(ticket, "rejected", str(reason))
        except Exception as fault:
            _LOG.exception("the engine failed on one request")
            return ended(ticket, "error", f"{type(fault).__name__}: {fault}")


def _sender(ticket: Ticket) -> Callable[[int], None]:
    loop = asyncio.get_running_loop()
    return lambda token_id: call_soon(loop, ticket.events.put_nowait, token_id)


def call_soon(loop: asyncio.AbstractEventLoop, call: Callable[..., None], *args: Any) -> None:
    """Hand over to the loop; ClientGone if it is closed: a loop has nobody left who waits."""
    try:
        loop.call_soon_threadsafe(call, *args)
    except RuntimeError as closed:
        raise ClientGone from closed


def ended(ticket: Ticket, how: FinishReason, why: str) -> Completion:
    """The end of a request that the engine did not end itself."""
    return Completion(ticket.request, 0.0, (), (), how, error=why)


class OnlineEngine(Engine, Protocol):
    """An engine that takes requests while it runs, and tells each token as it comes."""

    on_token: OnToken | None

    @property
    def is_idle(self) -> bool:
        """True when nothing waits and nothing runs."""
        ...

    def submit(self, request: Request) -> None:
        """Queue the request; RequestRejected if it can never fit."""
        ...

    def cancel(self, request_id: str) -> None:
        """Free the request's slot before the next step."""
        ...

    def step(self) -> list[Completion]:
        """One iteration; the requests that it finished."""
        ...
