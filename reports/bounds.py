"""The side of a number that a claim is about, written down before anything is measured."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from reports.fields import Fields
from reports.units import PrintedUnit

if TYPE_CHECKING:
    from collections.abc import Mapping

UNSCALED = PrintedUnit(1.0, "")


@dataclass(frozen=True, slots=True)
class Bound:
    """The claimed side is inside [low, high]; None leaves that side open.

    `strict` excludes the ends themselves ("< 266", not "≤ 266"). `text` replaces the printed form;
    a bound of words alone, with neither end, can be recorded but not judged.
    """

    low: float | None = None
    high: float | None = None
    strict: bool = False
    text: str = ""

    def __post_init__(self) -> None:
        if not self.numeric and not self.text:
            raise ValueError("a bound needs low, high or both, or a text: got none of them")
        if self.low is not None and self.high is not None and self.low > self.high:
            raise ValueError(f"a bound must have low <= high, got [{self.low}, {self.high}]")

    @property
    def numeric(self) -> bool:
        """True where a number can be judged against it."""
        return self.low is not None or self.high is not None

    def contains(self, low: float, high: float) -> bool:
        """True when the whole interval [low, high] is on the claimed side."""
        above = self.low is None or (low > self.low if self.strict else low >= self.low)
        below = self.high is None or (high < self.high if self.strict else high <= self.high)
        return above and below

    def excludes(self, low: float, high: float) -> bool:
        """True when the whole interval [low, high] is on the other side."""
        if self.low is not None and (high <= self.low if self.strict else high < self.low):
            return True
        return self.high is not None and (low >= self.high if self.strict else low > self.high)

    def describe(self, unit: PrintedUnit = UNSCALED) -> str:
        """`< 266`, `≥ 1.1` or `in [0.97, 1.03]`, scaled like the value it stands beside."""
        if self.text:
            return self.text
        if self.low is not None and self.high is not None:
            if self.low == self.high:
                return f"= {unit.declared(self.low)}"
            return f"in [{unit.declared(self.low)}, {unit.declared(self.high)}]"
        if self.high is not None:
            return f"{'<' if self.strict else '≤'} {unit.declared(self.high)}"
        return f"{'>' if self.strict else '≥'} {unit.declared(self.low or 0.0)}"

    def to_json(self) -> dict[str, Any]:
        """Plain types only, as the run file stores them."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Bound:
        """Read what `to_json` wrote."""
        fields = Fields(data, "bound")
        return cls(
            low=fields.optional_number("low"),
            high=fields.optional_number("high"),
            strict=fields.flag("strict"),
            text=fields.text("text"),
        )


def below(high: float, text: str = "") -> Bound:
    """`< high`."""
    return Bound(high=high, strict=True, text=text)


def above(low: float, text: str = "") -> Bound:
    """`> low`."""
    return Bound(low=low, strict=True, text=text)


def within(low: float, high: float, text: str = "") -> Bound:
    """Inside [low, high], ends included: also how equivalence is claimed."""
    return Bound(low=low, high=high, text=text)
