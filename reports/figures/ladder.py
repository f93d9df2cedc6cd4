"""The ladder: how much each rung added, and how much is left below the ceilings.

On a logarithmic axis equal lengths are equal factors, so the gains of the rungs and the gap that
remains add up to the whole distance between the naive engine and the ceiling.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reports.figures.style import (
    ACCENT,
    INK,
    MUTED,
    PAPER,
    SOFT,
    Drawing,
    new_axes,
    plain_log_axis,
    short,
    styled,
)
from reports.units import significant

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

    from reports.ladder import Rung

CEILING_LOOKS: dict[str, dict[str, Any]] = {
    "datasheet": {"color": INK, "linestyle": "-"},
    "measured read": {"color": INK, "linestyle": "--"},
    "measured copy": {"color": MUTED, "linestyle": ":"},
}


@styled
def draw(rungs: Sequence[Rung], *, narrow: bool = False) -> Drawing:
    """One row per rung, the ceilings of its own bytes as ticks that join to a line.

    What stands beside the ladder follows below a rule: a point each, for it added to no rung.
    """
    width, row_height = (4.5, 0.85) if narrow else (10.4, 0.72)
    figure, axes = new_axes(width, 1.35 + row_height * len(rungs))
    first = min(rung.speed.centre for rung in rungs)
    last = max(index for index, rung in enumerate(rungs) if not rung.beside)
    top = max(max(r.speed.centre, *r.ceilings.values()) for r in rungs)
    axes.set_xscale("log")
    axes.set_xlim(first / (1.6 if not narrow else 1.9), top * 1.35)
    axes.set_ylim(len(rungs) - 0.5, -0.75)
    for index, rung in enumerate(rungs):
        _draw_rung(axes, index, rung, rungs[index - 1].speed.centre if index else None)
    if last + 1 < len(rungs):
        axes.axhline(last + 0.5, color=MUTED, linewidth=0.8)
    _draw_ceilings(axes, rungs)
    _draw_gap(axes, last, rungs[last])
    _name_ceilings(axes, rungs[0], narrow)
    axes.set_yticks(range(len(rungs)), [short(r.row.subject) for r in rungs])
    axes.tick_params(axis="y", length=0, labelsize=11, labelcolor=INK)
    axes.spines["left"].set_visible(False)
    axes.grid(axis="y", visible=False)
    axes.set_xlabel("tokens per second at batch 1, logarithmic")
    plain_log_axis(axes.xaxis)
    return Drawing(
        name="ladder-narrow" if narrow else "ladder",
        title="The ladder",
        caption="Each bar is what that rung added to the one before; the dotted rest is the gap to "
        "the lowest ceiling above it. Ceilings are bandwidth over the bytes of one step."
        + (
            " Below the rule: engines that are no rungs, for comparison."
            if rungs[-1].beside
            else ""
        ),
        alt=describe(rungs),
        figure=figure,
    )


def describe(rungs: Sequence[Rung]) -> str:
    """The figure in words."""
    parts = [f"{r.row.subject} {significant(r.speed.centre)} tokens per second" for r in rungs]
    ceilings = [f"{name} {significant(v)}" for name, v in rungs[0].ceilings.items()]
    ends = f" Ceilings: {', '.join(ceilings)} tokens per second." if ceilings else ""
    return f"Ladder of decode speed at batch 1: {'; '.join(parts)}.{ends}"


def _draw_rung(axes: Axes, index: int, rung: Rung, before: float | None) -> None:
    speed = rung.speed.centre
    if not rung.beside:
        _draw_bar(axes, index, speed, before)
    interval = rung.speed.interval
    if interval is not None:
        axes.plot(interval, [index, index], color=INK, linewidth=2, zorder=4)
    axes.plot(
        [speed], [index], marker="o", color=INK, markersize=6, zorder=5, markeredgecolor=PAPER
    )
    gain = f"×{significant(rung.gain, 2)}" if rung.gain else ""
    axes.annotate(
        f"{significant(speed)} tok/s   {gain}".rstrip(),
        (speed, index),
        xytext=(0, 10),
        textcoords="offset points",
        ha=_side(axes, speed),
        color=INK,
        fontsize=10,
        zorder=3,
        bbox={"facecolor": PAPER, "edgecolor": "none", "pad": 0.8},
    )


def _draw_bar(axes: Axes, index: int, speed: float, before: float | None) -> None:
    start = before if before is not None else axes.get_xlim()[0]
    if before is not None:
        axes.plot([before, before], [index - 1, index], color=MUTED, linewidth=0.9, zorder=1)
    colour = ACCENT if before is not None else SOFT
    axes.plot([start, speed], [index, index], color=colour, linewidth=11, solid_capstyle="butt")


def _side(axes: Axes, x: float) -> str:
    """Which way a label may grow without leaving the axes."""
    position = axes.transAxes.inverted().transform(axes.transData.transform((x, 0)))[0]
    return "left" if position < 0.3 else "right" if position > 0.7 else "center"


def _draw_ceilings(axes: Axes, rungs: Sequence[Rung]) -> None:
    """One line per ceiling; it has a step where a rung reads more bytes than the one before."""
    for name, look in CEILING_LOOKS.items():
        known = [(index, r.ceilings[name]) for index, r in enumerate(rungs) if name in r.ceilings]
        x = [value for _, value in known for _ in range(2)]
        y = [end for index, _ in known for end in (index - 0.5, index + 0.5)]
        axes.plot(x, [-0.75, *y[1:]] if y else [], linewidth=1.3, zorder=2, **look)


def _draw_gap(axes: Axes, index: int, rung: Rung) -> None:
    above = [value for value in rung.ceilings.values() if value > rung.speed.centre]
    if not above:
        return
    axes.plot(
        [rung.speed.centre, min(above)],
        [index, index],
        color=SOFT,
        linestyle=(0, (1, 1.4)),
        linewidth=5,
        zorder=1,
    )


def _name_ceilings(axes: Axes, rung: Rung, narrow: bool) -> None:
    """Ceilings lie close together: their names stand in a legend, in the order of the lines."""
    for name, value in sorted(rung.ceilings.items(), key=lambda item: item[1]):
        axes.plot(
            [], [], linewidth=1.3, label=f"{name} {significant(value)} tok/s", **CEILING_LOOKS[name]
        )
    if rung.ceilings:
        axes.legend(
            loc="lower right",
            bbox_to_anchor=(1.0, 1.0),
            ncols=1 if narrow else 3,
            title="ceilings [tok/s]" if narrow else None,
            title_fontsize=9,
            borderaxespad=0.2,
        )
