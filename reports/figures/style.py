"""How every figure looks, and how it is saved.

The colours are named by role. In a file they are what stands here; in the page `inline_svg` turns
each into a CSS variable, so that one drawing serves light and dark. Lines differ by dash and marker
as well as by colour. Text stays text in the SVG: it can be read aloud, selected and searched.
"""

from __future__ import annotations

import functools
import io
import re
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

P = ParamSpec("P")
R = TypeVar("R")

INK = "#1c2126"
MUTED = "#5a646e"
GRID = "#e3dfd6"
ACCENT = "#0f6e68"
SOFT = "#7fb8b3"
PAPER = "#fffffe"
WARN = "#b4231a"

CSS_VARIABLES = {
    INK: "var(--ink)",
    MUTED: "var(--muted)",
    GRID: "var(--grid)",
    ACCENT: "var(--accent)",
    SOFT: "var(--soft)",
    PAPER: "var(--card)",
    WARN: "var(--bad)",
}

WIDTH_IN, HEIGHT_IN = 4.5, 3.3  # legible at 10 pt on a phone of 390 px, two in a row on a desktop

WIDEST_DENSE_LOG = 300
LONGEST_LABEL = 18

RC: dict[str, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "ladder",
    "text.parse_math": False,  # a name from a run file may hold a dollar sign
    "font.family": ["DejaVu Sans"],
    "font.size": 10,
    "axes.titlesize": 10,
    "axes.labelsize": 10,
    "axes.labelcolor": MUTED,
    "axes.edgecolor": MUTED,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "text.color": INK,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "lines.linewidth": 1.8,
    "lines.markersize": 5,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
}

SERIES: tuple[dict[str, Any], ...] = (
    {"color": ACCENT, "linestyle": "-", "marker": "o"},
    {"color": INK, "linestyle": "--", "marker": "s"},
    {"color": SOFT, "linestyle": "-.", "marker": "^"},
    {"color": MUTED, "linestyle": ":", "marker": "D"},
)
"""Four looks that differ in colour, dash and marker; a fifth line belongs in another figure."""


@dataclass(frozen=True)
class Drawing:
    """A finished figure, its caption, and what it says to someone who cannot see it."""

    name: str
    title: str
    caption: str
    alt: str
    figure: Figure


def styled(draw: Callable[P, R]) -> Callable[P, R]:
    """Run a drawing function under this style; matplotlib's own state is untouched."""

    @functools.wraps(draw)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        import matplotlib as mpl

        with mpl.rc_context(RC):  # type: ignore[arg-type]  # its keys are one long Literal
            return draw(*args, **kwargs)

    return wrapper


def new_axes(width_in: float = WIDTH_IN, height_in: float = HEIGHT_IN) -> tuple[Figure, Axes]:
    """An empty figure of one panel, without pyplot and its global list of figures."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width_in, height_in), layout="constrained")
    return figure, figure.add_subplot()


def plain_log_axis(axis: Axis) -> None:
    """1, 2, 5, 10 … in plain figures; only 1, 10, 100 … where the axis spans many decades."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

    low, high = axis.get_view_interval()
    wide = low > 0 and high / low > WIDEST_DENSE_LOG
    axis.set_major_locator(LogLocator(base=10, subs=(1.0,) if wide else (1.0, 2.0, 5.0)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axis.set_minor_formatter(NullFormatter())
    axis.set_minor_locator(NullLocator())


def short(name: str) -> str:
    """A name from a run file as a label: one line, and no longer than a figure can hold."""
    line = " ".join(name.split())
    return line if len(line) <= LONGEST_LABEL else f"{line[: LONGEST_LABEL - 1]}…"


def whiskers(
    axes: Axes, x: float, centre: float, low: float | None, high: float | None, **look: Any
) -> None:
    """One measured point with its interval; a point without an interval is drawn hollow."""
    color = look.pop("color", ACCENT)
    look.setdefault("marker", "o")
    if low is None or high is None:
        axes.plot([x], [centre], linestyle="", color=color, markerfacecolor=PAPER, **look)
        return
    spread = [[max(0.0, centre - low)], [max(0.0, high - centre)]]
    axes.errorbar([x], [centre], yerr=spread, color=color, capsize=3, linestyle="", **look)


def save(drawing: Drawing, path: Path) -> None:
    """Write SVG or PNG, whichever the file's name asks for; equal data gives equal bytes."""
    path.write_bytes(_rendered(drawing, path.suffix.lstrip(".").lower()))


@styled
def _rendered(drawing: Drawing, kind: str) -> bytes:
    buffer = io.BytesIO()
    metadata: dict[str, Any] = {"Title": drawing.title}
    if kind == "svg":
        metadata |= {"Date": None, "Description": drawing.alt}
    face = "white" if kind == "png" else "none"
    with warnings.catch_warnings():
        # A Thai engine name has no glyph in the default font: boxes are better than no figure.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        _freeze_layout(drawing.figure)
        drawing.figure.savefig(buffer, format=kind, metadata=metadata, facecolor=face, dpi=160)
    return buffer.getvalue()


def _freeze_layout(figure: Figure) -> None:
    """Lay out once: each further pass would move everything by a fraction of a point."""
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    if isinstance(figure.get_layout_engine(), ConstrainedLayoutEngine):
        figure.draw_without_rendering()
        figure.set_layout_engine("none")


def inline_svg(drawing: Drawing) -> str:
    """The drawing as an element of an HTML page: themed, scalable, with ids that are its own."""
    text = _rendered(drawing, "svg").decode("utf-8")
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r"<title>.*?</title>", "", text, flags=re.DOTALL)
    text = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", text, count=1)
    text = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", text, count=1)
    text = re.sub(r'\bid="', f'id="{drawing.name}-', text)
    text = re.sub(r'(url\(|href=")#', rf"\g<1>#{drawing.name}-", text)
    for colour, variable in CSS_VARIABLES.items():
        text = text.replace(colour, variable)
    return text.replace("<svg ", '<svg aria-hidden="true" focusable="false" ', 1)
