"""The fused steps' Triton kernels become machine code for GPUs that are not there."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytest.importorskip("triton", reason="needs triton, which comes with torch for CUDA")

from tests.meta.kernels_compiled import GPUS
from tests.meta.mini_suite import ROOT, outside

pytestmark = pytest.mark.thorough

SINGLE_ROW = {
    "fused_kernels.embed",
    "fused_attention.attend",
    "fused_kernels.project_head",
    "fused_kernels.pick_token",
    *(f"fused_kernels.project_{name} {e}" for name in ("qkv", "ffn", "residual") for e in range(3)),
}
MATRIX_UNITS = {
    "batched_kernels.product",
    "batched_kernels.gate_and_up",
    "batched_kernels.head_maxima",
}


def compiled(cache, capability, *, dependent_launch=False):
    """The process that compiled, with nothing kept of earlier ones."""
    numbers = (*capability, int(dependent_launch))
    return subprocess.run(
        [sys.executable, "-m", "tests.meta.kernels_compiled", *map(str, numbers)],
        cwd=ROOT,
        env=outside() | {"PYTHONPATH": str(ROOT), "TRITON_CACHE_DIR": str(cache)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.parametrize("capability", list(GPUS), ids="sm_{0[0]}{0[1]}".format)
def test_they_compile_and_fit_into_the_shared_memory(tmp_path, capability):
    done = compiled(tmp_path, capability, dependent_launch=capability >= (9, 0))
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert found.keys() >= SINGLE_ROW
    assert (found.keys() >= MATRIX_UNITS) == (capability >= (8, 0))
    assert {name for name, used in found.items() if used > GPUS[capability][1]} == set()


def test_what_a_t4_lacks_does_not_compile_for_it(tmp_path):
    """Planted fault: dependent launch, which came with sm_90."""
    done = compiled(tmp_path, (7, 5), dependent_launch=True)
    assert done.returncode != 0
    assert "griddepcontrol" in done.stderr
