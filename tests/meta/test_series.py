"""Contract with pytest-benchmark's private list: what is injected is saved, and compared.

`fixtures/series.py` appends sibling entries to a list that pytest-benchmark does not document. When
a new version changes it, this is the test that says so.
"""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys

import pytest

from tests.meta.inner_run import InnerRun
from tests.meta.mini_suite import ROOT

SUITE = """
import pytest
from fixtures.series import Entry, add_entry

@pytest.mark.parametrize("engine_name", ["naive"], ids="engine:{}".format)
def test_decode(engine_name, request, benchmark):
    benchmark.pedantic(lambda: None, rounds=3, iterations=1)
    about = {"engine": engine_name, "batch_size": 2, "odd": float("nan"), "hashes": {1: {2}}}
    add_entry(request.node, Entry("ttft", "cpu @2 ttft", [0.1, 0.2, 0.3], about))
    add_entry(request.node, Entry("itl", "cpu @2 itl", [0.01] * 8, about))
    add_entry(request.node, Entry("empty", "cpu @2 itl", [], about))

def test_without_an_entry_of_its_own(request):
    add_entry(request.node, Entry("step", "cpu @1 step", [0.5], {}))
"""


@pytest.fixture
def run(pytester, monkeypatch):
    return InnerRun(pytester, monkeypatch)


@pytest.fixture
def entries(run):
    run(SUITE, "--benchmark-json=out.json").assert_outcomes(passed=2)
    return {entry["fullname"].partition("::")[2]: entry for entry in run.json["benchmarks"]}


def test_siblings_stand_beside_the_tests_own_entry(entries):
    decode = "test_decode[engine:naive]"
    assert list(entries) == [
        decode,
        f"{decode}::ttft",
        f"{decode}::itl",
        "test_without_an_entry_of_its_own::step",
    ]


def test_a_sibling_has_its_group_its_parameters_and_what_it_is_about(entries):
    ttft = entries["test_decode[engine:naive]::ttft"]
    assert ttft["group"] == "cpu @2 ttft"
    assert ttft["param"] == "engine:naive"
    assert ttft["params"] == {"engine_name": "naive"}
    assert ttft["extra_info"] == {
        "engine": "naive", "batch_size": 2, "odd": None, "hashes": {"1": [2]}
    }  # fmt: skip


def test_the_statistics_of_a_sibling_are_those_of_its_seconds(entries):
    stats = entries["test_decode[engine:naive]::ttft"]["stats"]
    assert (stats["min"], stats["median"], stats["max"]) == (0.1, 0.2, 0.3)
    assert stats["mean"] == pytest.approx(0.2)
    assert (stats["rounds"], stats["iterations"]) == (3, 1)
    assert entries["test_without_an_entry_of_its_own::step"]["stats"]["mean"] == 0.5


@pytest.mark.thorough
def test_pytest_benchmark_compares_the_siblings(run, entries):
    """In a process of its own, beside our conftest: `compare` imports the one it finds."""
    command = [sys.executable, "-m", "pytest_benchmark", "compare", str(run.folder / "out.json")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "test_decode[engine:naive]::ttft" in done.stdout
    assert "test_without_an_entry_of_its_own::step" in done.stdout
    assert "cpu @2 itl" in done.stdout


def test_without_a_benchmark_session_nothing_is_injected(run):
    """With --benchmark-disable there are no statistics to be a sibling of."""
    run(SUITE, "--benchmark-disable").assert_outcomes(passed=2)
    run(SUITE, "--benchmark-skip").assert_outcomes(passed=1, skipped=1)


def test_the_version_is_the_one_that_the_contract_was_written_for():
    major = int(importlib.metadata.version("pytest-benchmark").split(".")[0])
    assert major == 5, "pin pytest-benchmark below 6, or read this contract again"
