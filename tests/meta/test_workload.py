"""Schedules: reproducible, Poisson where they say so, never rescaled; prompts without prefixes."""

import numpy as np
import pytest

from fixtures.arrival_tests import ALPHA, arrival_tests
from fixtures.workload import (
    Schedule,
    constant_arrivals,
    gamma_arrivals,
    poisson_arrivals,
    salted_prompts,
    salted_text,
    trace_arrivals,
    write_trace,
)


def test_a_seed_fixes_the_schedule():
    assert np.array_equal(poisson_arrivals(5.0, 100, seed=42), poisson_arrivals(5.0, 100, seed=42))
    assert not np.array_equal(
        poisson_arrivals(5.0, 100, seed=42), poisson_arrivals(5.0, 100, seed=43)
    )


def test_the_total_is_left_random():
    """Var(sum of n gaps) = n / rate^2; a rescaled schedule has none. 5 sigma of a variance."""
    n, rate, runs = 100, 2.0, 2000
    spans = [poisson_arrivals(rate, n, seed=seed)[-1] for seed in range(runs)]
    assert np.var(spans) == pytest.approx(n / rate**2, rel=5 * np.sqrt(2 / runs))
    assert np.mean(spans) == pytest.approx(n / rate, abs=5 * np.sqrt(n / rate**2 / runs))


def test_other_schedules_have_the_rate_and_the_variation_they_name():
    assert np.allclose(np.diff(constant_arrivals(4.0, 10)), 0.25)
    gaps = np.diff(gamma_arrivals(2.0, 50_000, cv=3.0, seed=1))
    assert gaps.mean() == pytest.approx(0.5, rel=5 * 3 / np.sqrt(50_000))
    assert gaps.std() / gaps.mean() == pytest.approx(3.0, rel=0.1)


def test_a_trace_comes_back_exactly(tmp_path):
    times = poisson_arrivals(3.0, 50, seed=1)
    write_trace(tmp_path / "trace.txt", times)
    assert np.array_equal(trace_arrivals(tmp_path / "trace.txt"), times)
    assert Schedule.trace(tmp_path / "trace.txt").span_s == times[-1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no times"),
        ("1\nx\n", "line 2: got 'x'"),
        ("1\n0.5\n", "line 2: got 0.5, expected finite times that ascend"),
        ("nan\n", "line 1"),
        ("-1\n", "line 1"),
        ("inf\n", "line 1"),
    ],
    ids=["empty", "word", "descending", "nan", "negative", "infinite"],
)
def test_a_bad_trace_gets_one_line(tmp_path, text, message):
    (tmp_path / "trace.txt").write_text(text)
    with pytest.raises(ValueError, match=message):
        trace_arrivals(tmp_path / "trace.txt")


@pytest.mark.parametrize("rate", [0.0, -1.0, float("inf"), float("nan")])
def test_an_absurd_rate_is_refused(rate):
    with pytest.raises(ValueError, match="rate_per_s must be positive"):
        poisson_arrivals(rate, 3, seed=0)


def test_salted_prompts_share_no_first_token():
    prompts = salted_prompts(50, 8, vocab_size=100, seed=3)
    assert len({prompt[0] for prompt in prompts}) == 50
    assert all(0 < token < 100 for prompt in prompts for token in prompt)
    assert salted_prompts(50, 8, vocab_size=100, seed=3) == prompts
    assert salted_text("hello", "7").startswith("[7]")


def runs_of(make, runs=4, rate=20.0):
    return [(make(rate, seed), rate) for seed in range(runs)]


def lately(rate, seed):
    """Relative sleeps: each gap is lengthened by what the last wake-up was late."""
    return np.cumsum(np.diff(poisson_arrivals(rate, 150, seed=seed), prepend=0) + 0.02)


def rescaled(rate, seed):
    times = poisson_arrivals(rate, 150, seed=seed)
    return times * (150 / rate / times[-1])


def in_pairs(rate, seed):
    return np.repeat(poisson_arrivals(rate / 2, 75, seed=seed), 2)


NOT_POISSON = {
    "constant": lambda rate, seed: constant_arrivals(rate, 150 + 0 * seed),
    "bursty": lambda rate, seed: gamma_arrivals(rate, 150, cv=2.0, seed=seed),
    "regular": lambda rate, seed: gamma_arrivals(rate, 150, cv=0.6, seed=seed),
    "wrong rate": lambda rate, seed: poisson_arrivals(1.4 * rate, 150, seed=seed),
    "relative sleeps": lately,
    "rescaled": rescaled,
    "pairs": in_pairs,
    "sorted gaps": lambda rate, seed: np.sort(
        np.diff(poisson_arrivals(rate, 150, seed=seed))
    ).cumsum(),
}


@pytest.mark.parametrize("make", NOT_POISSON.values(), ids=[f"fault:{n}" for n in NOT_POISSON])
def test_arrivals_that_are_not_poisson_are_found_out(make):
    assert arrival_tests(runs_of(make)).fault is not None


def test_poisson_arrivals_pass_as_often_as_alpha_says():
    """40 families at 1 %: more than 4 false alarms has a probability below 0.0001."""
    false = 0
    for seed in range(40):
        runs = [(poisson_arrivals(9.0, 60, seed=1000 * seed + i), 9.0) for i in range(2)]
        false += arrival_tests(runs, seed=seed).worst.adjusted_p < ALPHA
    assert false <= 4


def test_too_few_arrivals_are_no_evidence():
    with pytest.raises(ValueError, match="plan a longer run"):
        arrival_tests([(poisson_arrivals(1.0, 10, seed=0), 1.0)])
