"""Out of memory ends one test; a lost context ends the GPU tests of the process, without noise."""

from __future__ import annotations

import pytest

from tests.meta.inner_run import InnerRun

HEAD = """
import gc, weakref
import pytest, torch
from reports.bounds import below

@pytest.mark.claim("C10")
def test_before(device, judge):
    judge(1.0, below(2.0), quantity="rate", subject="engine@1")
"""
OUT_OF_MEMORY = """
class Tensor: pass

held = []

def test_too_large(device, judge, record_series):
    judge(1.0, below(2.0), quantity="rate", subject="engine@16", claim="C12")
    tensor = Tensor()
    held.append(weakref.ref(tensor))
    raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 64.00 GiB.")

def test_later(device):
    gc.collect()
    assert held[0]() is None, "the tensors of the failed test are still held"
"""
POISONED = """
def test_poisons(device):
    try:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")
    except RuntimeError as cause:
        raise ValueError("the engine failed") from cause

@pytest.fixture
def tensor(device):
    raise OSError("a fixture was set up on a context that is lost")

@pytest.mark.parametrize("index", [1, 2])
def test_later(index, tensor):
    pass

def test_without_a_gpu():
    pass
"""
MENDED = """
def test_poisons(device):
    pass

@pytest.mark.parametrize("index", [1, 2])
def test_later(index, device):
    pass

def test_without_a_gpu():
    pass
"""
HARMLESS = """
def test_fails(device):
    raise RuntimeError("shapes do not match")

def test_skips(device):
    pytest.skip("CUDA error: device-side assert, says the reason of a skip")

def test_later(device):
    pass
"""


@pytest.fixture(scope="module")
def _torch():
    """An inner run must not be the first to import it: afterwards it would be forgotten again."""
    pytest.importorskip("torch")
    import engines.cuda_faults  # noqa: F401 - likewise


@pytest.fixture
def run(_torch, pytester, monkeypatch):
    found = InnerRun(pytester, monkeypatch)
    found.cuda(True)
    return found


def gpu_run(run, tests):
    return run(HEAD + tests, "--device", "cuda", "--benchmark-json=out.json")


def test_out_of_memory_ends_one_test_and_its_row_says_so(run):
    gpu_run(run, OUT_OF_MEMORY)
    assert run.outcomes == {
        "test_before[cuda]": "passed",
        "test_too_large[cuda]": "error",
        "test_later[cuda]": "passed",
    }
    failed = run.json["experiment"]["tests"][1]
    assert "CUDA out of memory. Tried to allocate 64.00 GiB" in failed["reason"]


def test_what_was_judged_before_memory_ran_out_is_kept(run):
    gpu_run(run, OUT_OF_MEMORY)
    assert [v["claim"] for v in run.json["experiment"]["verdicts"]] == ["C10", "C12"]


def test_after_a_lost_context_gpu_tests_are_marked_and_not_run(run):
    """Also when the engine has wrapped the CUDA error in one of its own.

    They are no failures, so that the one that matters is seen; in the record they are unfinished.
    """
    gpu_run(run, POISONED).assert_outcomes(passed=2, failed=1, skipped=2, deselected=4)
    assert run.outcomes == {
        "test_before[cuda]": "passed",
        "test_poisons[cuda]": "error",
        "test_later[cuda-1]": "error",
        "test_later[cuda-2]": "error",
        "test_without_a_gpu": "passed",
    }
    reasons = [t["reason"] for t in run.json["experiment"]["tests"] if "later" in t["nodeid"]]
    assert len(set(reasons)) == 1
    culprit = "test_mini.py::test_poisons[cuda]"
    assert reasons[0] == f"not run: the CUDA context was lost in {culprit}; go on with --resume"


def test_a_resumed_run_repeats_what_the_lost_context_kept_from_running(run):
    gpu_run(run, POISONED)
    done = run(HEAD + MENDED, "--device", "cuda", "--benchmark-json=out.json", "--resume")
    done.assert_outcomes(passed=3, deselected=4 + 2)
    assert set(run.outcomes.values()) == {"passed"}


def test_an_ordinary_failure_and_a_skip_lose_nothing(run):
    gpu_run(run, HARMLESS)
    assert run.outcomes == {
        "test_before[cuda]": "passed",
        "test_fails[cuda]": "error",
        "test_skips[cuda]": "skipped",
        "test_later[cuda]": "passed",
    }
