"""How a value looks in a cell of the page: a number, and its interval in small print below."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from reports.units import printed_unit, significant

if TYPE_CHECKING:
    from reports.estimate import Estimate

NOTHING = "–"


@dataclass(frozen=True)
class Cell:
    """`centre` is the value with its unit, `range` the interval, `lack` why there is none."""

    centre: str
    range: str = ""
    lack: str = ""


def cell(estimate: Estimate | None) -> Cell:
    """A measured value with its interval, or with the size of a sample that allows none."""
    if estimate is None:
        return Cell(NOTHING)
    unit = printed_unit(estimate.unit, estimate.centre)
    text = unit.with_label(estimate.centre)
    if estimate.exact or estimate.interval is None:
        return Cell(text, lack="" if estimate.exact else f"n = {estimate.n}")
    low, high = estimate.interval
    return Cell(text, f"{unit.number(low)} – {unit.number(high)}")


def size(bytes_: float | None) -> str:
    """Bytes in the decimal unit that reads best."""
    return NOTHING if bytes_ is None else printed_unit("bytes", bytes_).with_label(bytes_)


def percent(share: float | None) -> str:
    """A share with two significant digits, as percent."""
    return NOTHING if share is None else f"{significant(100 * share, 2)} %"


def factor(gain: float | None) -> str:
    """A gain over the rung before."""
    return NOTHING if gain is None else f"×{significant(gain, 3)}"
