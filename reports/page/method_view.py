"""How a run was measured: rules, interval methods, and what was left out, with reasons."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from reports.verdict import Outcome

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reports.estimate import Estimate
    from reports.runfile import RunFile


@dataclass(frozen=True)
class Method:
    """How often one interval method was used."""

    method: str
    resampled: str
    sizes: str
    count: int


def _estimates(run: RunFile) -> list[Estimate]:
    of_rows = [
        estimate
        for row in run.rows
        for estimate in (row.tokens_per_s, row.itl_p50_s, row.itl_p99_s, row.ttft_s)
    ]
    found = [*of_rows, *(verdict.estimate for verdict in run.verdicts)]
    return [estimate for estimate in found if estimate is not None and not estimate.exact]


def methods(run: RunFile) -> list[Method]:
    """Interval methods of the run, the most frequent first."""
    estimates = _estimates(run)
    counts = Counter((_family(e), e.resampled) for e in estimates)
    views = []
    for (method, resampled), count in counts.most_common():
        sizes = [e.n for e in estimates if (_family(e), e.resampled) == (method, resampled)]
        low, high = min(sizes), max(sizes)
        views.append(Method(method, resampled, str(low) if low == high else f"{low}–{high}", count))
    return views


def _family(estimate: Estimate) -> str:
    """The method without the sizes of one sample, which its record names as well."""
    if estimate.interval is None:
        return f"none: too few for an interval of {estimate.method}"
    return re.sub(r"(, \d+ values worth \d+ independent ones| over \d+ \w+)$", "", estimate.method)


def rules(run: RunFile) -> list[str]:
    """What held for every measurement of the run."""
    blocks = run.experiment["blocks"]
    lines = [
        "An engine is timed only after it computed the same tokens as the baseline in this run.",
        "Times are seconds on one clock; device work is synchronized or timed by events. Warm-up "
        "and compilation are recorded and never part of a timed block.",
        "What is compared is measured interleaved, A B B A; intervals are at 95 % and resample "
        "what varies independently: the round, the run or the item, never the token.",
        "The floor of a step is its bytes over the measured read bandwidth; what is left, divided "
        "by the layers, is the overhead that travels between GPUs.",
        f"The run has {len(blocks)} block{'s' if len(blocks) != 1 else ''}; no paired measurement "
        "crosses one.",
    ]
    return [*lines, *run.warnings]


def not_applicable(run: RunFile) -> list[str]:
    """Claims that were not judged here, each with its reason."""
    found = {
        f"{verdict.claim} {verdict.subject}".strip() + f": {verdict.reason}"
        for verdict in run.verdicts
        if verdict.outcome is Outcome.NOT_APPLICABLE
    }
    return sorted(found)


def not_passed(run: RunFile) -> list[str]:
    """Tests that were skipped, failed or broke, each with its reason."""
    return [
        f"{test.get('nodeid')}: {test.get('outcome')}{_because(test)}"
        for test in run.experiment["tests"]
        if test.get("outcome") != "passed"
    ]


def _because(test: Mapping[str, Any]) -> str:
    reason = str(test.get("reason") or "").removeprefix("Skipped: ")
    return f", {reason}" if reason else ""
