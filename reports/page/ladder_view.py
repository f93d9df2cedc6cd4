"""The ladder of a run as the page shows it: the hero figure in two widths, and its table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from reports.figures import gallery
from reports.ladder import CEILINGS, rungs
from reports.page.cells import Cell, cell, factor, percent
from reports.page.pictures import svg
from reports.units import significant

if TYPE_CHECKING:
    from collections.abc import Sequence

    from markupsafe import Markup

    from reports.ladder import Rung
    from reports.runfile import RunFile


@dataclass(frozen=True)
class RungView:
    """One line of the ladder's table."""

    subject: str
    speed: Cell
    gain: str
    shares: tuple[str, ...]
    overhead: Cell


@dataclass(frozen=True)
class LadderView:
    """The hero figure in two widths, and its table."""

    sentence: str
    wide: Markup | None
    narrow: Markup | None
    alt: str
    caption: str
    ceilings: tuple[str, ...]
    rungs: tuple[RungView, ...]


def ladder_view(run: RunFile) -> LadderView:
    """The ladder, or a sentence where no rung was measured."""
    climbed, drawings = rungs(run), gallery.ladder_figures(run)
    names = tuple(n for n in CEILINGS.values() if any(n in r.ceilings for r in climbed))
    if not drawings:
        return LadderView("This run measured no rung at batch 1.", None, None, "", "", names, ())
    wide, narrow = drawings
    return LadderView(
        sentence=_ladder_sentence([rung for rung in climbed if not rung.beside]),
        wide=svg(wide),
        narrow=svg(narrow),
        alt=wide.alt,
        caption=wide.caption,
        ceilings=names,
        rungs=tuple(_rung(rung, names) for rung in climbed),
    )


def _ladder_sentence(climbed: Sequence[Rung]) -> str:
    first, last = climbed[0], climbed[-1]
    gain = last.speed.centre / first.speed.centre
    text = f"{last.row.subject} decodes {significant(last.speed.centre)} tok/s"
    if len(climbed) > 1:
        text += f", {significant(gain)} times {first.row.subject}"
    if last.ceilings:
        name = min(last.ceilings, key=lambda name: last.ceilings[name])
        text += f", and reaches {percent(last.share(name))} of the ceiling by {name}"
    return f"{text}."


def _rung(rung: Rung, names: Sequence[str]) -> RungView:
    shares = tuple(percent(rung.share(name)) for name in names)
    overhead = cell(rung.row.layer_overhead_s)
    return RungView(rung.row.subject, cell(rung.speed), factor(rung.gain), shares, overhead)
