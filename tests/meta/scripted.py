"""Engines and clocks with scripted times, so that the instrument can be tested with known truth."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from engines.engine import Memory, WarmUp
from engines.records import Completion, Request
from fixtures.licence import Licence
from fixtures.measuring import Measure
from fixtures.profiles import PROFILES, Sizes
from fixtures.telemetry import Sample, Source, Telemetry

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fixtures.series import Entry


def scripted_source(
    *, reasons: int = 0, sm_clock_hz: float = 1_590e6, other_processes: int = 0
) -> Source:
    """A GPU that always reads the same."""
    return lambda: Sample(time.perf_counter(), sm_clock_hz, 60.0, 69.0, reasons, other_processes)


class FakeClock:
    """A clock that only moves when it is told to."""

    def __init__(self) -> None:
        self.time_s = 0.0
        self.waits = 0

    def now_s(self) -> float:
        return self.time_s

    def synchronized_s(self) -> float:
        self.waits += 1
        return self.time_s

    def advance(self, seconds: float) -> None:
        self.time_s += seconds


@dataclass
class Counters:
    """Decode forwards, and the rows that they computed."""

    decode_forwards: int = 0
    busy_rows: int = 0
    computed_rows: int = 0


@dataclass
class ScriptedEngine:
    """Serves batches with the step times it was given: `step_s(batch_size, context_tokens)`."""

    name: str
    clock: FakeClock
    step_s: Callable[[int, int], float]
    prefill_s: Callable[[int], float] = lambda prompt_tokens: 1e-5 * prompt_tokens
    batch_size: int = 1
    weights_bytes: int = 1_000_000
    kv_bytes_per_token: int = 100
    compile_s: float = 0.0
    hidden_s: float = 0.0
    """Time that passes after the last stamp: work that was still queued when the clock was read."""
    capacity: int | None = None
    """Tokens of a preallocated cache: a step reads all of it, however short the context is."""
    forwards_per_step: int = 1
    counters: Counters = field(default_factory=Counters)
    loaded: Any = field(
        default_factory=lambda: SimpleNamespace(
            name="scripted",
            device="cuda",
            dtype="float16",
            weights_kind="random",
            shape=SimpleNamespace(vocab_size=1000, num_layers=4),
        )
    )

    def warm_up(self, prompt_tokens: int, max_new_tokens: int) -> WarmUp:
        self.clock.advance(self.compile_s)
        return WarmUp(1, self.compile_s, self.compile_s, prompt_tokens, max_new_tokens)

    def run(self, requests: Sequence[Request], on_token: Any = None) -> list[Completion]:  # noqa: ARG002 - asked for by `Engine`
        done: list[Completion] = []
        for start in range(0, len(requests), self.batch_size):
            done += self._batch(requests[start : start + self.batch_size])
        self.clock.advance(self.hidden_s)
        return done

    def _batch(self, group: Sequence[Request]) -> list[Completion]:
        """Serve one batch; its slots are taken until the longest answer is finished."""
        sent = self.clock.now_s()
        self.clock.advance(self.prefill_s(len(group[0].prompt_ids)))
        times = [self.clock.now_s()]
        for step in range(1, max(r.max_new_tokens for r in group)):
            busy = sum(step < r.max_new_tokens for r in group)
            self._decode(len(group), busy, len(group[0].prompt_ids) + step)
            times.append(self.clock.now_s())
        return [_completion(r, sent, times[: r.max_new_tokens]) for r in group]

    def _decode(self, rows: int, busy: int, context_tokens: int) -> None:
        self.clock.advance(self.step_s(rows, self.capacity or context_tokens))
        self.counters.decode_forwards += self.forwards_per_step
        self.counters.busy_rows += busy
        self.counters.computed_rows += self.batch_size

    def bytes_per_step(self, context_tokens: int) -> int:
        read = self.capacity or context_tokens
        return self.weights_bytes + self.batch_size * read * self.kv_bytes_per_token

    def memory(self) -> Memory:
        return Memory(self.weights_bytes, 0)


class RefillingEngine(ScriptedEngine):
    """Gives a slot to the next request the moment it is free, as continuous batching does."""

    def run(self, requests: Sequence[Request], on_token: Any = None) -> list[Completion]:  # noqa: ARG002 - asked for by `Engine`
        waiting, running, done = deque(requests), [], {}
        while waiting or running:
            while waiting and len(running) < self.batch_size:
                running.append(self._admit(waiting.popleft()))
            self._decode(len(running), len(running), len(running[0][0].prompt_ids))
            for _, _, times in running:
                times.append(self.clock.now_s())
            ended = [row for row in running if len(row[2]) >= row[0].max_new_tokens]
            running = [row for row in running if row not in ended]
            done |= {id(row[0]): _completion(*row) for row in ended}
        return [done[id(request)] for request in requests]

    def _admit(self, request: Request) -> tuple[Request, float, list[float]]:
        sent = self.clock.now_s()
        self.clock.advance(self.prefill_s(len(request.prompt_ids)))
        return request, sent, [self.clock.now_s()]


def _completion(request: Request, sent_s: float, times: Sequence[float]) -> Completion:
    return Completion(request, sent_s, tuple(times), tuple(range(len(times))), "length")


@dataclass
class ScriptedShelf:
    """Hands out scripted engines, each with a licence."""

    clock: FakeClock
    make: Callable[[str, int, int], ScriptedEngine]
    loaded: Any = None
    granted: bool = True

    def get(self, name: str, *, batch_size: int = 1, max_tokens: int) -> ScriptedEngine:
        return self.make(name, batch_size, max_tokens)

    def warm(self, engine: ScriptedEngine, prompt_tokens: int, new_tokens: int) -> WarmUp:
        return engine.warm_up(prompt_tokens, new_tokens)

    def licence(self, engine: ScriptedEngine, _: int) -> Licence:
        text = "tokens equal" if self.granted else "3 of 16 tokens differ"
        return Licence(engine.name, engine.batch_size, self.granted, 16, 0, 0.0, 0.0, text)


def scripted_measure(
    step_s: dict[str, Callable[[int, int], float]],
    *,
    sizes: Sizes = PROFILES["quick"].cuda,
    keep: Callable[[Entry], None] = lambda _: None,
    telemetry: Telemetry | None = None,
    granted: bool = True,
    **options: Any,
) -> Measure:
    """Return a `Measure` over scripted engines; `step_s` by engine name."""
    clock = FakeClock()

    def make(name: str, batch_size: int, max_tokens: int) -> ScriptedEngine:
        return ScriptedEngine(name, clock, step_s[name], batch_size=batch_size, **options)

    shelf = ScriptedShelf(clock, make, granted=granted)
    return Measure(shelf, sizes, telemetry or Telemetry(None), keep)  # type: ignore[arg-type]  # scripted
