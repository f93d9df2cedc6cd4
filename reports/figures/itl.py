"""Inter-token latency per engine: its spread, not only its middle.

pytest-benchmark keeps quartiles and ends of the gaps; p99 comes from the engine row, where it is
withheld below its sample floor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from reports.figures.style import (
    ACCENT,
    INK,
    SOFT,
    WIDTH_IN,
    Drawing,
    new_axes,
    plain_log_axis,
    short,
    styled,
)
from reports.units import printed_unit

if TYPE_CHECKING:
    from reports.runfile import RunFile

MOST_LINES = 16


@dataclass(frozen=True)
class Gaps:
    """Five points of one engine's gaps between tokens [s], and p99 where it is known."""

    subject: str
    low: float
    q1: float
    median: float
    q3: float
    high: float
    p99: float | None


def gaps(run: RunFile) -> list[Gaps]:
    """Gaps of every engine row, each subject once, in the order of the run."""
    p99 = {
        row.subject: row.itl_p99_s
        for row in run.rows
        if row.itl_p99_s is not None and row.itl_p99_s.interval is not None
    }
    engines = {row.subject for row in run.rows}
    found: dict[str, Gaps] = {}
    for entry in run.benchmarks:
        info, stats = entry.get("extra_info"), entry.get("stats")
        if not str(entry["fullname"]).endswith("itl") or not isinstance(info, Mapping):
            continue
        batch_size = info.get("batch_size")
        subject = f"{str(info.get('engine')).removesuffix(f' batch {batch_size}')}@{batch_size}"
        if subject not in engines:  # an arm of a control, or of a sweep over something else
            continue
        known = p99.get(subject)
        if isinstance(stats, Mapping) and (points := _five(stats)):
            found.setdefault(subject, Gaps(subject, *points, known.centre if known else None))
    return list(found.values())[:MOST_LINES]


def _five(stats: Mapping[str, Any]) -> tuple[float, float, float, float, float] | None:
    values = [stats.get(key) for key in ("min", "q1", "median", "q3", "max")]
    if not all(isinstance(v, int | float) and v > 0 for v in values):
        return None
    low, q1, median, q3, high = (float(v) for v in values if v is not None)
    return low, q1, median, q3, high


@styled
def draw(lines: Sequence[Gaps]) -> Drawing:
    """One line per engine: range, quartiles, median, p99."""
    figure, axes = new_axes(WIDTH_IN, 1.15 + 0.3 * len(lines))
    unit = printed_unit("s", max(line.median for line in lines))
    for index, line in enumerate(lines):
        axes.plot(
            [line.low / unit.factor, line.high / unit.factor],
            [index] * 2,
            color=SOFT,
            linewidth=1.4,
        )
        axes.plot(
            [line.q1 / unit.factor, line.q3 / unit.factor],
            [index] * 2,
            color=ACCENT,
            linewidth=7,
            solid_capstyle="butt",
        )
        axes.plot(
            [line.median / unit.factor],
            [index],
            marker="|",
            color=INK,
            markersize=13,
            markeredgewidth=2,
        )
        if line.p99 is not None:
            axes.plot([line.p99 / unit.factor], [index], marker="D", color=INK, markersize=4.5)
    axes.set_xscale("log")
    axes.set_yticks(range(len(lines)), [short(line.subject) for line in lines])
    axes.set_ylim(len(lines) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0, labelcolor=INK)
    axes.grid(axis="y", visible=False)
    axes.set_xlabel(f"gap between tokens [{unit.label}], logarithmic")
    plain_log_axis(axes.xaxis)
    return Drawing(
        name="itl",
        title="Inter-token latency per engine",
        caption="Thin: smallest to largest gap; thick: middle half; bar: median; diamond: "
        "p99, where there are enough samples for one.",
        alt="Inter-token latency: "
        + "; ".join(f"{line.subject} median {unit.with_label(line.median)}" for line in lines),
        figure=figure,
    )
