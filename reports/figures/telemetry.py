"""Power, clock and temperature over the session: what the GPU did while it was timed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from reports.figures.style import ACCENT, INK, MUTED, WARN, WIDTH_IN, Drawing, styled

if TYPE_CHECKING:
    from reports.runfile import RunFile

POWER_CAP = 0x04
SLOWDOWN = 0x08 | 0x20 | 0x40 | 0x80
"""Bits of NVML's clocks-event reasons: hardware, thermal and power-brake slow-downs."""
KEYS = ("time_s", "power_w", "sm_clock_hz")


@dataclass(frozen=True)
class Samples:
    """Parallel columns, sorted by time counted from the first sample [s]."""

    minutes: Sequence[float]
    power_w: Sequence[float]
    clock_mhz: Sequence[float]
    slowed: Sequence[bool]


def samples(run: RunFile) -> Samples | None:
    """All telemetry of a run, None where there is none (a CPU)."""
    points = [
        point
        for series in run.series("telemetry")
        for point in series.get("points") or ()
        if isinstance(point, Mapping) and all(isinstance(point.get(k), int | float) for k in KEYS)
    ]
    if len(points) < 2:
        return None
    points.sort(key=lambda point: point["time_s"])
    start = points[0]["time_s"]
    return Samples(
        minutes=[(point["time_s"] - start) / 60 for point in points],
        power_w=[point["power_w"] for point in points],
        clock_mhz=[point["sm_clock_hz"] / 1e6 for point in points],
        slowed=[bool(int(point.get("reasons") or 0) & SLOWDOWN) for point in points],
    )


@styled
def draw(found: Samples) -> Drawing:
    """Two panels over one time axis; slowed samples are marked."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH_IN, 3.7), layout="constrained")
    power, clock = figure.subplots(2, 1, sharex=True)
    power.plot(found.minutes, found.power_w, color=ACCENT, linewidth=1.1)
    power.set_ylabel("power [W]")
    power.set_ylim(bottom=0)
    clock.plot(found.minutes, found.clock_mhz, color=INK, linewidth=1.1)
    clock.set_ylabel("SM clock [MHz]")
    clock.set_ylim(0, max(found.clock_mhz) * 1.15)
    clock.set_xlabel("minutes of the session")
    slowed = [
        (m, c) for m, c, s in zip(found.minutes, found.clock_mhz, found.slowed, strict=True) if s
    ]
    if slowed:
        clock.plot(
            *zip(*slowed, strict=True), linestyle="", marker="x", color=WARN, label="slowed down"
        )
        clock.legend(loc="lower right")
    for axes in (power, clock):
        axes.tick_params(colors=MUTED)
    state = f"{len(slowed)} of {len(found.minutes)} samples slowed down by heat or hardware"
    return Drawing(
        name="telemetry",
        title="Power and clock over the session",
        caption=f"Sampled while blocks were timed; {state}. They are flagged, never dropped.",
        alt=f"Power up to {max(found.power_w):.0f} W, SM clock from {min(found.clock_mhz):.0f} to "
        f"{max(found.clock_mhz):.0f} MHz; {state}.",
        figure=figure,
    )
