"""`python -m reports check FILE`: whether a run is fit to be a baseline."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from reports.contribution import problems_of
from reports.runfile import load_run

if TYPE_CHECKING:
    import argparse

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the files."""
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="runs to validate")


def run(args: argparse.Namespace) -> int:
    """One line per problem; 0 if all files are fit, 1 if one is not, 2 if one cannot be read."""
    return max(_check(path) for path in args.files)


def _check(path: Path) -> int:
    try:
        loaded = load_run(path)
        problems = problems_of(loaded)
    except (ValueError, OSError) as problem:  # the other files are checked all the same
        print(f"{problem}", file=sys.stderr)
        return 2
    for line in problems:
        print(f"{path}: {line}")
    if not problems:
        print(
            f"{path}: fit to contribute: {len(loaded.verdicts)} verdicts, "
            f"{len(loaded.rows)} engine rows on {loaded.experiment['device']['name']}"
        )
    return 1 if problems else 0
