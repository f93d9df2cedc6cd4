"""The typical variance behind many poor ones, and how much it may be trusted.

Each benchmark of a comparison has a variance from two to five runs. Their scatter says how far they
share one: the moments of the log variances, as in Smyth 2004 (Stat. Appl. Genet. Mol. Biol. 3:3).
"""

from __future__ import annotations

import math

import numpy as np


def typical_variance(variances: np.ndarray, df: float) -> tuple[float, float]:
    """Typical variance and its weight in degrees of freedom, by the moments of log variances."""
    from scipy.special import digamma, polygamma

    logs = np.log(variances) - digamma(df / 2) + math.log(df / 2)
    scatter = float(logs.var(ddof=1)) - float(polygamma(1, df / 2))
    weight = df if scatter <= 0 else min(df, 2 * _inverse_trigamma(scatter))
    centre = float(logs.mean()) + float(digamma(weight / 2)) - math.log(weight / 2)
    return math.exp(centre), weight


def _inverse_trigamma(value: float) -> float:
    """Where trigamma takes this value: Newton's method on its nearly linear reciprocal."""
    from scipy.special import polygamma

    x = 0.5 + 1 / value
    for _ in range(50):
        trigamma = float(polygamma(1, x))
        step = trigamma * (1 - trigamma / value) / float(polygamma(2, x))
        x += step
        if abs(step) < 1e-8 * x:
            break
    return x
