"""Tiles fit: into the matrices of a model, and into the shared memory of a GPU."""

from __future__ import annotations

import pytest

from engines.batched_tiles import INTERPRETED, ON_A_GPU

NAMES = ("qkv", "o", "ffn", "down", "head")
SMALL, LARGE = 99 << 10, 227 << 10
"""Shared memory of a program on sm_86 and on sm_90."""


def sizes(**changes):
    from engines.fused_weights import Sizes

    small = {"layers": 2, "hidden": 576, "heads": 9, "kv_heads": 3, "head_dim": 64}
    return Sizes(**small | {"ffn": 1536, "vocab": 1000} | changes)


@pytest.mark.parametrize("shared", [SMALL, LARGE])
@pytest.mark.parametrize("value_bytes", [2, 4])
def test_what_is_under_way_fits_into_the_shared_memory(shared, value_bytes):
    for _, tiles in ON_A_GPU:
        fitted = tiles.fitting(sizes(), shared)
        for name in NAMES:
            for rows in (1, 16, 64, 512):
                cut = fitted.cut(name, rows, value_bytes)
                matrices = 2 if name == "ffn" else 1
                stage = (cut["BM"] + matrices * cut["BN"]) * cut["BK"] * value_bytes
                assert stage * cut["num_stages"] <= shared or cut["num_stages"] == 1
    assert fitted.cut("ffn", 512, 2)["num_stages"] == (2 if shared == SMALL else 4)


@pytest.mark.parametrize("cuts", [ON_A_GPU, INTERPRETED], ids=["gpu", "interpreted"])
def test_no_tile_of_qkv_reaches_over_two_matrices_and_all_parts_are_equal(cuts):
    narrow = sizes(heads=5, kv_heads=1, head_dim=16, ffn=49)
    for _, tiles in cuts:
        fitted = tiles.fitting(narrow, LARGE)
        assert fitted.qkv.outs == 16
        assert narrow.ffn % fitted.down.splits == 0
        assert fitted.queries >= 8


def test_a_row_block_is_what_the_matrix_unit_takes():
    for most, tiles in ON_A_GPU:
        for rows in range(1, (most or 512) + 1):
            block = tiles.row_block(rows)
            assert 16 <= block <= tiles.most_rows
            assert block * tiles.row_blocks(rows) >= rows
