"""Numbers to estimates: the one place from which the methods are imported.

| the values | the call |
|---|---|
| one per run or round, independent | `estimate_mean` |
| two arms, interleaved | `estimate_ratio` |
| a series in time order, such as the tokens of one request | `estimate_series_mean` |
| many per request, text or run | `estimate_clustered_mean` |
| a median or a p99, with or without groups | `estimate_quantile` |
| right or wrong answers, one arm or two | `estimate_proportion`, `estimate_paired_difference` |

Each says n, what n counts, the method and its seed; too few samples give no interval and say how
many more are needed. Reading stored estimates needs `reports/estimate.py` only, without numpy.
"""

from __future__ import annotations

from reports.dependent import correlation_time, estimate_clustered_mean, estimate_series_mean
from reports.estimate import Estimate, Interval, exactly
from reports.intervals import estimate_mean, estimate_ratio
from reports.proportions import estimate_paired_difference, estimate_proportion, mcnemar_exact
from reports.quantiles import estimate_quantile, samples_needed

__all__ = [
    "Estimate",
    "Interval",
    "correlation_time",
    "estimate_clustered_mean",
    "estimate_mean",
    "estimate_paired_difference",
    "estimate_proportion",
    "estimate_quantile",
    "estimate_ratio",
    "estimate_series_mean",
    "exactly",
    "mcnemar_exact",
    "samples_needed",
]
