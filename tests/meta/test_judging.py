"""From an estimate to a verdict in a test's record, and which verdicts fail their test."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from fixtures.judging import Judge, failing
from reports.estimate import Estimate
from reports.verdict import Outcome, above, below
from tests.meta.inner_run import InnerRun


def options(claims="strict", profile="quick"):
    return SimpleNamespace(claims=claims, profile=profile)


def judge_on(device, *, timed=True, kept=None, claim="C10"):
    kept = [] if kept is None else kept
    return Judge(claim, device=device, timed=timed, keep=kept.append)


def measured(low, high):
    return Estimate((low + high) / 2, low, high, 0.95, 5, "1", "round", "t on logs")


def verdicts(device="cuda", **about):
    judge = judge_on(device, **about)
    return [
        judge(measured(*interval), below(1.0), quantity="rate", subject="naive@1", **more)
        for interval, more in (
            ((0.5, 0.6), {}),
            ((1.5, 1.6), {}),
            ((0.9, 1.1), {}),
            ((1.5, 1.6), {"applies": "claimed for sm_75"}),
            ((0.5, 0.6), {"faults": ["throttled"]}),
        )
    ]


def test_the_five_words():
    assert [v.outcome for v in verdicts()] == [
        Outcome.CONFIRMED,
        Outcome.REFUTED,
        Outcome.UNDECIDED,
        Outcome.NOT_APPLICABLE,
        Outcome.FAULT,
    ]


@pytest.mark.parametrize(
    ("mode", "profile", "on", "failed"),
    [
        ("strict", "quick", "cuda", {Outcome.REFUTED, Outcome.UNDECIDED, Outcome.FAULT}),
        ("strict", "smoke", "cuda", {Outcome.REFUTED, Outcome.FAULT}),
        ("report", "quick", "cuda", {Outcome.FAULT}),
        ("strict", "quick", "cpu", {Outcome.FAULT}),
        ("report", "quick", "cpu", {Outcome.FAULT}),
    ],
)
def test_which_verdicts_fail(mode, profile, on, failed):
    """On a CPU a timed verdict is an observation: it never fails, but a fault of measuring does."""
    found = failing(verdicts(on), options(mode, profile))
    assert {verdict.outcome for verdict in found} == failed


def test_on_a_cpu_only_what_a_clock_decides_is_an_observation():
    by_clock, counted = verdicts("cpu")[0], verdicts("cpu", timed=False)[0]
    assert by_clock.observation
    assert not counted.observation
    assert not verdicts("cuda")[0].observation


def test_one_verdict_of_a_timed_test_can_be_about_a_count():
    judge = judge_on("cpu")
    found = judge(3.0, below(2.0), quantity="launches", subject="naive@1", timed=False)
    assert not found.observation
    assert failing([found], options()) == [found]


def test_an_exact_number_is_judged_with_its_rounding_and_never_an_observation():
    judge = judge_on("cpu")
    said = {"quantity": "cache", "unit": "B", "subject": "model"}
    assert judge.exact(114_688, 114_688, **said).outcome is Outcome.CONFIRMED
    assert judge.exact(114_689, 114_688, **said).outcome is Outcome.REFUTED
    assert judge.exact(1.0001, 1.0, rel=1e-3, **said).outcome is Outcome.CONFIRMED
    assert judge.exact(True, 1, **said).outcome is Outcome.CONFIRMED
    assert failing([judge.exact(1, 2, **said)], options())


def test_not_applicable_keeps_the_reason_and_fails_nowhere():
    found = judge_on("cuda").not_applicable("no tokenizer", quantity="answers", subject="nf4")
    assert (found.outcome, found.reason) == (Outcome.NOT_APPLICABLE, "no tokenizer")
    assert failing([found], options()) == []


def test_every_verdict_is_kept_under_its_claim_the_tests_own_or_a_named_one():
    kept = []
    judge = judge_on("cuda", kept=kept)
    judge(1.0, above(0.0), quantity="a", subject="x@1")
    judge(1.0, above(0.0), quantity="b", subject="x@1", claim="C12")
    judge.exact(1, 1, quantity="c", unit="1", subject="x@1", claim="C05")
    judge.not_applicable("no", quantity="d", subject="x@1", claim="C33")
    assert [v.claim for v in kept] == ["C10", "C12", "C05", "C33"]


SUITE = """
import pytest
from reports.bounds import above

@pytest.mark.claim("C05")
def test_two_fail(judge, record_series):
    judge(1.0, above(2.0), quantity="rate", subject="engine@1")
    judge.exact(1, 2, quantity="bytes", unit="B", subject="model")
    judge(3.0, above(2.0), quantity="rate", subject="engine@2")
    record_series("after", [{"index": 1}])

def test_unclaimed(judge):
    judge(1.0, above(0.0), quantity="rate", subject="engine@1")

@pytest.mark.claim("C10")
def test_device(device, judge):
    judge(1.0, above(2.0), quantity="rate", subject="engine@1")
"""


def test_a_test_measures_on_after_a_failing_verdict_and_raises_all_together(pytester, monkeypatch):
    run = InnerRun(pytester, monkeypatch)
    done = run(SUITE, "--benchmark-json=out.json", "-k", "two_fail or unclaimed")
    done.assert_outcomes(failed=1, passed=1, deselected=2)
    experiment = run.json["experiment"]
    assert [v["outcome"] for v in experiment["verdicts"]] == [
        "refuted", "refuted", "confirmed", "confirmed"
    ]  # fmt: skip
    assert experiment["series"][0]["name"] == "after"
    reason = experiment["tests"][0]["reason"]
    assert "engine@1: counted rate 1, claimed > 2: refuted" in reason
    assert "model: counted bytes 1 B, claimed = 2 B: refuted" in reason
    assert "engine@2" not in reason


def test_the_device_of_the_test_is_the_device_of_its_verdicts(pytester, monkeypatch):
    run = InnerRun(pytester, monkeypatch)
    run.cuda(True)
    run(SUITE, "--benchmark-json=out.json", "-k", "device").assert_outcomes(failed=2, deselected=2)
    assert [v["device"] for v in run.json["experiment"]["verdicts"]] == ["cpu", "cuda"]
