"""The parts of README.md that come from the code: tables of claims and engines, and the tree.

`python -m reports.readme` rewrites them in place. A meta test fails when they are out of date, so
that the README cannot tell another story than the registry, the baselines and the docstrings.
"""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path
from typing import TYPE_CHECKING

from reports.claims import markdown_table
from reports.overview import overview
from reports.runfile import load_run

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]
BASELINES = ROOT / "reports" / "baselines"
FOLDERS = ("engines", "engines/serving", "fixtures", "reports", "reports/commands", "tests")


def rendered(text: str) -> str:
    """Return the README with its generated parts as they should be now."""
    parts = {"claims": claims_table(), "engines": engine_tables(), "tree": tree()}
    for name, content in parts.items():
        opening, closing = f"<!-- {name} -->", f"<!-- /{name} -->"
        before, found, rest = text.partition(opening)
        _, ended, after = rest.partition(closing)
        if not (found and ended):
            raise ValueError(f"README.md has no part between {opening} and {closing}")
        text = f"{before}{opening}\n{content}\n{closing}{after}"
    return text


@functools.cache
def claims_table() -> str:
    """One line per claim, one column per committed baseline."""
    baselines = sorted(BASELINES.glob("*.json"))
    return markdown_table({path.stem: load_run(path).verdicts for path in baselines})


@functools.cache
def engine_tables() -> str:
    """One table per committed run on a GPU: its engines beside the ceilings."""
    runs = {path.stem: load_run(path) for path in sorted(BASELINES.glob("*.json"))}
    tables = {
        name: overview(run)
        for name, run in runs.items()
        if run.experiment["device"]["kind"] == "cuda"
    }
    return "\n\n".join(f"`{name}`:\n\n{table}" for name, table in tables.items())


@functools.cache
def tree() -> str:
    """One line per file of the package folders: its name and its docstring's first sentence."""
    lines = ["```"]
    for folder in FOLDERS:
        lines.append(f"{folder}/")
        lines += [f"  {name:<28} {purpose}" for name, purpose in _purposes(ROOT / folder)]
    return "\n".join([*lines, "```"])


def _purposes(folder: Path) -> Iterator[tuple[str, str]]:
    for path in sorted(folder.glob("*.py")):
        docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
        if docstring:
            first = docstring.split("\n\n")[0].replace("\n", " ")
            yield path.name, re.split(r"(?<=[.:]) ", first)[0].rstrip(".:")


def main() -> None:
    """Rewrite the generated parts of README.md."""
    path = ROOT / "README.md"
    path.write_text(rendered(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
