"""A pytest plugin that slows one engine down by a known share, to see whether a diff finds it.

Five runs of the code as it is, five with the fault planted, and the two sides compared:

    for i in 1 2 3 4 5; do
      python -m pytest NODE-IDS --claims report --benchmark-json=before/$i.json
      python -m pytest NODE-IDS --claims report --benchmark-json=after/$i.json
        -p tests.meta.slow_engine --slow-down static_kv:1.05  # on the line before
    done
    python -m reports diff before after

The step really takes longer: nothing is multiplied in the record. On CUDA both the host and the
device lose the same time, so that the step is slower whichever of the two it waits for.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from engines.static_kv import StaticKV

SAMPLE = 30
"""Steps of which the mean is taken on CUDA, where a single step cannot be timed in passing."""
CYCLES = 10_000_000
"""Length of the device's sleep by which its cycles per second are found: some milliseconds."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare what is slowed down."""
    parser.addoption("--slow-down", metavar="ENGINE:FACTOR", help="static_kv:1.05 or compiled:1.05")


@pytest.fixture(scope="session", autouse=True)
def slowed_engine(request: pytest.FixtureRequest) -> None:
    """Put the delay into the decode step of the named engine, for the whole session."""
    wanted = request.config.getoption("--slow-down")
    if wanted is None:
        return
    from engines.static_kv import StaticKV

    name, factor = wanted.split(":")
    StaticKV.step = delayed(StaticKV.step, name, float(factor) - 1)  # type: ignore[method-assign]  # the planted fault


def delayed(step: Callable[[StaticKV], None], name: str, share: float) -> Callable[..., None]:
    """The step, and then a wait of `share` of its time, for engines of this name."""
    waits: dict[int, Callable[[], None]] = {}

    def slower(engine: StaticKV) -> None:
        if engine.name != name:
            return step(engine)
        if engine.loaded.device == "cpu":
            started = time.perf_counter()
            step(engine)
            return spin(share * (time.perf_counter() - started))
        if id(engine) not in waits:
            waits[id(engine)] = cuda_wait(share * mean_step_s(engine, step))
        step(engine)
        return waits[id(engine)]()

    return slower


def spin(seconds: float) -> None:
    """Keep the host busy this long."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


def cuda_wait(seconds: float) -> Callable[[], None]:
    """What keeps the device busy this long, queued, and the host as well."""
    per_cycle = sleep_s(CYCLES) / CYCLES

    def wait() -> None:
        device_sleep(round(seconds / per_cycle))
        spin(seconds)

    return wait


def device_sleep(cycles: int) -> None:
    """Queue a kernel that does nothing for this many cycles of the device."""
    import torch

    torch.cuda._sleep(cycles)  # type: ignore[no-untyped-call]  # torch leaves it untyped


def sleep_s(cycles: int) -> float:
    """Seconds that the device sleeps in this many of its cycles."""
    import torch

    device_sleep(cycles)
    torch.cuda.synchronize()
    started = time.perf_counter()
    device_sleep(cycles)
    torch.cuda.synchronize()
    return time.perf_counter() - started


def mean_step_s(engine: StaticKV, step: Callable[[StaticKV], None]) -> float:
    """Mean time of a step on the rows as they are; their state is put back afterwards."""
    import torch

    kept = [tensor.clone() for tensor in row_state(engine)]
    engine.state.active.zero_()  # rows that are idle stay where they are
    step(engine)
    torch.cuda.synchronize()
    started = time.perf_counter()
    for _ in range(SAMPLE):
        step(engine)
    torch.cuda.synchronize()
    taken = (time.perf_counter() - started) / SAMPLE
    for tensor, value in zip(row_state(engine), kept, strict=True):
        tensor.copy_(value)
    return taken


def row_state(engine: StaticKV) -> tuple[torch.Tensor, ...]:
    """What a step moves on for a row that is active."""
    state = engine.state
    return state.tokens, state.active, state.history, state.cache.positions
