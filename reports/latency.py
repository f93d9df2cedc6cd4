"""What a user feels, derived from the raw times of completions.

A completion keeps when it was scheduled, sent, and when each token was there. Everything else is a
definition, and a definition that can be read here can be argued about without repeating a run.
Times are seconds on the clock of the run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engines.records import Completion


@dataclass(frozen=True, slots=True)
class ServiceLevel:
    """What a good answer may take at most, in seconds; None sets no limit."""

    ttft_s: float | None = None
    tpot_s: float | None = None
    e2e_s: float | None = None


def succeeded(done: Completion) -> bool:
    """True for an answer that came whole: with tokens, without an error, not cut off."""
    return done.error is None and bool(done.token_s) and done.finish_reason in ("length", "stop")


def ttft_s(done: Completion) -> float | None:
    """Time to first token [s] from the *scheduled* time, so that waiting to be sent counts.

    Timing from the moment of sending would hide the queue in the client (coordinated omission).
    """
    return done.token_s[0] - done.request.scheduled_s if done.token_s else None


def service_ttft_s(done: Completion) -> float | None:
    """Time to first token [s] from the moment of sending: what the server alone took."""
    return done.token_s[0] - done.sent_s if done.token_s else None


def itl_s(done: Completion) -> tuple[float, ...]:
    """The n − 1 gaps between the n tokens of one request [s]."""
    return tuple(
        later - earlier for earlier, later in zip(done.token_s, done.token_s[1:], strict=False)
    )


def tpot_s(done: Completion) -> float | None:
    """Time per output token [s], first token excluded; None for a one-token answer."""
    gaps = itl_s(done)
    return sum(gaps) / len(gaps) if gaps else None


def e2e_s(done: Completion) -> float | None:
    """Whole answer [s]: last token minus scheduled time."""
    return done.token_s[-1] - done.request.scheduled_s if done.token_s else None


def wall_s(completions: Sequence[Completion]) -> float:
    """Wall time of a block [s], from the first request sent to the last token."""
    times = [time for done in completions for time in done.token_s]
    if not times:
        raise ValueError(f"none of {len(completions)} completions has a token: no time to measure")
    return max(times) - min(done.sent_s for done in completions)


def tokens_per_s(completions: Sequence[Completion]) -> float:
    """Aggregate rate of a block: tokens of whole answers over wall time, never a mean of ratios."""
    duration = wall_s(completions)
    if duration <= 0:
        raise ValueError(f"a block must last longer than {duration} s to have a rate")
    return sum(len(done.token_s) for done in completions if succeeded(done)) / duration


def is_good(done: Completion, level: ServiceLevel) -> bool:
    """True for a whole answer within every limit; a failed request is never good."""
    if not succeeded(done):
        return False
    limits = (
        (ttft_s(done), level.ttft_s),
        (tpot_s(done), level.tpot_s),
        (e2e_s(done), level.e2e_s),
    )
    return all(limit is None or took is None or took <= limit for took, limit in limits)


def goodput_per_s(completions: Sequence[Completion], level: ServiceLevel, window_s: float) -> float:
    """Good answers per second of the window in which their requests were scheduled."""
    if window_s <= 0:
        raise ValueError(f"window_s must be positive, got {window_s}")
    return sum(is_good(done, level) for done in completions) / window_s
