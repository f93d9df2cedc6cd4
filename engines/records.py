"""What goes into an engine and what comes out of it.

These two records are the only types that every layer shares. A `Completion` keeps the raw time of
every token and nothing derived from it: TTFT, ITL, TPOT and goodput are pure functions of these
times (`reports/latency.py`), so a definition can be argued about after a run without repeating it.

All times are seconds on one monotonic clock, counted from the start of the run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

FinishReason = Literal["length", "stop", "cancelled", "rejected", "error"]


@dataclass(frozen=True, slots=True)
class Request:
    """One prompt and how many tokens to generate for it.

    `stop_ids` empty means that the output length is forced to `max_new_tokens`, which is how speed
    is measured. `scheduled_s` is the moment at which an open-loop client has to send the request.
    """

    prompt_ids: tuple[int, ...]
    max_new_tokens: int
    scheduled_s: float = 0.0
    request_id: str = ""
    stop_ids: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        if not self.prompt_ids:
            raise ValueError("prompt_ids is empty: a request needs at least one prompt token")
        if self.max_new_tokens < 1:
            raise ValueError(f"max_new_tokens must be at least 1, got {self.max_new_tokens}")


@dataclass(frozen=True, slots=True)
class Completion:
    """What one request got, with the time at which each token was there.

    `token_s` holds one time per token of `token_ids`. Tokens that arrived in one chunk share its
    time, and `chunked` says that this happened.
    """

    request: Request
    sent_s: float
    token_s: tuple[float, ...]
    token_ids: tuple[int, ...]
    finish_reason: FinishReason
    error: str | None = None
    chunked: bool = False

    def __post_init__(self) -> None:
        if len(self.token_s) != len(self.token_ids):
            raise ValueError(f"{len(self.token_s)} times for {len(self.token_ids)} tokens")
        if any(
            later < earlier for earlier, later in zip(self.token_s, self.token_s[1:], strict=False)
        ):
            raise ValueError("token times go backwards: token_s must not decrease")
