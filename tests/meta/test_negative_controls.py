"""Each timed claim has a planted fault that turns its verdict: what cannot fail shows nothing.

Step times, peaks and counts are scripted (`bench.py`), so it is known what the truth is. First the
sound script is confirmed, then every fault is refuted or called a fault of the measurement.
"""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from fixtures.measuring import Measure
from fixtures.run_record import RunRecord
from reports.verdict import A_A_CONTROL, Outcome, verdict_fails
from tests import test_b_ceiling_measured as ceiling
from tests.meta.bench import Bench
from tests.meta.controls import CONTROLS

PLANTED = [(claim, fault) for claim, control in CONTROLS.items() for fault in control.faults]


@pytest.fixture
def bench(monkeypatch):
    return Bench(monkeypatch)


@pytest.mark.parametrize("claim", CONTROLS)
def test_a_sound_script_is_confirmed(claim, bench):
    found = CONTROLS[claim].verdicts(bench, claim)
    outcomes = {verdict.outcome for verdict in found}
    assert Outcome.CONFIRMED in outcomes
    assert outcomes <= {Outcome.CONFIRMED, Outcome.NOT_APPLICABLE}, _sentences(found)
    assert not any(map(verdict_fails, bench.verdicts)), _sentences(bench.verdicts)


@pytest.mark.parametrize(("claim", "name"), PLANTED, ids=lambda part: part.replace(" ", "_"))
def test_a_planted_fault_turns_the_verdict(claim, name, bench):
    fault = CONTROLS[claim].faults[name]
    found = CONTROLS[claim].verdicts(bench, claim, fault)
    assert {verdict.outcome for verdict in found} == {fault.outcome}, _sentences(found)
    assert all(map(verdict_fails, found))


def test_the_instrument_against_itself_shows_nothing(bench):
    (control,) = a_a_control(bench)
    assert control.outcome is Outcome.CONFIRMED


def test_an_instrument_that_favours_the_first_arm_turns_every_timed_verdict_into_a_fault(bench):
    """Planted fault: the first arm is always measured 5 % too fast."""
    bench.measure_type = FavoursTheFirstArm
    (control,) = a_a_control(bench)
    assert control.outcome is Outcome.REFUTED
    CONTROLS["C10"].run(bench)
    CONTROLS["C53"].run(bench)
    bench.judge.exact(7, 7, quantity="layers", unit="1", subject="model", claim="C05")
    assert not any(map(verdict_fails, bench.verdicts[1:]))
    outcomes = {v["claim"]: v["outcome"] for v in session_of(bench.verdicts)}
    assert outcomes["C10"] == "measurement fault"
    assert outcomes["C05"] == "confirmed"


def test_a_sound_instrument_leaves_the_verdicts_of_its_session_alone(bench):
    a_a_control(bench)
    CONTROLS["C10"].run(bench)
    assert {v["outcome"] for v in session_of(bench.verdicts)} == {"confirmed"}


class FavoursTheFirstArm(Measure):
    def _round(self, label, engine, shape, *, seed):
        found = super()._round(label, engine, shape, seed=seed)
        return replace(found, step_s=found.step_s * (0.95 if label == "A" else 1))


def a_a_control(bench):
    bench.steps |= {"naive": 30e-3}
    bench.call(ceiling.test_one_engine_against_itself_shows_no_difference)
    return [v for v in bench.verdicts if v.claim == A_A_CONTROL]


def session_of(verdicts):
    """What a session of one test per verdict keeps of them in the end."""
    run = RunRecord(SimpleNamespace(journal_path=None))
    for index, verdict in enumerate(verdicts):
        run.finish_test(nodeid=str(index), outcome="passed", verdicts=[verdict.to_json()])
    return run.experiment_verdicts()


def _sentences(verdicts):
    return "\n".join(verdict.sentence() for verdict in verdicts)
