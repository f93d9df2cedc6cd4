"""How the products and the attention of a step of many rows are cut into programs.

Up to 64 rows a product reads its weights once for all of them and should have about one program for
each multiprocessor, each with much in flight. From there on it is bound by arithmetic, and larger
tiles repeat fewer loads.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import gcd
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engines.fused_weights import Sizes

FEW_ROWS = 64


@dataclass(frozen=True, slots=True)
class Tile:
    """How one product is cut: weight rows and columns of a tile, parts along the columns."""

    outs: int
    columns: int
    splits: int = 1
    warps: int = 4
    stages: int = 4
    swapped: bool = False


@dataclass(frozen=True, slots=True)
class Tiles:
    """The cuts of all products of a step, and of its attention."""

    qkv: Tile = Tile(32, 128)
    o: Tile = Tile(32, 128, splits=4)
    ffn: Tile = Tile(32, 128, stages=3)
    down: Tile = Tile(32, 128, splits=4)
    head: Tile = Tile(128, 64)
    most_rows: int = 64
    """Rows of a tile, at most."""
    kv_block: int = 64
    attention_warps: int = 4
    attention_stages: int = 3
    programs: int = 128
    """Programs that the attention should have: about one for each multiprocessor."""
    queries: int = 16
    """Queries that share a program where rows are consecutive tokens: a matrix unit takes 16."""

    def cut(self, name: str, rows: int) -> dict[str, Any]:
        """One product's constants for this many rows."""
        tile: Tile = getattr(self, name)
        return {
            "BM": self.row_block(rows),
            "BN": tile.outs,
            "BK": tile.columns,
            "SWAPPED": tile.swapped,
            "num_warps": tile.warps,
            "num_stages": tile.stages,
        }

    def row_block(self, rows: int) -> int:
        """Rows of a tile: a power of two, at least the 16 that a matrix unit takes."""
        return min(self.most_rows, max(16, 1 << (rows - 1).bit_length()))

    def row_blocks(self, rows: int) -> int:
        """Tiles one below the other."""
        return -(-rows // self.row_block(rows))

    def fitting(self, sizes: Sizes) -> Tiles:
        """For a model: the matrices of QKV meet between tiles, and all parts are equal."""
        outs = gcd(sizes.query, sizes.key, self.qkv.outs)
        return replace(
            self,
            qkv=replace(self.qkv, outs=outs, splits=gcd(self.qkv.splits, sizes.hidden)),
            o=replace(self.o, splits=gcd(self.o.splits, sizes.query)),
            down=replace(self.down, splits=gcd(self.down.splits, sizes.ffn)),
            queries=max(self.queries, 1 << (sizes.heads // sizes.kv_heads - 1).bit_length()),
        )


FEW = Tiles()
MANY = Tiles(
    qkv=Tile(128, 64, warps=8),
    o=Tile(64, 64, splits=2),
    ffn=Tile(64, 64, warps=8),
    down=Tile(64, 64, splits=2),
    most_rows=128,
    queries=64,
)
INTERPRETED = Tiles(
    qkv=Tile(64, 64),
    o=Tile(64, 64, splits=2),
    ffn=Tile(64, 64),
    down=Tile(64, 64, splits=2),
    head=Tile(64, 64),
    kv_block=16,
)
"""Triton's interpreter takes its time per program."""


def tiles_for(device: str) -> tuple[Tiles, Tiles]:
    """For few rows and for many."""
    return (FEW, MANY) if device == "cuda" else (INTERPRETED, INTERPRETED)
