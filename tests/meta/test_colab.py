"""The cells of the README's Colab section and its commands for several machines.

Their flags are tried here on a small suite. `pytest -m colab`, or `tox -e colab`, runs the cells in
a clean environment with a torch of its own, which takes minutes and needs a package index.
"""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import tomllib
from typing import TYPE_CHECKING

import pytest

from reports.__main__ import main as reports
from tests.meta.inner_run import InnerRun
from tests.meta.mini_suite import ROOT
from tests.meta.readme_cells import cluster_commands, colab_cells, pytest_options, shell_cells

if TYPE_CHECKING:
    from pathlib import Path

SUITE = """
import pytest

@pytest.mark.claim("C35")
@pytest.mark.parametrize("index", [1, 2])
def test_one(index, judge, device):
    judge.exact(1, 1, quantity="one", unit="1", subject="it")
"""
COMMANDS = [line for cell in shell_cells("CONTENT") for line in cell.splitlines()]
PYTEST = [line for line in [*COMMANDS, *cluster_commands()] if pytest_options(line)]


@pytest.fixture
def run(pytester, monkeypatch):
    return InnerRun(pytester, monkeypatch)


def test_the_section_has_its_cells_and_bash_reads_them():
    assert len(colab_cells()) == 4
    for cell in shell_cells("/content"):
        assert subprocess.run(["bash", "-n", "-c", cell], check=False).returncode == 0


@pytest.mark.parametrize("command", PYTEST, ids=range(len(PYTEST)))
def test_every_pytest_command_has_flags_and_files_that_exist(command, run):
    """Collected on a machine with CUDA; a mistyped flag or folder is a usage error."""
    run.cuda(True)
    options = pytest_options(command.replace("CONTENT", str(run.folder)))
    files = [word for word in options if word.endswith(".py")]
    assert all((ROOT / file).is_file() for file in files)
    (run.folder / "drive/MyDrive/serving-ladder").mkdir(parents=True)
    done = run(SUITE, "--collect-only", "-q", *(word for word in options if word not in files))
    assert done.ret == 0, done.stderr.str()
    assert "test_one" in done.stdout.str()


def test_a_mistyped_flag_would_be_seen(run):
    assert run(SUITE, "--collect-only", "-q", "--resumed").ret == pytest.ExitCode.USAGE_ERROR


@pytest.mark.thorough
def test_the_run_resumes_and_the_reports_of_the_last_cell_are_written(run, monkeypatch):
    """The measuring cell twice, the first time cut after one test; then the report cell."""
    monkeypatch.setitem(os.environ, "COLUMNS", "200")
    where = run.folder / "drive/MyDrive/serving-ladder"
    where.mkdir(parents=True)
    cells = [cell.replace("CONTENT", str(run.folder)) for cell in shell_cells("CONTENT")]
    (measuring,) = [o for line in cells[1].splitlines() if (o := pytest_options(line))]
    on_the_cpu = [word for word in measuring if word not in ("-m", "gpu")] + ["--device", "cpu"]
    run(SUITE, *on_the_cpu, "-k", "cpu-1").assert_outcomes(passed=1, deselected=3)
    run(SUITE, *on_the_cpu).assert_outcomes(passed=1, deselected=3)
    for line in cells[2].splitlines():
        if line.startswith("python -m reports"):
            assert not reports(shlex.split(line)[3:])
    assert {path.name for path in where.iterdir()} >= {"out.json", "report.html", "salvaged.json"}


def test_every_module_and_group_that_a_command_names_exists():
    words = [shlex.split(line, comments=True) for line in [*COMMANDS, *cluster_commands()] if line]
    modules = {line[2] for line in words if line[:2] == ["python", "-m"]} - {"sglang.launch_server"}
    assert modules >= {"pip", "pytest", "reports", "fixtures.shape_folder"}
    assert all(importlib.util.find_spec(name) for name in modules - {"pip"})
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["dependency-groups"]
    named = {line[line.index("--group") + 1] for line in words if "--group" in line}
    assert named == {"experiment"}
    assert named <= groups.keys()


def versions(python: Path) -> str:
    show = "from importlib.metadata import version as v; print(v('torch'), v('numpy'))"
    return subprocess.run([python, "-c", show], check=True, capture_output=True, text=True).stdout


@pytest.mark.colab
@pytest.mark.timeout(1800)
def test_the_cells_run_in_a_clean_environment_and_replace_no_torch(request, tmp_path):
    """As on Colab: torch is there already, Drive is a folder. Nothing up to here needs a GPU."""
    if "colab" not in request.config.option.markexpr:
        pytest.skip("takes minutes and downloads packages: pytest -m colab")
    python = tmp_path / "venv/bin/python"
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST_", "PIP_", "TOX"))}
    env |= {"PATH": f"{python.parent}:{env['PATH']}", "REPOSITORY": str(ROOT)}

    def bash(script: str, *, status: int = 0) -> str:
        done = subprocess.run(
            ["bash", "-e", "-c", script], env=env, check=False, capture_output=True, text=True
        )
        assert done.returncode == status, done.stdout[-3000:] + done.stderr[-3000:]
        return done.stdout + done.stderr

    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    bash(f"python -m pip install -q torch numpy -c {ROOT}/constraints.txt")
    before = versions(python)
    install, measure, report = shell_cells(str(tmp_path))
    bash(install)
    assert versions(python) == before
    assert "torch sees none here" in bash(measure, status=4)
    only = 'tests/test_a_memory_math.py -m "not gpu"'
    assert " passed" in bash(measure.replace("-m gpu", only))
    nothing_left = int(pytest.ExitCode.NO_TESTS_COLLECTED)
    assert "deselected" in bash(measure.replace("-m gpu", only), status=nothing_left)
    assert "C01" in bash(report)
    shutil.rmtree(tmp_path / "venv")
