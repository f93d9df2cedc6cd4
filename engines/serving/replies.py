"""The JSON of answers and of the chunks of a stream, as OpenAI clients read it."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engines.serving.jobs import Job

DONE = b"data: [DONE]\n\n"


@dataclass(frozen=True, slots=True)
class Piece:
    """One event of an answer: a token with the text that it completed, or the end."""

    text: str
    token_id: int | None = None
    finish_reason: str | None = None


class Replies:
    """Writes one job's answer; chat and plain completions differ in a few names only."""

    def __init__(self, job: Job, model: str) -> None:
        self._job = job
        self._chat = job.kind == "chat.completion"
        streamed = ".chunk" if self._chat and job.stream else ""
        self._head: dict[str, Any] = {
            "id": f"{'chatcmpl' if self._chat else 'cmpl'}-{job.request.request_id}",
            "object": job.kind + streamed,
            "created": int(time.time()),
            "model": model,
        }
        self._generated = 0

    def usage(self) -> dict[str, int]:
        """Tokens so far, counted as generated, not as text."""
        prompt = len(self._job.request.prompt_ids)
        total = prompt + self._generated
        return {
            "prompt_tokens": prompt,
            "completion_tokens": self._generated,
            "total_tokens": total,
        }

    def opening(self) -> bytes:
        """The role chunk with which a chat stream begins; nothing otherwise."""
        if not self._chat:
            return b""
        return self._event([self._choice({"delta": {"role": "assistant", "content": ""}}, None)])

    def chunk(self, piece: Piece) -> bytes:
        """One event of the stream."""
        self._generated += piece.token_id is not None
        said: dict[str, Any] = {"text": piece.text}
        if self._chat:
            said = {
                "delta": {"content": piece.text} if piece.text or not piece.finish_reason else {}
            }
        if self._job.token_ids:
            said["token_ids"] = [] if piece.token_id is None else [piece.token_id]
        return self._event([self._choice(said, piece.finish_reason)])

    def closing(self) -> bytes:
        """Usage, if it was asked for, and the end mark."""
        if not self._job.usage:
            return DONE
        return self._event([], usage=self.usage()) + DONE

    def whole(self, pieces: list[Piece]) -> dict[str, Any]:
        """The answer in one body."""
        token_ids = [piece.token_id for piece in pieces if piece.token_id is not None]
        self._generated = len(token_ids)
        text = "".join(piece.text for piece in pieces)
        said: dict[str, Any] = {"text": text}
        if self._chat:
            said = {"message": {"role": "assistant", "content": text}}
        if self._job.token_ids:
            said["token_ids"] = token_ids
        choice = self._choice(said, pieces[-1].finish_reason)
        return {**self._head, "choices": [choice], "usage": self.usage()}

    def _choice(self, said: dict[str, Any], finish_reason: str | None) -> dict[str, Any]:
        return {"index": 0, **said, "logprobs": None, "finish_reason": finish_reason}

    def _event(self, choices: list[dict[str, Any]], **extra: Any) -> bytes:
        if self._job.running_usage:
            extra.setdefault("usage", self.usage())
        return event({**self._head, "choices": choices, **extra})


def event(data: dict[str, Any]) -> bytes:
    """One server-sent event."""
    return (
        b"data: " + json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"
    )
