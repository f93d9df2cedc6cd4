"""Which tests run on which device, and which command lines are refused before measuring."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from fixtures import selection
from tests.meta.inner_run import InnerRun, usage_error
from tests.meta.mini_suite import MiniSuite

SUITE = """
import pytest
from reports.bounds import below

def test_plain():
    pass

@pytest.mark.claim("C10")
def test_both(device):
    assert device in ("cpu", "cuda")

@pytest.mark.claim("C12")
@pytest.mark.devices("cuda")
def test_only_cuda(device):
    assert device == "cuda"

@pytest.mark.claim("C11")
@pytest.mark.parametrize("engine_name", ["naive", "compiled"])
def test_engine(engine_name):
    pass

@pytest.mark.control
def test_the_instrument(device):
    pass
"""


@pytest.fixture
def run(pytester, monkeypatch):
    return InnerRun(pytester, monkeypatch)


def test_a_test_with_a_device_exists_once_per_device_and_only_cuda_is_gpu(run):
    run.cuda(True)
    everything = _collected(run(SUITE, "--collect-only", "-q"))
    assert {"test_both[cpu]", "test_both[cuda]", "test_only_cuda[cuda]"} <= everything
    assert "test_only_cuda[cpu]" not in everything
    gpu = _collected(run(SUITE, "--collect-only", "-q", "-m", "gpu"))
    assert gpu == {"test_both[cuda]", "test_only_cuda[cuda]", "test_the_instrument[cuda]"}
    assert _collected(run(SUITE, "--collect-only", "-q", "-m", "not gpu")) == everything - gpu


@pytest.mark.thorough
def test_gpu_tests_without_cuda_are_a_usage_error_in_one_line(tmp_path):
    """In a process of its own, with the torch that is installed; never a green run of skips."""
    pytest.importorskip("torch")
    if selection.cuda_available():
        pytest.skip("this machine has CUDA")
    done = MiniSuite(tmp_path, SUITE).run("-m", "gpu", journal=False)
    assert done.returncode == 4
    (line,) = [line for line in done.stderr.splitlines() if line.strip()]
    assert line.startswith("ERROR: the selected tests need a CUDA GPU, and torch sees none here")
    assert "pytest -m 'not gpu'" in line
    assert " passed" not in done.stdout


def test_asking_for_cuda_where_there_is_none_is_a_usage_error(run):
    """Though tests without a device could run."""
    assert "need a CUDA GPU" in usage_error(run(SUITE, "--device", "cuda"))


def test_a_plain_run_without_cuda_names_what_its_gpu_tests_need(run):
    done = run(SUITE, "-rs")
    done.assert_outcomes(passed=5, skipped=3)
    assert len([line for line in _skips(done) if line.endswith(selection.NO_CUDA)]) == 3


def test_cuda_tests_run_where_there_is_cuda(run):
    run.cuda(True)
    run(SUITE).assert_outcomes(passed=8)


def test_the_instrument_is_checked_before_the_claims(run):
    order = _collected(run(SUITE, "--collect-only", "-q", "--device", "cpu"), list)
    assert order[0] == "test_the_instrument[cpu]"


def test_auto_takes_the_gpu_where_there_is_one_and_else_the_cpu(run):
    for available, kind in ((True, "cuda"), (False, "cpu")):
        run.cuda(available)
        found = _collected(run(SUITE, "--collect-only", "-q", "--device", "auto"))
        assert f"test_both[{kind}]" in found
        assert not [name for name in found if name.endswith("cpu]" if available else "cuda]")]


def test_a_run_on_the_cpu_says_which_claims_it_leaves_out(run):
    run(SUITE, "--device", "cpu", "--benchmark-json=out.json").assert_outcomes(
        passed=5, deselected=3
    )
    (left_out,) = run.json["experiment"]["verdicts"]
    assert (left_out["claim"], left_out["outcome"]) == ("C12", "not applicable")
    assert left_out["reason"] == "measured only on cuda"


def test_only_the_engines_asked_for_are_tested(run):
    found = _collected(run(SUITE, "--collect-only", "-q", "--engines", "naive"))
    assert {name for name in found if "engine" in name} == {"test_engine[naive]"}
    assert "test_plain" in found


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--engines", "naive,warp"], "--engines: unknown warp; known: compiled, naive"),
        (["--engines", ","], "--engines is empty: expected names separated by commas"),
        (["--profile", "slow"], "--profile: unknown 'slow'; expected one of smoke, quick, full"),
        (["--device", "tpu"], "--device: unknown 'tpu'; expected one of cpu, cuda, auto"),
        (["--claims", "lax"], "--claims: unknown 'lax'; expected one of strict, report"),
        (["--tensor-parallel", "0"], "--tensor-parallel must be 1 or more GPUs, got '0'"),
        (["--tensor-parallel", "two"], "--tensor-parallel must be 1 or more GPUs, got 'two'"),
        (["--endpoint", "localhost:8000"], "--endpoint must be an http(s) URL"),
        (["--questions", "none.jsonl"], "--questions: no file none.jsonl"),
        (["--prompts", "none.jsonl"], "--prompts: no file none.jsonl"),
        (["--resume"], "--resume needs --benchmark-json=FILE"),
        (["--benchmark-json=no/out.json"], "--benchmark-json: folder no does not exist"),
    ],
    ids=[f"{i}" for i in range(12)],
)
def test_a_value_that_cannot_work_is_refused_in_one_line(options, expected, run):
    assert expected in usage_error(run(SUITE, *options))


def test_an_unknown_claim_is_refused_in_one_line(run):
    tests = SUITE.replace('"C12"', '"C99"')
    line = usage_error(run(tests, "--collect-only"))
    assert "test_only_cuda" in line
    assert "unknown claim 'C99'; reports/claims.py lists them" in line


def test_a_model_that_cannot_be_had_is_refused_in_one_line(run, monkeypatch):
    def load_model(name, **_):
        raise ValueError(f"unknown model {name!r}: take tiny")

    monkeypatch.setitem(sys.modules, "engines.models", SimpleNamespace(load_model=load_model))
    line = usage_error(run("def test_it(loaded): pass", "--device", "cpu", "--model", "huge"))
    assert line == "ERROR: --model huge: unknown model 'huge': take tiny"


def test_claims_of_a_test_are_named_in_the_order_in_which_they_are_read(run):
    tests = """
import pytest

@pytest.mark.claim("C10")
@pytest.mark.claim("C26")
def test_two(judge):
    judge.exact(1, 1, quantity="one", unit="1", subject="it")
"""
    run(tests, "--benchmark-json=out.json").assert_outcomes(passed=1)
    assert [v["claim"] for v in run.json["experiment"]["verdicts"]] == ["C10"]


def _collected(result, kind=set):
    return kind(line.partition("::")[2] for line in result.outlines if "::" in line)


def _skips(result):
    return [line for line in result.outlines if line.startswith("SKIPPED")]


@pytest.mark.thorough
def test_only_the_gpu_leaves_the_suites_own_tests_unread():
    """And they need none: with everything read, no test of them is marked."""
    import subprocess
    import sys

    from tests.meta.mini_suite import ROOT, outside

    def read(*arguments):
        command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", "gpu", *arguments]
        found = subprocess.run(
            command, cwd=ROOT, env=outside(), capture_output=True, text=True, check=True
        )
        lines = found.stdout.splitlines()
        return {line for line in lines if "::" in line}, lines[-1]

    fast, counted = read("--thorough")
    whole, counted_all = read("tests")
    assert fast == whole
    assert int(counted.split("/")[1].split()[0]) < int(counted_all.split("/")[1].split()[0]) / 5
