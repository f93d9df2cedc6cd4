"""What the claims about vLLM conclude from engines that take the time they are told to."""

from __future__ import annotations

import pytest

from reports.verdict import Outcome
from tests.meta.bench import FLOOR_S, Bench
from tests.meta.controls_vllm import beside_ours, split


@pytest.fixture(autouse=True, scope="module")
def imported_here():
    """An inner run forgets what it was the first to import; torch cannot be imported twice."""
    pytest.importorskip("torch")
    import engines.vllm_engine  # noqa: F401  # imported for the modules that stay


@pytest.fixture
def bench(monkeypatch):
    return Bench(monkeypatch)


def outcomes(bench, claim):
    return {(v.subject, v.outcome) for v in bench.verdicts if v.claim == claim}


def test_every_batch_is_measured_and_only_the_largest_is_judged(bench):
    beside_ours(bench)
    judged = [(v.claim, v.subject) for v in bench.verdicts if v.outcome is Outcome.CONFIRMED]
    assert judged == [("C10", "vllm@1"), ("C50", "vllm@64"), ("C55", "vllm")]
    rows = {(row["engine"], row["batch_size"]) for row in bench.kept_rows}
    engines = ("continuous", "continuous_graph", "fused_continuous", "vllm")
    assert rows == {(name, batch) for name in engines for batch in (1, 16, 64)}


def test_a_clock_read_too_early_in_one_arm_is_a_fault(bench):
    beside_ours(bench, hidden_s=10.0)
    assert outcomes(bench, "C50") >= {("vllm@64", Outcome.FAULT)}


def test_two_gpus_that_are_faster_than_one_and_below_both_ceilings_are_confirmed(bench):
    split(bench)
    assert outcomes(bench, "C12") == {("vllm tp:2@1", Outcome.CONFIRMED)}
    assert outcomes(bench, "C10") == {
        ("vllm@1", Outcome.CONFIRMED),
        ("vllm tp:2@1", Outcome.CONFIRMED),
    }


def test_two_gpus_that_are_slower_than_one_refute_the_rung(bench):
    split(bench, two_s=70e-3)
    assert outcomes(bench, "C12") == {("vllm tp:2@1", Outcome.REFUTED)}


def test_the_ceiling_of_two_gpus_is_twice_that_of_one_and_beyond_it_is_a_fault(bench):
    """A step a little above half the floor of one GPU is possible; below half it is not."""
    split(bench, two_s=FLOOR_S * 0.55)
    assert ("vllm tp:2@1", Outcome.CONFIRMED) in outcomes(bench, "C10")
    bench.verdicts.clear()
    split(bench, two_s=FLOOR_S * 0.45)
    assert ("vllm tp:2@1", Outcome.FAULT) in outcomes(bench, "C10")
    assert ("vllm@1", Outcome.CONFIRMED) in outcomes(bench, "C10")


def test_a_vllm_that_works_has_its_rows_with_their_quality_beside_ours(pytester, monkeypatch):
    """The whole path, from the exported folder to the run file, over a scripted package.

    What the clock says of it is not looked at: this machine may be busy.
    """
    pytest.importorskip("torch")
    from tests.meta.run_without_vllm import what_is_left

    left = what_is_left(pytester, monkeypatch, "")
    assert left["engines"] == {"naive", "continuous", "vllm"}
    assert left["qualities"]["vllm"] == "tokens equal"
    assert "failed at start" not in left["reason"]
