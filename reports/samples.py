"""Checked arrays and the warnings that every method shares."""

from __future__ import annotations

import functools
import math
from collections.abc import Hashable, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Numbers: TypeAlias = Sequence[float] | NDArray[np.floating]
Groups: TypeAlias = Sequence[Hashable] | NDArray[np.generic]
Floats: TypeAlias = NDArray[np.float64]

CONFIDENCE = 0.95


def sample(values: Numbers, what: str = "values") -> Floats:
    """The values as a float64 array of shape (n,), n at least 1, all finite."""
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or array.size == 0:
        raise ValueError(f"{what}: expected a non-empty list of numbers, got shape {array.shape}")
    if not np.isfinite(array).all():
        raise ValueError(
            f"{what}: {int((~np.isfinite(array)).sum())} of {array.size} are not finite"
        )
    return array


def same_length(a: Floats, b: Floats) -> None:
    """Raise ValueError unless the two can be paired."""
    if a.size != b.size:
        raise ValueError(f"paired samples must have one length, got {a.size} and {b.size}")


def group_index(groups: Groups, n: int) -> tuple[NDArray[np.intp], int]:
    """For each value the number of its group, and how many groups there are."""
    if len(groups) != n:
        raise ValueError(f"groups must name one group per value: {len(groups)} for {n} values")
    if isinstance(groups, np.ndarray):
        names, index = np.unique(groups, return_inverse=True)
        return index, len(names)
    order = {label: number for number, label in enumerate(dict.fromkeys(groups))}
    return np.array([order[label] for label in groups], dtype=np.intp), len(order)


def more_needed(what: str, needed: float, have: float, resampled: str) -> str:
    """`p99 needs about 299 independent samples, got 256 (43 more)`."""
    wanted, got = math.ceil(needed), math.floor(have)
    return f"{what} needs about {wanted} {resampled}s, got {got} ({max(wanted - got, 1)} more)"


@functools.lru_cache(maxsize=4096)
def t_critical(degrees: float, confidence: float) -> float:
    """Two-sided critical value of Student's t."""
    from scipy.stats import t

    return float(t.ppf((1 + confidence) / 2, degrees))
