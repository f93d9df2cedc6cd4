"""What a request may ask for, and how a refusal reads.

Every refusal is one line in the error body that OpenAI clients know, with a 4xx or 503 status. The
body is read here, up to its limit and within a time, before any parser sees it: neither a huge nor
a never-ending upload reaches the application.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from starlette.datastructures import Headers
from starlette.responses import Response

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send


@dataclass(frozen=True, slots=True)
class Limits:
    """The largest request and the longest queue that the server accepts."""

    max_body_bytes: int = 1 << 20
    discarded_bytes: int = 8 << 20
    """Of a body that is too large, read and dropped: who is cut off in sending reads no answer."""
    body_timeout_s: float = 30.0
    max_context_tokens: int = 2048
    """Prompt and answer together."""
    max_new_tokens: int = 1024
    max_in_flight: int = 1024
    """Requests admitted and not finished, waiting and running together."""
    max_stops: int = 16
    max_stop_chars: int = 256
    retry_after_s: int = 1


@dataclass
class Refusal(Exception):
    """A request that gets an error body instead of an answer."""

    status: int
    message: str
    param: str | None = None
    code: str | None = None
    headers: dict[str, str] = field(default_factory=dict)

    def body(self) -> dict[str, Any]:
        """The error as OpenAI clients expect it."""
        kind = "invalid_request_error" if self.status < 500 else "server_error"
        error = {"message": self.message, "type": kind, "param": self.param, "code": self.code}
        return {"error": error}

    def response(self) -> Response:
        """ASCII JSON: a message may quote characters that UTF-8 cannot carry."""
        return Response(
            json.dumps(self.body()), self.status, self.headers, media_type="application/json"
        )


class BodyLimit:
    """ASGI middleware: reads a whole body within its limits, or answers 413 or 408."""

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        self._app = app
        self._limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand on the request with its body already at hand."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            async with asyncio.timeout(self._limits.body_timeout_s):
                first = await self._read(scope, receive)
        except TimeoutError:
            late = f"the body took longer than {self._limits.body_timeout_s:g} s: send it at once"
            await Refusal(408, late).response()(scope, receive, send)
        except Refusal as refusal:
            await refusal.response()(scope, receive, send)
        else:
            await self._app(scope, _replayed(first, receive), send)

    async def _read(self, scope: Scope, receive: Receive) -> Message:
        announced = Headers(scope=scope).get("content-length", "0")
        size, more, body = int(announced) if announced.isdecimal() else 0, True, bytearray()
        most, arrived = self._limits.max_body_bytes, 0
        while more and max(size, arrived) <= most + self._limits.discarded_bytes:
            message = await receive()
            if message["type"] != "http.request":
                return message
            arrived += len(message.get("body", b""))
            if arrived <= most:
                body += message.get("body", b"")
            more = message.get("more_body", False)
        if max(size, arrived) > most:
            raise Refusal(
                413,
                f"body of {max(size, arrived)} bytes or more, expected at most {most}: send a "
                "shorter prompt",
                headers={"Connection": "close"},
            )
        return {"type": "http.request", "body": bytes(body), "more_body": False}


def _replayed(first: Message, receive: Receive) -> Receive:
    waiting = [first]

    async def again() -> Message:
        return waiting.pop() if waiting else await receive()

    return again
