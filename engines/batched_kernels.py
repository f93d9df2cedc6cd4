"""Triton kernels of a decode step of many rows: products on matrix units, and what is between them.

Up to 64 rows read the same weights, so a product is still bound by the memory, but no longer by one
vector's arithmetic: `tl.dot` multiplies a tile of weights with all rows at once (fp16 needs sm_80).
A row is one token of one request. Rows never mix: what is computed for one depends on no other, in
whatever bucket it runs.

A product whose matrix has few rows is split along its columns, so that every multiprocessor has
weights to read; the parts are summed by the kernel that reads them, always in the same order.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def tile_product(
    x, weight, rows, outs, first, PART: tl.constexpr, COLUMNS: tl.constexpr, OUTS: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Sums of x [rows, first … first + PART] times weight [outs, …]: [BM, BN] in fp32."""
    total = tl.zeros([BM, BN], tl.float32)
    x += rows[:, None] * COLUMNS
    weight += outs[:, None].to(tl.int64) * COLUMNS
    for start in range(0, PART, BK):
        lanes = start + tl.arange(0, BK)
        at = first + lanes[None, :]
        if PART % BK == 0:
            values = tl.load(x + at)
        else:
            values = tl.load(x + at, (lanes < PART)[None, :], other=0)
        if PART % BK == 0 and OUTS % BN == 0:
            codes = tl.load(weight + at)
        else:
            codes = tl.load(weight + at, (lanes < PART)[None, :] & (outs < OUTS)[:, None], other=0)
        total = tl.dot(values, codes.T, total, input_precision="ieee")
    return total


@triton.jit
def product(
    x, a, b, c, parts, row_stride,
    FIRST: tl.constexpr, SECOND: tl.constexpr, OUTS: tl.constexpr, COLUMNS: tl.constexpr,
    SPLITS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Parts [SPLITS, row_stride, OUTS] of x times the rows of a, then b from FIRST, c from SECOND.

    FIRST and SECOND are multiples of BN, or OUTS where there is one matrix only.
    """
    PART: tl.constexpr = COLUMNS // SPLITS
    start, split = tl.program_id(0) * BN, tl.program_id(1)
    weight, before = a, 0
    if start >= SECOND:
        weight, before = c, SECOND
    elif start >= FIRST:
        weight, before = b, FIRST
    rows = tl.program_id(2) * BM + tl.arange(0, BM)
    outs = start + tl.arange(0, BN)
    total = tile_product(
        x, weight, rows, outs - before, split * PART, PART, COLUMNS, OUTS, BM, BN, BK
    )
    parts += split.to(tl.int64) * row_stride * OUTS
    tl.store(parts + rows[:, None] * OUTS + outs[None, :], total, (outs < OUTS)[None, :])


@triton.jit
def gate_and_up(
    x, gate, up, out,
    FFN: tl.constexpr, COLUMNS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    BK: tl.constexpr,
):  # fmt: skip
    """SwiGLU (Shazeer 2020): silu(x gate) · (x up), in the dtype of the model."""
    rows = tl.program_id(2) * BM + tl.arange(0, BM)
    outs = tl.program_id(0) * BN + tl.arange(0, BN)
    gates = tl.zeros([BM, BN], tl.float32)
    ups = tl.zeros([BM, BN], tl.float32)
    x += rows[:, None] * COLUMNS
    from_weight = outs[:, None] * COLUMNS
    for start in range(0, COLUMNS, BK):
        lanes = start + tl.arange(0, BK)[None, :]
        ok = (lanes < COLUMNS) & (outs < FFN)[:, None]
        if COLUMNS % BK == 0 and FFN % BN == 0:
            values = tl.load(x + lanes)
            gate_codes = tl.load(gate + from_weight + lanes)
            up_codes = tl.load(up + from_weight + lanes)
        else:
            values = tl.load(x + lanes, lanes < COLUMNS, other=0)
            gate_codes = tl.load(gate + from_weight + lanes, ok, other=0)
            up_codes = tl.load(up + from_weight + lanes, ok, other=0)
        gates = tl.dot(values, gate_codes.T, gates, input_precision="ieee")
        ups = tl.dot(values, up_codes.T, ups, input_precision="ieee")
    inner = (gates / (1 + tl.exp(-gates)) * ups).to(out.dtype.element_ty)
    tl.store(out + rows[:, None] * FFN + outs[None, :], inner, (outs < FFN)[None, :])


@triton.jit
def normed(values, gain, lanes, ok, epsilon, COLUMNS: tl.constexpr):
    """RMSNorm (Zhang & Sennrich 2019) of one row."""
    scale = tl.rsqrt(tl.sum(values * values, axis=0) / COLUMNS + epsilon)
    return values * scale * tl.load(gain + lanes, ok, other=0).to(tl.float32)


@triton.jit
def embed_and_norm(
    row_tokens, row_slots, slot_tokens, embedding, gain, residual, x, epsilon,
    COLUMNS: tl.constexpr, ALL: tl.constexpr,
):  # fmt: skip
    """The row's token, or, where that is negative, the last one that its slot produced."""
    row = tl.program_id(0)
    lanes = tl.arange(0, ALL)
    ok = lanes < COLUMNS
    token = tl.load(row_tokens + row)
    if token < 0:
        token = tl.load(slot_tokens + tl.load(row_slots + row)).to(tl.int32)
    values = tl.load(embedding + token.to(tl.int64) * COLUMNS + lanes, ok, other=0).to(tl.float32)
    tl.store(residual + row * COLUMNS + lanes, values, ok)
    x_row = normed(values, gain, lanes, ok, epsilon, COLUMNS)
    tl.store(x + row * COLUMNS + lanes, x_row.to(x.dtype.element_ty), ok)


@triton.jit
def add_and_norm(
    parts, residual, gain, x, row_stride, epsilon,
    COLUMNS: tl.constexpr, ALL: tl.constexpr, SPLITS: tl.constexpr,
):  # fmt: skip
    """Add a product's parts to the residual, and norm it for the next product."""
    row = tl.program_id(0)
    lanes = tl.arange(0, ALL)
    ok = lanes < COLUMNS
    values = tl.load(residual + row * COLUMNS + lanes, ok, other=0)
    for split in tl.static_range(SPLITS):
        at = (split * row_stride + row) * COLUMNS + lanes
        values += tl.load(parts + at, ok, other=0)
    tl.store(residual + row * COLUMNS + lanes, values, ok)
    x_row = normed(values, gain, lanes, ok, epsilon, COLUMNS)
    tl.store(x + row * COLUMNS + lanes, x_row.to(x.dtype.element_ty), ok)


@triton.jit
def add_and_norm_outputs(
    parts, residual, gain, outputs, x, row_stride, epsilon,
    COLUMNS: tl.constexpr, ALL: tl.constexpr, SPLITS: tl.constexpr,
):  # fmt: skip
    """The last norm, of those rows alone whose next token is wanted; output i becomes x[i]."""
    row = tl.load(outputs + tl.program_id(0))
    if row < 0:
        return
    lanes = tl.arange(0, ALL)
    ok = lanes < COLUMNS
    values = tl.load(residual + row * COLUMNS + lanes, ok, other=0)
    for split in tl.static_range(SPLITS):
        at = (split * row_stride + row) * COLUMNS + lanes
        values += tl.load(parts + at, ok, other=0)
    x_row = normed(values, gain, lanes, ok, epsilon, COLUMNS)
    tl.store(x + tl.program_id(0) * COLUMNS + lanes, x_row.to(x.dtype.element_ty), ok)


@triton.jit
def head_maxima(
    x, head, best, best_rows,
    VOCAB: tl.constexpr, COLUMNS: tl.constexpr, PROGRAMS: tl.constexpr, BM: tl.constexpr,
    BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Logits of BN tokens for every output: the largest of them, and which it was."""
    rows = tl.program_id(2) * BM + tl.arange(0, BM)
    outs = tl.program_id(0) * BN + tl.arange(0, BN)
    logits = tile_product(x, head, rows, outs, 0, COLUMNS, COLUMNS, VOCAB, BM, BN, BK)
    logits = tl.where((outs < VOCAB)[None, :], logits, float("-inf"))
    top = tl.max(logits, axis=1)
    which = tl.min(tl.where(logits == top[:, None], outs[None, :], VOCAB), axis=1)
    tl.store(best + rows * PROGRAMS + tl.program_id(0), top)
    tl.store(best_rows + rows * PROGRAMS + tl.program_id(0), which)


@triton.jit
def pick_tokens(
    best, best_rows, outputs, row_slots, slot_tokens, chosen,
    PROGRAMS: tl.constexpr, ALL: tl.constexpr,
):  # fmt: skip
    """The first of the largest logits; the slot keeps it for the row that will continue it."""
    output = tl.program_id(0)
    row = tl.load(outputs + output)
    if row < 0:
        return
    lanes = tl.arange(0, ALL)
    ok = lanes < PROGRAMS
    logits = tl.load(best + output * PROGRAMS + lanes, ok, other=float("-inf"))
    which = tl.load(best_rows + output * PROGRAMS + lanes, ok, other=2147483647)
    token = tl.min(tl.where(logits == tl.max(logits, axis=0), which, 2147483647), axis=0)
    tl.store(chosen + output, token)
    tl.store(slot_tokens + tl.load(row_slots + row), token)
