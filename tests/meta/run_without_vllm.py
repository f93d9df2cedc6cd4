"""A run of three tests in which vLLM is missing, fails at start or works, on a GPU not there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.meta.inner_run import InnerRun
from tests.meta.small_models import small_model

if TYPE_CHECKING:
    import pytest

PROBE = """
import sys
import pytest
from fixtures.ceilings import Ceilings
from reports.stats import exactly
from tests.meta.fake_vllm import on_a_t4, plant
from tests.test_i_vllm import *  # the claim and its fixtures

FAULT = {fault!r}

@pytest.fixture(scope="session")
def ceilings():
    measured = exactly(1e9, "B/s")
    return Ceilings(None, measured, measured, 1)

@pytest.fixture(autouse=True)
def broken_vllm(monkeypatch, loaded):
    on_a_t4(monkeypatch)
    if FAULT == "missing":
        monkeypatch.setitem(sys.modules, "vllm", None)
    else:
        plant(monkeypatch, loaded, failure=RuntimeError(FAULT) if FAULT else None)

@pytest.mark.claim("C01")
def test_something_before(judge):
    judge.exact(1, 1, quantity="one", unit="1", subject="it")

@pytest.mark.claim("C35")
def test_something_after(measure, judge, rows):
    rows.keep(measure.decode("naive"), claim="C35")
"""


def what_is_left(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, fault: str
) -> dict[str, Any]:
    """Exit status, tests, reason and engines of a run in which vLLM fails so; "" lets it work."""
    monkeypatch.setattr("engines.models.load_model", lambda *_, **__: small_model())
    run = InnerRun(pytester, monkeypatch)
    only = ("-k", "beats or something", "--device", "cpu", "--model", "tiny")
    result = run(PROBE.format(fault=fault), *only, "--profile=smoke", "--benchmark-json=out.json")
    found = run.json["experiment"]
    reasons = [v["reason"] for v in found["verdicts"] if v["claim"] == "C50"]
    return {
        "exit": int(result.ret),
        "passed": sum(test["outcome"] == "passed" for test in found["tests"]),
        "reason": " ".join(reasons),
        "engines": {row["engine"] for row in found["rows"]},
        "qualities": {row["engine"]: row["quality"]["kind"] for row in found["rows"]},
    }
