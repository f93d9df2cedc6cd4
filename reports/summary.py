"""A run as Markdown, strictly from what it stored: nothing is estimated again here.

The order is that of a reader who wants to know whether to believe it: what it ran on, whether the
instrument agreed with itself, the verdicts, which survive a correction for their number, speed with
memory and quality in one row, and what did not run.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from reports.claims import CLAIMS, SECTIONS
from reports.engine_table import engine_table
from reports.judged import A_A_CONTROL, JUDGED, Outcome, Verdict
from reports.markdown import cell, table
from reports.run_header import header
from reports.verdict import holm

if TYPE_CHECKING:
    from reports.runfile import RunFile

ALPHA = 0.05


def summary(run: RunFile) -> str:
    """The whole summary as Markdown."""
    parts = [
        header(run),
        control(run.verdicts),
        verdict_tables(run.verdicts),
        correction(run.verdicts),
        engine_table(run),
        not_applicable(run.verdicts),
        unfinished(run),
    ]
    return "\n\n".join(part for part in parts if part)


def control(verdicts: tuple[Verdict, ...]) -> str:
    """Whether one engine timed against itself differed from itself."""
    found = [verdict for verdict in verdicts if verdict.claim == A_A_CONTROL]
    if not found:
        return "**A/A control:** not run, so nothing shows that equal things measure equal here."
    return "\n".join(f"**A/A control:** {cell(verdict.sentence())}" for verdict in found)


def verdict_tables(verdicts: tuple[Verdict, ...]) -> str:
    """One table per section of the chapter, counts first."""
    shown = [v for v in verdicts if v.claim != A_A_CONTROL]
    counts = Counter(v.outcome for v in shown)
    total = ", ".join(f"{counts[outcome]} {outcome}" for outcome in Outcome if counts[outcome])
    parts = [f"## Verdicts\n\n{total or 'none'}"]
    for letter, (title, chapter) in SECTIONS.items():
        mine = [v for v in shown if _section(v) == letter]
        if mine:
            parts.append(f"### {letter}. {title} (section {chapter})\n\n{_verdict_table(mine)}")
    others = [v for v in shown if _section(v) is None]
    if others:
        parts.append(f"### Outside the registry\n\n{_verdict_table(others)}")
    return "\n\n".join(parts)


def correction(verdicts: tuple[Verdict, ...]) -> str:
    """Which timed verdicts still stand when their number is taken into account."""
    family = [v for v in verdicts if v.timed and v.outcome in JUDGED and v.p_value is not None]
    if not family:
        return ""
    survivors = holm(family, ALPHA)
    decided = [i for i, v in enumerate(family) if v.outcome is not Outcome.UNDECIDED]
    fallen = [family[i] for i in decided if i not in survivors]
    lines = [
        "## Many claims at once",
        "",
        f"{len(family)} timed verdicts were judged, each on its own 95 % interval; {len(decided)} "
        f"are decided, and {len(survivors)} of them survive Holm's correction at "
        f"{100 * ALPHA:g} % for the whole session.",
    ]
    if fallen:
        names = ", ".join(f"{v.claim} {v.subject} (p = {v.p_value:.2g})" for v in fallen)
        lines += ["", f"Decided, but not surviving: {cell(names)}."]
    return "\n".join(lines)


def not_applicable(verdicts: tuple[Verdict, ...]) -> str:
    """Which claims say nothing about this run, by reason."""
    reasons: dict[str, list[str]] = {}
    for verdict in verdicts:
        if verdict.outcome is Outcome.NOT_APPLICABLE:
            reasons.setdefault(verdict.reason, []).append(verdict.claim)
    if not reasons:
        return ""
    lines = [
        f"- {cell(reason)}: {cell(', '.join(dict.fromkeys(claims)))}"
        for reason, claims in reasons.items()
    ]
    return "\n".join(["## Not applicable here", "", *lines])


def unfinished(run: RunFile) -> str:
    """Tests that failed, broke or were skipped, with the one-line reason."""
    tests = run.experiment["tests"]
    rows = [
        [test.get("nodeid"), test.get("outcome"), test.get("reason") or ""]
        for test in tests
        if test.get("outcome") != "passed"
    ]
    counts = Counter(str(test.get("outcome")) for test in tests)
    total = ", ".join(f"{count} {outcome}" for outcome, count in counts.items())
    parts = [f"## Tests\n\n{cell(total) or 'none recorded'}"]
    if rows:
        parts.append(table(["test", "outcome", "reason"], rows))
    return "\n\n".join(parts)


def _verdict_table(verdicts: list[Verdict]) -> str:
    order = {claim: number for number, claim in enumerate(CLAIMS)}
    ordered = sorted(verdicts, key=lambda v: order.get(v.claim, len(order)))
    rows, last = [], ""
    for verdict in ordered:
        name = "" if verdict.claim == last else _claim(verdict.claim)
        last = verdict.claim
        rows.append([name, *_verdict_cells(verdict)])
    return table(["claim", "subject", "quantity", "measured", "n", "claimed", "verdict"], rows)


def _verdict_cells(verdict: Verdict) -> list[str]:
    sampled = verdict.estimate is not None and not verdict.estimate.exact
    n = (
        f"{verdict.estimate.n} × {verdict.estimate.resampled}"
        if sampled and verdict.estimate
        else ""
    )
    outcome = f"{verdict.outcome}{verdict.remark()}"
    return [
        verdict.subject, verdict.quantity, verdict.value(), n, verdict.claimed(), outcome,
    ]  # fmt: skip


def _claim(claim: str) -> str:
    return f"{claim} {CLAIMS[claim].statement}" if claim in CLAIMS else claim


def _section(verdict: Verdict) -> str | None:
    return CLAIMS[verdict.claim].section if verdict.claim in CLAIMS else None
