"""One step of many rows, each a token of some request, as Triton kernels on fixed addresses.

A row says in which slot it stands, at which position, and which token it is: a given one of a
prompt, or whatever its slot produced last. So one step can decode the running requests and feed
prompts at the same time, and the host never has to know a token in order to launch the step that
continues it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from engines import batched_heads, batched_products
from engines.batched_buffers import Buffers

if TYPE_CHECKING:
    from engines.batched_tiles import Cuts
    from engines.decode_state import DecodeState


@dataclass(frozen=True, slots=True)
class Bucket:
    """Room of a step: `apart` says that no two rows share a slot."""

    rows: int
    outputs: int
    apart: bool


class BatchedStep:
    """Call it with a bucket; what its rows are has been written into `table` before."""

    def __init__(self, state: DecodeState, most_rows: int, *, cuts: Cuts | None = None) -> None:
        self.state = state
        self.most_rows = most_rows
        self.buffers = Buffers(state, most_rows, cuts)
        self.table = self.buffers.table
        self.chosen = self.buffers.chosen

    def __call__(self, bucket: Bucket) -> None:
        """Run the first rows of the table, and its first outputs."""
        batched_products.embed(self.buffers, bucket.rows)
        for index in range(len(self.buffers.weights.layers)):
            self.layer(bucket, index)
        batched_products.head(self.buffers, bucket.outputs)
        batched_products.pick(self.buffers, bucket.outputs)

    def layer(self, bucket: Bucket, index: int) -> None:
        """The kernels of one layer: seven, or eight where rows share slots."""
        buffers, rows = self.buffers, bucket.rows
        layers, tiles = buffers.weights.layers, buffers.tiles(rows)
        layer, is_last = layers[index], index + 1 == len(layers)
        batched_products.qkv(buffers, rows, layer)
        if bucket.apart:
            batched_heads.attend(buffers, rows, layer, index)
        else:
            batched_heads.place(buffers, rows, layer, index)
            batched_heads.attend_placed(buffers, rows, index)
        batched_products.o(buffers, rows, layer)
        batched_products.add(buffers, rows, layer.ffn_norm, tiles.o.splits)
        batched_products.ffn(buffers, rows, layer)
        batched_products.down(buffers, rows, layer)
        if is_last:
            batched_products.add_outputs(buffers, bucket.outputs, tiles.down.splits)
        else:
            gain = layers[index + 1].attention_norm
            batched_products.add(buffers, rows, gain, tiles.down.splits)

    def rows_together(self, rows: int) -> int:
        """Consecutive tokens that one program of the attention takes."""
        return batched_heads.rows_together(self.buffers, rows)
