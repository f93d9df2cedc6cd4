"""The committed runs: every tool still reads them, and the reports of them are quick."""

from __future__ import annotations

import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from matplotlib.image import imread

from reports.__main__ import main

BASELINES = sorted(Path("reports/baselines").resolve().glob("*.json"))
LONGEST_RUN = max(BASELINES, key=lambda path: path.stat().st_size)
EACH = [
    pytest.param(path, id=path.stem, marks=() if path == LONGEST_RUN else pytest.mark.thorough)
    for path in BASELINES
]
PROBE = (
    "import sys; from reports.__main__ import main; status = main(sys.argv[1:]); "
    "assert 'torch' not in sys.modules, 'torch was imported'; sys.exit(status)"
)
"""The command line of the reports, failing where something has imported torch."""


def processor_s(*arguments):
    """Processor time [s] of one process from its start to its end, imports included."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-c", PROBE, *map(str, arguments)]
    subprocess.run(command, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@pytest.mark.parametrize("path", EACH)
def test_pytest_benchmark_compare_reads_the_file(path, tmp_path):
    command = [sys.executable, "-m", "pytest_benchmark", "compare", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "@1" in done.stdout


@pytest.mark.parametrize("path", EACH)
def test_a_summary_takes_half_a_second_without_torch(path):
    assert processor_s("summary", path) < 0.5


def test_a_diff_takes_three_seconds_without_torch():
    assert processor_s("diff", LONGEST_RUN, LONGEST_RUN) < 3


@pytest.mark.thorough
def test_the_page_of_a_full_run_takes_ten_seconds_without_torch(tmp_path):
    assert processor_s("html", LONGEST_RUN, "-o", tmp_path / "report.html") < 10


def test_the_readme_shows_a_page_and_a_figure_made_by_the_commands_it_names(tmp_path, capsys):
    text = Path("README.md").read_text(encoding="utf-8")
    pictures = [Path(found) for found in re.findall(r"!\[[^]]+\]\(([^)]+)\)", text)]
    assert len(pictures) == 2
    assert all(0 < path.stat().st_size < 200_000 for path in pictures)
    (command,) = re.findall(r"`python -m reports (plot reports/baselines/[^`]+)`", text)
    *words, folder = command.split()
    assert f"{folder}/ladder.png" in text
    assert main([*words, str(tmp_path)]) == 0
    drawn, shown = (imread(at / "ladder.png") for at in (tmp_path, Path(folder)))
    assert drawn.shape == shown.shape
    assert abs(drawn - shown).mean() < 0.01, f"draw it again: python -m reports {command}"
    assert "written" in capsys.readouterr().out
