"""One streamed request to any OpenAI-compatible server, with everything that can go wrong with it.

The record keeps raw times; whatever is derived from them is derived elsewhere. An answer counts as
one only when it is complete: status 200, no error event, a finish reason, the end mark. All else is
a failure whose tokens are in no throughput.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import aiohttp

from engines.serving.counting import Chunk, Counting, TokenCounter
from engines.serving.sse import EventParser

if TYPE_CHECKING:
    from collections.abc import Callable

Outcome = Literal[
    "ok",
    "left",
    "refused connection",
    "http error",
    "error event",
    "truncated",
    "stalled",
    "bad reply",
    "unfinished",
]
COMPLETIONS = "/v1/completions"
CHAT = "/v1/chat/completions"


@dataclass(frozen=True, slots=True)
class Call:
    """One request that is ready to be sent, and when a client without patience leaves."""

    request_id: str
    body: bytes
    path: str = COMPLETIONS
    leave_after_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Exchange:
    """What happened to one request; times in seconds on the run's clock."""

    request_id: str
    scheduled_s: float
    sent_s: float
    last_s: float
    outcome: Outcome
    status: int | None = None
    error: str | None = None
    headers_s: float | None = None
    chunks: tuple[Chunk, ...] = ()
    counting: Counting = "chunks only"
    token_ids: tuple[int, ...] | None = None
    usage_tokens: int | None = None
    prompt_tokens: int | None = None
    finish_reason: str | None = None
    text: str = field(default="", repr=False)

    @property
    def ok(self) -> bool:
        """A complete answer."""
        return self.outcome == "ok"

    @property
    def first_s(self) -> float | None:
        """Arrival of the first token."""
        return self.chunks[0].at_s if self.chunks else None

    @property
    def token_s(self) -> tuple[float, ...]:
        """One time per token; tokens of one chunk share theirs."""
        return tuple(chunk.at_s for chunk in self.chunks for _ in range(chunk.tokens))

    @property
    def tokens(self) -> int:
        """Tokens that arrived."""
        return sum(chunk.tokens for chunk in self.chunks)

    @property
    def chunked(self) -> bool:
        """True when some tokens share the time of their chunk."""
        return len(set(self.token_s)) < self.tokens


class _Failed(Exception):
    def __init__(self, outcome: Outcome, error: str) -> None:
        super().__init__(error)
        self.outcome = outcome


@dataclass(slots=True)
class Exchanging:
    """A request in flight; `record` can be asked at any time, also when it never ends."""

    call: Call
    scheduled_s: float
    sent_s: float
    now_s: Callable[[], float]
    counter: TokenCounter = field(default_factory=TokenCounter)
    status: int | None = None
    headers_s: float | None = None
    done: bool = False

    async def run(self, session: aiohttp.ClientSession, url: str) -> Exchange:
        """Send, read to the end, and say how it ended."""
        try:
            outcome = await self._talk(session, url)
        except _Failed as failed:
            return self.record(failed.outcome, str(failed))
        except aiohttp.ClientConnectorError as error:
            return self.record("refused connection", _line(error))
        except TimeoutError as error:
            return self.record("stalled", _line(error) or "nothing arrived in time")
        except (aiohttp.ClientError, OSError) as error:
            return self.record("truncated" if self.status == 200 else "bad reply", _line(error))
        return self.record(outcome)

    async def _talk(self, session: aiohttp.ClientSession, url: str) -> Outcome:
        headers = {"Content-Type": "application/json"}
        async with session.post(url, data=self.call.body, headers=headers) as reply:
            self.status, self.headers_s = reply.status, self.now_s()
            if reply.status != 200:
                raise _Failed("http error", (await reply.text(errors="replace"))[:300])
            return await self._follow(reply)

    async def _follow(self, reply: aiohttp.ClientResponse) -> Outcome:
        parser = EventParser()
        async for received in reply.content.iter_any():
            at_s = self.now_s()
            for data in parser.feed(received):
                self._event(data, at_s)
            if self._has_enough():
                reply.close()
                return "left"
        if not self.done:
            raise _Failed("truncated", "the stream ended without its end mark")
        if self.counter.finish_reason is None:
            raise _Failed("truncated", "the stream ended without a finish reason")
        return "ok"

    def _event(self, data: str, at_s: float) -> None:
        if data == "[DONE]":
            self.done = True
            return
        try:
            event = json.loads(data)
            if "error" in event:
                raise _Failed("error event", json.dumps(event["error"])[:300])
            self.counter.read(event, at_s)
        except (ValueError, TypeError, AttributeError) as problem:
            raise _Failed("bad reply", f"an event is not the JSON of a chunk: {problem}") from None

    def _has_enough(self) -> bool:
        enough = self.call.leave_after_tokens
        return enough is not None and sum(c.tokens for c in self.counter.chunks()[0]) >= enough

    def record(self, outcome: Outcome, error: str | None = None) -> Exchange:
        """The exchange as it stands now."""
        chunks, counting = self.counter.chunks()
        return Exchange(
            request_id=self.call.request_id,
            scheduled_s=self.scheduled_s,
            sent_s=self.sent_s,
            last_s=self.now_s(),
            outcome=outcome,
            status=self.status,
            error=error,
            headers_s=self.headers_s,
            chunks=chunks,
            counting=counting,
            token_ids=self.counter.token_ids,
            usage_tokens=self.counter.total,
            prompt_tokens=self.counter.prompt_tokens,
            finish_reason=self.counter.finish_reason,
            text=self.counter.text,
        )


def open_session(stall_s: float) -> aiohttp.ClientSession:
    """A session that never holds a request back: no limit on connections, no limit on total time.

    `stall_s` bounds the wait for a connection, for the headers and for each next piece.
    """
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, force_close=False),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=stall_s, sock_read=stall_s),
    )


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300]


async def close_session(session: aiohttp.ClientSession) -> None:
    """Close, and let the transports finish: nothing may be left for the garbage collector."""
    await session.close()
    await asyncio.sleep(0)
