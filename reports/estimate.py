"""A number together with what is known about it.

Every measured figure of a run is an `Estimate`: a centre, an interval or the honest absence of one,
and what was resampled to get it. The class stands apart from the methods that make it
(`reports/stats.py`), so that reading a stored run imports neither numpy nor scipy.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from reports.fields import Fields

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Interval:
    """A second interval for the same data by another method, kept beside the one that judges."""

    low: float
    high: float
    method: str

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Interval:
        """Read what `asdict` wrote."""
        fields = Fields(data, "interval")
        return cls(fields.number("low"), fields.number("high"), fields.text("method"))


@dataclass(frozen=True, slots=True)
class Estimate:
    """A measured value in a physical unit, with its interval where the sample is large enough.

    `low` and `high` are both None when it is not; then `warnings` says how many more are needed.
    `n` counts `resampled` units ("run", "round", "item"): those that vary independently. An exact
    number, counted or derived, has confidence 1 and is its own interval.
    """

    centre: float
    low: float | None
    high: float | None
    confidence: float
    n: int
    unit: str
    resampled: str
    method: str
    warnings: tuple[str, ...] = ()
    alternative: Interval | None = None

    def __post_init__(self) -> None:
        if not math.isfinite(self.centre):
            raise ValueError(f"centre must be a finite number, got {self.centre}")
        if not 0 < self.confidence <= 1:
            raise ValueError(f"confidence must be in (0, 1], got {self.confidence}")
        if self.n < 1:
            raise ValueError(f"n must be at least 1, got {self.n}")
        if (self.low is None) != (self.high is None):
            raise ValueError(f"an interval needs both ends, got [{self.low}, {self.high}]")
        if (
            self.interval is not None
            and not -math.inf < self.interval[0] <= self.interval[1] < math.inf
        ):
            raise ValueError(f"the interval must be finite and ascend, got {self.interval}")

    @property
    def interval(self) -> tuple[float, float] | None:
        """(low, high), or None where the sample is too small for one."""
        return None if self.low is None or self.high is None else (self.low, self.high)

    @property
    def exact(self) -> bool:
        """True for a number that was counted or derived, so that nothing was sampled."""
        return self.confidence == 1

    def times(self, factor: float, unit: str | None = None) -> Estimate:
        """The same estimate in another unit or relative to a constant; `factor` is positive."""
        if factor <= 0:
            raise ValueError(f"factor must be positive, got {factor}")
        beside = self.alternative
        return replace(
            self,
            centre=self.centre * factor,
            low=None if self.low is None else self.low * factor,
            high=None if self.high is None else self.high * factor,
            unit=self.unit if unit is None else unit,
            alternative=beside
            and replace(beside, low=beside.low * factor, high=beside.high * factor),
        )

    def to_json(self) -> dict[str, Any]:
        """Plain types only, as the run file stores them."""
        return {**asdict(self), "warnings": list(self.warnings)}

    @classmethod
    def from_json(cls, data: object) -> Estimate:
        """Read what `to_json` wrote. ValueError names the first field that does not fit."""
        fields = Fields(data, "estimate")
        beside = fields.optional_mapping("alternative")
        return cls(
            centre=fields.number("centre"),
            low=fields.optional_number("low"),
            high=fields.optional_number("high"),
            confidence=fields.number("confidence"),
            n=fields.integer("n"),
            unit=fields.text("unit"),
            resampled=fields.text("resampled"),
            method=fields.text("method"),
            warnings=tuple(str(warning) for warning in fields.sequence("warnings")),
            alternative=None if beside is None else Interval.from_json(beside),
        )


def exactly(value: float, unit: str = "1") -> Estimate:
    """A counted or derived number as an estimate whose interval is the number itself."""
    return Estimate(value, value, value, 1.0, 1, unit, "value", "exact")
