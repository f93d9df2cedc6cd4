"""The definitions of latency, on completions whose times are known."""

from __future__ import annotations

import pytest

from engines.records import Completion, Request
from reports.latency import (
    ServiceLevel,
    e2e_s,
    goodput_per_s,
    is_good,
    itl_s,
    service_ttft_s,
    succeeded,
    tokens_per_s,
    tpot_s,
    ttft_s,
    wall_s,
)


def completion(*token_s, scheduled=0.0, sent=0.5, reason="length", error=None):
    request = Request((1, 2), max(len(token_s), 1), scheduled_s=scheduled)
    return Completion(request, sent, token_s, tuple(range(len(token_s))), reason, error)


def test_latency_counts_from_the_scheduled_time_and_the_service_from_sending():
    """Sent half a second late: the queue in the client belongs to what the user waits."""
    done = completion(1.0, 1.1, 1.4)
    assert ttft_s(done) == pytest.approx(1.0)
    assert service_ttft_s(done) == pytest.approx(0.5)
    assert e2e_s(done) == pytest.approx(1.4)


def test_n_tokens_have_n_minus_1_gaps():
    done = completion(1.0, 1.1, 1.4)
    assert itl_s(done) == pytest.approx((0.1, 0.3))
    assert tpot_s(done) == pytest.approx(0.2)


def test_one_token_has_no_time_per_output_token():
    done = completion(1.0)
    assert itl_s(done) == ()
    assert tpot_s(done) is None


def test_no_token_has_no_latency():
    done = completion(reason="error", error="reset")
    assert (ttft_s(done), service_ttft_s(done), e2e_s(done), tpot_s(done)) == (None,) * 4


def test_the_rate_is_tokens_over_wall_time_and_not_a_mean_of_rates():
    """10 tokens in 1 s and 10 in 9 s, side by side: 20/9 tok/s; the mean of rates would be 5.6."""
    fast = completion(*(0.1 * i for i in range(1, 11)), sent=0.0)
    slow = completion(*(0.9 * i for i in range(1, 11)), sent=0.0)
    assert wall_s([fast, slow]) == pytest.approx(9.0)
    assert tokens_per_s([fast, slow]) == pytest.approx(20 / 9)


@pytest.mark.parametrize("reason", ["error", "cancelled", "rejected"])
def test_tokens_of_a_broken_answer_are_not_throughput(reason):
    whole, broken = completion(1.0, 2.0, sent=0.0), completion(1.0, 2.0, sent=0.0, reason=reason)
    assert not succeeded(broken)
    assert tokens_per_s([whole, broken]) == pytest.approx(1.0)


def test_an_answer_that_ends_well_but_carries_an_error_is_broken():
    assert not succeeded(completion(1.0, 2.0, error="error event in the stream"))


@pytest.mark.parametrize(
    ("level", "good"),
    [
        (ServiceLevel(), True),
        (ServiceLevel(ttft_s=1.0, tpot_s=0.2, e2e_s=1.4), True),
        (ServiceLevel(ttft_s=0.99), False),
        (ServiceLevel(tpot_s=0.19), False),
        (ServiceLevel(e2e_s=1.39), False),
    ],
    ids=["none", "met", "ttft", "tpot", "e2e"],
)
def test_every_limit_has_to_be_met(level, good):
    assert is_good(completion(1.0, 1.25, 1.4), level) is good


def test_a_failed_request_is_never_good_however_fast():
    assert not is_good(
        completion(0.51, 0.52, reason="error", error="reset"), ServiceLevel(ttft_s=9)
    )


def test_goodput_counts_good_answers_per_second_of_the_window():
    answers = [completion(1.0, 1.1), completion(3.0, 3.1), completion(reason="error", error="x")]
    assert goodput_per_s(answers, ServiceLevel(ttft_s=2.0), window_s=4.0) == pytest.approx(0.25)


def test_simulated_open_loop_counts_the_wait_that_service_time_hides():
    """A server of 0.1 s per request, 20 requests per second: the wait grows by 0.05 s each."""
    answers, free = [], 0.0
    for index in range(100):
        scheduled = 0.05 * index
        free = max(free, scheduled) + 0.1
        answers.append(completion(free, scheduled=scheduled, sent=free - 0.1))
    assert service_ttft_s(answers[-1]) == pytest.approx(0.1)
    assert ttft_s(answers[-1]) == pytest.approx(0.1 + 99 * 0.05)


@pytest.mark.parametrize("call", [lambda: wall_s([]), lambda: wall_s([completion(reason="error")])],
                         ids=["none", "no tokens"])  # fmt: skip
def test_a_block_without_tokens_has_no_rate(call):
    with pytest.raises(ValueError, match="no time to measure"):
        call()


def test_bad_windows_are_refused():
    with pytest.raises(ValueError, match="window_s must be positive, got 0"):
        goodput_per_s([], ServiceLevel(), window_s=0)
    with pytest.raises(ValueError, match="last longer"):
        tokens_per_s([completion(0.5, sent=0.5)])
