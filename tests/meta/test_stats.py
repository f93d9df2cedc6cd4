"""What an estimate says about itself, and what it refuses. Coverage: test_stats_coverage.py."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reports.stats import (
    Estimate,
    correlation_time,
    estimate_clustered_mean,
    estimate_mean,
    estimate_paired_difference,
    estimate_proportion,
    estimate_quantile,
    estimate_ratio,
    estimate_series_mean,
    exactly,
    mcnemar_exact,
    samples_needed,
)

TIMES = [0.101, 0.099, 0.103, 0.100, 0.098]


def test_an_estimate_says_what_was_resampled_how_and_keeps_the_other_interval_beside():
    times = np.random.default_rng(0).lognormal(0, 0.1, 12)
    found = estimate_mean(times, unit="s", resampled="run")
    assert (found.n, found.resampled, found.unit, found.confidence) == (12, "run", "s", 0.95)
    assert found.method == "t on logs"
    assert found.alternative.method == "bootstrap-t (1999 resamples, seed 0)"


def test_from_thirty_values_the_bootstrap_judges_and_t_stands_beside():
    values = np.random.default_rng(0).lognormal(0, 0.1, 30)
    found = estimate_mean(values, unit="s", resampled="run", seed=7)
    assert found.method == "bootstrap-t (1999 resamples, seed 7)"
    assert found.alternative.method == "t on logs"


def test_t_on_logs_is_that_of_the_textbook_for_a_ratio():
    """Log ratios 0.1, 0.2, 0.3: mean 0.2, standard error 0.1/sqrt(3), t(2, 0.975) = 4.3027."""
    found = estimate_ratio(np.exp([0.1, 0.2, 0.3]), [1, 1, 1], resampled="round")
    half = 4.302653 * 0.1 / np.sqrt(3)
    assert found.interval == pytest.approx((np.exp(0.2 - half), np.exp(0.2 + half)), rel=1e-6)


def test_a_time_and_its_rate_give_the_same_verdict_on_a_ratio():
    a, b = np.array([1.0, 1.2, 1.1, 1.3]), np.array([2.0, 2.1, 2.3, 2.2])
    times, rates = (estimate_ratio(x, y, resampled="run") for x, y in ((a, b), (1 / b, 1 / a)))
    assert times.interval == pytest.approx(rates.interval)


def test_the_seed_fixes_the_bootstrap():
    def of(seed):
        return estimate_mean(TIMES, unit="s", resampled="run", seed=seed).alternative

    assert of(1) == of(1)
    assert of(1) != of(2)


@pytest.mark.parametrize(
    ("q", "needed"), [(0.5, 6), (0.9, 29), (0.95, 59), (0.99, 299), (0.01, 299)]
)
def test_the_sample_floor_of_a_quantile(q, needed):
    """1 − q^n − (1 − q)^n >= 0.95: the extremes of n values enclose the quantile."""
    assert samples_needed(q) == needed
    values = np.random.default_rng(0).random(needed)
    assert estimate_quantile(values, q, unit="s", resampled="run").interval is not None
    short = estimate_quantile(values[1:], q, unit="s", resampled="run")
    assert short.interval is None
    assert (
        f"needs about {needed} independent samples, got {needed - 1} (1 more)" in short.warnings[0]
    )


def test_order_statistics_of_a_median_are_those_of_the_binomial_table():
    """Of 20 values ranks 6 and 15 enclose the median with 0.9586 (Conover 1999, table A3)."""
    found = estimate_quantile(np.arange(1.0, 21.0), 0.5, unit="s", resampled="run")
    assert found.interval == (6.0, 15.0)


def test_p99_of_a_few_requests_is_withheld_however_many_tokens_they_have():
    values = np.random.default_rng(0).random(8 * 400)
    found = estimate_quantile(
        values, 0.99, unit="s", resampled="request", groups=np.repeat(range(8), 400)
    )
    assert found.interval is None
    assert found.n == 8
    assert "p99 of dependent values needs about 35 requests, got 8 (27 more)" in found.warnings


def test_dependent_values_are_worth_fewer_independent_ones():
    rng = np.random.default_rng(0)
    names = np.repeat(np.arange(40), 25)
    values = rng.standard_normal(40)[names] + 0.1 * rng.standard_normal(names.size)
    grouped = estimate_quantile(values, 0.5, unit="s", resampled="request", groups=names)
    alone = estimate_quantile(values, 0.5, unit="s", resampled="token")
    assert grouped.high - grouped.low > 3 * (alone.high - alone.low)
    assert "1000 values worth" in grouped.method


def test_a_series_says_how_its_batches_were_cut():
    found = estimate_series_mean(np.random.default_rng(0).lognormal(0, 0.1, 1024), unit="s")
    assert found.method == "t on logs of 8 batches of 128"
    assert (found.n, found.resampled) == (8, "batch")


def test_a_strongly_dependent_series_is_refused_at_lengths_that_suffice_for_others():
    walk = np.random.default_rng(0).standard_normal(512).cumsum()
    found = estimate_series_mean(walk, unit="s")
    assert found.interval is None
    assert "dependent series needs about" in found.warnings[0]


def test_correlation_time_of_white_noise_and_of_ar1():
    """AR(1) with phi: (1 + phi) / (1 − phi), so 19 at 0.9."""
    rng = np.random.default_rng(3)
    noise, series = rng.standard_normal(20_000), np.empty(20_000)
    value = 0.0
    for index, innovation in enumerate(noise):
        value = 0.9 * value + innovation
        series[index] = value
    assert correlation_time(noise) == pytest.approx(1, abs=0.2)
    assert correlation_time(series) == pytest.approx(19, rel=0.25)


def test_no_item_differs_and_still_the_difference_is_not_certain():
    """Planted fault of a plain Wald interval: [0, 0] from 20 equal answers."""
    found = estimate_paired_difference([1] * 20, [1] * 20)
    assert found.centre == 0
    assert found.low < 0 < found.high


def test_mcnemar_counts_only_the_items_that_differ():
    """9 gained, 1 lost: 2 × P(X <= 1 | n = 10, 1/2) = 2 × 11/1024."""
    a = [1] * 9 + [0] + [1] * 50
    b = [0] * 9 + [1] + [1] * 50
    assert mcnemar_exact(a, b) == pytest.approx(22 / 1024)
    assert mcnemar_exact(b, b) == 1.0


def test_a_proportion_keeps_wilson_beside_clopper_pearson():
    found = estimate_proportion(0, 10)
    assert found.interval == pytest.approx((0, 0.3085), abs=1e-4)
    assert found.alternative.method == "Wilson"


def test_scaling_keeps_everything_but_the_unit():
    found = estimate_mean(TIMES, unit="s", resampled="run")
    twice = found.times(2, unit="1")
    assert twice.interval == pytest.approx((2 * found.low, 2 * found.high))
    assert twice.alternative.low == pytest.approx(2 * found.alternative.low)
    assert (twice.unit, twice.n) == ("1", 5)


BAD_CALLS = {
    "empty": lambda: estimate_mean([], unit="s", resampled="run"),
    "two-dimensional": lambda: estimate_mean([[1.0]], unit="s", resampled="run"),
    "nan": lambda: estimate_mean([1.0, float("nan")], unit="s", resampled="run"),
    "ratio of zero": lambda: estimate_ratio([1.0], [0.0], resampled="run"),
    "unequal pairs": lambda: estimate_ratio([1.0, 2.0], [1.0], resampled="run"),
    "q of 1": lambda: estimate_quantile([1.0], 1.0, unit="s", resampled="run"),
    "groups": lambda: estimate_quantile([1.0], 0.5, unit="s", resampled="run", groups=[1, 2]),
    "3 of 2": lambda: estimate_proportion(3, 2),
    "no groups": lambda: estimate_clustered_mean([1.0], [], unit="s", resampled="run"),
    "nan centre": lambda: Estimate(float("nan"), None, None, 0.95, 1, "s", "run", "mean"),
    "one end": lambda: Estimate(1.0, 0.5, None, 0.95, 1, "s", "run", "mean"),
    "descending": lambda: Estimate(1.0, 2.0, 1.0, 0.95, 1, "s", "run", "mean"),
    "percent": lambda: Estimate(1.0, None, None, 95, 1, "s", "run", "mean"),
    "scaled by 0": lambda: exactly(1.0).times(0),
}


@pytest.mark.parametrize("call", BAD_CALLS.values(), ids=BAD_CALLS)
def test_bad_input_is_one_line(call):
    with pytest.raises(ValueError, match=r"got|not finite|for") as caught:
        call()
    assert "\n" not in str(caught.value)


@given(st.lists(st.floats(1e-9, 1e9), min_size=1, max_size=12))
@settings(max_examples=60, deadline=None)
def test_any_positive_sample_makes_an_estimate_that_survives_strict_json(values):
    found = estimate_mean(values, unit="s", resampled="run")
    stored = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert Estimate.from_json(stored) == found
    assert found.interval is None or found.low <= found.centre <= found.high


@pytest.mark.parametrize(
    ("field", "value"),
    [("centre", None), ("centre", "1"), ("centre", True), ("n", 1.5), ("unit", 3), ("low", "x"),
     ("warnings", "text"), ("alternative", [1])],
)  # fmt: skip
def test_a_stored_estimate_with_a_wrong_field_is_one_line(field, value):
    stored = {**estimate_mean(TIMES, unit="s", resampled="run").to_json(), field: value}
    with pytest.raises(ValueError, match=rf"estimate\.{field} must be .*, got"):
        Estimate.from_json(stored)


def test_importing_the_methods_does_not_import_scipy():
    code = "import reports.stats, sys; print([m for m in sys.modules if m.startswith('scipy')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
