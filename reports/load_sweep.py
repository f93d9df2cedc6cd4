"""The load sweep of a run as points: offered load, what was achieved, and how long it took.

Series `load_sweep`, one point per server and load. A value is a number or a stored estimate.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from reports.estimate import Estimate
from reports.figures.utilisation import LoadPoint

if TYPE_CHECKING:
    from reports.runfile import RunFile

SERIES = "load_sweep"
P99_KEYS = ("e2e_p99_s", "ttft_p99_s")


def sweep(run: RunFile) -> list[dict[str, Any]]:
    """All points, as the load test stored them."""
    return [
        dict(point)
        for series in run.series(SERIES)
        for point in series.get("points") or ()
        if isinstance(point, Mapping)
    ]


def load_points(run: RunFile) -> list[LoadPoint]:
    """Points that know their utilisation and a p99, as the figure needs them."""
    found = [_load_point(point) for point in sweep(run)]
    return [point for point in found if point is not None]


def _load_point(point: Mapping[str, Any]) -> LoadPoint | None:
    p99 = next((value for key in P99_KEYS if (value := read(point.get(key))) is not None), None)
    utilisation = read(point.get("utilisation"))
    if p99 is None or utilisation is None:
        return None
    ends = (None, None) if p99.interval is None else p99.interval
    server = str(point.get("engine") or point.get("server") or "server")
    return LoadPoint(server, utilisation.centre, p99.centre, *ends)


def read(value: object) -> Estimate | None:
    """A stored estimate, or a plain number as one without an interval; None for anything else."""
    if isinstance(value, Mapping):
        try:
            return Estimate.from_json(value)
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return Estimate(float(value), None, None, 0.95, 1, "", "value", "single value")
