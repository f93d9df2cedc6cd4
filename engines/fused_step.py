"""One decode step as five Triton kernels per layer, over the tensors of a `DecodeState`.

embed; per layer QKV, attention, O, gate/up, down; head; pick. Nothing in it asks the host, and all
addresses are fixed, so the step is captured as one CUDA graph. What passes between kernels is a few
thousand fp32 numbers per row, which never leave the cache of the chip.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch
import triton

from engines import fused_attention, fused_kernels
from engines.fused_formats import NF4_LEVELS
from engines.fused_weights import FusedWeights

if TYPE_CHECKING:
    from engines.decode_state import DecodeState
    from engines.fused_weights import LayerWeights, Matrix

KV_BLOCK = 64
MOST_SPLITS = 16
BLOCK = 1024
ROWS = {"qkv": 16, "o": 8, "ffn": 8, "down": 8, "head": 16}
"""Rows of a program by kernel. Between 4 and 16 they hardly matter."""
INTERPRETED_ROWS = 128
"""Triton's interpreter takes its time per program, not per row."""


class FusedStep:
    """Call it to decode one token for every row of the state."""

    def __init__(self, state: DecodeState, *, dependent_launch: bool = False) -> None:
        self.state = state
        self.weights = FusedWeights.of(state.model, state.cache.capacity)
        self.dependent_launch = dependent_launch
        sizes, device = self.weights.sizes, state.tokens.device
        self.rows = ROWS if device.type == "cuda" else dict.fromkeys(ROWS, INTERPRETED_ROWS)
        batch = len(state.tokens)
        floats = partial(torch.empty, device=device, dtype=torch.float32)
        self.splits = min(MOST_SPLITS, triton.cdiv(state.cache.capacity, KV_BLOCK))
        self.residual = floats(batch, sizes.hidden)
        self.qkv = floats(batch, sizes.query + 2 * sizes.key)
        self.parts = floats(batch, self.splits, sizes.query)
        self.sums = floats(batch, self.splits, sizes.heads)
        self.inner = floats(batch, sizes.ffn)
        self.levels = torch.tensor(NF4_LEVELS, device=device)
        self.head_parts = triton.cdiv(sizes.vocab, self.rows["head"])
        self.best = floats(batch, self.head_parts)
        self.best_rows = torch.empty_like(self.best, dtype=torch.int32)

    def __call__(self) -> None:
        """One step; every row moves on by its `active`."""
        self.embed()
        for index in range(self.weights.sizes.layers):
            self.layer(index)
        self.head()
        self.pick()

    def layer(self, index: int) -> None:
        """The five kernels of one layer."""
        layer = self.weights.layers[index]
        self.qkv_rows(layer)
        self.attention(layer, index)
        self.o_rows(layer)
        self.ffn_rows(layer)
        self.down_rows(layer)

    def embed(self) -> None:
        """The token's embedding becomes the residual."""
        hidden = self.weights.sizes.hidden
        self._launch(
            fused_kernels.embed, (), self.state.tokens, self.weights.embedding, self.residual,
            COLUMNS=hidden, ALL=triton.next_power_of_2(hidden), warps=4,
        )  # fmt: skip

    def qkv_rows(self, layer: LayerWeights) -> None:
        """RMSNorm and QKV."""
        sizes = self.weights.sizes
        rows = min(self.rows["qkv"], sizes.head_dim)
        self._launch(
            fused_kernels.project_qkv, ((sizes.query + 2 * sizes.key) // rows,),
            self.residual, layer.attention_norm, self.levels,
            *_pair(layer.q), *_pair(layer.k), *_pair(layer.v), self.qkv, self.weights.epsilon,
            QUERY=sizes.query, KEY=sizes.key, ROWS=rows, **self._normed(layer.q),
        )  # fmt: skip

    def attention(self, layer: LayerWeights, index: int) -> None:
        """Norms of query and key, rotation, cache, attention over the split context."""
        sizes, cached = self.weights.sizes, self.state.cache.layers[index]
        normed = layer.query_norm is not None
        self._launch(
            fused_attention.attend, (sizes.heads, self.splits),
            self.qkv,
            layer.query_norm if normed else self.qkv, layer.key_norm if normed else self.qkv,
            self.weights.cosines, self.weights.sines, self.state.cache.positions,
            cached.keys, cached.values, self.parts, self.sums, self.weights.epsilon,
            HEADS=sizes.heads, KV_HEADS=sizes.kv_heads, HEAD_DIM=sizes.head_dim,
            CAPACITY=self.state.cache.capacity, SPLITS=self.splits, KV_BLOCK=KV_BLOCK,
            NORMED=normed, warps=4,
        )  # fmt: skip

    def o_rows(self, layer: LayerWeights) -> None:
        """Parts of the attention together, then O and the residual."""
        self._residual_rows("o", layer.o, self.parts, self.sums, source=2)

    def ffn_rows(self, layer: LayerWeights) -> None:
        """RMSNorm, gate, up, SwiGLU."""
        sizes, rows = self.weights.sizes, self.rows["ffn"]
        self._launch(
            fused_kernels.project_ffn, (triton.cdiv(sizes.ffn, rows),),
            self.residual, layer.ffn_norm, self.levels,
            *_pair(layer.gate), *_pair(layer.up), self.inner, self.weights.epsilon,
            FFN=sizes.ffn, ROWS=rows, **self._normed(layer.gate),
        )  # fmt: skip

    def down_rows(self, layer: LayerWeights) -> None:
        """Down and the residual."""
        self._residual_rows("down", layer.down, self.inner, self.inner, source=0)

    def head(self) -> None:
        """Final norm, logits, the best of each program's rows."""
        sizes = self.weights.sizes
        self._launch(
            fused_kernels.project_head, (self.head_parts,),
            self.residual, self.weights.norm, self.weights.head, self.best, self.best_rows,
            self.weights.epsilon, COLUMNS=sizes.hidden, ALL=triton.next_power_of_2(sizes.hidden),
            VOCAB=sizes.vocab, ROWS=self.rows["head"], BLOCK=_block(sizes.hidden), warps=8,
        )  # fmt: skip

    def pick(self) -> None:
        """The best of the best; token, position and history."""
        state = self.state
        self._launch(
            fused_kernels.pick_token, (), self.best, self.best_rows, state.tokens,
            state.cache.positions, state.active, state.history, PARTS=self.head_parts,
            ALL=triton.next_power_of_2(self.head_parts), WIDTH=state.history.shape[1], warps=8,
        )  # fmt: skip

    def _residual_rows(
        self, name: str, matrix: Matrix, x: torch.Tensor, sums: torch.Tensor, *, source: int
    ) -> None:
        sizes, rows = self.weights.sizes, self.rows[name]
        columns = sizes.query if source == 2 else sizes.ffn
        self._launch(
            fused_kernels.project_residual, (triton.cdiv(sizes.hidden, rows),),
            x, sums, self.state.cache.positions, self.levels, *_pair(matrix), self.residual,
            HIDDEN=sizes.hidden, COLUMNS=columns, HEAD_DIM=sizes.head_dim, SPLITS=self.splits,
            KV_BLOCK=KV_BLOCK, SOURCE=source, ROWS=rows, BLOCK=_stored_block(matrix),
            ENCODING=matrix.encoding, warps=8,
        )  # fmt: skip

    def _normed(self, matrix: Matrix) -> dict[str, Any]:
        hidden = self.weights.sizes.hidden
        return {
            "COLUMNS": hidden,
            "ALL": triton.next_power_of_2(hidden),
            "BLOCK": _stored_block(matrix),
            "ENCODING": matrix.encoding,
            "warps": 8,
        }

    def _launch(
        self, kernel: Any, grid: tuple[int, ...], *args: Any, warps: int, **sizes: Any
    ) -> None:
        """Rows of the batch are always the first axis of the grid."""
        options: dict[str, Any] = {"num_warps": warps}
        if self.dependent_launch:
            options["launch_pdl"] = True
        whole = (len(self.state.tokens), *grid)
        kernel[whole](*args, **sizes, PDL=self.dependent_launch, **options)


def _pair(matrix: Matrix) -> tuple[torch.Tensor, torch.Tensor]:
    return matrix.codes, matrix.scales


def _block(columns: int) -> int:
    """Columns of a tile: a power of two, at most BLOCK."""
    return min(BLOCK, int(triton.next_power_of_2(columns)))


def _stored_block(matrix: Matrix) -> int:
    return _block(matrix.codes.shape[1])
