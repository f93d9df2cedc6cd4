"""The README tells what the code tells: claims, tree and commands."""

from __future__ import annotations

import pytest

from reports import readme
from reports.__main__ import COMMANDS

TEXT = (readme.ROOT / "README.md").read_text(encoding="utf-8")
TOX = (readme.ROOT / "tox.ini").read_text(encoding="utf-8")
PROMISED = (
    "python -m pip install tox && python -m tox -e experiment",
    "python -m pip install tox && python -m tox\n",
    "pytest -m gpu --benchmark-json=out.json",
    'pytest -m "not gpu"',
    "python -m engines.server --engine continuous --model tiny",
)


def test_claims_table_and_tree_are_up_to_date():
    """`python -m reports.readme` brings them up to date."""
    assert readme.rendered(TEXT) == TEXT


def test_a_stale_table_is_seen():
    """Planted fault: a verdict, then a figure, edited by hand."""
    for cell, edited in (("| C01 |", "| C00 |"), ("| 39.0 tok/s@1 |", "| 3.9 tok/s@1 |")):
        stale = TEXT.replace(cell, edited, 1)
        assert stale != TEXT
        assert readme.rendered(stale) != stale


@pytest.mark.parametrize("command", PROMISED)
def test_every_promised_command_is_shown(command):
    assert command in TEXT


@pytest.mark.parametrize("name", [name for name, _ in COMMANDS if name != "results"])
def test_every_report_command_is_shown(name):
    assert f"python -m reports {name}" in TEXT


@pytest.mark.parametrize("environment", ["lint", "types", "tests", "experiment"])
def test_every_tox_environment_of_the_readme_exists(environment):
    assert f"[testenv:{environment}]" in TOX


def test_a_readme_without_the_markers_is_refused_in_one_line():
    with pytest.raises(ValueError, match="has no part between <!-- claims -->"):
        readme.rendered("# Another file\n")
