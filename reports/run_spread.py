"""How far runs differ among themselves, where one run per side cannot show it.

On a quiet machine a few percent, which is assumed. A machine that was busy during one of the runs
gives itself away: the bandwidth that each run measured as its own ceiling is not the same, and the
times of the engines cannot be trusted more than that.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from reports.ladder import bandwidths

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reports.runfile import RunFile

ASSUMED = {"cuda": 0.03, "cpu": 0.10}
"""Standard deviation between runs as a share, by kind of device."""


def assumed_spread(
    before: Sequence[RunFile], after: Sequence[RunFile], *, one_machine: bool
) -> float:
    """The assumed spread, or what the bandwidths of one machine differ by where that is more."""
    kinds = {str(run.experiment["device"].get("kind")) for run in (*before, *after)}
    usual = max(ASSUMED.get(kind, ASSUMED["cpu"]) for kind in kinds)
    return max(usual, bandwidth_gap([*before, *after])) if one_machine else usual


def bandwidth_gap(runs: Sequence[RunFile]) -> float:
    """Largest difference between two runs' measured bandwidth of one kind, on the log scale."""
    found: dict[str, list[float]] = {}
    for run in runs:
        for name, value in bandwidths(run).items():
            found.setdefault(name, []).append(value)
    return max((math.log(max(values) / min(values)) for values in found.values()), default=0.0)
