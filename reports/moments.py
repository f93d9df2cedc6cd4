"""How far the same figure wanders within a run, seen where several tests measure it.

Rounds of one test follow each other closely; minutes later the same engine on the same shape may
take another time, through the host, its clocks or its memory. Two runs are at least as far apart as
two such moments of one run, so a single run per side is not trusted more than that.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np

from reports.timings import phase_of, timing

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from reports.runfile import RunFile

FEWEST_DF = 3
"""Degrees of freedom from which a spread is trusted; 4 moments of one run, or 2 of 3 runs."""
SHAPE = ("batch_size", "prompt_tokens", "new_tokens")


def spreads_seen(runs: Sequence[RunFile], names: Iterable[str]) -> dict[str, float]:
    """Standard deviation between moments [log scale] for each full name, as far as it is known.

    A figure that was repeated often enough speaks for itself, another one for its phase. What is no
    phase of an engine, such as a test's whole rounds, is taken for as unsteady as the worst phase.
    """
    repeats = _repeats(runs)
    own = {key: spread for key, logs in repeats.items() if (spread := _pooled(logs)) is not None}
    phases = {
        phase: spread
        for phase in {key[0] for key in repeats}
        if (spread := _pooled([log for key in repeats if key[0] == phase for log in repeats[key]]))
        is not None
    }
    if not phases:
        return {}
    worst = max(phases.values())
    keys = {str(entry["fullname"]): _key(entry) for run in runs for entry in run.benchmarks}
    found = {}
    for name in names:
        key = keys.get(name)
        found[name] = worst if key is None else own.get(key, phases.get(key[0], worst))
    return found


def _repeats(runs: Sequence[RunFile]) -> dict[tuple[Any, ...], list[list[float]]]:
    """Log times by what was measured: for each run that repeated it, one list of its moments."""
    found: dict[tuple[Any, ...], list[list[float]]] = defaultdict(list)
    for run in runs:
        of_run: dict[tuple[Any, ...], list[float]] = defaultdict(list)
        for entry in run.benchmarks:
            key, known = _key(entry), timing(entry)
            if key is not None and known is not None:
                of_run[key].append(known.log_s)
        for key, logs in of_run.items():
            if len(logs) > 1:
                found[key].append(logs)
    return found


def _key(entry: Mapping[str, Any]) -> tuple[Any, ...] | None:
    phase, info = phase_of(entry), entry.get("extra_info")
    if phase is None or not isinstance(info, dict) or not info.get("engine"):
        return None
    return (phase, info["engine"], *(info.get(name) for name in SHAPE))


def _pooled(groups: Sequence[Sequence[float]]) -> float | None:
    df = sum(len(logs) - 1 for logs in groups)
    if df < FEWEST_DF:
        return None
    squares = sum(float(((np.array(logs) - np.mean(logs)) ** 2).sum()) for logs in groups)
    return float(np.sqrt(squares / df))
