"""Engines and clocks with scripted times, so that the instrument can be tested with known truth."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from engines.engine import Memory, WarmUp
from engines.records import Completion, Request
from fixtures.licence import Licence
from fixtures.measuring import Measure
from fixtures.profiles import PROFILES, Sizes
from fixtures.telemetry import Telemetry

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fixtures.series import Entry


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

    def run(self, requests: Sequence[Request], on_token: Any = None) -> list[Completion]:
        done: list[Completion] = []
        for start in range(0, len(requests), self.batch_size):
            done += self._batch(requests[start : start + self.batch_size])
        self.clock.advance(self.hidden_s)
        return done

    def _batch(self, group: Sequence[Request]) -> list[Completion]:
        sent = self.clock.now_s()
        self.clock.advance(self.prefill_s(len(group[0].prompt_ids)))
        times = [self.clock.now_s()]
        for step in range(1, group[0].max_new_tokens):
            self.clock.advance(self.step_s(len(group), len(group[0].prompt_ids) + step))
            times.append(self.clock.now_s())
        tokens = tuple(range(len(times)))
        return [Completion(r, sent, tuple(times), tokens, "length") for r in group]

    def bytes_per_step(self, context_tokens: int) -> int:
        return self.weights_bytes + self.batch_size * context_tokens * self.kv_bytes_per_token

    def memory(self) -> Memory:
        return Memory(self.weights_bytes, 0)


@dataclass
class ScriptedShelf:
    """Hands out scripted engines, each with a licence."""

    clock: FakeClock
    make: Callable[[str, int], ScriptedEngine]
    loaded: Any = None

    def get(self, name: str, *, batch_size: int = 1, max_tokens: int) -> ScriptedEngine:
        return self.make(name, batch_size)

    def licence(self, engine: ScriptedEngine, max_tokens: int) -> Licence:
        return Licence(engine.name, engine.batch_size, True, 16, 0, 0.0, 0.0, "tokens equal")


def scripted_measure(
    step_s: dict[str, Callable[[int, int], float]],
    *,
    sizes: Sizes = PROFILES["quick"].cuda,
    keep: Callable[[Entry], None] = lambda entry: None,
    telemetry: Telemetry | None = None,
    **options: Any,
) -> Measure:
    """Return a `Measure` over scripted engines; `step_s` by engine name."""
    clock = FakeClock()

    def make(name: str, batch_size: int) -> ScriptedEngine:
        return ScriptedEngine(name, clock, step_s[name], batch_size=batch_size, **options)

    return Measure(ScriptedShelf(clock, make), sizes, telemetry or Telemetry(None), keep)  # type: ignore[arg-type]
