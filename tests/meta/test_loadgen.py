"""The load client's own honesty: calibration, lateness, windows, figures, invalid runs."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("fastapi", reason="the server needs the package fastapi")

from engines.serving.counting import Chunk, spread
from engines.serving.exchange import Call, Exchange
from fixtures.calibration import Calibration, ClientRate, RateRefused, calibrate, client_rate
from fixtures.load_faults import run_faults
from fixtures.load_figures import (
    P99_FLOOR,
    completion_of,
    departure_share,
    figures,
    in_flight_at,
    steady,
)
from fixtures.load_points import sent_tests, sent_times, sweep_points
from fixtures.load_runs import OpenLoop, Target, run_sweep
from fixtures.loadgen import Drive, LoadRun, run_closed, run_open
from fixtures.profiles import PlannedLoad
from fixtures.scripted_engine import BlockingEngine, SteppedEngine
from fixtures.serving import scripted_app, server_in_a_thread, server_process
from fixtures.workload import Schedule
from reports.latency import ServiceLevel

ANY = ServiceLevel()
FAST = ClientRate(1000.0, 999.0, 0.0002, 0.001, 0.001, 0.003, 0, 1000)
CALIBRATED = Calibration((FAST,))


def exchange(i, scheduled_s, took_s=0.1, *, tokens=4, lag_s=0.0, outcome="ok", first_s=None):
    """A record in which the first token comes after `first_s` or half of `took_s`."""
    begin = scheduled_s + (took_s / 2 if first_s is None else first_s)
    times = np.linspace(begin, scheduled_s + took_s, tokens)
    return Exchange(
        request_id=str(i),
        scheduled_s=scheduled_s,
        sent_s=scheduled_s + lag_s,
        last_s=scheduled_s + took_s,
        outcome=outcome,
        status=200,
        error=None if outcome == "ok" else "planted",
        chunks=tuple(Chunk(float(at), 1, 1) for at in times),
        counting="token ids",
        finish_reason="length",
    )


def made_run(exchanges, rate=10.0, kind="poisson"):
    times = tuple(one.scheduled_s for one in exchanges)
    schedule = Schedule(kind, times, rate, 0)
    return LoadRun("open", schedule, tuple(exchanges), exchanges[-1].last_s, 1)


def bodies(n, **asked):
    body = {"prompt": "abcd", "max_tokens": 4, "stream": True, "ignore_eos": True, **asked}
    return [Call(str(i), json.dumps({**body, "return_token_ids": True}).encode()) for i in range(n)]


def test_the_window_leaves_out_the_first_tenth_and_nothing_else():
    run = made_run([exchange(i, 0.1 * i) for i in range(1, 101)])
    counted = steady(run)
    assert [one.request_id for one in counted] == [str(i) for i in range(10, 101)]
    slow = made_run([exchange(i, 0.1 * i, 1e-3 if i < 100 else 60.0) for i in range(1, 101)])
    assert figures(slow, ANY).requests == 91


def test_figures_of_a_known_run_are_exact():
    run = made_run([exchange(i, 0.1 * i, 0.1, tokens=6, lag_s=0.02) for i in range(1, 201)])
    found = figures(run, ServiceLevel(ttft_s=0.04))
    assert found.ttft_p50_s == pytest.approx(0.05)
    assert found.service_ttft_p50_s == pytest.approx(0.03)
    assert found.e2e_p99_s == pytest.approx(0.1)
    assert found.itl_p50_s == pytest.approx(0.01)
    assert found.itl_p99_s == pytest.approx(0.01)
    assert found.request_tokens_per_s == pytest.approx(100.0)
    assert found.goodput_per_s == 0.0
    assert found.achieved_per_s == pytest.approx(10.0)
    assert found.tokens_per_s == pytest.approx(181 * 6 / 18.0)
    assert abs(found.backlog_growth_per_s) <= 1 / 18  # one request may end with the window


def test_a_p99_is_withheld_below_its_floor():
    few = made_run([exchange(i, 0.1 * i) for i in range(1, P99_FLOOR)])
    assert figures(few, ANY).ttft_p99_s is None
    assert figures(few, ANY).e2e_p50_s == pytest.approx(0.1)


def test_failures_give_no_tokens_and_no_goodput():
    whole = [exchange(i, 0.1 * i) for i in range(1, 201)]
    half = [exchange(i, 0.1 * i, outcome="ok" if i % 2 else "truncated") for i in range(1, 201)]
    good, bad = figures(made_run(whole), ANY), figures(made_run(half), ANY)
    assert bad.failed == 100
    assert bad.tokens_per_s == pytest.approx(good.tokens_per_s * 90 / 181, rel=0.02)
    assert bad.goodput_per_s == pytest.approx(good.goodput_per_s / 2, rel=0.02)
    assert bad.achieved_per_s == pytest.approx(good.achieved_per_s / 2, rel=0.02)


def test_a_queue_that_builds_up_shows_as_fewer_departures():
    """Service of 0.11 s at arrivals every 0.1 s: departures at 1 / 0.11, backlog + 0.91/s."""
    run = made_run([exchange(i, 0.1 * i, 0.11 + 0.01 * i) for i in range(1, 1001)])
    assert departure_share(steady(run)) == pytest.approx(0.1 / 0.11, rel=0.01)
    assert figures(run, ANY).backlog_growth_per_s == pytest.approx(1 / 0.1 - 1 / 0.11, rel=0.02)
    assert in_flight_at(run, 100.0) == pytest.approx(1000 - 1000 / 1.1, abs=2)


def test_a_run_without_answers_has_no_figures():
    with pytest.raises(ValueError, match=r"none of .* was answered"):
        figures(made_run([exchange(i, 0.1 * i, outcome="stalled") for i in range(1, 50)]), ANY)


def test_an_exchange_becomes_the_record_that_all_layers_share():
    done = completion_of(exchange(3, 1.0, 0.2, tokens=3, lag_s=0.01))
    assert (done.request.scheduled_s, done.sent_s, len(done.token_s)) == (1.0, 1.01, 3)
    assert completion_of(exchange(3, 1.0, outcome="truncated")).error == "planted"


def test_tokens_without_ids_are_spread_over_the_text_and_add_up():
    assert spread(4, [2, 6]) == [1, 3]
    assert spread(3, [0, 1, 1, 1, 1]) == [0, 1, 1, 1, 0]
    assert spread(5, []) == []
    assert spread(5, [0, 0]) == [0, 5]
    assert sum(spread(17, [3, 1, 4, 1, 5])) == 17


def test_a_clean_run_is_valid():
    assert run_faults(made_run([exchange(i, 0.1 * i) for i in range(1, 101)]), CALIBRATED) == ()


@pytest.mark.parametrize(
    ("run", "word"),
    [
        (
            made_run(
                [
                    exchange(i, 0.1 * i, outcome="stalled" if i == 50 else "ok")
                    for i in range(1, 101)
                ]
            ),
            "failed",
        ),
        (made_run([exchange(i, 0.1 * i, lag_s=0.02) for i in range(1, 101)]), "late"),
        (made_run([exchange(i, 1e-4 * i) for i in range(1, 101)], rate=10_000.0), "drives 1000"),
    ],
    ids=["a failure", "late", "too fast for the client"],
)
def test_a_planted_fault_makes_the_run_invalid(run, word):
    faults = run_faults(run, CALIBRATED)
    assert any(word in fault for fault in faults)
    assert all("\n" not in fault for fault in faults)


def test_a_late_client_is_found_by_the_arrivals_too():
    """Relative sleeps lose rate: each request waits its gap from when the last was sent."""
    schedule = Schedule.poisson(50.0, 300, seed=1)
    drift = [exchange(i, at, lag_s=0.004 * i) for i, at in enumerate(schedule.times_s)]

    class Kept:
        run = made_run(drift, rate=50.0)
        figures = figures(run, ANY)

    assert sent_tests([Kept], sent_times).fault is not None


@pytest.mark.thorough
def test_the_client_knows_what_it_can_drive():
    found = calibrate(20.0, tokens=4, stage_s=0.5)
    rate = found.rates[0]
    assert rate.requests == 100
    assert rate.failed == 0
    assert rate.offered_per_s == 100.0
    assert 0 < rate.added_ttft_p50_s < 0.5
    assert math.isfinite(rate.lag_p99_s)


def test_a_rate_above_the_clients_own_is_refused():
    slow = ClientRate(500.0, 300.0, 0.5, 2.0, 1.0, 3.0, 0, 500)
    measured = Calibration((FAST, slow))
    assert measured.sustained_per_s == 1000.0
    assert measured.at(900.0) is FAST
    with pytest.raises(RateRefused, match="drives 1000 requests/s here, got a plan of 1200"):
        measured.at(1200.0)
    with pytest.raises(RateRefused, match="drives 0"):
        Calibration((slow,)).at(1.0)


def test_lag_and_added_time_are_told_apart():
    run = made_run([exchange(i, 0.1 * i, lag_s=0.01, first_s=0.03) for i in range(1, 101)])
    rate = client_rate(run)
    assert rate.lag_p99_s == pytest.approx(0.01)
    assert rate.added_ttft_p50_s == pytest.approx(0.03)
    assert rate.achieved_per_s == pytest.approx(10.0, rel=0.002)


@pytest.mark.thorough
def test_an_open_loop_goes_on_while_a_closed_one_waits():
    """The server answers one request in 0.04 s; 50 arrive per second. Only one loop says so."""
    engine = BlockingEngine(step_s=0.01)
    schedule = Schedule.constant(50.0, 25)
    with server_in_a_thread(scripted_app(engine, locked=True)) as url:
        opened = run_open(url, schedule, bodies(25))
        closed = run_closed(url, bodies(25), 1, schedule=schedule)
    assert opened.outcomes == closed.outcomes == {"ok": 25}
    assert opened.most_in_flight > 5
    assert closed.most_in_flight == 1
    waited = [max(ex.last_s - ex.scheduled_s for ex in run.exchanges) for run in (opened, closed)]
    assert waited[0] > 3 * waited[1]


@pytest.mark.thorough
def test_progress_is_shown_while_a_run_goes_on():
    seen = []
    with server_in_a_thread(scripted_app(SteppedEngine(step_s=0.001))) as url:
        how = Drive(progress=seen.append, progress_every_s=0.05)
        run_open(url, Schedule.constant(50.0, 20), bodies(20), how)
    assert len(seen) >= 3
    assert "in flight" in str(seen[-1])
    assert seen[-1].sent <= 20


@pytest.mark.thorough
def test_a_server_killed_in_mid_run_makes_it_invalid_but_keeps_what_was_finished():
    schedule = Schedule.constant(100.0, 80)
    with server_process("fixtures.null_server") as null:

        def kill(state):
            if state.finished >= 10:
                null.process.kill()

        how = Drive(stall_s=2, drain_s=2, progress=kill, progress_every_s=0.02)
        run = run_open(null.url, schedule, bodies(80), how)
    assert len(run.exchanges) == 80
    assert 1 <= len(run.answered) < 80
    assert any("requests failed" in fault for fault in run_faults(run, CALIBRATED))


@pytest.mark.thorough
def test_a_sweep_measures_capacity_and_every_load_with_every_seed():
    engine = SteppedEngine(batch_size=2, step_s=0.01)
    with server_in_a_thread(scripted_app(engine)) as url:
        target = Target("scripted", url, lambda n, _seed: bodies(n), 4, busy_clients=4)
        planned = [PlannedLoad(load, runs=2, requests=12) for load in (0.3, 0.8)]
        sweep = run_sweep(target, planned=planned, capacity_requests=12, enforce=False)
    # Two rows of 4 tokens at 10 ms and more: at most 2 / (4 * 0.01) answers per second.
    assert 5 < sweep.capacity_per_s <= 50
    assert sweep.loads == (0.3, 0.8)
    assert [len(sweep.at(load)) for load in sweep.loads] == [2, 2]
    assert all(run.run.outcomes == {"ok": len(run.run.exchanges)} for run in sweep.runs)
    # Little's law between the server's gauge and the client: on a tiny run the network is visible.
    assert [run.little for run in sweep.runs] == pytest.approx([0.8] * 4, abs=0.3)
    points = sweep_points(sweep, "thread")
    assert json.loads(json.dumps(points, allow_nan=False)) == points
    assert points[0]["engine"] == "scripted"
    assert points[0]["ttft_p99_s"] is None  # 12 requests have no p99
    assert points[0]["e2e_p50_s"]["n"] == 2


@pytest.mark.thorough
def test_a_sweep_is_refused_where_the_client_cannot_drive_it(monkeypatch):
    slow = Calibration((ClientRate(100.0, 60.0, 0.5, 2.0, 1.0, 3.0, 0, 100),))
    monkeypatch.setattr("fixtures.load_runs.calibrate", lambda *_, **__: slow)
    with server_in_a_thread(scripted_app(SteppedEngine())) as url:
        target = Target("scripted", url, lambda n, _seed: bodies(n), 4, busy_clients=2)
        with pytest.raises(RateRefused):
            run_sweep(target, planned=[PlannedLoad(0.3, 1, 12)], capacity_requests=12)


def open_loop(monkeypatch, made):
    """Runs without a server: each is what `made` gives for its schedule."""
    monkeypatch.setattr("fixtures.load_runs.run_open", made)
    monkeypatch.setattr("fixtures.load_runs.in_flight_seconds", lambda _: None)
    target = Target("none", "http://127.0.0.1:9", lambda n, _seed: bodies(n), 4, busy_clients=2)
    return OpenLoop(target, 100.0, ANY, CALIBRATED, None, enforce=True)


@pytest.mark.parametrize(
    ("lags_s", "made_again", "valid"),
    [((0.0,), False, True), ((0.05, 0.0), True, True), ((0.05, 0.05), True, False)],
    ids=["in time", "late once", "late twice"],
)
def test_a_run_whose_client_was_late_is_made_again_once(lags_s, made_again, valid, monkeypatch):
    left, seeds = list(lags_s), []

    def made(url, schedule, calls, how):
        seeds.append(schedule.seed)
        lag_s = left.pop(0)
        return made_run([exchange(i, at, lag_s=lag_s) for i, at in enumerate(schedule.times_s)])

    found = open_loop(monkeypatch, made).run(PlannedLoad(0.1, 1, 50), 0)
    assert left == []
    assert len(set(seeds)) == len(lags_s)
    assert ("late" in (found.instead_of or "")) is made_again
    assert (found.faults == ()) is valid


def test_a_run_that_the_server_failed_is_not_made_again(monkeypatch):
    made = []

    def failing(url, schedule, calls, how):
        made.append(schedule.seed)
        first, *others = [exchange(i, at) for i, at in enumerate(schedule.times_s)]
        return made_run([replace(first, outcome="truncated"), *others])

    found = open_loop(monkeypatch, failing).run(PlannedLoad(0.1, 1, 50), 0)
    assert len(made) == 1
    assert "requests failed" in found.faults[0]


def test_prompt_ids_and_answers_survive_the_way_to_the_server_and_back():
    with server_in_a_thread(scripted_app(SteppedEngine())) as url:
        run = run_open(url, Schedule.constant(100.0, 3), bodies(3, prompt=[65, 66], max_tokens=5))
    assert [ex.token_ids for ex in run.exchanges] == [(65, 66, 256, 65, 66)] * 3
    assert {ex.counting for ex in run.exchanges} == {"token ids"}
