"""Quantiles with an interval from order statistics, or the number of samples still needed.

The k-th smallest of n independent values lies above the q-quantile with a binomial probability,
whatever the distribution. A 95 % interval therefore needs 6 values for a median and 299 for a p99;
below that there is no number to give, and none is given.
"""

from __future__ import annotations

import functools
import math

import numpy as np

from reports.estimate import Estimate
from reports.samples import (
    CONFIDENCE,
    Floats,
    Groups,
    Numbers,
    group_index,
    more_needed,
    sample,
    t_critical,
)


def estimate_quantile(
    values: Numbers,
    q: float,
    *,
    unit: str,
    resampled: str,
    groups: Groups | None = None,
    confidence: float = CONFIDENCE,
) -> Estimate:
    """The q-quantile, 0 < q < 1, in `unit`.

    `groups` names the group of each value where values of one group depend on one another (tokens
    of a request, requests of a run). Then `n` counts groups, and the sample is treated as one of
    the size that independent values of the same precision would have.
    """
    if not 0 < q < 1:
        raise ValueError(f"q must be between 0 and 1, got {q}")
    array = sample(values)
    centre = float(np.quantile(array, q))
    name, needed = f"p{100 * q:g}", samples_needed(q, confidence)
    n, size, short = array.size, float(array.size), ""
    if groups is not None:
        index, n = group_index(groups, array.size)
        short = _too_few_groups(name, needed, n, array.size, resampled)
        size = 0.0 if short else _effective_size(array <= centre, index, n, confidence)
    ranks = _ranks(math.floor(size), q, confidence)
    if ranks is None:
        few = short or more_needed(name, needed, size, "independent sample")
        return Estimate(centre, None, None, confidence, n, unit, resampled, name, (few,))
    low, high = _at_ranks(np.sort(array), ranks, math.floor(size))
    method = "order statistics"
    if groups is not None:
        method += f", {array.size} values worth {size:.0f} independent ones"
    return Estimate(centre, low, high, confidence, n, unit, resampled, method)


def _too_few_groups(name: str, needed: int, groups: int, values: int, resampled: str) -> str:
    """Say what is missing before anything is estimated from how the groups differ, or "".

    The tail of a handful of groups may lie in one of them, and then looks more certain than it is:
    2 * sqrt(needed) groups and twice the values, by simulation (5 for a median, 35 for a p99).
    """
    wanted = math.ceil(2 * math.sqrt(needed))
    if groups < wanted:
        return more_needed(f"{name} of dependent values", wanted, groups, resampled)
    if values < 2 * needed:
        return more_needed(f"{name} of dependent values", 2 * needed, values, "value")
    return ""


def samples_needed(q: float, confidence: float = CONFIDENCE) -> int:
    """Fewest independent samples whose extremes enclose the q-quantile with this confidence."""
    extreme = max(q, 1 - q)
    needed = math.ceil(math.log(1 - confidence) / math.log(extreme))
    while 1 - q**needed - (1 - q) ** needed < confidence:
        needed += 1
    return needed


@functools.lru_cache(maxsize=4096)
def _ranks(n: int, q: float, confidence: float) -> tuple[int, int] | None:
    """The closest ranks (1-based) that enclose the q-quantile of n values, or None.

    P(X_(l) <= quantile <= X_(u)) >= P(l <= B <= u - 1) with B ~ Binomial(n, q).
    """
    from scipy.stats import binom

    if n < samples_needed(q, confidence):
        return None
    below = binom.cdf(np.arange(-1, n), n, q)  # below[k] = P(B <= k - 1)
    lower = np.arange(1, n + 1)
    upper = np.searchsorted(below, below[lower] + confidence - 1e-12)
    possible = upper <= n
    if not possible.any():
        return None
    lower, upper = lower[possible], upper[possible]
    widths = upper - lower
    closest = widths == widths.min()
    middle = np.abs(below[lower] - (1 - below[upper]))
    best = int(np.flatnonzero(closest)[np.argmin(middle[closest])])
    return int(lower[best]), int(upper[best])


def _at_ranks(ascending: Floats, ranks: tuple[int, int], size: int) -> tuple[float, float]:
    """Values at ranks that were chosen for a sample of `size`, in one of another length."""
    scale = ascending.size / size
    low = max(math.floor((ranks[0] - 1) * scale), 0)
    high = min(math.ceil(ranks[1] * scale), ascending.size) - 1
    return float(ascending[low]), float(ascending[high])


def _effective_size(below: np.ndarray, index: np.ndarray, groups: int, confidence: float) -> float:
    """How many independent values tell as much about the share below the quantile.

    Korn & Graubard (1998), Survey Methodology 24: the variance of the share between groups against
    that of independent values, shrunk for the few groups it was estimated from.
    """
    n = below.size
    share = float(below.mean())
    residuals = np.bincount(index, weights=below - share, minlength=groups)
    variance = groups / (groups - 1) * float((residuals**2).sum()) / n**2
    independent = share * (1 - share)
    size = n if variance <= 0 else min(independent / variance, n)
    shrink = (t_critical(max(n - 1, 1), confidence) / t_critical(groups - 1, confidence)) ** 2
    return max(size * shrink, 1.0)
