"""Sections 3.3 and 4, on paper and simulated: Little's law, and a tail that leaves early."""

from __future__ import annotations

import numpy as np
import pytest

from engines import cost
from reports import verdict
from reports.bounds import above, below, within
from reports.queueing import (
    QueueRun,
    UnstableQueueError,
    mm1_sojourn_quantile_s,
    simulate_queue,
)
from reports.stats import estimate_mean, estimate_ratio
from reports.verdict import Outcome
from tests.chapter import KV_TOKEN, QWEN3

RUNS, CUSTOMERS, LOOKS = 8, 60_000, 20_000
SERVICE_S = 0.5

GAPS = {
    "poisson": lambda rng, n: rng.exponential(1, n),
    "bursts": lambda rng, n: rng.gamma(0.2, 5, n),  # squared coefficient of variation 5
}
SERVICES = {
    "exponential": lambda rng, n: rng.exponential(1, n),
    "constant": lambda _, n: np.ones(n),
    "heavy tail": lambda rng, n: (rng.pareto(2.5, n) + 1) * 0.6,  # mean 1, infinite skewness
}
QUEUES = [  # gaps, service times, utilisation, servers
    ("poisson", "exponential", 0.8, 1),
    ("poisson", "constant", 0.8, 1),
    ("bursts", "exponential", 0.7, 1),
    ("bursts", "constant", 0.7, 1),
    ("poisson", "heavy tail", 0.6, 1),
    ("bursts", "heavy tail", 0.5, 3),
]


def queue_run(gaps: str, services: str, utilisation: float, servers: int, seed: int) -> QueueRun:
    """A queue that starts and ends empty; mean service time 1 s."""
    rng = np.random.default_rng(seed)
    n = CUSTOMERS if servers == 1 else CUSTOMERS // 6  # several servers are simulated one by one
    arrival_s = (GAPS[gaps](rng, n) / (utilisation * servers)).cumsum()
    return simulate_queue(arrival_s, SERVICES[services](rng, n), servers)


def watched(run: QueueRun, seed: int) -> float:
    """Mean number in the system, as counted at moments of the observer's own choosing."""
    moments_s = np.random.default_rng(10_000 + seed).uniform(0, run.end_s, LOOKS)
    return float(run.in_system_at(moments_s).mean())


@pytest.mark.claim("C14")
@pytest.mark.parametrize(
    ("gaps", "services", "utilisation", "servers"),
    QUEUES,
    ids=[f"queue:{gaps}-{services}-{servers}" for gaps, services, _, servers in QUEUES],
)
def test_littles_law_holds_whatever_the_distributions(gaps, services, utilisation, servers, judge):
    """Section 3.3: L, counted by an observer, is the arrival rate times the time in the system.

    Each run starts and ends empty, so that the law is exact for it; what is left is the observer's
    sampling error, a standard deviation of about L over sqrt(20,000), 1 % with a heavy tail.
    """
    runs = [queue_run(gaps, services, utilisation, servers, seed) for seed in range(RUNS)]
    counted = [watched(run, seed) for seed, run in enumerate(runs)]
    predicted = [run.arrival_rate_per_s * run.sojourn_s.mean() for run in runs]
    judge(
        estimate_ratio(counted, predicted, resampled="run"),
        within(0.97, 1.03),
        quantity="L over arrival rate x time in the system",
        subject=f"{gaps} arrivals, {services} service, {servers} server(s)",
    )


@pytest.mark.claim("C14")
def test_waiting_left_out_breaks_the_law(judge):
    """A planted fault: W from the start of service, not from arrival, must be refuted."""
    runs = [queue_run("poisson", "exponential", 0.8, 1, seed) for seed in range(RUNS)]
    counted = [watched(run, seed) for seed, run in enumerate(runs)]
    busy = [run.arrival_rate_per_s * 1.0 for run in runs]  # mean service 1 s, no waiting
    found = verdict.judge(
        estimate_ratio(counted, busy, resampled="run"),
        within(0.97, 1.03),
        claim="C14",
        subject="service time for time in the system",
        quantity="L over arrival rate x service time",
        device="cpu",
    )
    judge.exact(
        found.outcome is Outcome.REFUTED,
        1,
        quantity="a law without the waiting time is refuted",
        unit="1",
        subject="planted fault",
    )


@pytest.mark.claim("C14")
def test_five_a_second_for_two_seconds_are_ten_in_the_system(judge):
    """Section 3.3: 5 requests/s and W = 2 s; an M/M/1 has W = S / (1 - 5 S), so S = 2 / 11 s."""
    service_s = 2 / 11
    counted = []
    for seed in range(RUNS):
        rng = np.random.default_rng(seed)
        arrival_s = rng.exponential(1 / 5, 400_000).cumsum()
        counted.append(
            watched(simulate_queue(arrival_s, rng.exponential(service_s, 400_000)), seed)
        )
    judge(
        estimate_mean(counted, unit="request", resampled="run"),
        within(9.5, 10.5, text="5/s x 2 s = 10"),
        quantity="requests in the system",
        subject="M/M/1",
    )


@pytest.mark.claim("C15")
def test_ten_requests_of_1024_tokens_hold_over_a_gigabyte_of_kv(judge):
    """Section 3.3: 10 x 1,024 x 114,688 B = 1,174,405,120 B = 1.1744 GB."""
    judge.exact(
        cost.kv_cache_bytes(QWEN3, 1024, batch_size=10),
        10 * 1024 * KV_TOKEN,
        quantity="KV bytes of ten requests",
        unit="B",
        subject="Qwen3-0.6B",
    )


@pytest.mark.claim("C16")
def test_p99_is_beyond_11_seconds_at_80_percent(judge):
    """Section 4: ln(100) x 0.5 s / (1 - 0.8) = 11.51 s."""
    p99_s = mm1_sojourn_quantile_s(0.99, SERVICE_S, 0.8)
    assert round(p99_s, 2) == 11.51
    judge(p99_s, above(11.0), quantity="p99 at utilisation 0.8", subject="M/M/1, service 0.5 s")


@pytest.mark.claim("C16")
def test_half_the_load_has_less_than_half_the_tail(judge):
    """Section 4: at 0.4 it is ln(100) x 0.5 / 0.6 = 3.84 s, a third of that at 0.8."""
    judge.exact(
        mm1_sojourn_quantile_s(0.99, SERVICE_S, 0.4) / mm1_sojourn_quantile_s(0.99, SERVICE_S, 0.8),
        1 / 3,
        quantity="p99 at 0.4 over p99 at 0.8",
        unit="1",
        subject="M/M/1",
        rel=1e-12,
    )


@pytest.mark.claim("C16")
def test_the_formula_is_what_a_simulated_queue_shows(judge):
    """Eight runs of 400,000 customers at 0.8: the standard error of p99 is about 1 %."""
    p99_s = []
    for seed in range(RUNS):
        rng = np.random.default_rng(seed)
        arrival_s = rng.exponential(SERVICE_S / 0.8, 400_000).cumsum()
        run = simulate_queue(arrival_s, rng.exponential(SERVICE_S, 400_000))
        p99_s.append(float(np.quantile(run.sojourn_s, 0.99)))
    exact_s = mm1_sojourn_quantile_s(0.99, SERVICE_S, 0.8)
    judge(
        estimate_mean(p99_s, unit="s", resampled="run"),
        within(0.95 * exact_s, 1.05 * exact_s),
        quantity="simulated p99 at utilisation 0.8",
        subject="M/M/1, service 0.5 s",
    )


@pytest.mark.claim("C16")
@pytest.mark.parametrize("utilisation", [1.0, 1.1, 2.0], ids="utilisation:{}".format)
def test_a_full_server_is_unstable_and_has_no_p99(utilisation, judge):
    """Section 4: from 1 on the queue grows for as long as one looks; no number describes it."""
    with pytest.raises(UnstableQueueError, match="unstable"):
        mm1_sojourn_quantile_s(0.99, SERVICE_S, utilisation)
    early, late = _backlog(utilisation, 2_000), _backlog(utilisation, 200_000)
    judge(
        early / late,
        below(0.5),
        quantity="backlog after 2,000 customers over that after 200,000",
        subject=f"utilisation {utilisation:g}",
    )


def _backlog(utilisation: float, customers: int) -> float:
    """Requests in the system when the last one arrives, mean of a few runs."""
    found = []
    for seed in range(RUNS):
        rng = np.random.default_rng(seed)
        arrival_s = rng.exponential(SERVICE_S / utilisation, customers).cumsum()
        run = simulate_queue(arrival_s, rng.exponential(SERVICE_S, customers))
        found.append(float(run.in_system_at(arrival_s[-1:])[0]))
    return float(np.mean(found))
