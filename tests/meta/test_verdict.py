"""The five outcomes, the sentence, and what fails a test."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from reports.stats import Estimate, estimate_mean
from reports.units import printed_unit, significant
from reports.verdict import (
    A_A_CONTROL,
    Bound,
    Outcome,
    Verdict,
    above,
    below,
    downgrade,
    gate,
    holm,
    judge,
    verdict_fails,
    within,
)


def interval(low, high, centre=None, *, n=5, unit="1"):
    middle = (low + high) / 2 if centre is None else centre
    return Estimate(middle, low, high, 0.95, n, unit, "run", "t on logs")


def judged(measured, bound, **options):
    about = {"claim": "C10", "subject": "naive@1", "quantity": "", "device": "cuda", **options}
    return judge(measured, bound, **about)


@pytest.mark.parametrize(
    ("low", "high", "bound", "outcome"),
    [
        (30.8, 31.7, below(266), "confirmed"),
        (267, 270, below(266), "refuted"),
        (265, 267, below(266), "undecided"),
        (266, 267, below(266), "refuted"),
        (265, 266, below(266), "undecided"),
        (265, 266, Bound(high=266), "confirmed"),
        (266, 267, Bound(high=266), "undecided"),
        (1.01, 1.2, above(1), "confirmed"),
        (0.8, 0.99, above(1), "refuted"),
        (0.8, 1.0, above(1), "refuted"),
        (0.9, 1.1, above(1), "undecided"),
        (0.95, 0.99, Bound(low=0.95), "confirmed"),
        (0.98, 1.02, within(0.97, 1.03), "confirmed"),
        (0.96, 1.02, within(0.97, 1.03), "undecided"),
        (0.9, 1.1, within(0.97, 1.03), "undecided"),
        (0.9, 0.96, within(0.97, 1.03), "refuted"),
        (1.04, 1.1, within(0.97, 1.03), "refuted"),
        (-0.04, 0.01, Bound(low=-0.05), "confirmed"),
        (-0.06, 0.01, Bound(low=-0.05), "undecided"),
        (-0.09, -0.06, Bound(low=-0.05), "refuted"),
    ],
)  # fmt: skip
def test_the_whole_interval_decides(low, high, bound, outcome):
    assert judged(interval(low, high), bound).outcome == Outcome(outcome)


def test_a_sentence_reads_as_in_the_readme():
    found = judged(interval(30.8, 31.7, 31.2, unit="tok/s"), below(266))
    assert found.sentence() == (
        "naive@1: measured 31.2 tok/s [30.8, 31.7] (5 runs), claimed < 266: confirmed"
    )


def test_a_sentence_scales_the_bound_like_the_value():
    found = judged(interval(0.0308, 0.0317, 0.0312, unit="s"), Bound(high=0.05), quantity="step")
    assert found.sentence() == (
        "naive@1: measured step 31.2 ms [30.8, 31.7] (5 runs), claimed ≤ 50: confirmed"
    )


def test_an_exact_number_is_printed_whole_and_compared_exactly():
    found = judged(114_688, within(114_688, 114_688), quantity="KV per token", unit="bytes")
    assert found.sentence() == (
        "naive@1: counted KV per token 114,688 B, claimed = 114,688: confirmed"
    )
    assert judged(229_376, within(114_688, 114_688)).outcome is Outcome.REFUTED
    assert found.p_value is None


def test_too_few_samples_are_undecided_and_say_how_many_are_missing():
    few = estimate_mean([1.0, 1.1], unit="s", resampled="run")
    found = judged(few, below(2))
    assert found.outcome is Outcome.UNDECIDED
    assert found.reason == "an interval needs about 3 runs, got 2 (1 more)"
    assert (found.p_value, found.minimum_detectable_effect) == (None, None)


def test_not_applicable_keeps_the_number_and_the_reason():
    found = judged(
        interval(90, 110), within(5, 20), applies="claimed for sm_75 (T4), this is sm_90"
    )
    assert found.outcome is Outcome.NOT_APPLICABLE
    assert found.estimate.centre == 100
    assert found.sentence().endswith("not applicable (claimed for sm_75 (T4), this is sm_90)")


def test_a_fault_comes_before_everything_else():
    faults = ("thermal slow-down", "clocks of the two arms 5 % apart")
    found = judged(interval(1, 2), below(3), faults=faults, applies="elsewhere", observation=True)
    assert found.outcome is Outcome.FAULT
    assert found.reason == "thermal slow-down; clocks of the two arms 5 % apart"


@pytest.mark.parametrize(
    ("outcome", "observation", "strict", "report"),
    [
        ("confirmed", False, False, False),
        ("refuted", False, True, False),
        ("undecided", False, True, False),
        ("not applicable", False, False, False),
        ("measurement fault", False, True, True),
        ("refuted", True, False, False),
        ("undecided", True, False, False),
        ("measurement fault", True, True, True),
    ],
)  # fmt: skip
def test_what_fails_a_test(outcome, observation, strict, report):
    found = Verdict("C10", "x@1", "", Outcome(outcome), observation, None, below(1), "", "cpu")
    assert verdict_fails(found, "strict") is strict
    assert verdict_fails(found, "report") is report


@given(
    centre=st.floats(-3, 3),
    below_centre=st.floats(1e-3, 2),
    above_centre=st.floats(1e-3, 2),
    n=st.integers(2, 40),
    end=st.floats(0.01, 100),
    kind=st.sampled_from(["below", "above", "within"]),
)
@settings(max_examples=200, deadline=None)
def test_the_p_value_never_contradicts_the_verdict(
    centre, below_centre, above_centre, n, end, kind
):
    """Below 0.05 exactly when the interval, also a lopsided one, excludes the bound."""
    bound = {"below": below(end), "above": above(end), "within": within(end / 2, end)}[kind]
    low, middle, high = np.exp([centre - below_centre, centre, centre + above_centre]).tolist()
    found = judged(interval(low, high, middle, n=n), bound)
    assume(abs(found.p_value - 0.05) > 1e-6)
    assert (found.p_value < 0.05) == (found.outcome is not Outcome.UNDECIDED)


def test_the_p_value_is_that_of_the_t_test_on_logs():
    from scipy.stats import ttest_1samp

    logs = np.array([0.1, 0.25, 0.3, 0.15])
    centre, half = logs.mean(), 3.182446 * logs.std(ddof=1) / 2
    found = judged(interval(*np.exp([centre - half, centre + half]), np.exp(centre), n=4), above(1))
    assert found.p_value == pytest.approx(ttest_1samp(logs, 0).pvalue, rel=1e-4)


def test_the_minimum_detectable_effect_is_detected_in_four_of_five_runs():
    """Simulated: a true ratio that lies this far above 1 is confirmed in about 80 % of runs."""
    rng = np.random.default_rng(5)
    seen = [
        judged(estimate_mean(rng.lognormal(0, 0.05, 8), unit="1", resampled="run"), above(1))
        for _ in range(200)
    ]
    effect = np.mean([v.minimum_detectable_effect for v in seen if v.minimum_detectable_effect])
    shifted = [
        judged(
            estimate_mean((1 + effect) * rng.lognormal(0, 0.05, 8), unit="1", resampled="run"),
            above(1),
        )
        for _ in range(200)
    ]
    confirmed = np.mean([v.outcome is Outcome.CONFIRMED for v in shifted])
    assert 0.7 < confirmed < 0.9


def test_the_minimum_detectable_effect_stands_beside_undecided_only():
    assert judged(interval(0.9, 1.1), above(1)).minimum_detectable_effect > 0
    assert judged(interval(1.1, 1.2), above(1)).minimum_detectable_effect is None


def _with_p(*p_values, claim="C10", outcome=Outcome.CONFIRMED):
    one = judged(interval(1, 2), below(3), claim=claim)
    return [replace(one, p_value=p, outcome=outcome) for p in p_values]


def test_holm_steps_down_and_stops():
    """Four tests: 0.05/4 = 0.0125, 0.05/3 = 0.0167, 0.05/2 = 0.025 stops at 0.03."""
    assert holm(_with_p(0.03, 0.001, 0.016, 0.04)) == {1, 2}
    assert holm(_with_p(0.02, 0.02)) == {0, 1}
    assert holm(_with_p(0.026, 0.026)) == set()
    assert holm([]) == set()


def test_holm_counts_timed_verdicts_that_were_judged_and_no_others():
    family = [
        *_with_p(0.02),
        *_with_p(0.001, claim="C24"),
        *_with_p(None, outcome=Outcome.NOT_APPLICABLE),
        *_with_p(0.9, outcome=Outcome.UNDECIDED),
    ]
    assert holm(family) == {0}


def test_forty_true_claims_at_five_percent_raise_a_false_alarm_without_holm_and_not_with_it():
    """Planted fault: no correction. 1 − 0.95^40 = 87 % of sessions would have a false verdict."""
    rng = np.random.default_rng(0)
    sessions = rng.random((200, 40))
    uncorrected = np.mean((sessions < 0.05).any(axis=1))
    corrected = np.mean([bool(holm(_with_p(*session))) for session in sessions])
    assert uncorrected > 0.8
    assert corrected < 0.12


def test_a_failed_control_turns_timed_verdicts_into_faults_and_leaves_the_others():
    timed = judged(interval(1, 2), below(3))
    counted = judged(5, within(5, 5), claim="C54")
    quality = judged(interval(-0.01, 0.01), Bound(low=-0.05), claim="C24")
    elsewhere = judged(interval(1, 2), below(3), applies="elsewhere")
    broken = judged(interval(1, 2), below(3), faults=("throttled",))
    found = downgrade([timed, counted, quality, elsewhere, broken], "the A/A control failed")
    assert [str(v.outcome) for v in found] == [
        "measurement fault", "confirmed", "confirmed", "not applicable", "measurement fault",
    ]  # fmt: skip
    assert found[0].extra == {"downgraded_from": "confirmed"}
    assert (found[0].p_value, found[0].estimate) == (None, timed.estimate)
    assert found[4].reason == "throttled; the A/A control failed"


@pytest.mark.parametrize(
    ("low", "high", "falls"), [(0.99, 1.01, False), (0.9, 1.1, False), (1.05, 1.1, True)]
)
def test_only_a_control_that_shows_a_difference_gates_the_session(low, high, falls):
    control = judged(interval(low, high), within(0.97, 1.03), claim=A_A_CONTROL)
    timed = judged(interval(1, 2), below(3))
    stored = [{**v.to_json(), "nodeid": "n", "block": 0} for v in (control, timed)]
    found = gate(stored)
    assert found[0]["outcome"] == str(control.outcome)
    assert (found[1]["outcome"] == "measurement fault") is falls
    assert found[1]["nodeid"] == "n"


@pytest.mark.parametrize("applies", [None, "elsewhere"])
def test_a_verdict_survives_strict_json(applies):
    found = judged(
        interval(0.9, 1.1), above(1), applies=applies, extra={"launches": 900}, observation=True
    )
    assert Verdict.from_json(json.loads(json.dumps(found.to_json(), allow_nan=False))) == found


@pytest.mark.parametrize(
    ("field", "value"),
    [("outcome", "maybe"), ("claim", ""), ("bound", None), ("estimate", 3), ("observation", 1)],
)
def test_a_stored_verdict_with_a_wrong_field_is_one_line(field, value):
    stored = {**judged(interval(1, 2), above(0)).to_json(), field: value}
    with pytest.raises(ValueError, match=rf"verdict\.{field} must be .*got"):
        Verdict.from_json(stored)


BAD_BOUNDS = {
    "nothing": lambda: Bound(),
    "descending": lambda: Bound(low=2, high=1),
    "words alone cannot judge": lambda: judged(interval(1, 2), Bound(text="as stated")),
    "nan": lambda: judged(float("nan"), below(1)),
}


@pytest.mark.parametrize("call", BAD_BOUNDS.values(), ids=BAD_BOUNDS)
def test_a_bound_or_number_that_cannot_judge_is_refused(call):
    with pytest.raises(ValueError, match="got"):
        call()


@pytest.mark.parametrize(
    ("value", "text"),
    [(31.2345, "31.2"), (266, "266"), (0.9512, "0.951"), (17577.4, "17,577"), (0, "0"),
     (0.05, "0.0500"), (1e-7, "1.00e-07"), (-3.14159, "-3.14"), (float("inf"), "–")],
)  # fmt: skip
def test_three_significant_digits(value, text):
    assert significant(value) == text


@pytest.mark.parametrize(
    ("unit", "value", "text"),
    [("s", 0.00373, "3.73 ms"), ("s", 9e-6, "9.00 µs"), ("bytes", 4.6976e9, "4.70 GB"),
     ("bytes/s", 3.2e11, "320 GB/s"), ("tok/s", 27.04, "27.0 tok/s"), ("1", 1.5, "1.50"),
     ("s", 0.0, "0 µs")],
)  # fmt: skip
def test_units_are_scaled_only_in_print(unit, value, text):
    assert printed_unit(unit, value).with_label(value) == text
