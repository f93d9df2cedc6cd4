"""A pytest run inside this one, under the experiment's own conftest and plugins.

Starting a process for every run would take seconds; in this process a run takes a tenth of one.
What needs a process of its own (kill -9, no torch) is in `mini_suite.py`.
"""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

from tests.meta.bench import DEVICE
from tests.meta.mini_suite import ROOT

if TYPE_CHECKING:
    import pytest


class InnerRun:
    """Runs of a small suite in a folder of its own, as on a machine with CUDA or without."""

    def __init__(self, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
        self._pytester = pytester
        self._monkeypatch = monkeypatch
        self.folder = pytester.path
        shutil.copy(ROOT / "conftest.py", self.folder / "conftest.py")
        pytester.makeini("[pytest]\naddopts = --import-mode=importlib\n")
        self.cuda(False)
        for name in ("PYTEST_XDIST_WORKER", "PYTEST_XDIST_WORKER_COUNT", "PYTEST_XDIST_TESTRUNUID"):
            monkeypatch.delenv(name, raising=False)

    def cuda(self, available: bool) -> None:
        """Say whether torch sees a CUDA GPU."""
        for module in ("selection", "recording"):
            self._monkeypatch.setattr(f"fixtures.{module}.cuda_available", lambda: available)
        if available:
            self._monkeypatch.setattr("fixtures.environment.describe_device", lambda _: DEVICE)

    def __call__(self, tests: str, *options: str) -> pytest.RunResult:
        """Run these tests; the command line is that of a user."""
        self._pytester.makepyfile(test_mini=tests)
        # unraisableexception collects garbage five times at the end, slow once torch is loaded
        unwanted = ("cacheprovider", "hypothesispytest", "unraisableexception")
        without = [word for plugin in unwanted for word in ("-p", f"no:{plugin}")]
        return self._pytester.runpytest_inprocess("--disable-warnings", *without, *options)

    @property
    def json(self) -> dict[str, Any]:
        """What `--benchmark-json=out.json` has left."""
        found: dict[str, Any] = json.loads((self.folder / "out.json").read_text(encoding="utf-8"))
        return found

    @property
    def outcomes(self) -> dict[str, str]:
        """Outcome of each test of the last run, by its name."""
        tests = self.json["experiment"]["tests"]
        return {test["nodeid"].partition("::")[2]: test["outcome"] for test in tests}


def usage_error(result: pytest.RunResult) -> str:
    """The one line of a usage error; more than one fails."""
    assert result.ret == 4, result.ret
    (line,) = [line for line in result.stderr.lines if line.strip()]
    return str(line)
