"""Symmetric integer rounding with one scale per group, the arithmetic behind int8 weights.

A group of values shares one scale, its largest magnitude divided by 127; each value is stored as
the nearest multiple of it. So no value is off by more than half a scale, whatever the values are,
and one outlier spoils its own group only: it makes the scale, and small neighbours round to zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.floating[Any]]


@dataclass(frozen=True, slots=True)
class Rounded:
    """Integer codes [..., n] and their scales [..., n / group], in the dtype of the values."""

    codes: npt.NDArray[np.int8]
    scales: Floats
    group: int

    def values(self) -> Floats:
        """The values that the codes stand for, shape [..., n]."""
        grouped = _grouped(self.codes, self.group).astype(self.scales.dtype)
        return (grouped * self.scales[..., None]).reshape(self.codes.shape)


def round_symmetric(values: Floats, group: int, *, bits: int = 8) -> Rounded:
    """Round to signed integers of `bits` bits, one scale per `group` values of the last axis.

    Error per value: at most half its group's scale, and in addition the rounding of the division,
    a relative 2**-53 of the quotient. Raises ValueError for values that are not finite and for a
    last axis that is not a multiple of the group.
    """
    if not np.isfinite(values).all():
        raise ValueError("values contain NaN or infinity, expected finite numbers to round")
    if group < 1 or values.shape[-1] % group:
        raise ValueError(
            f"last axis has {values.shape[-1]} values, expected a multiple of the group of {group}"
        )
    if not 2 <= bits <= 8:
        raise ValueError(f"bits is {bits}, expected 2 to 8: codes are stored as int8")
    largest = 2 ** (bits - 1) - 1
    grouped = _grouped(values, group)
    scales = _scales(np.abs(grouped).max(axis=-1), largest)
    divisor = np.where(scales == 0, 1, scales).astype(np.float64)
    codes = np.rint(grouped.astype(np.float64) / divisor[..., None])
    return Rounded(codes.astype(np.int8).reshape(values.shape), scales, group)


def _grouped(values: npt.NDArray[Any], group: int) -> npt.NDArray[Any]:
    return values.reshape(*values.shape[:-1], -1, group)


def _scales(peaks: Floats, largest: int) -> Floats:
    """`peaks / largest`, moved by one ulp where the format's ends would break the bound."""
    with np.errstate(under="ignore", over="ignore"):
        scales = (peaks / largest).astype(peaks.dtype)
        too_small = (scales < np.finfo(peaks.dtype).tiny) & (scales * largest < peaks)
        scales = np.where(too_small, np.nextafter(scales, np.inf, dtype=peaks.dtype), scales)
        too_large = ~np.isfinite(scales * largest)
        return np.where(too_large, np.nextafter(scales, 0, dtype=peaks.dtype), scales)
