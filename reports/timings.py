"""Typical times of the benchmarks of a run, and short names for them.

A run is summed up by the median of its rounds, on the log scale; its own error follows from their
spread. pytest-benchmark's statistics are enough for that: the raw data need not be kept.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from reports.contrast import RunTiming

if TYPE_CHECKING:
    from reports.runfile import RunFile

PHASES = {"step": "decode", "ttft": "TTFT", "itl": "ITL"}
"""Last word of a sibling entry's name, and how it is printed."""

DEPENDENT = "itl"
"""Gaps between the tokens of one answer are not independent."""

MEDIAN_ERROR = math.sqrt(math.pi / 2)  # of a normal sample's median, relative to its mean's


def timing(entry: Mapping[str, Any]) -> RunTiming | None:
    """What one pytest-benchmark entry says about its typical time, or None if it says nothing."""
    stats = entry.get("stats")
    if not isinstance(stats, Mapping):
        return None
    rounds, centre = stats.get("rounds"), _positive(stats.get("median"))
    if centre is None or not isinstance(rounds, int) or rounds < 1:
        return None
    independent = _independent(entry, rounds)
    return RunTiming(math.log(centre), _log_error(stats, independent), independent)


def _independent(entry: Mapping[str, Any], rounds: int) -> int:
    """How many of the values vary independently: of the gaps of one answer, as many as one."""
    if not str(entry["fullname"]).endswith(DEPENDENT):
        return rounds
    info = entry.get("extra_info")
    info = info if isinstance(info, Mapping) else {}
    tokens, batch_size = info.get("new_tokens"), info.get("batch_size")
    if not isinstance(tokens, int) or not isinstance(batch_size, int) or tokens < 2:
        return 1
    return max(1, rounds // ((tokens - 1) * max(batch_size, 1)))


def _log_error(stats: Mapping[str, Any], independent: int) -> float | None:
    mean, stddev = _positive(stats.get("mean")), stats.get("stddev")
    if independent < 2 or mean is None or not isinstance(stddev, int | float) or stddev < 0:
        return None
    return MEDIAN_ERROR * stddev / mean / math.sqrt(independent)


def timings(runs: Sequence[RunFile]) -> dict[str, list[RunTiming]]:
    """Timings of a side by full name, one per run that has the benchmark."""
    found: dict[str, list[RunTiming]] = {}
    for run in runs:
        of_run: dict[str, RunTiming] = {}
        for entry in run.benchmarks:
            if (known := timing(entry)) is not None:
                of_run.setdefault(str(entry["fullname"]), known)
        for name, known in of_run.items():
            found.setdefault(name, []).append(known)
    return found


def labels(runs: Sequence[RunFile], names: Sequence[str]) -> dict[str, str]:
    """`static_kv@1 decode` where an entry says so, with its test where that is not unique.

    An entry that says nothing is called by its test, without the file where that is enough.
    """
    tests = Counter(_without_file(name) for name in names)
    found = {str(entry["fullname"]): _short_label(entry) for entry in runs[0].benchmarks}
    short = {name: label for name, label in found.items() if label is not None}
    taken = Counter(short.values())
    return {
        name: (name if tests[_without_file(name)] > 1 else _without_file(name))
        if name not in short
        else short[name]
        if taken[short[name]] == 1
        else f"{short[name]} ({_test_name(name)})"
        for name in names
    }


def phase_of(entry: Mapping[str, Any]) -> str | None:
    """Return `decode`, `TTFT` or `ITL` for a sibling entry, None for a test's own rounds."""
    return PHASES.get(str(entry["fullname"]).split()[-1].rpartition("::")[2])


def _short_label(entry: Mapping[str, Any]) -> str | None:
    info = entry.get("extra_info")
    phase = phase_of(entry)
    if phase is None or not isinstance(info, Mapping):
        return None
    engine, batch_size = info.get("engine"), info.get("batch_size")
    return f"{engine}@{batch_size} {phase}" if engine and batch_size else None


def _without_file(fullname: str) -> str:
    return fullname.partition("::")[2] or fullname


def _test_name(fullname: str) -> str:
    parts = fullname.split("::")
    return parts[1] if len(parts) > 2 else fullname


def _positive(value: object) -> float | None:
    known = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf
    return value if known else None  # type: ignore[return-value]  # a number, as just checked
