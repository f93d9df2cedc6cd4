"""The planted slow-down takes the time that it says, from the engine that it names."""

from __future__ import annotations

import time
from types import SimpleNamespace

from tests.meta.slow_engine import delayed, spin

STEP_S = 0.004


def seconds_of(step, name):
    engine = SimpleNamespace(name=name, loaded=SimpleNamespace(device="cpu"))
    started = time.perf_counter()
    step(engine)
    return time.perf_counter() - started


def test_only_the_named_engine_is_slowed_and_by_no_less_than_was_asked():
    calls = []

    def step(engine):
        calls.append(engine.name)
        spin(STEP_S)

    slower = delayed(step, "static_kv", 4.0)
    assert seconds_of(slower, "static_kv") >= 5 * STEP_S
    assert min(seconds_of(slower, "compiled") for _ in range(5)) < 5 * STEP_S
    assert calls == ["static_kv", *["compiled"] * 5]
