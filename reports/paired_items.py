"""The same questions answered on two sides, compared item by item.

Both sides answered each item, so only the items that changed carry information: McNemar's exact
test on them, and an interval for the difference of the two accuracies from the same counts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from reports.runfile import RunFile

SERIES = "quality_items"
"""Points of this series: {"engine", "item", "correct"}; one per engine and item."""
Z_95 = 1.959964


@dataclass(frozen=True)
class ItemChange:
    """Counts of changed answers, and the difference of accuracy (after - before) with interval."""

    items: int
    lost: int
    gained: int
    difference: float
    interval: tuple[float, float]
    p_value: float
    word: str


def item_change(before: RunFile, after: RunFile, engine: str, margin: float) -> ItemChange | None:
    """Compare one engine's answers on the items that both runs have; None without any."""
    old, new = _answers(before, engine), _answers(after, engine)
    common = old.keys() & new.keys()
    if not common:
        return None
    lost = sum(old[item] and not new[item] for item in common)
    gained = sum(new[item] and not old[item] for item in common)
    difference = (gained - lost) / len(common)
    interval = difference_interval(lost, gained, len(common))
    p_value = mcnemar_exact(lost, gained)
    return ItemChange(
        items=len(common),
        lost=lost,
        gained=gained,
        difference=difference,
        interval=interval,
        p_value=p_value,
        word=_word(interval, p_value, margin),
    )


def mcnemar_exact(lost: int, gained: int) -> float:
    """Two-sided exact p-value that a changed item is as likely lost as gained."""
    changed = lost + gained
    tail = sum(math.comb(changed, k) for k in range(min(lost, gained) + 1))
    return min(1.0, float(2 * tail / 2**changed))


def difference_interval(lost: int, gained: int, items: int) -> tuple[float, float]:
    """95 % interval of the paired difference, with half an item added to each count.

    Agresti and Min (2005, Stat. Med. 24:729): adding 0.5 to each cell keeps the coverage near 95 %
    also where few items changed.
    """
    total = items + 2
    lost_share, gained_share = (lost + 0.5) / total, (gained + 0.5) / total
    centre = gained_share - lost_share
    half = Z_95 * math.sqrt((lost_share + gained_share - centre**2) / total)
    return max(-1.0, centre - half), min(1.0, centre + half)


def _word(interval: tuple[float, float], p_value: float, margin: float) -> str:
    if p_value < 0.05 and not interval[0] <= 0 <= interval[1]:
        return "better" if interval[0] > 0 else "worse"
    return "same" if -margin <= interval[0] and interval[1] <= margin else "undecided"


def _answers(run: RunFile, engine: str) -> dict[str, bool]:
    return {
        str(point["item"]): bool(point["correct"])
        for series in run.series(SERIES)
        for point in series.get("points") or ()
        if isinstance(point, Mapping) and point.get("engine") == engine
        if "item" in point and "correct" in point
    }
