"""Markdown that reads on a terminal and renders on GitHub."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def cell(text: object) -> str:
    """Text for a table cell: one line, no table or HTML syntax of its own."""
    line = " ".join(str(text).split()).replace("|", "\\|").replace("`", "'")
    return re.sub(r"<(?=[A-Za-z/!?])", "&lt;", line)


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table with a header; every row has as many cells as the header."""
    lines = [[cell(item) for item in row] for row in rows]
    ruled = [list(map(cell, head)), ["---"] * len(head), *lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in ruled)
