"""What differs between two sides besides speed: verdicts, quality, and the settings of the runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

from reports.ladder import bandwidths
from reports.paired_items import ItemChange, item_change
from reports.units import printed_unit
from reports.verdict import Outcome

if TYPE_CHECKING:
    from reports.rows import EngineRow
    from reports.runfile import RunFile
    from reports.verdict import Verdict

CLOCK_TOLERANCE = 0.03
BANDWIDTH_TOLERANCE = 0.1
ACCURACY_MARGIN = 0.05
ABSENT = "–"


@dataclass(frozen=True)
class VerdictChange:
    """A verdict whose word is not the same on both sides; `worse` if it was confirmed before."""

    claim: str
    subject: str
    quantity: str
    before: str
    after: str
    worse: bool
    sentence: str


@dataclass(frozen=True)
class QualityChange:
    """Quality of one engine row on both sides; `items` where both runs kept their answers."""

    subject: str
    before: str
    after: str
    items: ItemChange | None


@dataclass(frozen=True)
class Setting:
    """One setting that is not the same on both sides."""

    name: str
    before: str
    after: str


def verdict_changes(
    before: Sequence[RunFile], after: Sequence[RunFile]
) -> tuple[VerdictChange, ...]:
    """Verdicts that changed, the ones that got worse first; both sides must agree in themselves."""
    old, new = _by_key(before), _by_key(after)
    changes = []
    for key, verdicts in old.items():
        if key not in new:
            continue
        words = _words(verdicts), _words(new[key])
        if words[0] == words[1]:
            continue
        changes.append(_verdict_change(key, words, verdicts, new[key]))
    return tuple(sorted(changes, key=lambda change: not change.worse))


def _verdict_change(
    key: tuple[str, str, str, int],
    words: tuple[str, str],
    before: Sequence[Verdict],
    after: Sequence[Verdict],
) -> VerdictChange:
    outcomes = {verdict.outcome for verdict in after}
    lost = outcomes and outcomes <= {Outcome.REFUTED, Outcome.UNDECIDED, Outcome.FAULT}
    judged = not any(verdict.observation for verdict in (*before, *after))
    worse = bool(lost) and words[0] == Outcome.CONFIRMED and judged
    return VerdictChange(*key[:3], words[0], words[1], worse, after[-1].sentence())


def _by_key(runs: Sequence[RunFile]) -> dict[tuple[str, str, str, int], list[Verdict]]:
    """Verdicts by claim, subject and quantity; repeats within one run are numbered."""
    found: dict[tuple[str, str, str, int], list[Verdict]] = {}
    for run in runs:
        seen: dict[tuple[str, str, str], int] = {}
        for verdict in run.verdicts:
            name = (verdict.claim, verdict.subject, verdict.quantity)
            seen[name] = seen.get(name, 0) + 1
            found.setdefault((*name, seen[name]), []).append(verdict)
    return found


def _words(verdicts: Sequence[Verdict]) -> str:
    """One word where the runs of a side agree, else how many said what."""
    outcomes = [verdict.outcome for verdict in verdicts]
    if len(set(outcomes)) == 1:
        return str(outcomes[0])
    counted = [f"{outcomes.count(word)} {word}" for word in Outcome if word in outcomes]
    return ", ".join(counted)


def quality_changes(
    before: Sequence[RunFile], after: Sequence[RunFile]
) -> tuple[QualityChange, ...]:
    """Engines whose quality cell differs, or whose answers can be compared item by item."""
    old, new = _quality_rows(before), _quality_rows(after)
    changes = []
    for subject in (name for name in old if name in new):
        items = item_change(before[-1], after[-1], old[subject].engine, ACCURACY_MARGIN)
        texts = old[subject].quality.text, new[subject].quality.text
        if items is not None or texts[0] != texts[1]:
            changes.append(QualityChange(subject, *texts, items))
    return tuple(changes)


def _quality_rows(runs: Sequence[RunFile]) -> dict[str, EngineRow]:
    return {row.subject: row for run in runs for row in run.rows}


def settings_that_differ(
    before: Sequence[RunFile], after: Sequence[RunFile]
) -> tuple[Setting, ...]:
    """GPU, driver, versions, model, adapter, profile, hosts and clocks that are not the same."""
    versions = {name for run in (*before, *after) for name in run.experiment["versions"]}
    getters = _GETTERS | {name: _version(name) for name in sorted(versions)}
    found = []
    for name, getter in getters.items():
        values = _joined(before, getter), _joined(after, getter)
        if values[0] != values[1]:
            found.append(Setting(name, *values))
    found += _bandwidths(before, after)
    clocks = _clock(before), _clock(after)
    if clocks[0] and clocks[1] and abs(clocks[1] / clocks[0] - 1) > CLOCK_TOLERANCE:
        found.append(
            Setting("SM clock", f"{clocks[0] / 1e6:.0f} MHz", f"{clocks[1] / 1e6:.0f} MHz")
        )
    return tuple(found)


def _bandwidths(before: Sequence[RunFile], after: Sequence[RunFile]) -> list[Setting]:
    """Measured bandwidths that differ: the machine was busy, or it is another one."""
    found = []
    old, new = ([bandwidths(run) for run in side] for side in (before, after))
    for name in sorted({name for run in (*old, *new) for name in run}):
        values = [[run[name] for run in side if name in run] for side in (old, new)]
        if not all(values):
            continue
        medians = median(values[0]), median(values[1])
        if abs(math.log(medians[1] / medians[0])) > BANDWIDTH_TOLERANCE:
            unit = printed_unit("bytes/s", medians[0])
            found.append(Setting(f"bandwidth, {name}", *map(unit.with_label, medians)))
    return found


def _joined(runs: Sequence[RunFile], getter: Callable[[RunFile], Any]) -> str:
    values = {ABSENT if value is None else str(value) for value in map(getter, runs)}
    return ", ".join(sorted(values))


def _device(key: str) -> Callable[[RunFile], Any]:
    return lambda run: run.experiment["device"].get(key)


def _version(key: str) -> Callable[[RunFile], Any]:
    return lambda run: run.experiment["versions"].get(key)


def _model(key: str) -> Callable[[RunFile], Any]:
    return lambda run: (run.experiment.get("model") or {}).get(key)


def _adapter(run: RunFile) -> str | None:
    adapter = (run.experiment.get("model") or {}).get("adapter")
    if not isinstance(adapter, Mapping):
        return None
    return f"{adapter.get('name')} ({str(adapter.get('content_hash'))[:12]})"


def _hosts(run: RunFile) -> str | None:
    hosts = {str(block.get("host")) for block in run.experiment["blocks"]}
    return ", ".join(sorted(hosts)) or None


_GETTERS: dict[str, Callable[[RunFile], Any]] = {
    "device": _device("name"),
    "driver": _device("driver"),
    "CPU": _device("cpu"),
    "threads": _device("threads"),
    "host": _hosts,
    "model": _model("name"),
    "weights": _model("weights_kind"),
    "dtype": _model("dtype"),
    "model hash": _model("content_hash"),
    "adapter": _adapter,
    "profile": lambda run: run.experiment.get("profile"),
}


def _clock(runs: Sequence[RunFile]) -> float | None:
    """Median SM clock [Hz] over the sessions, None where nothing was sampled."""
    samples = [
        point["sm_clock_hz"]
        for run in runs
        for series in run.series("telemetry")
        for point in series.get("points") or ()
        if isinstance(point, Mapping) and isinstance(point.get("sm_clock_hz"), int | float)
    ]
    return float(median(samples)) if samples else None
