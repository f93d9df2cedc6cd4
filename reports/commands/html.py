"""`python -m reports html out.json`: one self-contained page of a run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from reports.runfile import load_run

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the run and where the page goes."""
    parser.add_argument("file", type=Path, metavar="FILE", help="out.json")
    parser.add_argument("-o", "--output", type=Path, help="default: beside the run, .html")


def run(args: argparse.Namespace) -> int:
    """Write the page."""
    output = args.output or args.file.with_suffix(".html")
    loaded = load_run(args.file)
    from reports.page.render import render_page

    output.write_text(render_page(loaded), encoding="utf-8")
    print(f"written: {output}")
    return 0
