"""Triton kernels of one decode step: products of a matrix with one vector, and what is around them.

At batch 1 a step does nothing but read weights, so a kernel's whole worth is to keep the memory
busy. Each program takes a few rows, loads its first tile of weights, *then* waits for the kernel
before it (programmatic dependent launch, sm_90 and newer), and does everything that used to be a
kernel of its own on the way: the norm before the product, the activation or the residual after it.
Sums are fp32; `tl.dot` is not used, it needs 16 rows and, for fp16, sm_80.

Program axis 0 is the row of the batch: programs that share weights run side by side.
ENCODING is 0 plain, 1 int8, 2 nf4; SOURCE is 0 a vector, 1 one times a gain, 2 attention partials.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait


@triton.jit
def wait_for_the_kernel_before(PDL: tl.constexpr):
    """What the step computes is read after this, and not from a stale L1 (`.cg`).

    The kernel after this one may start at once: every program of every kernel waits here, so that
    none gets past this point before all that come before it in the step have finished.
    """
    if PDL:
        gdc_launch_dependents()
        gdc_wait()


@triton.jit
def load_tile(codes, rows, ok, start, STORED: tl.constexpr, BLOCK: tl.constexpr):
    """Codes [rows, BLOCK] from stored column `start` on."""
    lanes = start + tl.arange(0, BLOCK)
    mask = ok[:, None] & (lanes < STORED)[None, :]
    return tl.load(codes + rows[:, None].to(tl.int64) * STORED + lanes[None, :], mask, other=0)


@triton.jit
def load_input(
    x, gain, lanes, ok, splits, SOURCE: tl.constexpr, COLUMNS: tl.constexpr, HEAD_DIM: tl.constexpr
):
    """The vector that the rows are multiplied with, at these columns."""
    if SOURCE == 2:  # `gain` holds the log of each part's softmax sum
        heads = lanes // HEAD_DIM
        top = tl.full(lanes.shape, float("-inf"), tl.float32)
        part = 0
        while part < splits:  # a range with a bound from the device is too much for the interpreter
            sums = tl.load(
                gain + part * (COLUMNS // HEAD_DIM) + heads, ok, other=0, cache_modifier=".cg"
            )
            top = tl.maximum(top, sums)
            part += 1
        above = tl.zeros(lanes.shape, tl.float32)
        below = tl.zeros(lanes.shape, tl.float32)
        part = 0
        while part < splits:
            sums = tl.load(
                gain + part * (COLUMNS // HEAD_DIM) + heads, ok, other=0, cache_modifier=".cg"
            )
            share = tl.exp(sums - top)
            above += share * tl.load(x + part * COLUMNS + lanes, ok, other=0, cache_modifier=".cg")
            below += share
            part += 1
        return above / below
    values = tl.load(x + lanes, ok, other=0, cache_modifier=".cg")
    if SOURCE == 1:
        values *= tl.load(gain + lanes, ok, other=0).to(tl.float32)
    return values


@triton.jit
def multiply_tile(
    tile, scales, levels, x, gain, rows, ok, start, splits,
    SOURCE: tl.constexpr, COLUMNS: tl.constexpr, BLOCK: tl.constexpr, ENCODING: tl.constexpr,
    HEAD_DIM: tl.constexpr,
):  # fmt: skip
    """Sums over one tile, one per row; int8 leaves its scale to the end."""
    lanes = start + tl.arange(0, BLOCK)
    if ENCODING != 2:
        columns_ok = lanes < COLUMNS
        values = load_input(x, gain, lanes, columns_ok, splits, SOURCE, COLUMNS, HEAD_DIM)
        return tl.sum(tile.to(tl.float32) * values[None, :], axis=1)
    columns_ok = lanes < COLUMNS // 2
    pairs = 2 * lanes[:, None] + tl.arange(0, 2)[None, :]
    both = load_input(x, gain, pairs, pairs < COLUMNS, splits, SOURCE, COLUMNS, HEAD_DIM)
    low_values, high_values = tl.split(both)
    bits = tile.to(tl.int32)
    products = tl.load(levels + (bits & 15)) * low_values[None, :]
    products += tl.load(levels + (bits >> 4)) * high_values[None, :]
    mask = ok[:, None] & columns_ok[None, :]
    blocks = rows[:, None].to(tl.int64) * (COLUMNS // 64) + (lanes // 32)[None, :]
    return tl.sum(products * tl.load(scales + blocks, mask, other=0), axis=1)


@triton.jit
def row_sums(
    first, codes, scales, levels, x, gain, rows, ok, splits,
    SOURCE: tl.constexpr, COLUMNS: tl.constexpr, BLOCK: tl.constexpr, ENCODING: tl.constexpr,
    HEAD_DIM: tl.constexpr,
):  # fmt: skip
    """Products of the rows with the input, [rows] fp32; `first` is their first tile."""
    STORED: tl.constexpr = COLUMNS // 2 if ENCODING == 2 else COLUMNS
    total = multiply_tile(
        first, scales, levels, x, gain, rows, ok, 0, splits,
        SOURCE, COLUMNS, BLOCK, ENCODING, HEAD_DIM,
    )  # fmt: skip
    for start in tl.static_range(BLOCK, STORED, BLOCK):
        tile = load_tile(codes, rows, ok, start, STORED, BLOCK)
        total += multiply_tile(
            tile, scales, levels, x, gain, rows, ok, start, splits,
            SOURCE, COLUMNS, BLOCK, ENCODING, HEAD_DIM,
        )  # fmt: skip
    if ENCODING == 1:
        total *= tl.load(scales + rows, ok, other=0)
    return total


@triton.jit
def inverse_rms(x, epsilon, COLUMNS: tl.constexpr, ALL: tl.constexpr):
    """1 / sqrt(mean of squares + epsilon); a norm is this times a gain."""
    lanes = tl.arange(0, ALL)
    values = tl.load(x + lanes, lanes < COLUMNS, other=0, cache_modifier=".cg")
    return tl.rsqrt(tl.sum(values * values, axis=0) / COLUMNS + epsilon)


@triton.jit
def embed(tokens, embedding, residual, COLUMNS: tl.constexpr, ALL: tl.constexpr, PDL: tl.constexpr):
    """The residual starts as the token's embedding, in fp32."""
    wait_for_the_kernel_before(PDL)
    row = tl.program_id(0)
    lanes = tl.arange(0, ALL)
    token = tl.load(tokens + row, cache_modifier=".cg")
    values = tl.load(embedding + token * COLUMNS + lanes, lanes < COLUMNS)
    tl.store(residual + row * COLUMNS + lanes, values.to(tl.float32), lanes < COLUMNS)


@triton.jit
def project_qkv(
    residual, gain, levels, q, q_scales, k, k_scales, v, v_scales, out, epsilon,
    COLUMNS: tl.constexpr, ALL: tl.constexpr, QUERY: tl.constexpr, KEY: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr, ENCODING: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """RMSNorm, then the rows of three matrices; ROWS divides the heads, so a program sees one."""
    STORED: tl.constexpr = COLUMNS // 2 if ENCODING == 2 else COLUMNS
    start = tl.program_id(1) * ROWS
    codes, scales, before = q, q_scales, 0
    if start >= QUERY + KEY:
        codes, scales, before = v, v_scales, QUERY + KEY
    elif start >= QUERY:
        codes, scales, before = k, k_scales, QUERY
    rows = start - before + tl.arange(0, ROWS)
    ok = rows < QUERY
    first = load_tile(codes, rows, ok, 0, STORED, BLOCK)
    wait_for_the_kernel_before(PDL)
    residual += tl.program_id(0) * COLUMNS
    total = row_sums(
        first, codes, scales, levels, residual, gain, rows, ok, 0, 1, COLUMNS, BLOCK, ENCODING, 1
    )
    total *= inverse_rms(residual, epsilon, COLUMNS, ALL)
    out += tl.program_id(0) * (QUERY + 2 * KEY) + start
    tl.store(out + tl.arange(0, ROWS), total)


@triton.jit
def project_ffn(
    residual, gain, levels, gate, gate_scales, up, up_scales, out, epsilon,
    COLUMNS: tl.constexpr, ALL: tl.constexpr, FFN: tl.constexpr, ROWS: tl.constexpr,
    BLOCK: tl.constexpr, ENCODING: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """RMSNorm, gate and up rows, SwiGLU."""
    STORED: tl.constexpr = COLUMNS // 2 if ENCODING == 2 else COLUMNS
    rows = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    ok = rows < FFN
    gate_first = load_tile(gate, rows, ok, 0, STORED, BLOCK)
    up_first = load_tile(up, rows, ok, 0, STORED, BLOCK)
    wait_for_the_kernel_before(PDL)
    residual += tl.program_id(0) * COLUMNS
    scale = inverse_rms(residual, epsilon, COLUMNS, ALL)
    gates = scale * row_sums(
        gate_first, gate, gate_scales, levels, residual, gain, rows, ok, 0,
        1, COLUMNS, BLOCK, ENCODING, 1,
    )  # fmt: skip
    ups = scale * row_sums(
        up_first, up, up_scales, levels, residual, gain, rows, ok, 0,
        1, COLUMNS, BLOCK, ENCODING, 1,
    )  # fmt: skip
    tl.store(out + tl.program_id(0) * FFN + rows, gates / (1 + tl.exp(-gates)) * ups, ok)


@triton.jit
def project_residual(
    x, sums, positions, levels, codes, scales, residual,
    HIDDEN: tl.constexpr, COLUMNS: tl.constexpr, HEAD_DIM: tl.constexpr, SPLITS: tl.constexpr,
    KV_BLOCK: tl.constexpr, SOURCE: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
    ENCODING: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Rows of the O or the down projection, added to the residual that each program owns."""
    STORED: tl.constexpr = COLUMNS // 2 if ENCODING == 2 else COLUMNS
    rows = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    ok = rows < HIDDEN
    first = load_tile(codes, rows, ok, 0, STORED, BLOCK)
    wait_for_the_kernel_before(PDL)
    batch = tl.program_id(0)
    splits = tl.minimum(
        tl.load(positions + batch, cache_modifier=".cg").to(tl.int32) // KV_BLOCK + 1, SPLITS
    )
    if SOURCE == 2:
        x += batch * SPLITS * COLUMNS
        sums += batch * SPLITS * (COLUMNS // HEAD_DIM)
    else:
        x += batch * COLUMNS
    total = row_sums(
        first, codes, scales, levels, x, sums, rows, ok, splits,
        SOURCE, COLUMNS, BLOCK, ENCODING, HEAD_DIM,
    )  # fmt: skip
    residual += batch * HIDDEN + rows
    tl.store(residual, tl.load(residual, ok, other=0, cache_modifier=".cg") + total, ok)


@triton.jit
def project_head(
    residual, gain, head, best, best_rows, epsilon,
    COLUMNS: tl.constexpr, ALL: tl.constexpr, VOCAB: tl.constexpr, ROWS: tl.constexpr,
    BLOCK: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Final norm and logits; of its rows a program keeps the largest, and which it was."""
    rows = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    ok = rows < VOCAB
    first = load_tile(head, rows, ok, 0, COLUMNS, BLOCK)
    wait_for_the_kernel_before(PDL)
    residual += tl.program_id(0) * COLUMNS
    logits = row_sums(first, head, head, head, residual, gain, rows, ok, 0, 1, COLUMNS, BLOCK, 0, 1)
    logits = tl.where(ok, logits * inverse_rms(residual, epsilon, COLUMNS, ALL), float("-inf"))
    top = tl.max(logits, axis=0)
    place = tl.program_id(0) * tl.num_programs(1) + tl.program_id(1)
    tl.store(best + place, top)
    tl.store(best_rows + place, tl.min(tl.where(logits == top, rows, VOCAB), axis=0))


@triton.jit
def pick_token(
    best, best_rows, tokens, positions, active, history,
    PARTS: tl.constexpr, ALL: tl.constexpr, WIDTH: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """The first of the largest logits; then the row moves on by one position, if it is active."""
    wait_for_the_kernel_before(PDL)
    batch = tl.program_id(0)
    lanes = tl.arange(0, ALL)
    logits = tl.load(
        best + batch * PARTS + lanes, lanes < PARTS, float("-inf"), cache_modifier=".cg"
    )
    rows = tl.load(
        best_rows + batch * PARTS + lanes, lanes < PARTS, 2147483647, cache_modifier=".cg"
    )
    token = tl.min(tl.where(logits == tl.max(logits, axis=0), rows, 2147483647), axis=0)
    moves = tl.load(active + batch, cache_modifier=".cg")
    position = tl.load(positions + batch, cache_modifier=".cg") + moves
    column = tl.where(moves != 0, position, WIDTH - 1)
    tl.store(history + batch * WIDTH + column, token.to(tl.int64))
    tl.store(tokens + batch, token.to(tl.int64))
    tl.store(positions + batch, position)
