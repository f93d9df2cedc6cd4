"""Negative controls of the serving claims: a planted fault turns each verdict.

Runs are simulated: Poisson arrivals at a server that takes exactly `SERVICE_S` per answer, one at a
time (so that queueing theory holds) or all at once (a server without a queue, which no claim about
queues may be confirmed on). The numbers judged are those of the claim tests.
"""

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("fastapi", reason="the server needs the package fastapi")

from engines.serving.counting import Chunk
from engines.serving.exchange import Exchange
from fixtures.arrival_tests import ALPHA
from fixtures.load_claims import (
    achieved_share,
    backlog_growth,
    little,
    open_over_closed,
    p99_growth,
    request_speed_up,
    scaling,
)
from fixtures.load_figures import figures
from fixtures.load_points import sent_tests, sent_times
from fixtures.load_runs import LoadedRun
from fixtures.loadgen import LoadRun
from fixtures.workload import Schedule
from reports.bounds import Bound, above, within
from reports.latency import ServiceLevel
from reports.verdict import Outcome, judge

SERVICE_S = 0.05
SEEDS = range(5)
TOKENS = 5


def served(schedule, *, queue=True, slowdown=0.0):
    """Exchanges of a server that answers in SERVICE_S; `slowdown` stretches gaps with the queue."""
    free_s, out = 0.0, []
    for i, at in enumerate(schedule.times_s):
        start = max(at, free_s) if queue else at
        took = SERVICE_S * (1 + slowdown * min(4.0, (start - at) / SERVICE_S))
        free_s = start + SERVICE_S
        times = start + took * np.arange(1, TOKENS + 1) / TOKENS
        out.append(answered(i, at, times))
    return out


def answered(i, at, times):
    chunks = tuple(Chunk(float(time), 1, 1) for time in times)
    return Exchange(
        request_id=str(i),
        scheduled_s=at,
        sent_s=at,
        last_s=float(times[-1]),
        outcome="ok",
        chunks=chunks,
        counting="token ids",
        finish_reason="length",
    )


def simulated(load, *, schedule_of=Schedule.poisson, gauge=1.0, **server):
    """One LoadedRun per seed; `gauge` is the share of the truth that the server's gauge shows."""
    return [one_run(load, seed, schedule_of, gauge, server) for seed in SEEDS]


def one_run(load, seed, schedule_of, gauge, server):
    schedule = schedule_of(load / SERVICE_S, round(1500 * max(0.3, load)), seed=seed)
    exchanges = served(schedule, **server)
    run = LoadRun("open", schedule, tuple(exchanges), exchanges[-1].last_s, 1)
    spent = gauge * sum(one.last_s - one.scheduled_s for one in exchanges)
    return LoadedRun(load, seed, run, figures(run, ServiceLevel()), (), spent)


def outcome(estimate, bound):
    return judge(
        estimate, bound, claim="C17", subject="simulated", quantity="ratio", device="cuda"
    ).outcome


@pytest.fixture(scope="module")
def runs():
    """M/D/1 at three loads."""
    return {load: simulated(load) for load in (0.1, 0.8, 1.1)}


LITTLE = within(0.95, 1.05)


def test_c17_is_confirmed_where_the_three_agree(runs):
    assert outcome(little(runs[0.8]), LITTLE) is Outcome.CONFIRMED


@pytest.mark.parametrize(
    "fault", ["gauge without the queue", "time from the first token"], ids=lambda f: f"fault:{f}"
)
def test_c17_is_refuted_when_one_source_measures_something_else(runs, fault):
    if fault == "gauge without the queue":
        waiting = SERVICE_S / np.mean(
            [ex.last_s - ex.scheduled_s for ex in runs[0.8][0].run.exchanges]
        )
        planted = simulated(0.8, gauge=float(waiting))
    else:
        planted = [
            replace(
                run,
                run=replace(
                    run.run,
                    exchanges=tuple(
                        replace(ex, scheduled_s=ex.first_s) for ex in run.run.exchanges
                    ),
                ),
            )
            for run in runs[0.1]
        ]
    assert outcome(little(planted), LITTLE) is Outcome.REFUTED


def test_c18_is_confirmed_on_a_queue(runs):
    assert (
        outcome(p99_growth(runs[0.8], runs[0.1], "e2e_p99_s"), Bound(low=3.0)) is Outcome.CONFIRMED
    )
    assert outcome(achieved_share(runs[0.8]), within(0.98, 1.02)) is Outcome.CONFIRMED
    assert outcome(backlog_growth(runs[1.1]), above(0.02)) is Outcome.CONFIRMED


def test_c18_is_not_confirmed_without_a_queue_or_beyond_capacity(runs):
    flat = {load: simulated(load, queue=False) for load in (0.1, 0.8, 1.1)}
    assert outcome(p99_growth(flat[0.8], flat[0.1], "e2e_p99_s"), Bound(low=3.0)) is Outcome.REFUTED
    assert outcome(backlog_growth(flat[1.1]), above(0.02)) is Outcome.REFUTED
    assert outcome(achieved_share(runs[1.1]), within(0.98, 1.02)) is Outcome.REFUTED


def closed_loop(run):
    """One client that waits for each answer: nobody ever queues."""
    free_s, out = 0.0, []
    for i, at in enumerate(run.schedule.times_s):
        sent = max(at, free_s)
        free_s = sent + SERVICE_S
        out.append(answered(i, sent, np.array([free_s])))
    return replace(run, loop="closed", exchanges=tuple(out))


def test_c44_is_confirmed_on_a_queue_and_refuted_when_the_open_loop_waits_too(runs):
    opened = [run.run for run in runs[0.8]]
    closed = [closed_loop(run) for run in opened]
    assert outcome(open_over_closed(opened, closed), Bound(low=1.5)) is Outcome.CONFIRMED
    # Coordinated omission: latency counted from when the request could at last be sent.
    assert outcome(open_over_closed(closed, closed), Bound(low=1.5)) is Outcome.REFUTED


def test_c45_is_confirmed_on_poisson_arrivals_and_refuted_on_others(runs):
    def p(loaded):
        return sent_tests(loaded, sent_times).worst.adjusted_p

    def constant(rate, n, *, seed):
        return Schedule.constant(rate, n)

    def bursty(rate, n, *, seed):
        return Schedule.gamma(rate, n, cv=2.0, seed=seed)

    assert outcome(p(runs[0.1]), Bound(low=ALPHA)) is Outcome.CONFIRMED
    for schedule_of in (constant, bursty):
        planted = simulated(0.1, schedule_of=schedule_of)
        assert outcome(p(planted), Bound(low=ALPHA)) is Outcome.REFUTED


def test_c46_is_refuted_on_a_server_that_scales():
    one = [20.0, 20.4, 19.8]
    assert outcome(scaling([21.0, 22.0, 20.5], one), Bound(high=1.5)) is Outcome.CONFIRMED
    assert outcome(scaling([300.0, 310.0, 290.0], one), Bound(high=1.5)) is Outcome.REFUTED


def test_c37_is_refuted_when_batching_speeds_one_request_up_or_load_costs_nothing(runs):
    alone = TOKENS / SERVICE_S
    slower = {load: simulated(load, slowdown=0.3) for load in (0.1, 0.8)}
    assert outcome(request_speed_up(slower[0.8], alone), Bound(high=1.05)) is Outcome.CONFIRMED
    assert (
        outcome(p99_growth(slower[0.8], slower[0.1], "itl_p99_s"), above(1.0)) is Outcome.CONFIRMED
    )
    assert outcome(request_speed_up(slower[0.8], alone / 2), Bound(high=1.05)) is Outcome.REFUTED
    flat = {load: simulated(load, queue=False) for load in (0.1, 0.8)}
    assert (
        outcome(p99_growth(flat[0.8], flat[0.1], "itl_p99_s"), above(1.0)) is not Outcome.CONFIRMED
    )


def test_c07_and_c50_are_refuted_on_the_other_side():
    assert outcome(0.6, Bound(high=0.5)) is Outcome.REFUTED
    assert outcome(0.01, Bound(high=0.5)) is Outcome.CONFIRMED
    assert outcome(scaling([90.0, 95.0, 92.0], [100.0, 101.0, 99.0]), above(1.0)) is Outcome.REFUTED
