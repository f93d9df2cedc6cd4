"""The measuring core against scripted engines whose step times are known."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from engines.records import Completion, Request
from fixtures.licence import NotLicensed
from fixtures.profiles import PROFILES
from fixtures.rounds import BrokenRound, Shape, decode_step_s, run_round
from tests.meta.scripted import FakeClock, ScriptedEngine, scripted_measure

if TYPE_CHECKING:
    from fixtures.series import Entry


def constant(seconds):
    return lambda *_: seconds


def test_decode_finds_the_scripted_step_time():
    measure = scripted_measure({"fast": constant(2e-3)})
    run = measure.decode("fast", batch_size=4)
    assert run.step_s.centre == pytest.approx(2e-3)
    assert run.tokens_per_s.centre == pytest.approx(4 / 2e-3)
    assert run.subject == "fast@4"
    assert len(run.rounds) == PROFILES["quick"].cuda.rounds


def test_ttft_and_gaps_are_kept_apart():
    measure = scripted_measure({"e": constant(1e-3)}, prefill_s=lambda _: 0.25)
    run = measure.decode("e", prompt_tokens=32, new_tokens=5)
    assert run.ttft_s.centre == pytest.approx(0.25)
    assert all(gap == pytest.approx(1e-3) for gaps in run.gaps for gap in gaps)
    assert [len(gaps) for gaps in run.gaps] == [4] * len(run.rounds)


def test_compile_time_is_recorded_and_not_timed():
    measure = scripted_measure({"e": constant(1e-3)}, compile_s=30.0)
    run = measure.decode("e")
    assert run.warm_up.compile_s == 30.0
    assert run.step_s.centre == pytest.approx(1e-3)


def test_a_slower_arm_is_found_with_its_ratio():
    measure = scripted_measure({"a": constant(1e-3), "b": constant(1.05e-3)})
    found = measure.compare_engines(["a", "b"])
    ratio = found.ratio("b", "a")
    assert ratio.low == pytest.approx(1.05)
    assert ratio.high == pytest.approx(1.05)
    assert ratio.n == PROFILES["quick"].cuda.rounds
    assert ratio.resampled == "round"


def test_arms_are_interleaved_so_that_drift_cancels():
    """A machine that gets 1 % slower with every round: measured one after the other B loses."""
    measure = scripted_measure({}, sizes=replace(PROFILES["quick"].cuda, rounds=6))
    seen = []

    def arm(name):
        def once(index):
            seen.append(name)
            return 1.0 + 0.01 * len(seen)

        return once

    found = measure.compare({"a": arm("a"), "b": arm("b")})
    order = "".join(seen[2:])
    assert order in ("abba" * 3, "baab" * 3)
    ratio = found.ratio("b", "a")
    assert ratio.low < 1 < ratio.high


def test_the_first_round_is_warm_up_and_left_out():
    measure = scripted_measure({})
    found = measure.compare({"a": lambda index: 100.0 if index == 0 else 1.0})
    assert set(found.samples["a"]) == {1.0}


def test_dropping_the_warm_up_would_be_seen():
    """Planted fault: with the warm-up round among the samples the centre is far from 1."""
    measure = scripted_measure({})
    values = []
    measure.compare({"a": lambda index: values.append(100.0 if index == 0 else 1.0) or values[-1]})
    assert sum(values) / len(values) > 10


def test_a_clock_read_before_the_device_has_finished_is_a_fault():
    """Planted fault: the work is still queued when the token times are read."""
    measure = scripted_measure({"queued": constant(1e-5)}, hidden_s=1.0)
    run = measure.decode("queued")
    assert any("before the device had finished" in fault for fault in run.faults)
    assert scripted_measure({"sound": constant(1e-3)}).decode("sound").faults == ()


def test_an_engine_without_its_licence_is_not_timed():
    """Whoever built it, the shelf or the test itself."""
    measure = scripted_measure({"wrong": constant(1e-3)}, granted=False)
    with pytest.raises(NotLicensed, match="wrong may not be timed: 3 of 16 tokens differ"):
        measure.decode("wrong")
    engine = measure.shelf.get("wrong", max_tokens=64)
    with pytest.raises(NotLicensed, match="wrong may not be timed"):
        measure.compare_built({"built by the test": engine}, measure.shape())


def test_every_series_becomes_a_sibling_entry_with_its_batch_size():
    kept: list[Entry] = []
    measure = scripted_measure({"e": constant(1e-3)}, keep=kept.append)
    measure.decode("e", batch_size=2)
    assert [entry.suffix for entry in kept] == ["step", "ttft", "itl"]
    assert {entry.extra_info["batch_size"] for entry in kept} == {2}


def test_the_step_of_a_batch_is_taken_while_all_rows_decode():
    """Row 1 starts one step later; the window holds 2 steps of 2 tokens each: 1 s a step."""
    request = Request(prompt_ids=(1,), max_new_tokens=4)
    first = Completion(request, 0.0, (1.0, 2.0, 3.0, 4.0), (1, 2, 3, 4), "length")
    second = Completion(request, 0.0, (2.0, 3.0, 4.0, 5.0), (1, 2, 3, 4), "length")
    assert decode_step_s([first, second]) == pytest.approx(1.0)


def test_a_round_that_lost_tokens_is_not_timed():
    clock = FakeClock()

    class Short(ScriptedEngine):
        def run(self, requests, on_token=None):  # noqa: ARG002 - asked for by `Engine`
            return [
                Completion(r, 0.0, (0.1,), (1,), "error", error="out of memory") for r in requests
            ]

    with pytest.raises(BrokenRound, match=r"1 tokens instead of 8.*out of memory"):
        run_round(Short("short", clock, constant(1.0)), Shape(1, 4, 8), clock, seed=1)
