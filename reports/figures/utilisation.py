"""p99 against utilisation: why a server has to keep headroom.

The curve is M/M/1 in the unit of the mean service time, so that any server can be drawn on it: p99
of the time in the system is ln(100) / (1 - utilisation) service times.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from reports.figures.style import (
    ACCENT,
    INK,
    MUTED,
    SERIES,
    Drawing,
    new_axes,
    short,
    styled,
    whiskers,
)
from reports.queueing import mm1_sojourn_quantile_s

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

HEADROOM = 0.8


@dataclass(frozen=True)
class LoadPoint:
    """One offered load of a sweep, with the interval of its p99 if there is one."""

    server: str
    utilisation: float
    p99_s: float
    low_s: float | None = None
    high_s: float | None = None


@styled
def draw(points: Sequence[LoadPoint] = ()) -> Drawing:
    """Theory relative to an empty server, and measured sweeps relative to their lowest load."""
    figure, axes = new_axes()
    shares = np.linspace(0, 0.97, 300)
    idle_s = mm1_sojourn_quantile_s(0.99, 1.0, 0.0)
    theory = [mm1_sojourn_quantile_s(0.99, 1.0, float(share)) / idle_s for share in shares]
    chapter_s = mm1_sojourn_quantile_s(0.99, 0.5, HEADROOM)
    axes.plot(shares * 100, theory, color=MUTED, linestyle="--", label="M/M/1")
    axes.axvline(HEADROOM * 100, color=INK, linewidth=1)
    axes.annotate(
        "80 %",
        (HEADROOM * 100, 1),
        xycoords=("data", "axes fraction"),
        xytext=(-4, -12),
        textcoords="offset points",
        ha="right",
        color=INK,
        fontsize=9,
    )
    axes.plot([HEADROOM * 100], [5], marker="o", color=MUTED)
    servers = list(dict.fromkeys(point.server for point in points))
    for server, look in zip(servers, SERIES, strict=False):
        _draw_sweep(axes, [p for p in points if p.server == server], server, look)
    _unstable(axes, points)
    axes.set_xlim(0, max([100.0, *(p.utilisation * 105 for p in points)]))
    axes.set_yscale("log")
    axes.set_yticks([1, 2, 5, 10, 20, 50], ["1", "2", "5", "10", "20", "50"])
    axes.minorticks_off()
    axes.set_xlabel("utilisation [%]")
    axes.set_ylabel("p99 over p99 of an idle server")
    axes.legend(loc="upper left")
    return Drawing(
        name="utilisation",
        title="p99 against utilisation",
        caption="At 80 % the p99 of M/M/1 is five times that of an idle server: with a mean "
        f"service of 0.5 s it is {chapter_s:.1f} s. Above 100 % the queue grows without end, "
        "and a p99 would only say how long one looked." + (" Points: this run." if points else ""),
        alt="p99 of the time in the system grows as 1 / (1 - utilisation): 2 times at 50 %, "
        "5 times at 80 %, 10 times at 90 %." + _described(points),
        figure=figure,
    )


def _draw_sweep(axes: Axes, sweep: Sequence[LoadPoint], server: str, look: dict[str, Any]) -> None:
    sweep = sorted(sweep, key=lambda point: point.utilisation)
    unit = sweep[0].p99_s * (1 - min(sweep[0].utilisation, 0.5))
    axes.plot(
        [p.utilisation * 100 for p in sweep],
        [p.p99_s / unit for p in sweep],
        color=look["color"],
        linestyle=look["linestyle"],
        linewidth=1,
        label=short(server),
    )
    for p in sweep:
        low = None if p.low_s is None else p.low_s / unit
        high = None if p.high_s is None else p.high_s / unit
        whiskers(
            axes,
            p.utilisation * 100,
            p.p99_s / unit,
            low,
            high,
            color=look["color"],
            marker=look["marker"],
        )


def _unstable(axes: Axes, points: Sequence[LoadPoint]) -> None:
    if any(point.utilisation >= 1 for point in points):
        axes.axvspan(100, 200, color=ACCENT, alpha=0.08, linewidth=0)
        axes.annotate(
            "overload",
            (100, 0),
            xycoords=("data", "axes fraction"),
            xytext=(3, 5),
            textcoords="offset points",
            color=MUTED,
            fontsize=8,
        )


def _described(points: Sequence[LoadPoint]) -> str:
    shown = [f"{p.server} at {p.utilisation:.0%}: {p.p99_s:.3g} s" for p in points]
    return f" Measured p99: {'; '.join(shown)}." if shown else ""
