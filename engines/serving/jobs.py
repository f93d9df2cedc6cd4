"""From a request body to a job for the engine: the checks that need the model.

The protocol's types are checked before; here prompts become token ids, and lengths meet the limits.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from engines.records import Request
from engines.serving.limits import Limits, Refusal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engines.serving.protocol import (
        AnswerOptions,
        ChatBody,
        CompletionBody,
        GenerateBody,
        Message,
    )
    from engines.serving.text import Tokenizer

DEFAULT_MAX_TOKENS = 16
LONG_TEXT_CHARS = 4096
"""A longer text is encoded in a thread, so that other streams go on meanwhile."""


@dataclass(frozen=True, slots=True)
class ServedModel:
    """What the server knows of the model behind its engine."""

    name: str
    tokenizer: Tokenizer
    vocab_size: int
    stop_ids: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Job:
    """One accepted request, and how its answer is to be told."""

    request: Request
    kind: str
    stops: tuple[str, ...] = ()
    stream: bool = False
    usage: bool = False
    running_usage: bool = False
    token_ids: bool = False


@dataclass(frozen=True, slots=True)
class JobReader:
    """Makes jobs from bodies, or refuses them with one line."""

    model: ServedModel
    limits: Limits

    async def completion(self, body: CompletionBody) -> Job:
        """A job for /v1/completions."""
        ids = await self._ids(body.single_prompt, "prompt")
        return self._job(body, ids, body.max_tokens, "text_completion")

    async def chat(self, body: ChatBody) -> Job:
        """A job for /v1/chat/completions."""
        text = chat_text(self.model.tokenizer, body.messages)
        ids = await self._ids(text, "messages", special=False)
        return self._job(
            body, ids, body.max_completion_tokens or body.max_tokens, "chat.completion"
        )

    async def generate(self, body: GenerateBody) -> Job:
        """A job for the chapter's /generate."""
        ids = await self._ids(body.prompt, "prompt")
        return Job(self._request(ids, body.max_new_tokens, self.model.stop_ids), "generate")

    def _job(self, body: AnswerOptions, ids: list[int], max_tokens: int | None, kind: str) -> Job:
        if body.model is not None and body.model != self.model.name:
            served = f"model {body.model[:80]!r} is not served here, expected {self.model.name!r}"
            raise Refusal(404, f"{served}: see GET /v1/models", "model", "model_not_found")
        self._check_stops(body.stops)
        stop_ids = frozenset[int]() if body.ignore_eos else self.model.stop_ids
        return Job(
            request=self._request(ids, max_tokens or DEFAULT_MAX_TOKENS, stop_ids),
            kind=kind,
            stops=body.stops,
            stream=bool(body.stream),
            usage=body.wants_usage,
            running_usage=body.wants_running_usage,
            token_ids=body.return_token_ids,
        )

    def _check_stops(self, stops: Sequence[str]) -> None:
        if len(stops) > self.limits.max_stops:
            raise Refusal(
                400, f"{len(stops)} stop strings, expected at most {self.limits.max_stops}", "stop"
            )
        if any(not 0 < len(stop) <= self.limits.max_stop_chars for stop in stops):
            longest = self.limits.max_stop_chars
            raise Refusal(400, f"a stop string must have 1 to {longest} characters", "stop")

    def _request(
        self, ids: Sequence[int], max_new_tokens: int, stop_ids: frozenset[int]
    ) -> Request:
        limits = self.limits
        if max_new_tokens > limits.max_new_tokens:
            got = f"max_tokens is {max_new_tokens}, expected at most {limits.max_new_tokens}"
            raise Refusal(400, f"{got}: ask for a shorter answer", "max_tokens")
        if len(ids) + max_new_tokens > limits.max_context_tokens:
            got = f"{len(ids)} prompt tokens + {max_new_tokens} new ones"
            wanted = f"expected at most {limits.max_context_tokens} together: shorten the prompt"
            raise Refusal(400, f"{got}, {wanted}", "prompt", "context_length_exceeded")
        return Request(tuple(ids), max_new_tokens, request_id=uuid4().hex, stop_ids=stop_ids)

    async def _ids(self, prompt: str | list[int], param: str, *, special: bool = True) -> list[int]:
        ids = (
            prompt
            if isinstance(prompt, list)
            else await self._encode(prompt, param, special=special)
        )
        if not ids:
            raise Refusal(400, "the prompt is empty: send at least one token", param)
        if max(ids) >= self.model.vocab_size:
            got = f"token id {max(ids)} in the prompt, expected less than {self.model.vocab_size}"
            raise Refusal(400, f"{got}: encode it with this model's tokenizer", param)
        return ids

    async def _encode(self, text: str, param: str, *, special: bool) -> list[int]:
        try:
            text.encode()
            if len(text) <= LONG_TEXT_CHARS:
                return self.model.tokenizer.encode(text, add_special_tokens=special)
            return await asyncio.to_thread(
                self.model.tokenizer.encode, text, add_special_tokens=special
            )
        except UnicodeEncodeError:
            lone = "the text has half of a surrogate pair, expected whole characters"
            raise Refusal(400, f"{lone}: send valid Unicode", param) from None
        except ValueError as problem:
            raise Refusal(400, str(problem), param) from None


def chat_text(tokenizer: Any, messages: Sequence[Message]) -> str:
    """The conversation as the model was trained to read it.

    A model without a chat template gets the contents, one a line: all that can be said of a
    base model, which knows no roles.
    """
    if getattr(tokenizer, "chat_template", None) is None:
        return "\n".join(message.text for message in messages) + "\n"
    turns = [{"role": message.role, "content": message.text} for message in messages]
    try:
        text = tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
    except Exception as problem:  # a template may raise whatever it likes about the roles it got
        raise Refusal(
            400, f"the chat template refuses this conversation: {problem}", "messages"
        ) from problem
    return str(text)
