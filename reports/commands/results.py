"""`python -m reports results out.json`: theory beside measurement, as `results.json`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from reports.results import FILE_NAME, markdown, results_of, write_results
from reports.runfile import load_run

if TYPE_CHECKING:
    import argparse

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the run and where the results go."""
    parser.add_argument("file", type=Path, help="a run (out.json)")
    parser.add_argument("-o", "--output", type=Path, help="default: results.json beside the run")


def run(args: argparse.Namespace) -> int:
    """Write and print the results."""
    output = args.output or args.file.with_name(FILE_NAME)
    loaded = load_run(args.file)
    write_results(loaded, output)
    print(markdown(results_of(loaded)))
    print(f"\nwritten: {output}")
    return 0
