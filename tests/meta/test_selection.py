"""Which tests run on which device, and which command lines are refused before anything is measured."""

from __future__ import annotations

import pytest

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
