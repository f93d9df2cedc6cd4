"""What the server counts about itself, in Prometheus' text format.

The in-flight gauge comes with its own integral over time. Two scrapes give the exact time average
between them, which is the L of Little's law seen by the server alone: no polling that would
disturb the load, no client's word for it. Everything here runs on the event loop, so plain integers
are enough.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@dataclass(eq=False)
class ServerMetrics:
    """Gauges and counters of one server; `now_s` is a monotonic clock."""

    now_s: Callable[[], float]
    in_flight: int = 0
    running: int = 0
    running_most: int = 0
    kv_tokens: int = 0
    kv_tokens_most: int = 0
    tokens: int = 0
    finished: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    _integral_s: float = 0.0
    _changed_s: float | None = None

    def admitted(self) -> None:
        """A request is in flight from here on."""
        self._advance()
        self.in_flight += 1

    def first_token(self, prompt_tokens: int) -> None:
        """The request left the queue: its prompt is in the KV cache."""
        self.running += 1
        self.running_most = max(self.running_most, self.running)
        self.kv_tokens += prompt_tokens

    def token(self) -> None:
        """One token was generated."""
        self.tokens += 1
        self.kv_tokens += 1
        self.kv_tokens_most = max(self.kv_tokens_most, self.kv_tokens)

    def left(self, reason: str, kv_tokens: int) -> None:
        """The request is over; `kv_tokens` is 0 if it never had a first token."""
        self._advance()
        self.in_flight -= 1
        self.finished[reason] += 1
        self.kv_tokens -= kv_tokens
        self.running -= kv_tokens > 0

    @property
    def in_flight_seconds(self) -> float:
        """Integral of the in-flight gauge since the start [requests · s]."""
        self._advance()
        return self._integral_s

    def _advance(self) -> None:
        now_s = self.now_s()
        since_s = now_s if self._changed_s is None else self._changed_s
        self._integral_s += self.in_flight * (now_s - since_s)
        self._changed_s = now_s

    def collect(self) -> Iterator[Metric]:
        """What a scrape sees."""
        yield _gauge("serving_requests_in_flight", "Admitted and not finished", self.in_flight)
        yield _gauge("serving_requests_running", "With a first token, not finished", self.running)
        waiting = self.in_flight - self.running
        yield _gauge("serving_requests_waiting", "Without a first token yet", waiting)
        yield _gauge(
            "serving_kv_tokens", "Tokens whose KV is held for running requests", self.kv_tokens
        )
        yield _gauge("serving_requests_running_most", "Highest so far", self.running_most)
        yield _gauge("serving_kv_tokens_most", "Highest so far", self.kv_tokens_most)
        yield _count("serving_in_flight_seconds", "Integral of in-flight", self.in_flight_seconds)
        yield _count("serving_tokens_generated", "Tokens generated", self.tokens)
        yield _labelled(
            "serving_requests_finished", "Requests by how they ended", "reason", self.finished
        )
        yield _labelled("serving_requests_refused", "Refusals by status", "status", self.refused)

    def text(self) -> bytes:
        """The metrics page."""
        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        return generate_latest(registry)


def _gauge(name: str, what: str, value: float) -> Metric:
    return GaugeMetricFamily(name, what, value=value)


def _count(name: str, what: str, value: float) -> Metric:
    return CounterMetricFamily(name, what, value=value)


def _labelled(name: str, what: str, label: str, values: Counter[str]) -> Metric:
    family = CounterMetricFamily(name, what, labels=[label])
    for key, value in sorted(values.items()):
        family.add_metric([key], value)
    return family
