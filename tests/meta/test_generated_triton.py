"""What torch's compiler generates for a T4 uses nothing that a T4 lacks."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

pytest.importorskip("triton", reason="needs triton, which comes with torch for CUDA")

from tests.meta.mini_suite import ROOT, outside

pytestmark = pytest.mark.thorough

MISSING_ON_SM75 = {
    r"\btl\.dot\b": "fp16 matrix units are not used by Triton there",
    r"bfloat16": "no bf16",
    r"float8": "no fp8",
    r"\bextern_kernels\.\w+": "a single row's product left to a general GEMM kernel",
}


def what_a_t4_lacks(source: str) -> list[str]:
    """Reasons why this generated code would be slow or impossible on sm_75."""
    return [why for pattern, why in MISSING_ON_SM75.items() if re.search(pattern, _code(source))]


def _code(source: str) -> str:
    return "\n".join(line for line in source.splitlines() if not _is_preamble(line))


def _is_preamble(line: str) -> bool:
    return line.startswith("#") or "import" in line


def generated_for(major: int, minor: int, multiprocessors: int) -> str:
    command = [sys.executable, "-m", "tests.meta.generated_triton"]
    numbers = map(str, (major, minor, multiprocessors))
    done = subprocess.run(
        [*command, *numbers],
        cwd=ROOT,
        env=outside() | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_the_step_generated_for_a_t4_uses_nothing_that_a_t4_lacks():
    source = generated_for(7, 5, 40)
    assert source.count("@triton.jit") >= 5
    assert what_a_t4_lacks(source) == []


@pytest.mark.parametrize(
    "line",
    ["acc = tl.dot(a, b)", "x.to(tl.bfloat16)", "extern_kernels.mm(buf1, arg5_1, out=buf2)"],
    ids=["dot", "bf16", "gemm"],
)
def test_what_a_t4_lacks_is_seen(line):
    """Planted faults."""
    assert len(what_a_t4_lacks(f"import triton\n@triton.jit\n    {line}\n")) == 1
