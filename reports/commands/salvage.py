"""`python -m reports salvage out.jsonl`: a run file from the journal of an interrupted run."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from reports import journal, strict_json
from reports.salvage import restored

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the journal and where to write."""
    parser.add_argument("journal", type=Path, metavar="JOURNAL", help="out.jsonl")
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="default: the journal's name with .json"
    )
    parser.add_argument("--force", action="store_true", help="replace FILE where it exists")


def run(args: argparse.Namespace) -> int:
    """Write the run file; refuse to replace one that is there."""
    output = args.output or args.journal.with_suffix(".json")
    found = journal.read(args.journal)
    document = restored(found)
    if output.exists() and not args.force:
        raise FileExistsError(f"{output}: exists already: name another with -o, or give --force")
    partial = output.with_name(f"{output.name}.partial")
    partial.write_text(strict_json.dumps(document, indent=1) + "\n", encoding="utf-8")
    partial.replace(output)
    for warning in found.warnings:
        print(warning, file=sys.stderr)
    tests, entries = document["experiment"]["tests"], document["benchmarks"]
    print(f"{output}: {len(tests)} finished tests, {len(entries)} benchmark entries")
    return 0
