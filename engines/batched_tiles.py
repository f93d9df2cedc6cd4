"""How the products and the attention of a step of many rows are cut into programs.

Up to 64 rows a product reads its weights once for all of them and should have about one program for
each multiprocessor, each with much in flight. From there on it is bound by arithmetic, and larger
tiles repeat fewer loads.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import gcd
from typing import TYPE_CHECKING, Any

from engines.shared_memory import OF_AN_H200_BYTES

if TYPE_CHECKING:
    from engines.fused_weights import Sizes

    Cuts = tuple[tuple[int | None, "Tiles"], ...]


FILLED = 0.9
"""Share of the shared memory that the stages of a loop may take."""


@dataclass(frozen=True, slots=True)
class Tile:
    """How one product is cut: weight rows and columns of a tile, parts along the columns."""

    outs: int
    columns: int
    splits: int = 1
    warps: int = 4
    stages: int = 4


@dataclass(frozen=True, slots=True)
class Tiles:
    """The cuts of all products of a step, and of its attention."""

    qkv: Tile = Tile(64, 64, splits=2, stages=6)
    o: Tile = Tile(32, 64, splits=4, stages=6)
    ffn: Tile = Tile(32, 128)
    down: Tile = Tile(32, 128, splits=4, stages=6)
    head: Tile = Tile(128, 64)
    most_rows: int = 64
    """Rows of a tile, at most."""
    kv_block: int = 64
    attention_warps: int = 4
    attention_stages: int = 3
    programs: int = 128
    """Programs that the attention should have: about one for each multiprocessor."""
    shared_bytes: int = OF_AN_H200_BYTES
    """Shared memory that a program may have."""
    queries: int = 16
    """Queries that share a program where rows are consecutive tokens: a matrix unit takes 16."""

    def cut(self, name: str, rows: int, value_bytes: int) -> dict[str, Any]:
        """One product's constants for this many rows of such values."""
        tile: Tile = getattr(self, name)
        block = self.row_block(rows)
        matrices = 2 if name == "ffn" else 1
        stage_bytes = (block + matrices * tile.outs) * tile.columns * value_bytes
        return {
            "BM": block,
            "BN": tile.outs,
            "BK": tile.columns,
            "num_warps": tile.warps,
            "num_stages": self.stages(tile.stages, stage_bytes),
        }

    def attention(self, head_bytes: int) -> dict[str, int]:
        """The attention's constants for heads of so many bytes."""
        stage_bytes = (2 * self.kv_block + self.queries) * head_bytes
        return {
            "KV_BLOCK": self.kv_block,
            "num_warps": self.attention_warps,
            "num_stages": self.stages(self.attention_stages, stage_bytes),
        }

    def stages(self, wanted: int, stage_bytes: int) -> int:
        """Tiles under way at once, as many as there is shared memory for."""
        return max(1, min(wanted, int(FILLED * self.shared_bytes) // stage_bytes))

    def row_block(self, rows: int) -> int:
        """Rows of a tile: a power of two, at least the 16 that a matrix unit takes."""
        return min(self.most_rows, max(16, 1 << (rows - 1).bit_length()))

    def row_blocks(self, rows: int) -> int:
        """Tiles one below the other."""
        return -(-rows // self.row_block(rows))

    def fitting(self, sizes: Sizes, shared_bytes: int) -> Tiles:
        """For a model: the matrices of QKV meet between tiles, and all parts are equal."""
        outs = gcd(sizes.query, sizes.key, self.qkv.outs)
        return replace(
            self,
            shared_bytes=shared_bytes,
            qkv=replace(self.qkv, outs=outs, splits=gcd(self.qkv.splits, sizes.hidden)),
            o=replace(self.o, splits=gcd(self.o.splits, sizes.query)),
            down=replace(self.down, splits=gcd(self.down.splits, sizes.ffn)),
            queries=max(self.queries, 1 << (sizes.heads // sizes.kv_heads - 1).bit_length()),
        )


ON_A_GPU: Cuts = (
    (16, Tiles()),
    (64, Tiles(kv_block=32, attention_warps=2)),
    (
        None,
        Tiles(
            qkv=Tile(128, 64, warps=8),
            o=Tile(64, 64, splits=2),
            ffn=Tile(64, 64, warps=8),
            down=Tile(64, 64, splits=2),
            most_rows=128,
            queries=64,
        ),
    ),
)
"""Up to how many rows, and how they are cut; measured on an H200."""
INTERPRETED: Cuts = (
    (
        None,
        Tiles(
            qkv=Tile(64, 64),
            o=Tile(64, 64, splits=2),
            ffn=Tile(64, 64),
            down=Tile(64, 64, splits=2),
            head=Tile(64, 64),
            kv_block=16,
        ),
    ),
)
"""Triton's interpreter takes its time per program."""
