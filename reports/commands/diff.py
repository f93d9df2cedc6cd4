"""`python -m reports diff a.json b.json`: what became faster or slower, and what else differed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from reports.compare import MARGIN, Comparison, compare
from reports.results import FILE_NAME
from reports.runfile import RunFile, load_run

if TYPE_CHECKING:
    import argparse

if TYPE_CHECKING:
    import argparse

FORMATS = ("text", "markdown", "html", "json")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare sides, format, margin and what makes the exit status 1."""
    parser.add_argument(
        "files", nargs="+", type=Path, metavar="FILE", help="before and after; folders are runs"
    )
    parser.add_argument(
        "--against",
        nargs="+",
        type=Path,
        metavar="FILE",
        help="runs of the second side, where a side has several files",
    )
    parser.add_argument("--paired", action="store_true", help="i-th runs of both sides are a pair")
    parser.add_argument(
        "--margin", type=float, default=MARGIN, help="share that counts as the same"
    )
    parser.add_argument(
        "--run-spread",
        type=float,
        help="spread between runs to assume where one run per side cannot show it",
    )
    parser.add_argument("--format", choices=FORMATS, default="text")
    parser.add_argument("-o", "--output", type=Path, help="write here and not to the terminal")
    parser.add_argument(
        "--fail-on",
        action="append",
        choices=("slower", "verdict"),
        default=[],
        help="exit status 1 if a benchmark is slower, or a confirmed verdict was lost",
    )


def run(args: argparse.Namespace) -> int:
    """Print the comparison; 0, or 1 where `--fail-on` found something."""
    _check_share("--margin", args.margin)
    if args.run_spread is not None:
        _check_share("--run-spread", args.run_spread)
    before, after = _sides(args.files, args.against)
    comparison = compare(
        before, after, margin=args.margin, paired=args.paired, run_spread=args.run_spread
    )
    _write(_rendered(comparison, args.format), args.output)
    slower = "slower" in args.fail_on and comparison.regressions()
    lost = "verdict" in args.fail_on and comparison.worse_verdicts()
    return 1 if slower or lost else 0


def _sides(files: list[Path], against: list[Path] | None) -> tuple[list[RunFile], list[RunFile]]:
    if against is None and len(files) != 2:
        raise ValueError(
            f"got {len(files)} files, expected two; where a side has several runs: "
            "diff A1 A2 … --against B1 B2 …, or two folders"
        )
    first, second = ([files[0]], [files[1]]) if against is None else (files, against)
    return [load_run(f) for f in _runs(first)], [load_run(f) for f in _runs(second)]


def _runs(paths: list[Path]) -> list[Path]:
    return [run for path in paths for run in (_runs_in(path) if path.is_dir() else [path])]


def _runs_in(folder: Path) -> list[Path]:
    found = [path for path in sorted(folder.glob("*.json")) if path.name != FILE_NAME]
    if not found:
        raise ValueError(f"{folder}: a folder without runs (*.json), expected some")
    return found


def _check_share(flag: str, value: float) -> None:
    if not 0 <= value < 1:
        raise ValueError(f"{flag} must be a share from 0 up to 1 (0.03 is 3 %), got {value}")


def _rendered(comparison: Comparison, kind: str) -> str:
    from reports import diff_render

    if kind == "html":
        from reports.page.diff_page import as_html

        return as_html(comparison)
    renderers = {
        "text": diff_render.as_text,
        "markdown": diff_render.as_markdown,
        "json": diff_render.as_json,
    }
    return renderers[kind](comparison)


def _write(text: str, path: Path | None) -> None:
    if path is None:
        print(text)
        return
    path.write_text(text + "\n", encoding="utf-8")
    print(f"written: {path}")
