"""How many cold processes a machine takes side by side (claim C48)."""

from __future__ import annotations

import pytest

from fixtures.cold_start import room

GB = 10**9


@pytest.mark.parametrize(
    ("cores", "free_bytes", "expected"),
    [(16, 120 * GB, 3), (8, 120 * GB, 2), (2, 12 * GB, 1), (16, 13 * GB, 2), (1, GB, 1)],
    ids=["enough", "few-cores", "colab", "little-memory", "hardly-any"],
)
def test_processes_run_side_by_side_where_there_is_room(cores, free_bytes, expected):
    assert room(3, cores=cores, free_bytes=free_bytes) == expected
