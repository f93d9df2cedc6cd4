"""The registry is whole, each claim can be told to apply or not, and the README's table follows."""

from __future__ import annotations

import re

import pytest

from reports.claims import CLAIMS, SECTIONS, markdown_table
from reports.stats import Estimate
from reports.verdict import Bound, judge


def test_every_claim_of_the_chapter_is_registered_once():
    assert set(CLAIMS) == {f"C{number:02d}" for number in range(1, 58)}
    assert all(claim.id == key for key, claim in CLAIMS.items())


def test_claims_stand_in_the_order_of_their_sections():
    letters = [claim.section for claim in CLAIMS.values()]
    assert letters == sorted(letters)
    assert set(letters) == set(SECTIONS)


@pytest.mark.parametrize("claim", CLAIMS.values(), ids=CLAIMS)
def test_a_claim_is_a_sentence_with_a_bound(claim):
    assert re.fullmatch(r"\S.{20,}\.", claim.statement)
    assert len(claim.statement) <= 140
    assert claim.bound
    assert set(claim.kinds) <= {"math", "model", "timed", "serve", "static"}
    assert 1 <= len(claim.kinds) <= 2


@pytest.mark.parametrize(
    ("claim", "kind", "capability", "weights", "reason"),
    [
        ("C11", "cuda", (7, 5), "trained", None),
        ("C11", "cuda", (9, 0), "trained", "claimed for sm_75 (T4), this is sm_90"),
        ("C11", "cuda", None, "trained", "claimed for sm_75 (T4), this is an unknown capability"),
        ("C11", "cpu", None, "trained", "needs CUDA, this is a cpu"),
        ("C12", "cuda", (9, 0), "random", None),
        ("C12", "cpu", None, "trained", "needs CUDA, this is a cpu"),
        ("C24", "cpu", None, "random", "random weights"),
        ("C24", "cpu", None, "trained", None),
        ("C10", "cpu", None, "random", None),
    ],
)
def test_where_a_claim_applies(claim, kind, capability, weights, reason):
    found = CLAIMS[claim].why_not_applicable(
        device_kind=kind, capability=capability, weights_kind=weights
    )
    assert found == reason


def _verdict(claim, low, high, **options):
    estimate = Estimate((low + high) / 2, low, high, 0.95, 5, "1", "run", "t on logs")
    return judge(
        estimate, Bound(high=2), claim=claim, subject="x@1", quantity="", device="cpu", **options
    )


def test_the_readme_table_has_a_line_per_claim_and_the_gravest_verdict_per_device():
    table = markdown_table(
        {
            "H200": [_verdict("C10", 0, 1), _verdict("C10", 3, 4), _verdict("C12", 0, 1)],
            "CPU": [_verdict("C10", 0, 1, observation=True), _verdict("C12", 0, 1, applies="no")],
        }
    )
    lines = table.splitlines()
    assert len(lines) == 2 + len(CLAIMS)
    of = {line.split(" | ")[0].strip("| "): line for line in lines}
    assert of["C10"].endswith("| refuted (1 of 2) | confirmed as observation |")
    assert of["C12"].endswith("| confirmed | not applicable |")
    assert of["C01"].endswith("| – | – |")
