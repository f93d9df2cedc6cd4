"""`python -m reports summary out.json`: verdicts and tables of a run as Markdown."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from reports.runfile import load_run
from reports.summary import summary

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the run file and where to write."""
    parser.add_argument("file", type=Path, metavar="FILE", help="out.json")
    parser.add_argument(
        "-o", "--output", type=Path, metavar="MD", help="append here and not to the terminal"
    )


def run(args: argparse.Namespace) -> int:
    """Print the summary, or append it, as `$GITHUB_STEP_SUMMARY` wants it."""
    text = summary(load_run(args.file))
    if args.output is None:
        print(text)
        return 0
    with args.output.open("a", encoding="utf-8") as file:
        file.write(f"{text}\n")
    return 0
