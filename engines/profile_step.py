"""What a decode step consists of, by name and number: the causes of the gap to the ceiling.

The chapter blames Python per token, many kernel launches, a growing KV cache and a wait of the host
in every step. Each can be counted. Counts come from torch's profiler; the device's idle share
does not, because profiling slows the host down: it compares the kernels' own time with the time of
steps that ran without a profiler.
"""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch.profiler import ProfilerActivity, profile

from engines.answer import warm_up_request

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from engines.clock import Clock
    from engines.engine import Engine

LAUNCHES = ("cudaLaunchKernel", "cuLaunchKernel", "cudaGraphLaunch", "cudaMemcpyAsync")
"""Beginnings of names: a launch with attributes has a longer one."""
SKIPPED = 3
"""Tokens before the profiled steps: the prefill's own and two steps to settle."""
WAITS = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize", "cudaMemcpy")
"""Whole names: `cudaMemcpy` waits, `cudaMemcpyAsync` does not."""


@dataclass(frozen=True, slots=True)
class StepProfile:
    """Averages over the profiled steps. Launches, waits and busy time are None on a CPU."""

    steps: int
    step_s: float
    """Time of one step without the profiler."""
    operators: float
    launches: float | None
    waits: float | None
    """Times that the host waited for the device."""
    allocations: float
    """Operators that took memory from an allocator."""
    concatenations: float
    """Calls of `cat`: rotary embeddings make some, a growing cache two per layer more."""
    busy_s: float | None
    """Time in which at least one kernel ran."""

    @property
    def idle_share(self) -> float | None:
        """Share of a step in which no kernel ran, 0 to 1."""
        return None if self.busy_s is None else max(0.0, 1 - self.busy_s / self.step_s)


def profile_engine(engine: Engine, clock: Clock, *, prompt_tokens: int, steps: int) -> StepProfile:
    """Profile decode steps in the middle of one request, for engines that report every token."""
    request = warm_up_request(engine.loaded, prompt_tokens, steps + 4)
    plain = engine.run([request])[0].token_s[-steps - 1 :]
    step_s = (plain[-1] - plain[0]) / steps
    profiler = _profiler(clock)
    seen = itertools.count(1)

    def on_token(*_: object) -> None:
        count = next(seen)
        if count == SKIPPED:
            profiler.start()
        elif count == SKIPPED + steps:
            profiler.stop()

    engine.run([request], on_token=on_token)
    return _summary(profiler.events() or [], steps, step_s, clock)


def profile_calls(step: Callable[[], None], clock: Clock, *, steps: int) -> StepProfile:
    """Profile repeated calls of one step that nobody watches, as the static engines run it."""
    step()
    start = clock.synchronized_s()
    for _ in range(steps):
        step()
    step_s = (clock.synchronized_s() - start) / steps
    profiler = _profiler(clock)
    profiler.start()
    for _ in range(steps):
        step()
    clock.synchronized_s()
    profiler.stop()
    return _summary(profiler.events() or [], steps, step_s, clock)


def _profiler(clock: Clock) -> Any:
    """A profiler that is started and stopped by hand.

    A schedule would start a trace of its own at the end, which crashed on CUDA (torch 2.11).
    """
    activities = [ProfilerActivity.CPU]
    if clock.device == "cuda":
        activities.append(ProfilerActivity.CUDA)
    return profile(activities=activities, profile_memory=True, acc_events=True)


def _summary(events: Iterable[Any], steps: int, step_s: float, clock: Clock) -> StepProfile:
    events = list(events)
    host = Counter(e.name for e in events if e.device_type.name == "CPU")
    kernels = [e for e in events if e.device_type.name == "CUDA" and not e.is_user_annotation]
    on_cuda = clock.device == "cuda"
    return StepProfile(
        steps=steps,
        step_s=step_s,
        operators=_count(host, "aten::") / steps,
        launches=_count(host, *LAUNCHES) / steps if on_cuda else None,
        waits=sum(host[name] for name in WAITS) / steps if on_cuda else None,
        allocations=sum(_allocates(e) for e in events) / steps,
        concatenations=host["aten::cat"] / steps,
        busy_s=_busy_s(kernels) / steps if on_cuda else None,
    )


def _allocates(event: Any) -> bool:
    return bool(event.self_cpu_memory_usage > 0 or event.self_device_memory_usage > 0)


def _count(names: Counter[str], *beginnings: str) -> int:
    return sum(n for name, n in names.items() if name.startswith(beginnings))


def _busy_s(kernels: Iterable[Any]) -> float:
    """Time in which at least one of them ran [s]: the union of their intervals, given in us."""
    busy, until = 0.0, float("-inf")
    for start, end in sorted((k.time_range.start, k.time_range.end) for k in kernels):
        busy += max(0.0, end - max(start, until))
        until = max(until, end)
    return busy / 1e6
