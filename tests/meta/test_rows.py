"""No speed without its batch size, none without its quality (C26, C33)."""

from __future__ import annotations

import json

import pytest

from reports.rows import EngineRow, Quality
from tests.meta.make_run import make_run


@pytest.fixture(scope="module")
def stored() -> dict:
    return make_run()["experiment"]["rows"][0]


def test_a_row_survives_strict_json(stored):
    row = EngineRow.from_json(stored)
    assert row.subject == "naive@1"
    assert EngineRow.from_json(json.loads(json.dumps(row.to_json(), allow_nan=False))) == row


@pytest.mark.parametrize("value", [None, 0, -1, "1", 1.0, True])
def test_a_row_without_its_batch_size_is_an_error(stored, value):
    with pytest.raises(ValueError, match="batch_size"):
        EngineRow.from_json({**stored, "batch_size": value})
    fields = {name: getattr(EngineRow.from_json(stored), name) for name in EngineRow.__slots__}
    with pytest.raises(ValueError, match="batch_size"):
        EngineRow(**{**fields, "batch_size": value})


def test_a_row_without_the_key_at_all_is_an_error(stored):
    for key in ("batch_size", "quality", "tokens_per_s", "engine", "phase"):
        with pytest.raises(ValueError, match=rf"row\.{key} must be .*, got nothing"):
            EngineRow.from_json({name: v for name, v in stored.items() if name != key})


@pytest.mark.parametrize(
    "quality",
    [
        None,
        "",
        {},
        {"kind": "measured", "text": ""},
        {"kind": "measured", "text": "   ", "kl_mean_nat": 0.1},
        {"kind": "measured", "text": "KL unknown"},
        {"kind": "guessed", "text": "fine"},
        {"kind": "measured", "text": "KL", "kl_mean_nat": "0.1"},
    ],
    ids=["null", "text", "empty", "no text", "blank", "no KL", "kind", "type"],
)
def test_an_empty_quality_cell_is_an_error(stored, quality):
    with pytest.raises(ValueError, match="quality") as caught:
        EngineRow.from_json({**stored, "quality": quality})
    assert "\n" not in str(caught.value)


def test_a_quality_passed_as_none_is_an_error_also_in_code(stored):
    fields = {name: getattr(EngineRow.from_json(stored), name) for name in EngineRow.__slots__}
    with pytest.raises(ValueError, match="no speed without its quality"):
        EngineRow(**{**fields, "quality": None})


def test_random_weights_are_a_stated_reason():
    found = Quality("not applicable", "not applicable: random weights")
    assert Quality.from_json(found.to_json()) == found


@pytest.mark.parametrize(
    ("field", "value"),
    [("tokens_per_s", 31.2), ("weights_bytes", 1.5), ("phase", "both"), ("device", ""),
     ("ttft_s", "fast"), ("warm_up", None), ("step_s", {})],
)  # fmt: skip
def test_a_wrong_field_is_one_line_that_names_it(stored, field, value):
    with pytest.raises(ValueError, match="must be") as caught:
        EngineRow.from_json({**stored, field: value})
    assert "\n" not in str(caught.value)
