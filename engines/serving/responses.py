"""HTTP responses that follow an engine: a stream of events, or one body when all is known.

The status line waits for the first event of the engine. A request that the engine rejects therefore
gets its 4xx also when it asked for a stream. A client that disconnects is noticed while the engine
works, not only at the next write.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from starlette.responses import JSONResponse, Response

from engines.serving.limits import Refusal
from engines.serving.replies import DONE, Piece, Replies, event

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from starlette.types import Receive, Scope, Send

    from engines.serving.answering import Answering, Service
    from engines.serving.jobs import Job

STREAM_HEADERS = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"}


class WholeAnswer(Response):
    """Everything in one body."""

    def __init__(self, job: Job, service: Service, tell: Callable[[list[Piece]], Any]) -> None:
        super().__init__()
        self._job = job
        self._service = service
        self._tell = tell

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Wait for the last piece, then answer."""
        async with self._service.admitted(self._job) as answering, _watching(receive, answering):
            pieces = [piece async for piece in answering.pieces()]
        await JSONResponse(self._tell(pieces))(scope, receive, send)


class StreamedAnswer(Response):
    """One event per token."""

    def __init__(self, job: Job, service: Service, replies: Replies) -> None:
        super().__init__(headers=STREAM_HEADERS)
        self._job = job
        self._service = service
        self._replies = replies

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send each piece when it is there."""
        del scope
        async with self._service.admitted(self._job) as answering, _watching(receive, answering):
            pieces = answering.pieces()
            first = await anext(pieces)
            await _start(send, self.raw_headers)
            await _body(send, self._replies.opening() + self._replies.chunk(first))
            await _body(send, await self._follow(pieces, send), more=False)

    async def _follow(self, pieces: AsyncIterator[Piece], send: Send) -> bytes:
        """Send the pieces after the first; the bytes with which the stream ends."""
        try:
            async for piece in pieces:
                await _body(send, self._replies.chunk(piece))
        except Refusal as failed:
            return event(failed.body()) + DONE
        return self._replies.closing()


async def _start(send: Send, headers: list[tuple[bytes, bytes]]) -> None:
    kept = [(name, value) for name, value in headers if name != b"content-length"]
    await send({"type": "http.response.start", "status": 200, "headers": kept})


async def _body(send: Send, body: bytes, *, more: bool = True) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": more})


@contextlib.asynccontextmanager
async def _watching(receive: Receive, answering: Answering) -> AsyncIterator[None]:
    """Cancel the answer when the client disconnects before the block is over."""
    watch = asyncio.get_running_loop().create_task(_disconnected(receive))
    watch.add_done_callback(lambda task: None if task.cancelled() else answering.cancel())
    try:
        yield
    finally:
        watch.cancel()


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
