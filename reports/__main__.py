"""`python -m reports COMMAND …`: what the stored numbers say.

One module per command in `reports/commands/`, imported only when its command is given, so that
`--help` and `summary` start at once. None of them needs torch.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

COMMANDS = (
    ("summary", "verdicts and tables of a run as Markdown"),
    ("html", "one self-contained page of a run"),
    ("results", "theory beside measurement, as results.json and Markdown"),
    ("plot", "figures of theory and of a run, SVG and PNG"),
    ("diff", "what changed between two runs or two sets of runs"),
    ("budget", "memory budget and ceilings for any model and GPU"),
    ("salvage", "a run file from the journal of an interrupted run"),
    ("check", "validate a contributed run"),
)
BAD_INPUT = 2


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; bad input is one line on stderr and exit status 2."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    parser, command = _parser(arguments)
    parsed = parser.parse_args(arguments)
    if command is None:
        parser.print_help()
        return BAD_INPUT
    _speak_utf8()
    try:
        return int(command.run(parsed))
    except BrokenPipeError:  # the reader, for instance `head`, has seen enough
        sys.stderr.close()
        return 0
    except (ValueError, OSError) as problem:
        print(f"python -m reports: {_one_line(problem)}", file=sys.stderr)
        return BAD_INPUT


def _parser(arguments: Sequence[str]) -> tuple[argparse.ArgumentParser, ModuleType | None]:
    """The parser, with the arguments of the chosen command only, and that command's module."""
    parser = argparse.ArgumentParser(
        prog="python -m reports", description="what the stored numbers say"
    )
    commands = parser.add_subparsers(metavar="COMMAND")
    chosen = next((word for word in arguments if not word.startswith("-")), None)
    module = None
    for name, purpose in COMMANDS:
        own = commands.add_parser(name, help=purpose, description=purpose)
        if name == chosen:
            module = importlib.import_module(f"reports.commands.{name}")
            module.add_arguments(own)
    return parser, module


def _speak_utf8() -> None:
    """Print Thai and typographic signs also where the terminal's encoding has none of them."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="replace")


def _one_line(problem: Exception) -> str:
    if isinstance(problem, OSError) and problem.strerror and problem.filename:
        return f"{problem.filename}: {problem.strerror}"
    return " ".join(str(problem).split()) or type(problem).__name__


if __name__ == "__main__":
    sys.exit(main())
