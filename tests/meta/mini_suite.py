"""A small suite under the same plugins, run in a process of its own, to be killed and resumed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

TESTS = """
import time
import pytest
from reports.bounds import below

@pytest.mark.claim("C10")
@pytest.mark.parametrize("index", range({count}), ids="n:{{}}".format)
def test_number(index, judge, record_series, benchmark):
    benchmark.pedantic(lambda: time.sleep({sleep_s}), rounds=1, iterations=1)
    judge(float(index), below(1000.0), quantity="index", subject=f"engine@{{index}}")
    record_series("indices", [{{"index": index}}])
"""


def outside() -> dict[str, str]:
    """The environment of someone who starts pytest anew, not from inside one of its workers."""
    return {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_XDIST")}


class MiniSuite:
    """A folder with our conftest and a few tests; `run` starts pytest on it."""

    def __init__(
        self, folder: Path, tests: str | None = None, *, count: int = 4, sleep_s: float = 0.0
    ):
        self.folder = folder
        shutil.copy(ROOT / "conftest.py", folder / "conftest.py")
        (folder / "pytest.ini").write_text("[pytest]\naddopts = --import-mode=importlib\n")
        text = tests or TESTS.format(count=count, sleep_s=sleep_s)
        (folder / "test_mini.py").write_text(text, encoding="utf-8")

    @property
    def json(self) -> Path:
        return self.folder / "out.json"

    @property
    def journal(self) -> Path:
        return self.folder / "out.jsonl"

    def command(self, *options: str) -> list[str]:
        return [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:hypothesispytest",
            "-p",
            "no:xdist",
            *options,
        ]

    def environment(self) -> dict[str, str]:
        return {**outside(), "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}

    def run(self, *options: str, journal: bool = True) -> subprocess.CompletedProcess[str]:
        where = [f"--benchmark-json={self.json}"] if journal else []
        return subprocess.run(
            self.command(*where, *options),
            cwd=self.folder,
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def start(self, *options: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.command(f"--benchmark-json={self.json}", *options),
            cwd=self.folder,
            env=self.environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            text=True,
        )
