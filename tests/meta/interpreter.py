"""Run a module that interprets Triton's kernels on the CPU, and read what it printed."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from typing import Any

import pytest

from tests.meta.mini_suite import ROOT


def interpret(module: str) -> dict[str, Any]:
    """The JSON that the module prints; in a process of its own, where Triton only interprets."""
    if importlib.util.find_spec("triton") is None:
        pytest.skip("triton is not installed: its kernels cannot be interpreted")
    done = subprocess.run(
        [sys.executable, "-m", module],
        cwd=ROOT,
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)
