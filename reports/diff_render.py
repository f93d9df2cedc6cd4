"""A comparison as text, Markdown or JSON. The HTML form lies in `page/diff_page.py`."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

from reports.contrast import Change
from reports.markdown import cell, table
from reports.units import printed_unit, significant

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reports.compare import BenchmarkChange, Comparison
    from reports.differences import QualityChange

TOO_NOISY = 10
"""A factor in speed of which nobody needs to be told that it was missed."""
ORDER = (Change.SLOWER, Change.FASTER, Change.UNDECIDED, Change.SAME)


def headline(comparison: Comparison) -> str:
    """Counts per word, and how far they can be trusted."""
    words = [b.change for b in comparison.benchmarks]
    counts = ", ".join(f"{words.count(word)} {word}" for word in ORDER if word in words)
    return f"{counts} of {len(words)} benchmarks{qualifier(comparison)}"


def qualifier(comparison: Comparison) -> str:
    """What every word of this comparison has to be read with."""
    parts = list(comparison.unlike)
    if comparison.within_run_only:
        parts.append("within-run only")
    return f" ({'; '.join(parts)}: no regression)" if comparison.unlike else _plain(parts)


def _plain(parts: Sequence[str]) -> str:
    return f" ({'; '.join(parts)})" if parts else ""


def method(comparison: Comparison) -> str:
    """How the intervals and words came about, in a sentence or two."""
    margin = (
        f"{comparison.margin:.0%} margin, Holm over {len(comparison.benchmarks)} benchmarks; "
        "beside an undecided one the change that would be found four times in five"
    )
    if comparison.within_run_only:
        return (
            "One run per side: intervals are within-run only. A word assumes that runs differ by "
            f"{comparison.run_spread:.0%} among themselves (what is usual, or what their measured "
            "bandwidths differ by), and each figure by what it differs by between the tests of one "
            "run that repeat it, where that is more; several runs per side would measure it "
            f"({margin})."
        )
    how = "pairs of runs" if comparison.paired else "runs"
    return (
        f"{comparison.runs[0]} and {comparison.runs[1]} runs: 95 % moderated t intervals on log "
        f"ratios of {how} ({margin})."
    )


def ratio_text(change: BenchmarkChange) -> str:
    """`1.42x [1.36, 1.47]`: the speed of after over before."""
    interval = change.contrast.interval
    shown = "" if interval is None else f" [{interval[0]:.2f}, {interval[1]:.2f}]"
    return f"{change.contrast.ratio:.2f}x{shown}"


def word_text(change: BenchmarkChange) -> str:
    """`slower`; beside an undecided one the change that would be seen: `undecided (sees 12 %)`."""
    if change.change is not Change.UNDECIDED or change.detectable is None:
        return str(change.change)
    return f"{change.change} ({seen_text(change.detectable)})"


def seen_text(share: float) -> str:
    """Percent up to a doubling, then a factor; beyond tenfold no figure helps."""
    if share >= TOO_NOISY - 1:
        return f"too noisy to see ×{TOO_NOISY}"
    return f"sees {significant(100 * share, 2)} %" if share < 1 else f"sees ×{share + 1:.1f}"


def seconds_text(change: BenchmarkChange) -> str:
    """`3.21 ms -> 2.26 ms`."""
    unit = printed_unit("s", change.seconds[0])
    return f"{unit.with_label(change.seconds[0])} -> {unit.with_label(change.seconds[1])}"


def sorted_benchmarks(comparison: Comparison) -> list[BenchmarkChange]:
    """Slower first, then faster, undecided, same; the largest change first in each."""
    return sorted(
        comparison.benchmarks,
        key=lambda b: (ORDER.index(b.change), -abs(b.contrast.log_ratio), b.label),
    )


def quality_text(change: QualityChange) -> str:
    """One line per engine; item by item where both runs kept their answers."""
    if change.items is None:
        return f"{change.subject}: {change.before} -> {change.after} (not paired)"
    one = change.items
    low, high = one.interval
    return (
        f"{change.subject}: accuracy {one.difference:+.1%} [{low:+.1%}, {high:+.1%}] "
        f"on {one.items} items ({one.lost} lost, {one.gained} gained, "
        f"McNemar p = {one.p_value:.2g}) {one.word}"
    )


def as_text(comparison: Comparison) -> str:
    """For a terminal."""
    width = max(len(b.label) for b in comparison.benchmarks)
    words = max(len(word_text(b)) for b in comparison.benchmarks)
    lines = [f"{comparison.names[0]} -> {comparison.names[1]}: {headline(comparison)}", ""]
    lines += _section("changed verdicts", verdict_lines(comparison))
    lines += [
        f"{b.label:<{width}}  {ratio_text(b):<22} {word_text(b):<{words}}  {seconds_text(b)}"
        for b in sorted_benchmarks(comparison)
    ]
    lines += ["", *_section("quality", [quality_text(q) for q in comparison.quality])]
    lines += _section("only before", comparison.missing) + _section("only after", comparison.new)
    lines += [f"also differs: {s.name} {s.before} -> {s.after}" for s in comparison.settings]
    lines += [f"note: {note}" for note in comparison.notes]
    return "\n".join([*lines, method(comparison)])


def verdict_lines(comparison: Comparison) -> list[str]:
    """`C12 compiled@1: confirmed -> refuted (…)`, the ones that got worse first."""
    return [
        f"{v.claim} {v.subject} {v.quantity}: {v.before} -> {v.after} ({v.sentence})"
        for v in comparison.verdicts
    ]


def _section(title: str, lines: Sequence[str]) -> list[str]:
    return [f"{title}:", *(f"  {line}" for line in lines), ""] if lines else []


def as_markdown(comparison: Comparison) -> str:
    """For a pull request or a job summary."""
    names = " -> ".join(map(cell, comparison.names))
    lines = [f"### {names}", "", f"{headline(comparison)}.", ""]
    lines += _bullets("Changed verdicts", verdict_lines(comparison))
    rows = [
        (b.label, ratio_text(b), word_text(b), seconds_text(b))
        for b in sorted_benchmarks(comparison)
    ]
    lines += [table(("benchmark", "speed", "verdict", "time"), rows), ""]
    lines += [*_bullets("Quality", [quality_text(q) for q in comparison.quality])]
    lines += _bullets("Only before", comparison.missing) + _bullets("Only after", comparison.new)
    lines += _bullets(
        "Also differs", [f"{s.name}: {s.before} -> {s.after}" for s in comparison.settings]
    )
    return "\n".join([*lines, method(comparison), *comparison.notes])


def _bullets(title: str, lines: Sequence[str]) -> list[str]:
    return [f"**{title}**", "", *(f"- {cell(line)}" for line in lines), ""] if lines else []


def as_json(comparison: Comparison) -> str:
    """For a program: every number, unrounded."""
    content: dict[str, Any] = dataclasses.asdict(comparison)
    for entry, change in zip(content["benchmarks"], comparison.benchmarks, strict=True):
        entry |= {"ratio": change.contrast.ratio, "interval": change.contrast.interval}
    content["within_run_only"] = comparison.within_run_only
    content["regressions"] = [b.label for b in comparison.regressions()]
    return json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False)
