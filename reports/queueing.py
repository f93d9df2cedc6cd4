"""Queues on paper and in a simulator: what load does to waiting, before any server is built.

Little's law L = λ·W holds for every queue that settles; percentiles do not come so cheap, they need
a model. M/M/1 (Poisson arrivals, exponential service, one server, first come first served) is the
one in which the whole distribution of the time in the system is known: exponential, with mean
S / (1 − ρ). Close to ρ = 1 everything diverges; at 1 there is no steady state and no number.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Times = npt.NDArray[np.float64]


class UnstableQueueError(ValueError):
    """Work arrives at least as fast as it can be served: the queue grows without end."""


def mm1_sojourn_quantile_s(quantile: float, service_s: float, utilisation: float) -> float:
    """Quantile of the time in an M/M/1 system, waiting and service together [s].

    −ln(1 − q) · S / (1 − ρ): exponential, so that p99 / p50 = ln 100 / ln 2 at every load. Raises
    UnstableQueueError from ρ = 1 on.
    """
    if not 0 <= quantile < 1:
        raise ValueError(f"quantile is {quantile}, expected a number from 0 up to but not 1")
    return -float(np.log1p(-quantile)) * mean_sojourn_s(service_s, utilisation)


def mean_sojourn_s(service_s: float, utilisation: float, service_cv: float = 1.0) -> float:
    """Mean time in an M/G/1 system, waiting and service together [s].

    Pollaczek–Khinchine: S + ρ·S·(1 + cv²) / (2·(1 − ρ)), with the coefficient of variation of the
    service time: 1 for M/M/1, 0 for M/D/1. Raises UnstableQueueError from ρ = 1 on.
    """
    if service_s <= 0 or utilisation < 0:
        raise ValueError(
            f"service_s {service_s}, utilisation {utilisation}: expected more than 0, 0 or more"
        )
    if utilisation >= 1:
        raise UnstableQueueError(
            f"utilisation {utilisation:g} is unstable, the queue never settles: expected below 1"
        )
    waiting_s = utilisation * service_s * (1 + service_cv**2) / (2 * (1 - utilisation))
    return service_s + waiting_s


@dataclass(frozen=True, slots=True)
class QueueRun:
    """What happened to n customers, in the order of their arrival; all arrays have shape (n,)."""

    arrival_s: Times
    departure_s: Times

    @property
    def sojourn_s(self) -> Times:
        """Time in the system, waiting and service together [s]."""
        return self.departure_s - self.arrival_s

    @property
    def end_s(self) -> float:
        """When the last customer left [s]."""
        return float(self.departure_s.max())

    @property
    def arrival_rate_per_s(self) -> float:
        """Customers per second, from time 0 until the system was empty again."""
        return len(self.arrival_s) / self.end_s

    def in_system_at(self, times_s: Times) -> npt.NDArray[np.int64]:
        """Customers in the system at each of these times: those arrived less those gone.

        This is the view of an observer who counts heads and knows nobody's time in the system.
        """
        come = np.searchsorted(self.arrival_s, times_s, side="right")
        gone = np.searchsorted(np.sort(self.departure_s), times_s, side="right")
        return come - gone


def simulate_queue(arrival_s: Times, service_s: Times, servers: int = 1) -> QueueRun:
    """First come, first served, by one or several equal servers; any arrivals, any service times.

    Both arrays have shape (n,), arrivals ascending from time 0 on. With one server the n-th leaves
    at max over k ≤ n of (arrival of k + service of k … n), which is a running maximum.
    """
    if len(arrival_s) != len(service_s) or len(arrival_s) == 0 or servers < 1:
        raise ValueError(
            f"{len(arrival_s)} arrivals, {len(service_s)} service times, {servers} servers, "
            "expected as many of one as of the other and at least one of each"
        )
    if servers > 1:
        return QueueRun(arrival_s, _several_servers(arrival_s, service_s, servers))
    served = np.cumsum(service_s)
    return QueueRun(arrival_s, served + np.maximum.accumulate(arrival_s - (served - service_s)))


def _several_servers(arrival_s: Times, service_s: Times, servers: int) -> Times:
    free_s = [0.0] * servers
    departure_s = np.empty_like(arrival_s)
    for index, (arrival, service) in enumerate(zip(arrival_s, service_s, strict=True)):
        departure_s[index] = max(arrival, free_s[0]) + service
        heapq.heapreplace(free_s, float(departure_s[index]))
    return departure_s
