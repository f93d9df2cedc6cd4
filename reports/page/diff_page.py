"""A comparison as a page of its own, in the style of the report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reports import diff_render
from reports.contrast import Change
from reports.page.render import render

if TYPE_CHECKING:
    from reports.compare import Comparison

CHIPS = {
    Change.FASTER: "confirmed",
    Change.SLOWER: "refuted",
    Change.UNDECIDED: "undecided",
    Change.SAME: "not-applicable",
}


def as_html(comparison: Comparison) -> str:
    """One self-contained page."""
    lines = [
        (
            b.label,
            diff_render.ratio_text(b),
            diff_render.seconds_text(b),
            diff_render.word_text(b),
            CHIPS[b.change],
        )
        for b in diff_render.sorted_benchmarks(comparison)
    ]
    return render(
        "diff.html",
        comparison=comparison,
        headline=diff_render.headline(comparison),
        method=diff_render.method(comparison),
        lines=lines,
        verdicts=diff_render.verdict_lines(comparison),
        quality=[diff_render.quality_text(change) for change in comparison.quality],
    )
