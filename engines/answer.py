"""One request while it is being answered: the bookkeeping that all local engines share.

An engine hands over each token with its stamp; the answer decides whether it was the last one, and
becomes a `Completion` when the engine is done. A token that ends an answer because it is one of
the request's `stop_ids` is kept as the last token id, as `generate` does.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from engines.engine import ClientGone, OnToken
from engines.records import Completion, FinishReason, Request

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from engines.clock import Clock, Stamp
    from engines.models import LoadedModel


@dataclass
class Answer:
    """Tokens and stamps of one request so far."""

    request: Request
    sent_s: float
    token_ids: list[int] = field(default_factory=list)
    stamps: list[Stamp] = field(default_factory=list)
    finish_reason: FinishReason | None = None

    def accept(self, token_id: int, stamp: Stamp, on_token: OnToken | None = None) -> bool:
        """Append the token unless the answer is complete; True while more tokens are wanted."""
        if self.finish_reason is not None:
            return False
        self.token_ids.append(token_id)
        self.stamps.append(stamp)
        if token_id in self.request.stop_ids:
            self.finish_reason = "stop"
        elif len(self.token_ids) == self.request.max_new_tokens:
            self.finish_reason = "length"
        if on_token is not None:
            self._tell(token_id, on_token)
        return self.finish_reason is None

    def _tell(self, token_id: int, on_token: OnToken) -> None:
        try:
            on_token(self.request, token_id)
        except ClientGone:
            self.finish_reason = self.finish_reason or "cancelled"

    def completion(self, clock: Clock) -> Completion:
        """The finished record; waits for the device once, to place the stamps."""
        return Completion(
            request=self.request,
            sent_s=self.sent_s,
            token_s=clock.seconds(self.stamps),
            token_ids=tuple(self.token_ids),
            finish_reason=self.finish_reason or "cancelled",
        )


def too_long(request: Request, capacity: int) -> str | None:
    """One line saying why this request can never fit into `capacity` tokens; None if it fits."""
    needed = len(request.prompt_ids) + request.max_new_tokens
    if needed <= capacity:
        return None
    return (
        f"{len(request.prompt_ids)} prompt tokens + {request.max_new_tokens} new tokens = {needed}"
        f", expected at most {capacity}: shorten the request or give the engine more max_tokens"
    )


def rejected(request: Request, reason: str, now_s: float) -> Completion:
    """The record of a request that was never started."""
    return Completion(request, now_s, (), (), "rejected", error=reason)


def serve_in_groups(
    requests: Sequence[Request],
    *,
    size: int,
    capacity: int,
    clock: Clock,
    serve: Callable[[list[Answer]], None],
) -> list[Completion]:
    """Serve consecutive groups of at most `size` requests; those that can never fit are rejected.

    One completion per request, in the order of the requests.
    """
    done: dict[int, Completion] = {}
    for index, request in enumerate(requests):
        if reason := too_long(request, capacity):
            done[index] = rejected(request, reason, clock.now_s())
    fitting = [index for index in range(len(requests)) if index not in done]
    for start in range(0, len(fitting), size):
        group = fitting[start : start + size]
        now = clock.now_s()
        answers = [Answer(requests[index], now) for index in group]
        serve(answers)
        done.update({index: a.completion(clock) for index, a in zip(group, answers, strict=True)})
    return [done[index] for index in range(len(requests))]


def warm_up_request(loaded: LoadedModel, prompt_tokens: int, max_new_tokens: int) -> Request:
    """A request of the timed shape; what it says does not matter."""
    vocab_size = loaded.model.config.get_text_config().vocab_size
    return Request(tuple(i % vocab_size for i in range(prompt_tokens)), max_new_tokens)
