"""Every claim of the registry has tests, and every claim judged by a clock or a load has a control.

Both gaps are written down as sets that have to match exactly: they shrink knowingly, and a claim
whose last test disappears is noticed.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

from reports.claims import CLAIMS
from tests.meta.controls import CONTROLS

TESTS = Path(__file__).parents[1]
NOT_YET_COVERED: set[str] = set()
"""Claims without a test; empty when the ladder and its optional rungs are whole."""
WITHOUT_CONTROL_YET: set[str] = set()
"""Timed or serve claims that have tests but no planted fault."""


def claims_tested(source: str) -> set[str]:
    """Ids in `@pytest.mark.claim("…")` decorators, without importing the module."""
    return {
        decorator.args[0].value
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
        for decorator in node.decorator_list
        if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "pytest.mark.claim"
        and isinstance(decorator.args[0], ast.Constant)
    }  # fmt: skip


def claims_with_serving_control(source: str) -> set[str]:
    """Ids in the names of tests that show a refutation: `test_c17_is_refuted_when_…`."""
    names = [n.name for n in ast.walk(ast.parse(source)) if isinstance(n, ast.FunctionDef)]
    shown = [name for name in names if re.search("refuted|not_confirmed", name)]
    return {f"C{number}" for name in shown for number in re.findall(r"_c(\d\d)(?=_)", name)}


COVERED = {
    claim for file in TESTS.glob("test_*.py") for claim in claims_tested(file.read_text("utf-8"))
}


def test_the_claims_without_a_test_are_exactly_those_written_down():
    assert set(CLAIMS) - COVERED == NOT_YET_COVERED
    assert set(CLAIMS) >= COVERED


def test_every_timed_or_serve_claim_with_a_test_has_a_negative_control():
    serving = claims_with_serving_control((TESTS / "meta/test_serving_controls.py").read_text())
    judged = {claim for claim in COVERED if CLAIMS[claim].timed}
    assert judged - CONTROLS.keys() - serving == WITHOUT_CONTROL_YET


def test_controls_are_of_claims_that_exist_and_plant_something():
    assert set(CLAIMS) >= CONTROLS.keys()
    assert all(control.faults for control in CONTROLS.values())


def test_a_marker_is_found_and_what_only_looks_like_one_is_not():
    source = """
@pytest.mark.claim("C10")
@pytest.mark.parametrize("claim", ["C99"])
def test_with(judge):
    judge(1, claim="C98")

@pytest.mark.claim("C97")
def material(): ...
"""
    assert claims_tested(source) == {"C10"}


def test_a_confirmation_alone_is_no_control():
    source = "def test_c17_is_confirmed(): ...\ndef test_c07_and_c50_are_refuted_elsewhere(): ..."
    assert claims_with_serving_control(source) == {"C07", "C50"}
