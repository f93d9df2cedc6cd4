"""Engines under an open load in one process: times as the host hears them, schedules kept."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("torch")

from engines.records import Completion
from fixtures.open_load import LEAD_S, capacity_per_s, run_open_loop
from fixtures.rounds import Shape
from fixtures.workload import Schedule
from tests.meta.fake_vllm import plant
from tests.meta.small_models import small_model

SHAPE = Shape(batch_size=2, prompt_tokens=5, new_tokens=4)


class Told:
    """A clock that stands where it is put."""

    def __init__(self):
        self.at_s = 7.0

    def now_s(self):
        return self.at_s

    def synchronized_s(self):
        return self.at_s


class OneAtATime:
    """Waits for each request's time, then 3 ms to the first token and 1, 2, 9 ms between them."""

    batch_size = 2
    loaded = SimpleNamespace(shape=SimpleNamespace(vocab_size=100))

    def __init__(self, clock, losing=()):
        self.clock, self.losing = clock, losing

    def run(self, requests, on_token=None):
        return [self.answer(index, request, on_token) for index, request in enumerate(requests)]

    def answer(self, index, request, on_token):
        """What it says of its own tokens is wrong: all at once, at the end."""
        self.clock.at_s = max(self.clock.at_s, request.scheduled_s)
        waits_s = (3e-3, 1e-3, 2e-3, 9e-3)[: 2 if index in self.losing else 4]
        for wait_s in waits_s:
            self.clock.at_s += wait_s
            if on_token:
                on_token(request, 1)
        ids, at_s = (1,) * len(waits_s), (self.clock.at_s,) * len(waits_s)
        return Completion(request, self.clock.at_s, at_s, ids, "length")


def test_gaps_and_first_tokens_are_those_that_the_host_heard():
    clock = Told()
    found = run_open_loop(OneAtATime(clock), clock, SHAPE, Schedule.constant(10, 40), seed=1)
    assert found.itl_p50_s == pytest.approx(2e-3)
    assert found.itl_p99_s == pytest.approx(9e-3)
    assert found.ttft_p99_s == pytest.approx(3e-3)
    assert found.unanswered == 0


def test_waiting_for_earlier_answers_counts_into_the_first_token():
    """At 100 requests/s of 15 ms each, the last of 40 waits for 39 × 5 ms more."""
    clock = Told()
    found = run_open_loop(OneAtATime(clock), clock, SHAPE, Schedule.constant(100, 40), seed=1)
    waited = [3e-3 + 5e-3 * index for index in range(4, 40)]
    assert found.ttft_p99_s == pytest.approx(np.quantile(waited, 0.99), rel=0.02)


def test_a_request_that_got_too_few_tokens_is_counted_as_lost():
    clock = Told()
    engine = OneAtATime(clock, losing={1, 20, 39})
    found = run_open_loop(engine, clock, SHAPE, Schedule.constant(10, 40), seed=1)
    assert found.unanswered == 2, "the second request belongs to the ramp-up"


def test_capacity_is_of_four_times_as_many_requests_as_rows():
    clock = Told()
    assert capacity_per_s(OneAtATime(clock), clock, SHAPE) == pytest.approx(8 / (8 * 15e-3))


@pytest.mark.parametrize("name", ["vllm", "continuous"])
def test_no_engine_is_handed_a_request_before_its_time(name, monkeypatch):
    from engines.clock import Clock
    from engines.registry import build_engine
    from fixtures.inputs import requests

    loaded = small_model()
    plant(monkeypatch, loaded)
    clock = Clock("cpu")
    engine = build_engine(name, loaded, batch_size=2, max_tokens=48, clock=clock)
    heard = {}
    work = requests(3, prompt_tokens=5, new_tokens=4, vocab_size=100)
    zero_s = clock.now_s() + LEAD_S
    timed = [replace(r, scheduled_s=zero_s + 0.15 * i) for i, r in enumerate(reversed(work))]
    done = engine.run(timed[::-1], lambda r, _: heard.setdefault(r.request_id, clock.now_s()))
    assert [c.request for c in done] == timed[::-1]
    assert all(c.finish_reason == "length" for c in done)
    assert all(heard[r.request_id] > r.scheduled_s for r in timed)
    assert all(c.sent_s >= c.request.scheduled_s for c in done)
