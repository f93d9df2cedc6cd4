"""The only place that waits for a device in order to read time.

Work on a GPU is queued: a host clock read right after a call measures the queueing, up to 900
times too little. An engine therefore never reads a clock itself. It asks for a `stamp`, which on
CUDA is an event recorded in the stream (no wait, so the measured work is not disturbed), and turns
all stamps into seconds once, at the end.

Event distances are 32-bit milliseconds, too coarse after some minutes. Stamps are placed relative
to an anchor, a moment known on both clocks, that is renewed at every synchronization.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

Stamp = float | torch.cuda.Event
"""A moment: host seconds on a CPU, a recorded event on CUDA. Only `Clock.seconds` reads it."""


class Clock:
    """One monotonic clock per run; it starts at zero when it is made."""

    def __init__(self, device: str) -> None:
        if device not in ("cpu", "cuda"):
            raise ValueError(f"unknown device {device!r}: expected cpu or cuda")
        self.device = device
        self._start = time.perf_counter()
        self._anchor: tuple[torch.cuda.Event, float] | None = None
        if device == "cuda":
            self._renew_anchor()

    def now_s(self) -> float:
        """Host time [s]. It does not wait: right for moments of the host, not for device work."""
        return time.perf_counter() - self._start

    def synchronized_s(self) -> float:
        """Host time [s] after everything queued on the device has finished."""
        return self._renew_anchor() if self.device == "cuda" else self.now_s()

    def stamp(self) -> Stamp:
        """Mark this place in the device's work without waiting for it."""
        if self.device == "cpu":
            return self.now_s()
        return _recorded_event()

    def seconds(self, stamps: Sequence[Stamp]) -> tuple[float, ...]:
        """Times [s] of these stamps on the run's clock; waits for them, not for what came after."""
        if not stamps:
            return ()
        if self._anchor is None:
            return tuple(s for s in stamps if isinstance(s, float))
        for stamp in stamps:
            if not isinstance(stamp, float):
                stamp.synchronize()
        event, anchor_s = self._anchor
        return tuple(
            s if isinstance(s, float) else anchor_s + event.elapsed_time(s) / 1e3 for s in stamps
        )

    def _renew_anchor(self) -> float:
        torch.cuda.synchronize()
        event = _recorded_event()
        event.synchronize()
        now = self.now_s()
        self._anchor = (event, now)
        return now


def _recorded_event() -> torch.cuda.Event:
    event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]  # torch leaves its constructor untyped
    event.record()
    return event
