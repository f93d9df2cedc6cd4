"""Drawings as parts of the page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from markupsafe import Markup

from reports.figures.style import inline_svg

if TYPE_CHECKING:
    from reports.figures.style import Drawing


@dataclass(frozen=True)
class Picture:
    """One figure of the gallery."""

    name: str
    title: str
    caption: str
    alt: str
    svg: Markup


def svg(drawing: Drawing) -> Markup:
    """Matplotlib escaped every text when it wrote the SVG."""
    return Markup(inline_svg(drawing))


def picture(drawing: Drawing) -> Picture:
    """One figure of the gallery."""
    return Picture(drawing.name, drawing.title, drawing.caption, drawing.alt, svg(drawing))
