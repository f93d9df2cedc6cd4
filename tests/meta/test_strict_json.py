"""Whatever a test records, the file stays JSON that every reader accepts."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reports.stats import estimate_mean
from reports.strict_json import dumps, purify


class Colour(Enum):
    RED = "red"


class Level(IntEnum):
    HIGH = 3


class Word(StrEnum):
    YES = "yes"


@dataclass
class Point:
    x: float
    y: np.float32


class Odd:
    def __repr__(self) -> str:
        return "<odd>"


CASES = [
    (np.float32(0.5), 0.5),
    (np.float64("nan"), None),
    (np.int64(7), 7),
    (np.bool_(True), True),
    (np.str_("ไทย"), "ไทย"),
    (np.array([[1.0, np.inf], [np.nan, 2.0]]), [[1.0, None], [None, 2.0]]),
    (np.array(3, dtype=np.int8), 3),
    (np.arange(0), []),
    (np.datetime64("2026-01-02"), "2026-01-02"),
    (float("-inf"), None),
    (Decimal("1.5"), 1.5),
    (Fraction(1, 4), 0.25),
    (complex(1, 2), None),
    (10**30, 10**30),
    (Path("/tmp/x"), "/tmp/x"),
    (Colour.RED, "red"),
    (Level.HIGH, 3),
    (Word.YES, "yes"),
    (datetime(2026, 1, 2, tzinfo=UTC), "2026-01-02T00:00:00+00:00"),
    (Point(float("nan"), np.float32(2)), {"x": None, "y": 2.0}),
    ((1, (2,)), [1, [2]]),
    ({3, 1, 2}, [1, 2, 3]),
    ({1: "a", None: "b", 2.5: "c", False: "d", (1, 2): "e", Colour.RED: "f", Path("p"): "g"},
     {"1": "a", "null": "b", "2.5": "c", "false": "d", "[1, 2]": "e", "red": "f", "p": "g"}),
    ("lone \ud800 surrogate", "lone ? surrogate"),
    (b"\xff", "b'\\xff'"),
    (Odd(), "<odd>"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("value", "pure"), CASES, ids=[str(number) for number in range(len(CASES))]
)
def test_leftovers_become_plain_values(value, pure):
    found = purify(value)
    assert found == pure
    assert type(found) is type(pure)
    assert json.loads(dumps(value)) == found


def test_an_object_that_knows_its_json_says_it():
    found = estimate_mean([1.0, 2.0, 3.0], unit="s", resampled="run")
    assert purify({"estimate": found})["estimate"] == found.to_json()


def test_thai_stays_readable_and_a_record_is_one_line():
    text = dumps({"answer": "กรุงเทพ\nมหานคร"})
    assert "กรุงเทพ" in text
    assert "\n" not in text


def test_planted_fault_plain_json_writes_nan_and_refuses_numpy():
    assert json.dumps(float("nan")) == "NaN"
    with pytest.raises(TypeError):
        json.dumps(np.float32(1))


nested = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text()
    | st.floats(width=32).map(np.float32),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner),
    max_leaves=10,
)  # fmt: skip


@given(nested)
@settings(max_examples=60, deadline=None)
def test_anything_becomes_strict_json_and_stays_what_it_is(value):
    def refuse(constant):
        raise AssertionError(constant)

    pure = json.loads(dumps(value), parse_constant=refuse)
    assert purify(pure) == pure
    assert json.loads(dumps(pure)) == pure
