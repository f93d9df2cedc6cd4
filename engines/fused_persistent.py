"""The decode step as one persistent kernel (`fused_persistent.cu`): batch 1, fp16, sm_90 and newer.

Here only what the program is told: sizes as compile-time constants, and one struct of addresses.
"""

from __future__ import annotations

import ctypes
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from engines.cuda_program import CudaProgram
from engines.fused_formats import NF4_LEVELS
from engines.fused_weights import FusedWeights
from engines.shared_memory import shared_bytes

if TYPE_CHECKING:
    from engines.decode_state import DecodeState
    from engines.fused_weights import LayerWeights

SOURCE = Path(__file__).with_name("fused_persistent.cu")
CAPABILITY_NEEDED = (9, 0)
WARPS = 8
STAGE_BYTES = {0: 4096, 1: 4096, 2: 4608}
LEVELS_BYTES = 4 * 256 * 32
MOST_STAGES = 6
MOST_SPLITS = 16
LAPS = (
    "start", "wait for x", "QKV", "attention", "joining its parts", "wait for attended", "O",
    "wait for x", "gate, up", "wait for inner", "down", "wait for x", "head",
)  # fmt: skip
"""What the kernel measures of itself in cycles when its constant TIMED is 1."""
SPIN_LIMIT = 1 << 22
"""Looks at a word, of some 0.7 µs each, before a block that waits gives up."""
REFILLS_OF_LARGE = ("0x111111101", "0x111111111", "0x000101110")
"""By encoding, for rows of 4,096 numbers: asking takes instructions, which nf4 has most of."""
HINTS_BUT_X, ALL_HINTS = 0b11100, 0b11111
"""Where a counter is looked at before packets (bits: `Hint` in `fused_exchange.cuh`)."""
PER_PACKET, UNIT = 6, 16
"""Halves of a packet; columns of the attention that one warp puts together."""
HALVES_OF_PACKET = (0, 1, 2, 6, 4, 5)
"""Where they lie in it: the fourth and the last of its eight are tags (`fused_layout.cuh`)."""


def definitions(weights: FusedWeights, capacity: int, blocks: int) -> dict[str, object]:
    """What `fused_persistent.cu` is compiled for.

    TILE, SPLIT_TOKENS, HINTED and REFILLS (at each `Point` of `fused_ring.cuh`, four bits: how
    many stages are asked for) were measured on an H200, for rows of 1,024 and 4,096 numbers.
    """
    sizes, encoding = weights.sizes, weights.layers[0].q.encoding
    large = sizes.hidden > 2048
    tile = 16 if large and encoding else 32
    rows = 2 if sizes.hidden >= 3 * blocks * WARPS else 1
    scratch = sizes.heads // sizes.kv_heads * (sizes.head_dim + 2) * (WARPS + 1) + sizes.head_dim
    wide = max(sizes.hidden // 2, sizes.query // 2, sizes.ffn // 2, scratch)
    fixed = 4 * wide + 8 * tile * sizes.head_dim + 160 * sizes.layers
    fixed += WARPS * 16 * _pieces(weights, blocks, rows) + 2048
    fixed += LEVELS_BYTES if encoding == 2 else 0
    room = shared_bytes(weights.embedding.device) - fixed
    stages = room // (WARPS * STAGE_BYTES[encoding])
    return {
        "GRID": blocks,
        "LAYERS": sizes.layers,
        "HIDDEN": sizes.hidden,
        "HEADS": sizes.heads,
        "KV_HEADS": sizes.kv_heads,
        "HEAD_DIM": sizes.head_dim,
        "FFN": sizes.ffn,
        "VOCAB": sizes.vocab,
        "CAPACITY": capacity,
        "NORMED": int(weights.layers[0].query_norm is not None),
        "ENCODING": encoding,
        "STAGES": min(MOST_STAGES, stages),
        "TILE": tile,
        "SPLIT_TOKENS": 16 if large and encoding == 2 else 32,
        "MOST_SPLITS": min(MOST_SPLITS, blocks // sizes.kv_heads),
        "ROWS_HIDDEN": rows,
        "EPSILON": f"{weights.epsilon!r}f",
        "SCORE_SCALE": f"{sizes.head_dim**-0.5!r}f",
        "SPIN_LIMIT": SPIN_LIMIT,
        "TIMED": 0,
        "HINTED": ALL_HINTS if large else HINTS_BUT_X,
        "REFILLS": REFILLS_OF_LARGE[encoding] if large else "0x11111211",
    }


def _pieces(weights: FusedWeights, blocks: int, rows: int) -> int:
    """Copies that a warp makes per layer, at most."""
    sizes, warps = weights.sizes, blocks * WARPS
    bits = {0: 16, 1: 8, 2: 4}[weights.layers[0].q.encoding]
    phases = (
        ((sizes.query + 2 * sizes.key) // 2, 2, sizes.hidden),
        (sizes.hidden // rows, rows, sizes.query),
        (sizes.ffn, 2, sizes.hidden),
        (sizes.hidden // rows, rows, sizes.ffn),
    )
    return sum(
        -(-groups // warps) * -(-columns * bits // 8 // (4096 // each))
        for groups, each, columns in phases
    )


def blocks_for(weights: FusedWeights, multiprocessors: int) -> int:
    """How many blocks share all rows evenly, in pairs: at most one per multiprocessor.

    No warp may be without rows in a whole layer: it would never find what to ask for next.
    """
    sizes = weights.sizes
    rows = math.gcd(sizes.hidden, sizes.ffn) // 2
    with_rows = max(sizes.ffn, (sizes.query + 2 * sizes.key) // 2) // WARPS
    most = min(multiprocessors, with_rows)
    return next((n for n in range(most, 0, -1) if rows % n == 0), 1)


def refusal(weights: FusedWeights, batch_size: int, blocks: int) -> str | None:
    """Why the persistent kernel cannot run this, in one line; None if it can."""
    sizes, encoding = weights.sizes, weights.layers[0].q.encoding
    columns = (sizes.hidden, sizes.query, sizes.ffn)
    step = {0: 8, 1: 16, 2: 256}[encoding]
    warps, group = blocks * WARPS, sizes.heads // sizes.kv_heads
    most_rows = max(-(-sizes.ffn // warps) * 2, -(-(sizes.query + 2 * sizes.key) // warps))
    checks = (
        (batch_size == 1, f"batch size {batch_size}"),
        (weights.embedding.dtype == torch.float16, f"dtype {weights.embedding.dtype}"),
        (sizes.head_dim in (64, 128), f"head_dim {sizes.head_dim}"),
        (group <= 8, f"{group} queries per key"),
        (sizes.vocab % 2 == 0, f"{sizes.vocab} tokens, an odd number"),
        (all(c % step == 0 for c in columns), f"columns that are no multiples of {step}"),
        (sizes.hidden % (2 * blocks) == 0, f"hidden size {sizes.hidden} for {blocks} blocks"),
        (sizes.ffn % (2 * blocks) == 0, f"{sizes.ffn} hidden units for {blocks} blocks"),
        (encoding != 1 or most_rows <= 30, f"{most_rows} rows of a phase per warp"),
        (int(definitions(weights, 1, blocks)["STAGES"]) >= 2, "too large for shared memory"),  # type: ignore[call-overload]  # STAGES is an int
    )
    return next((got for fits, got in checks if not fits), None)


class PersistentStep:
    """Call it to decode one token. `overrides` replace compile-time constants."""

    def __init__(self, state: DecodeState, multiprocessors: int, **overrides: object) -> None:
        self.state = state
        self.weights = FusedWeights.of(state.model, state.cache.capacity)
        self.blocks = blocks_for(self.weights, multiprocessors)
        self.constants = definitions(self.weights, state.cache.capacity, self.blocks) | overrides
        self.argument = self._argument()
        self.program: CudaProgram | None = None
        self.shared_bytes = 0

    def __call__(self) -> None:
        """Launch one step into the current stream."""
        if self.program is None:
            self.program = CudaProgram(SOURCE, "fused_step", self.constants)
            self.shared_bytes = self.program.integer("shared_bytes")
            self.program.allow_shared(self.shared_bytes)
        self.program.launch(self.blocks, WARPS * 32, self.shared_bytes, self.argument)

    def gave_up(self) -> bool:
        """Whether a block ever waited in vain: results since then are wrong."""
        return bool(self.control[2].item())

    def last_hidden(self) -> torch.Tensor:
        """The residual stream [hidden] after the last layer, in fp16 as the blocks exchanged it.

        The final norm and the head make the logits of it, of which a step keeps only the best.
        """
        run = self.weights.sizes.hidden // self.blocks
        packets = self.blocks * -(-run // PER_PACKET)
        halves = self.packets[packets : 2 * packets].view(torch.float16)
        sent = halves[:, list(HALVES_OF_PACKET)].view(self.blocks, -1)
        return sent[:, :run].reshape(-1)

    def _argument(self) -> Any:
        """The struct `Step`: addresses of tensors that live as long as this object."""
        state, weights, sizes = self.state, self.weights, self.weights.sizes
        device = state.tokens.device
        table = [self._addresses(i, layer) for i, layer in enumerate(weights.layers)]
        splits, heads = int(str(self.constants["MOST_SPLITS"])), -(-sizes.heads // 2) * 2
        words = sizes.query + 2 * sizes.key + splits * (sizes.query // 2 + heads)
        packets = self.blocks * sum(
            -(-rows // self.blocks // PER_PACKET)
            for rows in (sizes.hidden, sizes.hidden, sizes.ffn)
        )
        packets += sizes.query // UNIT * -(-UNIT // PER_PACKET)
        self.table = torch.tensor(table, device=device, dtype=torch.int64)
        self.levels = torch.tensor(NF4_LEVELS, device=device)
        self.words = torch.zeros(words, device=device, dtype=torch.int64)
        self.packets = torch.zeros(packets, 4, device=device, dtype=torch.int32)
        self.control = torch.zeros(32 * 6, device=device, dtype=torch.int32)
        self.best = torch.zeros(2 * self.blocks, device=device)
        self.laps = torch.zeros(self.blocks, len(LAPS), device=device, dtype=torch.int64)
        tensors = (
            self.table, weights.embedding, weights.head, weights.norm, weights.cosines,
            weights.sines, self.levels, state.tokens, state.cache.positions, state.active,
            state.history, self.words, self.packets, self.control, self.best,
            self.laps,
        )  # fmt: skip
        return (ctypes.c_uint64 * len(tensors))(*(tensor.data_ptr() for tensor in tensors))

    def _addresses(self, index: int, layer: LayerWeights) -> list[int]:
        """The struct `Layer`."""
        cached = self.state.cache.layers[index]
        matrices = (layer.q, layer.k, layer.v, layer.o, layer.gate, layer.up, layer.down)
        norms = (layer.attention_norm, layer.ffn_norm, layer.query_norm, layer.key_norm)
        return [
            *(matrix.codes.data_ptr() for matrix in matrices),
            *(matrix.scales.data_ptr() for matrix in matrices),
            *(0 if norm is None else norm.data_ptr() for norm in norms),
            cached.keys.data_ptr(),
            cached.values.data_ptr(),
        ]
