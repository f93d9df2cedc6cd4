"""Formulas of queues against the simulator, and the simulator against counting by hand."""

from __future__ import annotations

import numpy as np
import pytest

from reports.queueing import (
    UnstableQueueError,
    mean_sojourn_s,
    mm1_sojourn_quantile_s,
    simulate_queue,
)


def exponential_run(*, utilisation, servers=1, service_cv=1.0, seed=0, n=400_000):
    """M/M/c or M/D/c with mean service 1 s, and that many customers."""
    rng = np.random.default_rng(seed)
    arrival_s = rng.exponential(1 / (utilisation * servers), n).cumsum()
    service_s = rng.exponential(1, n) if service_cv else np.ones(n)
    return simulate_queue(arrival_s, service_s, servers)


def test_three_customers_by_hand():
    """The second waits 1 s for the first; the third finds the server free."""
    run = simulate_queue(np.array([1.0, 2.0, 9.0]), np.array([2.0, 3.0, 1.0]))
    assert run.departure_s.tolist() == [3.0, 6.0, 10.0]
    assert run.sojourn_s.tolist() == [2.0, 4.0, 1.0]
    assert run.in_system_at(np.array([0.5, 1.5, 2.5, 4.0, 7.0, 9.5, 11.0])).tolist() == [
        0, 1, 2, 1, 0, 1, 0,
    ]  # fmt: skip
    assert run.arrival_rate_per_s == 0.3


def test_two_servers_by_hand():
    """The third is served by whoever is free first, and may leave before the first."""
    run = simulate_queue(np.array([0.0, 1.0, 2.0]), np.array([9.0, 2.0, 3.0]), servers=2)
    assert run.departure_s.tolist() == [9.0, 3.0, 6.0]
    assert run.in_system_at(np.array([2.5, 7.0])).tolist() == [3, 1]


def test_one_server_of_many_is_the_running_maximum():
    rng = np.random.default_rng(7)
    arrival_s, service_s = rng.exponential(1, 500).cumsum(), rng.exponential(0.9, 500)
    free_s, wanted = 0.0, []
    for arrival, service in zip(arrival_s, service_s, strict=True):
        free_s = max(free_s, arrival) + service
        wanted.append(free_s)
    assert simulate_queue(arrival_s, service_s).departure_s == pytest.approx(wanted)


@pytest.mark.parametrize("utilisation", [0.3, 0.6])
@pytest.mark.parametrize("service_cv", [0.0, 1.0], ids=["M/D/1", "M/M/1"])
def test_the_mean_is_pollaczek_and_khinchine(utilisation, service_cv):
    """400,000 customers: the standard error is below 0.5 % up to a utilisation of 0.6."""
    run = exponential_run(utilisation=utilisation, service_cv=service_cv)
    wanted = mean_sojourn_s(1.0, utilisation, service_cv)
    assert run.sojourn_s.mean() == pytest.approx(wanted, rel=0.02)


def test_two_servers_wait_as_erlang_says():
    """M/M/2: W = S / (1 - rho ** 2), the closed form of Erlang C for two servers."""
    run = exponential_run(utilisation=0.6, servers=2, n=100_000)
    assert run.sojourn_s.mean() == pytest.approx(1 / (1 - 0.6**2), rel=0.03)


@pytest.mark.parametrize("quantile", [0.5, 0.99])
def test_the_simulated_quantiles_are_exponential(quantile):
    run = exponential_run(utilisation=0.5)
    wanted = mm1_sojourn_quantile_s(quantile, 1.0, 0.5)
    assert np.quantile(run.sojourn_s, quantile) == pytest.approx(wanted, rel=0.03)


def test_p99_over_p50_is_the_same_at_every_load():
    """It is ln 100 / ln 2 = 6.64: the tail must be compared across loads, not with the median."""
    for utilisation in (0.0, 0.5, 0.9, 0.99):
        ratio = mm1_sojourn_quantile_s(0.99, 0.5, utilisation) / mm1_sojourn_quantile_s(
            0.5, 0.5, utilisation
        )
        assert ratio == pytest.approx(6.6439, rel=1e-4)


@pytest.mark.parametrize("utilisation", [1.0, 1.0001, 1.5, float("inf")])
def test_a_full_server_has_no_number(utilisation):
    with pytest.raises(UnstableQueueError, match="unstable"):
        mm1_sojourn_quantile_s(0.99, 0.5, utilisation)
    with pytest.raises(UnstableQueueError, match="unstable"):
        mean_sojourn_s(0.5, utilisation, service_cv=0.0)


@pytest.mark.parametrize(
    ("quantile", "service_s", "utilisation"),
    [(1.0, 1, 0.5), (-0.1, 1, 0.5), (0.9, 0, 0.5), (0.9, -1, 0.5), (0.9, 1, -0.5)],
)
def test_what_cannot_be_is_refused(quantile, service_s, utilisation):
    with pytest.raises(ValueError, match="expected"):
        mm1_sojourn_quantile_s(quantile, service_s, utilisation)


@pytest.mark.parametrize(("arrivals", "services", "servers"), [(3, 2, 1), (0, 0, 1), (2, 2, 0)])
def test_a_simulation_without_customers_or_servers_is_refused(arrivals, services, servers):
    with pytest.raises(ValueError, match="expected as many"):
        simulate_queue(np.arange(arrivals, dtype=float), np.ones(services), servers)
