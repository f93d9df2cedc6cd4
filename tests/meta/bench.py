"""A Tesla T4 on which every engine takes the time that it is told to take.

`Bench.call` runs a claim's test the way pytest would, with scripted material in place of the
fixtures. What a test concludes from a given truth is then known in milliseconds, without a model
and without a GPU.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from fixtures.ceilings import Ceilings
from fixtures.judging import Judge
from fixtures.measuring import Measure
from fixtures.profiles import PROFILES
from fixtures.rows import Rows
from fixtures.telemetry import Telemetry
from reports.rows import Quality
from reports.stats import estimate_mean
from tests.chapter import KV_TOKEN, QWEN3, T4, WEIGHTS
from tests.meta.scripted import FakeClock, ScriptedEngine, ScriptedShelf

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from fixtures.telemetry import Source
    from reports.verdict import Verdict

COPY_BYTES_PER_S = 240e9
"""What a T4 really reads per second: 75 % of its datasheet."""
FLOOR_S = WEIGHTS / T4.bandwidth_bytes_per_s
"""3.73 ms: no step of the fp16 model can take less."""
PREALLOCATED = ("static_kv", "compiled", "continuous", "static_batch")
WEIGHT_BYTES = {"int8": 753_100_000, "nf4": 559_000_000}
DEVICE = {
    "kind": "cuda",
    "name": "Tesla T4",
    "gpu": "T4",
    "driver": "580.1",
    "capability": list(T4.capability),
    "memory_bytes": T4.memory_bytes,
    "cpu": "scripted",
    "threads": 2,
}


@dataclass
class Bench:
    """Scripted material under the names of the fixtures, and the verdicts that came out."""

    monkeypatch: pytest.MonkeyPatch
    steps: dict[str, float | Callable[[int, int], float]] = field(default_factory=dict)
    prefill_s: Callable[[int], float] = lambda prompt_tokens: prompt_tokens / 5_000
    engine_types: dict[str, type[ScriptedEngine]] = field(default_factory=dict)
    engine_options: dict[str, Any] = field(default_factory=dict)
    telemetry_source: Source | None = None
    measure_type: type[Measure] = Measure
    verdicts: list[Verdict] = field(default_factory=list)
    kept_rows: list[dict[str, Any]] = field(default_factory=list)

    device = "cuda"
    profile = PROFILES["quick"]
    sizes = PROFILES["quick"].cuda
    loaded = SimpleNamespace(
        name="scripted",
        device="cuda",
        dtype="float16",
        weights_kind="trained",
        shape=QWEN3,
        bytes_per_value=2,
    )
    experiment_options = SimpleNamespace(model_for=lambda _: "scripted", adapter=None)

    def __post_init__(self) -> None:
        self.clock = FakeClock()
        self.engines = ScriptedShelf(self.clock, self.engine, loaded=self.loaded)
        for module in ("fixtures.environment", "fixtures.hardware"):
            self.monkeypatch.setattr(f"{module}.describe_device", lambda _: DEVICE)

    def engine(self, name: str, batch_size: int = 1, max_tokens: int = 0) -> ScriptedEngine:
        """An engine of this name; its weights and cache are those of the chapter's model."""
        step = self.steps[name]
        return self.engine_types.get(name, ScriptedEngine)(
            name,
            self.clock,
            step if callable(step) else lambda *_: step,
            self.prefill_s,
            batch_size,
            weights_bytes=WEIGHT_BYTES.get(name, WEIGHTS),
            kv_bytes_per_token=KV_TOKEN,
            capacity=max_tokens if name in PREALLOCATED else None,
            loaded=self.loaded,
            **self.engine_options,
        )

    def call(self, test: Callable[..., None], **params: Any) -> None:
        """Run a claim's test; its verdicts are kept."""
        names = inspect.signature(test).parameters
        marked = [mark.args[0] for mark in test.pytestmark if mark.name == "claim"]  # type: ignore[attr-defined]
        self.judge = Judge(
            marked[-1] if marked else "unclaimed",  # marks are applied from the bottom up
            device=self.device,
            timed="measure" in names,
            keep=self.verdicts.append,
        )
        test(**{name: params[name] if name in params else getattr(self, name) for name in names})

    @property
    def measure(self) -> Measure:
        """The real instrument over scripted engines."""
        telemetry = Telemetry(self.telemetry_source)
        return self.measure_type(self.engines, self.sizes, telemetry, keep=lambda _: None)  # type: ignore[arg-type]

    @property
    def ceilings(self) -> Ceilings:
        """The datasheet, and a measured bandwidth below it."""
        measured = estimate_mean([COPY_BYTES_PER_S] * 5, unit="B/s", resampled="round")
        return Ceilings(T4.bandwidth_bytes_per_s, measured, measured, WEIGHTS)

    @property
    def rows(self) -> Rows:
        """Real rows with a quality cell that is not empty."""
        equal = Quality("tokens equal", "tokens equal (scripted)")
        return Rows(self.kept_rows.append, self.ceilings, lambda _: equal)

    def record_series(self, name: str, points: list[dict[str, Any]], unit: str = "") -> None:
        """Series are not what a control looks at."""
