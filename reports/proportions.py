"""Shares of items, and paired differences between two arms that answered the same items."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from reports.estimate import Estimate, Interval
from reports.intervals import estimate_mean
from reports.samples import CONFIDENCE, Floats, Numbers, same_length, sample, t_critical

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def estimate_proportion(
    successes: int,
    n: int,
    *,
    unit: str = "1",
    resampled: str = "item",
    confidence: float = CONFIDENCE,
) -> Estimate:
    """The share of successes among n independent items.

    Clopper-Pearson judges, because it never covers less than it says; Wilson, shorter on average,
    stands beside.
    """
    if n < 1 or not 0 <= successes <= n:
        raise ValueError(f"expected 0 <= successes <= n and n >= 1, got {successes} of {n}")
    from scipy.stats import binomtest

    test = binomtest(int(successes), int(n))
    exact = test.proportion_ci(confidence, "exact")
    wilson = test.proportion_ci(confidence, "wilson")
    return Estimate(
        successes / n, float(exact.low), float(exact.high), confidence, n, unit, resampled,
        "Clopper-Pearson", alternative=Interval(float(wilson.low), float(wilson.high), "Wilson"),
    )  # fmt: skip


def estimate_paired_difference(
    a: Numbers | Sequence[bool],
    b: Numbers | Sequence[bool],
    *,
    unit: str = "1",
    resampled: str = "item",
    seed: int = 0,
    confidence: float = CONFIDENCE,
) -> Estimate:
    """The mean of a[i] − b[i] over items that both arms answered, in `unit`.

    Right and wrong answers (0 and 1) get Tango's score interval, which stays honest when few
    items differ or none; other values are a mean of differences.
    """
    left, right = sample(a, "a"), sample(b, "b")
    same_length(left, right)
    if np.isin(left, (0, 1)).all() and np.isin(right, (0, 1)).all():
        return _tango(left, right, unit, resampled, confidence)
    return estimate_mean(
        left - right,
        unit=unit,
        resampled=resampled,
        signed=True,
        seed=seed,
        confidence=confidence,
    )


def mcnemar_exact(a: Sequence[bool] | Floats, b: Sequence[bool] | Floats) -> float:
    """Exact two-sided p-value of McNemar's test that each arm is as often the better one.

    Only items on which they differ count; 1.0 when there are none.
    """
    from scipy.stats import binomtest

    left, right = sample(a, "a"), sample(b, "b")
    same_length(left, right)
    gained, lost = int((left > right).sum()), int((left < right).sum())
    return float(binomtest(gained, gained + lost).pvalue) if gained + lost else 1.0


def _tango(a: Floats, b: Floats, unit: str, resampled: str, confidence: float) -> Estimate:
    """Tango (1998), Stat. Med. 17: all differences that the score test does not reject."""
    n = a.size
    gained, lost = float((a > b).sum()), float((a < b).sum())
    centre, limit = (gained - lost) / n, t_critical(np.inf, confidence)

    def rejected(difference: float) -> bool:
        return abs(_score(difference, gained, lost, n)) > limit

    low, high = _edge(centre, -1.0, rejected), _edge(centre, 1.0, rejected)
    return Estimate(centre, low, high, confidence, n, unit, resampled, "Tango score, paired")


def _score(difference: float, gained: float, lost: float, n: int) -> float:
    """Standardized distance of the observed difference, with the likeliest share of losses."""
    linear = (2 * n - gained + lost) * difference - gained - lost
    constant = -lost * difference * (1 - difference)
    losing = (math.sqrt(linear**2 - 8 * n * constant) - linear) / (4 * n)
    variance = n * (2 * losing + difference * (1 - difference))
    return (gained - lost - n * difference) / math.sqrt(max(variance, 1e-300))


def _edge(inside: float, outside: float, rejected: Callable[[float], bool]) -> float:
    """Bisect for the last value that is not rejected on the way from inside to outside."""
    if not rejected(outside):
        return outside
    for _ in range(50):
        middle = (inside + outside) / 2
        inside, outside = (inside, middle) if rejected(middle) else (middle, outside)
    return inside
