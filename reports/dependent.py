"""Means of values that depend on one another.

Tokens of one request are not independent: an interval made as if they were covers 33 % instead of
95 % (AR(1) 0.9, 256 tokens). Either the request is the unit, or the series is cut into batches long
enough for their means to be nearly independent.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from reports.estimate import Estimate
from reports.intervals import MIN_SAMPLES, estimate_mean
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

SERIES_FLOOR = 256
"""Shorter series cannot tell their own correlation: chosen by simulation, AR(1) up to 0.95."""

CORRELATION_TIMES = 8
"""A series must be at least this many correlation times long."""


def estimate_series_mean(
    values: Numbers,
    *,
    unit: str,
    resampled: str = "batch",
    signed: bool = False,
    seed: int = 0,
    confidence: float = CONFIDENCE,
) -> Estimate:
    """The mean of one series in time order, by Student's t on the means of 4 to 8 batches.

    No interval below 256 values or 8 correlation times: too short to know how dependent it is.
    Values at the start that do not fill a batch are left out.
    """
    array = sample(values)
    time = correlation_time(array)
    needed = max(SERIES_FLOOR, math.ceil(CORRELATION_TIMES * time))
    if array.size < needed:
        warning = more_needed("the mean of a dependent series", needed, array.size, "value")
        return Estimate(
            float(array.mean()),
            None,
            None,
            confidence,
            1,
            unit,
            "series",
            "batch means",
            (warning,),
        )
    count = int(np.clip(array.size // max(SERIES_FLOOR / 4, 4 * time), 4, 8))
    length = array.size // count
    means = array[array.size - count * length :].reshape(count, length).mean(axis=1)
    found = estimate_mean(
        means, unit=unit, resampled=resampled, signed=signed, seed=seed, confidence=confidence
    )
    method = f"{found.method} of {count} batches of {length}"
    return replace(found, resampled=resampled, method=method, alternative=None)


def estimate_clustered_mean(
    values: Numbers,
    groups: Groups,
    *,
    unit: str,
    resampled: str,
    signed: bool = False,
    confidence: float = CONFIDENCE,
) -> Estimate:
    """The mean over all values, with the group (request, text, run) as the unit that varies.

    Groups may differ in size: the mean is a ratio of totals, and Student's t applies to what each
    group's total deviates by.
    """
    array = sample(values)
    index, n = group_index(groups, array.size)
    centre = float(array.mean())
    if n < MIN_SAMPLES:
        warning = more_needed("an interval", MIN_SAMPLES, n, resampled)
        return Estimate(centre, None, None, confidence, n, unit, resampled, "mean", (warning,))
    deviations = np.bincount(index, weights=array - centre, minlength=n)
    error = math.sqrt(n / (n - 1) * float((deviations**2).sum())) / array.size
    half = t_critical(n - 1, confidence) * error
    low, high = centre - half, centre + half
    method = f"Student t over {n} {resampled}s"
    if not signed and array.min() > 0:
        low, high = centre * math.exp(-half / centre), centre * math.exp(min(half / centre, 700))
        method = f"t on logs over {n} {resampled}s"
    return Estimate(centre, low, high, confidence, n, unit, resampled, method)


def correlation_time(values: Floats) -> float:
    """How many successive values tell as much as one independent value, at least 1.

    1 + 2 × the sum of autocorrelations, as long as pairs of them stay positive and fall (Geyer
    1992, Statistical Science 7: initial monotone sequence).
    """
    n, deviations = values.size, values - values.mean()
    power = float(deviations @ deviations)
    if power <= 0 or n < 4:
        return 1.0
    spectrum = np.fft.rfft(deviations, 2 * n)
    correlations = np.fft.irfft(spectrum * np.conj(spectrum))[:n] / power
    pairs = correlations[0 : n - 1 : 2] + correlations[1:n:2]
    negative = np.flatnonzero(pairs <= 0)
    positive = pairs[: negative[0]] if negative.size else pairs
    falling = np.minimum.accumulate(positive)
    return max(1.0, 2 * float(falling.sum()) - 1)
