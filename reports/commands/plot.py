"""`python -m reports plot`: the figures as SVG and PNG, with a run's points where one is given."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from reports.runfile import load_run

if TYPE_CHECKING:
    import argparse

    from reports.figures.style import Drawing

FORMATS = ("svg", "png")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the run, the folder, and which figures and formats are wanted."""
    parser.add_argument("file", nargs="?", type=Path, help="a run; without one: theory alone")
    parser.add_argument("-o", "--output", type=Path, default=Path("figures"), help="folder")
    parser.add_argument("--only", action="append", metavar="NAME", help="this figure (repeatable)")
    parser.add_argument("--format", action="append", choices=FORMATS, help="default: both")


def run(args: argparse.Namespace) -> int:
    """Write one file per figure and format."""
    drawings = _chosen(_drawings(args.file), args.only)
    args.output.mkdir(parents=True, exist_ok=True)
    written = _save(drawings, args.output, args.format or FORMATS)
    print(f"written: {', '.join(map(str, written))}")
    return 0


def _drawings(path: Path | None) -> list[Drawing]:
    loaded = None if path is None else load_run(path)
    from reports.figures import gallery

    if loaded is None:
        return gallery.theory_figures()
    return [*gallery.ladder_figures(loaded), *gallery.run_figures(loaded)]


def _chosen(drawings: list[Drawing], names: list[str] | None) -> list[Drawing]:
    if names is None:
        return drawings
    known = [drawing.name for drawing in drawings]
    for name in names:
        if name not in known:
            raise ValueError(f"no figure {name!r} here, expected one of {', '.join(known)}")
    return [drawing for drawing in drawings if drawing.name in names]


def _save(
    drawings: list[Drawing], folder: Path, formats: tuple[str, ...] | list[str]
) -> list[Path]:
    from reports.figures.style import save

    paths = []
    for drawing in drawings:
        for kind in formats:
            path = folder / f"{drawing.name}.{kind}"
            save(drawing, path)
            paths.append(path)
    return paths
