"""Any OpenAI-compatible server as an engine: vLLM on a cluster, SGLang, TGI, llama.cpp.

Requests go out over HTTP and come back as completions, with the time of every token as the client
saw it. How well tokens are counted depends on what the server tells (`serving/counting.py`); a
server that tells nothing is an error here, because a rate of chunks is not a rate of tokens.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from engines.engine import ClientGone, Memory, OnToken, WarmUp
from engines.records import Completion, FinishReason, Request
from engines.serving.exchange import COMPLETIONS, Call, Exchange, Exchanging, open_session

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engines.clock import Clock
    from engines.models import LoadedModel
    from engines.serving.text import Tokenizer

UNKNOWN_ID = 0
"""Token id in a completion where the server told none; times and counts are right all the same."""


class EndpointEngine:
    """Sends up to `batch_size` requests at once, as token ids, or as text with a tokenizer.

    `loaded` is the same model here, if there is one: it prices the bytes of a step.
    """

    name = "endpoint"

    def __init__(
        self,
        url: str,
        model: str | None,
        *,
        clock: Clock,
        batch_size: int = 1,
        tokenizer: Tokenizer | None = None,
        loaded: LoadedModel | None = None,
        stall_s: float = 60.0,
    ) -> None:
        self.url = url.rstrip("/")
        self.model = model
        self.batch_size = batch_size
        self._clock = clock
        self._tokenizer = tokenizer
        self._loaded = loaded
        self._stall_s = stall_s

    @property
    def loaded(self) -> LoadedModel:
        """The model behind the endpoint, where it is known here too."""
        if self._loaded is None:
            raise ValueError(
                f"the model behind {self.url} is not loaded here: give --model as well"
            )
        return self._loaded

    def warm_up(self, prompt_tokens: int, max_new_tokens: int) -> WarmUp:
        """Two requests of the timed shape."""
        start = self._clock.now_s()
        self.run([Request(tuple(range(1, prompt_tokens + 1)), max_new_tokens)] * 2)
        return WarmUp(2, 0.0, self._clock.now_s() - start, prompt_tokens, max_new_tokens)

    def run(self, requests: Sequence[Request], on_token: OnToken | None = None) -> list[Completion]:
        """Serve the requests, `batch_size` in flight; `on_token` is called when each has ended."""
        return asyncio.run(self._run(requests, on_token))

    def bytes_per_step(self, context_tokens: int) -> int:
        """What one step has to read if the endpoint holds the weights as `loaded` does."""
        from engines.footprint import decode_step_bytes

        return decode_step_bytes(self.loaded, context_tokens, self.batch_size)

    def memory(self) -> Memory:
        """Nothing is held here, and what the server holds it does not say."""
        return Memory(0, 0)

    async def _run(self, requests: Sequence[Request], on_token: OnToken | None) -> list[Completion]:
        free = asyncio.Semaphore(self.batch_size)
        async with open_session(self._stall_s) as session:

            async def one(request: Request) -> Completion:
                async with free:
                    sent_s = self._clock.now_s()
                    flying = Exchanging(self._call(request), sent_s, sent_s, self._clock.now_s)
                    done = completion(request, await flying.run(session, self.url + COMPLETIONS))
                _tell(done, on_token)
                return done

            return list(await asyncio.gather(*map(one, requests)))

    def _call(self, request: Request) -> Call:
        prompt: list[int] | str = list(request.prompt_ids)
        if self._tokenizer is not None:
            prompt = self._tokenizer.decode(list(request.prompt_ids))
        body: dict[str, Any] = {
            "prompt": prompt,
            "max_tokens": request.max_new_tokens,
            "temperature": 0,
            "ignore_eos": not request.stop_ids,
            "stream": True,
            "stream_options": {"include_usage": True},
            "return_token_ids": True,
        }
        if self.model:
            body["model"] = self.model
        return Call(request.request_id, json.dumps(body).encode())


def completion(request: Request, exchange: Exchange) -> Completion:
    """What came back, as the record that all engines give; a failure keeps its reason."""
    error = exchange.error
    if exchange.ok and exchange.counting == "chunks only":
        error = "the server told neither token ids nor usage: its tokens cannot be counted"
    reason: FinishReason = "stop" if exchange.finish_reason == "stop" else "length"
    ids = exchange.token_ids
    return Completion(
        request=request,
        sent_s=exchange.sent_s,
        token_s=exchange.token_s,
        token_ids=ids if ids is not None else (UNKNOWN_ID,) * exchange.tokens,
        finish_reason="error" if error else reason,
        error=error,
        chunked=exchange.chunked,
    )


def _tell(done: Completion, on_token: OnToken | None) -> None:
    if on_token is None:
        return
    for token_id in done.token_ids:
        try:
            on_token(done.request, token_id)
        except ClientGone:
            return
