"""What an interval says beyond its two ends: a p-value, the smallest effect, Holm's correction.

All three are read off the stored interval, so that they can never contradict the verdict made from
it: p < 1 − confidence exactly when the interval excludes the bound. Positive data are compared on
logs, where a time and its rate give the same answer.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reports.bounds import Bound
    from reports.estimate import Estimate

POWER = 0.8


def p_value(estimate: Estimate, bound: Bound) -> float | None:
    """Two-sided p-value of the estimate against the nearest end of the bound.

    None where there is no interval, or where the number is exact and nothing was sampled.
    """
    if estimate.interval is None or estimate.exact:
        return None
    return max(_p_against(estimate, end) for end in _binding_ends(estimate, bound))


def minimum_detectable_effect(estimate: Estimate, bound: Bound) -> float | None:
    """Smallest distance from the bound that a run like this decides in 80 % of repetitions.

    In the unit of the estimate; None without an interval.
    """
    if estimate.interval is None or estimate.exact:
        return None
    low, high = estimate.interval
    end = _nearest_end(estimate, bound)
    logs = _on_logs(estimate, end)
    half = (math.log(high) - math.log(low)) / 2 if logs else (high - low) / 2
    critical = _critical(estimate)
    effect = half * (1 + _t_quantile(estimate, POWER) / critical)
    return end * math.expm1(min(effect, 700.0)) if logs else effect


def holm(p_values: Sequence[float | None], alpha: float = 0.05) -> set[int]:
    """Indices whose p-value survives Holm's step-down correction; None is no test and never does.

    Holm, S. (1979), A simple sequentially rejective multiple test procedure.
    """
    tested = sorted((p, index) for index, p in enumerate(p_values) if p is not None)
    survivors: set[int] = set()
    for rank, (p, index) in enumerate(tested):
        if p > alpha / (len(tested) - rank):
            break
        survivors.add(index)
    return survivors


def _ends(bound: Bound) -> list[float]:
    return [end for end in (bound.low, bound.high) if end is not None]


def _nearest_end(estimate: Estimate, bound: Bound) -> float:
    return min(_ends(bound), key=lambda end: abs(end - estimate.centre))


def _binding_ends(estimate: Estimate, bound: Bound) -> list[float]:
    """Both ends when the centre is on the claimed side, else only the end it lies beyond."""
    inside = bound.contains(estimate.centre, estimate.centre)
    return _ends(bound) if inside else [_nearest_end(estimate, bound)]


def _on_logs(estimate: Estimate, end: float) -> bool:
    return end > 0 and estimate.low is not None and estimate.low > 0 and estimate.centre > 0


def _p_against(estimate: Estimate, end: float) -> float:
    assert estimate.interval is not None
    points = (*estimate.interval, estimate.centre, end)
    low, high, centre, claimed = map(math.log, points) if _on_logs(estimate, end) else points
    half = centre - low if claimed < centre else high - centre
    if half <= 0:
        return 1.0 if low <= claimed <= high else 0.0
    return _two_sided_p(_critical(estimate) * abs(claimed - centre) / half, estimate)


def _degrees(estimate: Estimate) -> int:
    return max(estimate.n - 1, 1)


def _critical(estimate: Estimate) -> float:
    return _t_quantile(estimate, (1 + estimate.confidence) / 2)


def _t_quantile(estimate: Estimate, probability: float) -> float:
    from scipy.special import stdtrit

    return float(stdtrit(_degrees(estimate), probability))


def _two_sided_p(statistic: float, estimate: Estimate) -> float:
    from scipy.special import stdtr

    return min(1.0, 2 * float(stdtr(_degrees(estimate), -statistic)))
