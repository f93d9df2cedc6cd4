"""Attention of many new tokens, each over the cached context of its own slot.

All keys and values of a step are stored before any row attends, in a kernel of their own: so rows
may be consecutive tokens of one prompt, and a prompt is fed like any other rows. A program takes
one row, one head of keys with all queries that share it, and every SPLITS-th block of the context.
How long that context is it reads from the device: row r stands at `row_positions[r]`, and a row
that stands nowhere, at −1, does nothing.
"""

from __future__ import annotations

import triton
import triton.language as tl

from engines.batched_kernels import after_the_kernel_before


@triton.jit
def summed(parts, at, split_stride, SPLITS: tl.constexpr):
    """One value of a product from all its parts."""
    values = tl.load(parts + at)
    for split in tl.static_range(1, SPLITS):
        values += tl.load(parts + split * split_stride + at)
    return values


@triton.jit
def place_heads(
    parts, q_gain, k_gain, cosine_table, sine_table, row_slots, row_positions,
    queries, keys, values, row_stride, epsilon,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, CAPACITY: tl.constexpr,
    SPLITS: tl.constexpr, NORMED: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Norm and rotate (Su et al. 2021) queries and keys; store keys and values at their place."""
    after_the_kernel_before(PDL)
    HALF: tl.constexpr = HEAD_DIM // 2
    row, head = tl.program_id(0), tl.program_id(1)
    position = tl.load(row_positions + row)
    if position < 0:
        return
    half = tl.arange(0, HALF)
    WIDTH: tl.constexpr = (HEADS + 2 * KV_HEADS) * HEAD_DIM
    at = row * WIDTH + head * HEAD_DIM + half
    stride = row_stride * WIDTH
    low = summed(parts, at, stride, SPLITS)
    high = summed(parts, at + HALF, stride, SPLITS)
    kind = queries.dtype.element_ty
    slot = tl.load(row_slots + row)
    if head >= HEADS + KV_HEADS:
        cached = (slot * KV_HEADS + head - HEADS - KV_HEADS).to(tl.int64) * CAPACITY + position
        tl.store(values + cached * HEAD_DIM + half, low.to(kind))
        tl.store(values + cached * HEAD_DIM + HALF + half, high.to(kind))
        return
    if NORMED:
        gain = q_gain
        if head >= HEADS:
            gain = k_gain
        scale = tl.rsqrt(tl.sum(low * low + high * high, axis=0) / HEAD_DIM + epsilon)
        low *= scale * tl.load(gain + half).to(tl.float32)
        high *= scale * tl.load(gain + HALF + half).to(tl.float32)
    cosines = tl.load(cosine_table + position * HALF + half)
    sines = tl.load(sine_table + position * HALF + half)
    out = queries + (row * HEADS + head) * HEAD_DIM
    if head >= HEADS:
        cached = (slot * KV_HEADS + head - HEADS).to(tl.int64) * CAPACITY + position
        out = keys + cached * HEAD_DIM
    tl.store(out + half, (low * cosines - high * sines).to(kind))
    tl.store(out + HALF + half, (high * cosines + low * sines).to(kind))


@triton.jit
def attend(
    queries, keys, values, row_slots, row_positions, out, parts, sums,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, CAPACITY: tl.constexpr,
    SPLITS: tl.constexpr, KV_BLOCK: tl.constexpr, TILE: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """One split writes `out` [rows, H·D] at once, several write parts [rows, S, H·D] and sums."""
    after_the_kernel_before(PDL)
    GROUP: tl.constexpr = HEADS // KV_HEADS
    row, kv_head, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    position = tl.load(row_positions + row)
    if position < split * KV_BLOCK:
        return
    lanes = tl.arange(0, HEAD_DIM)
    members = tl.arange(0, TILE)
    heads = kv_head * GROUP + members
    ok = (members < GROUP)[:, None]
    query = tl.load(queries + (row * HEADS + heads[:, None]) * HEAD_DIM + lanes[None, :], ok, 0)
    cache = (tl.load(row_slots + row) * KV_HEADS + kv_head).to(tl.int64) * CAPACITY * HEAD_DIM
    keys += cache
    values += cache
    top = tl.full([TILE], float("-inf"), tl.float32)
    total = tl.zeros([TILE], tl.float32)
    average = tl.zeros([TILE, HEAD_DIM], tl.float32)
    for block in tl.range(split, position // KV_BLOCK + 1, SPLITS):
        at = block * KV_BLOCK + tl.arange(0, KV_BLOCK)
        seen = at <= position
        places = at[:, None] * HEAD_DIM + lanes[None, :]
        key = tl.load(keys + places, seen[:, None], other=0)
        scores = tl.dot(query, key.T, input_precision="ieee") * HEAD_DIM**-0.5
        scores = tl.where(seen[None, :], scores, float("-inf"))
        higher = tl.maximum(top, tl.max(scores, axis=1))
        shares = tl.exp(scores - higher[:, None])
        shrink = tl.exp(top - higher)
        total = total * shrink + tl.sum(shares, axis=1)
        value = tl.load(values + places, seen[:, None], other=0)
        average = average * shrink[:, None]
        average = tl.dot(shares.to(value.dtype), value, average, input_precision="ieee")
        top = higher
    average = average / total[:, None]
    if SPLITS == 1:
        at = (row * HEADS + heads[:, None]) * HEAD_DIM + lanes[None, :]
        tl.store(out + at, average.to(out.dtype.element_ty), ok)
    else:
        place = row * SPLITS + split
        at = (place * HEADS + heads[:, None]) * HEAD_DIM + lanes[None, :]
        tl.store(parts + at, average, ok)
        tl.store(sums + place * HEADS + heads, top + tl.log(total), members < GROUP)


@triton.jit
def combine(
    parts, sums, row_positions, out,
    HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, SPLITS: tl.constexpr, KV_BLOCK: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    """The parts of a row's attention together; a split that had no block left none."""
    after_the_kernel_before(PDL)
    row, head = tl.program_id(0), tl.program_id(1)
    position = tl.load(row_positions + row)
    if position < 0:
        return
    splits = tl.arange(0, SPLITS)
    ok = splits * KV_BLOCK <= position
    lanes = tl.arange(0, HEAD_DIM)
    place = row * SPLITS + splits
    logs = tl.load(sums + place * HEADS + head, ok, other=float("-inf"))
    shares = tl.exp(logs - tl.max(logs, axis=0))
    at = (place * HEADS + head)[:, None] * HEAD_DIM + lanes[None, :]
    averages = tl.load(parts + at, ok[:, None], other=0)
    whole = tl.sum(averages * shares[:, None], axis=0) / tl.sum(shares, axis=0)
    tl.store(out + (row * HEADS + head) * HEAD_DIM + lanes, whole.to(out.dtype.element_ty))
