"""Attention of many new tokens, each over the cached context of its own slot.

How long a context is is read from the device: row r stands at `row_positions[r]`, and a row that
stands nowhere, at −1, does nothing. A program takes one head of keys and all queries that share it.

Where no two rows share a slot, a program takes one row and every SPLITS-th block of its context; it
norms and rotates its queries and its new key itself and stores the key and the value on the way.
Rows that are consecutive tokens of one prompt attend to each other's keys, so there all of them are
placed first, by a kernel of its own, and a program takes several of them at once.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def summed(parts, at, ok, split_stride, SPLITS: tl.constexpr):
    """Values of a product from all its parts."""
    values = tl.load(parts + at, ok, other=0)
    for split in tl.static_range(1, SPLITS):
        values += tl.load(parts + split * split_stride + at, ok, other=0)
    return values


@triton.jit
def turned_heads(
    parts, at, ok, split_stride, gain, cosine_row, sine_row, epsilon,
    HEAD_DIM: tl.constexpr, SPLITS: tl.constexpr, NORMED: tl.constexpr,
):  # fmt: skip
    """Heads [N, HEAD_DIM] after their norm and rotation (Su et al. 2021), in fp32.

    `at` is where each begins, [N, 1]. Column i is rotated with column i + HEAD_DIM / 2.
    """
    HALF: tl.constexpr = HEAD_DIM // 2
    half = tl.arange(0, HALF)[None, :]
    low = summed(parts, at + half, ok, split_stride, SPLITS)
    high = summed(parts, at + HALF + half, ok, split_stride, SPLITS)
    if NORMED:
        squares = tl.sum(low * low + high * high, axis=1)[:, None]
        scale = tl.rsqrt(squares / HEAD_DIM + epsilon)
        low *= scale * tl.load(gain + half).to(tl.float32)
        high *= scale * tl.load(gain + HALF + half).to(tl.float32)
    cosines = tl.load(cosine_row + half)
    sines = tl.load(sine_row + half)
    pair = tl.join(low * cosines - high * sines, high * cosines + low * sines)
    return tl.reshape(tl.permute(pair, (0, 2, 1)), (low.shape[0], HEAD_DIM))


@triton.jit
def place_heads(
    qkv, q_gain, k_gain, cosine_table, sine_table, row_slots, row_positions,
    queries, keys, values, row_stride, epsilon,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, CAPACITY: tl.constexpr,
    QKV_SPLITS: tl.constexpr, NORMED: tl.constexpr,
):  # fmt: skip
    """Queries [rows, H·D] ready to attend; keys and values in the cache."""
    row, head = tl.program_id(0), tl.program_id(1)
    position = tl.load(row_positions + row)
    if position < 0:
        return
    WIDTH: tl.constexpr = (HEADS + 2 * KV_HEADS) * HEAD_DIM
    kind = queries.dtype.element_ty
    one = tl.arange(0, 1)[:, None]
    lanes = tl.arange(0, HEAD_DIM)[None, :]
    at = row * WIDTH + head * HEAD_DIM + one
    slot = tl.load(row_slots + row)
    cached = (slot * KV_HEADS + (head - HEADS) % KV_HEADS).to(tl.int64) * CAPACITY + position
    if head >= HEADS + KV_HEADS:
        value = summed(qkv, at + lanes, lanes >= 0, row_stride * WIDTH, QKV_SPLITS)
        tl.store(values + cached * HEAD_DIM + lanes, value.to(kind))
    else:
        gain = q_gain
        out = queries + (row * HEADS + head) * HEAD_DIM
        if head >= HEADS:
            gain = k_gain
            out = keys + cached * HEAD_DIM
        turned = turned_heads(
            qkv, at, one >= 0, row_stride * WIDTH, gain, cosine_table + position * HEAD_DIM // 2,
            sine_table + position * HEAD_DIM // 2, epsilon, HEAD_DIM, QKV_SPLITS, NORMED,
        )  # fmt: skip
        tl.store(out + lanes, turned.to(kind))


@triton.jit
def attend(
    qkv, q_gain, k_gain, cosine_table, sine_table, row_slots, row_positions,
    keys, values, out, parts, sums, row_stride, epsilon,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, CAPACITY: tl.constexpr,
    QKV_SPLITS: tl.constexpr, NORMED: tl.constexpr, SPLITS: tl.constexpr, KV_BLOCK: tl.constexpr,
    TILE: tl.constexpr,
):  # fmt: skip
    """One split writes `out` [rows, H·D] at once, several write parts [rows, S, H·D] and sums.

    The first split begins with the row's own token; the blocks are of those before it.
    """
    GROUP: tl.constexpr = HEADS // KV_HEADS
    WIDTH: tl.constexpr = (HEADS + 2 * KV_HEADS) * HEAD_DIM
    row, kv_head, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    position = tl.load(row_positions + row)
    if position < split * KV_BLOCK + (split > 0).to(tl.int32):
        return
    kind = out.dtype.element_ty
    lanes = tl.arange(0, HEAD_DIM)[None, :]
    members = tl.arange(0, TILE)
    heads = (kv_head * GROUP + members)[:, None]
    ok = (members < GROUP)[:, None]
    cosine_table += position * (HEAD_DIM // 2)
    sine_table += position * (HEAD_DIM // 2)
    stride = row_stride * WIDTH
    query = turned_heads(
        qkv, row * WIDTH + heads * HEAD_DIM, ok, stride, q_gain, cosine_table, sine_table,
        epsilon, HEAD_DIM, QKV_SPLITS, NORMED,
    ).to(kind)  # fmt: skip
    own = row * WIDTH + (HEADS + kv_head) * HEAD_DIM + tl.arange(0, 1)[:, None]
    new_key = turned_heads(
        qkv, own, own >= 0, stride, k_gain, cosine_table, sine_table,
        epsilon, HEAD_DIM, QKV_SPLITS, NORMED,
    ).to(kind)  # fmt: skip
    own += KV_HEADS * HEAD_DIM
    new_value = summed(qkv, own + lanes, lanes >= 0, stride, QKV_SPLITS).to(kind)
    cache = (tl.load(row_slots + row) * KV_HEADS + kv_head).to(tl.int64) * CAPACITY * HEAD_DIM
    keys += cache
    values += cache
    tl.store(keys + position * HEAD_DIM + lanes, new_key, (lanes >= 0) & (split == 0))
    tl.store(values + position * HEAD_DIM + lanes, new_value, (lanes >= 0) & (split == 0))
    scale: tl.constexpr = HEAD_DIM**-0.5
    first = tl.sum(query.to(tl.float32) * new_key.to(tl.float32), axis=1) * scale
    top = tl.where(split == 0, first, float("-inf"))
    total = tl.where(split == 0, tl.full([TILE], 1.0, tl.float32), 0.0)
    average = total[:, None] * new_value.to(tl.float32)
    for block in tl.range(split, tl.cdiv(position, KV_BLOCK), SPLITS):
        at = block * KV_BLOCK + tl.arange(0, KV_BLOCK)
        seen = at < position
        places = at[:, None] * HEAD_DIM + lanes
        key = tl.load(keys + places, seen[:, None], other=0)
        scores = tl.dot(query, key.T, input_precision="ieee") * scale
        scores = tl.where(seen[None, :], scores, float("-inf"))
        higher = tl.maximum(top, tl.max(scores, axis=1))
        shares = tl.exp(scores - higher[:, None])
        shrink = tl.exp(top - higher)
        total = total * shrink + tl.sum(shares, axis=1)
        value = tl.load(values + places, seen[:, None], other=0)
        average = average * shrink[:, None]
        average = tl.dot(shares.to(kind), value, average, input_precision="ieee")
        top = higher
    average = average / total[:, None]
    if SPLITS == 1:
        at = (row * HEADS + heads) * HEAD_DIM + lanes
        tl.store(out + at, average.to(kind), ok)
    else:
        place = row * SPLITS + split
        at = (place * HEADS + heads) * HEAD_DIM + lanes
        tl.store(parts + at, average, ok)
        logs = (top + tl.log(total))[:, None]
        tl.store(sums + place * HEADS + heads, logs, ok)


@triton.jit
def attend_placed(
    queries, keys, values, row_slots, row_positions, row_counts, out,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, CAPACITY: tl.constexpr,
    KV_BLOCK: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Row r begins `row_counts[r]` consecutive tokens of its slot, of at most TILE queries.

    Rows inside such a piece have a count of 0: the program of its first row computes them.
    """
    GROUP: tl.constexpr = HEADS // KV_HEADS
    row, kv_head = tl.program_id(0), tl.program_id(1)
    count = tl.load(row_counts + row)
    if count == 0:
        return
    kind = out.dtype.element_ty
    lanes = tl.arange(0, HEAD_DIM)[None, :]
    token = tl.arange(0, TILE) // GROUP
    ok = (token < count)[:, None]
    heads = ((row + token) * HEADS + kv_head * GROUP + tl.arange(0, TILE) % GROUP)[:, None]
    position = tl.load(row_positions + row)
    positions = (position + tl.minimum(token, count - 1))[:, None]
    query = tl.load(queries + heads * HEAD_DIM + lanes, ok, other=0)
    cache = (tl.load(row_slots + row) * KV_HEADS + kv_head).to(tl.int64) * CAPACITY * HEAD_DIM
    keys += cache
    values += cache
    scale: tl.constexpr = HEAD_DIM**-0.5
    top = tl.full([TILE], float("-inf"), tl.float32)
    total = tl.zeros([TILE], tl.float32)
    average = tl.zeros([TILE, HEAD_DIM], tl.float32)
    for block in tl.range(0, tl.cdiv(position + count, KV_BLOCK)):
        at = block * KV_BLOCK + tl.arange(0, KV_BLOCK)
        there = (at < position + count)[:, None]
        places = at[:, None] * HEAD_DIM + lanes
        key = tl.load(keys + places, there, other=0)
        scores = tl.dot(query, key.T, input_precision="ieee") * scale
        scores = tl.where(at[None, :] <= positions, scores, float("-inf"))
        higher = tl.maximum(top, tl.max(scores, axis=1))
        shares = tl.exp(scores - higher[:, None])
        shrink = tl.exp(top - higher)
        total = total * shrink + tl.sum(shares, axis=1)
        value = tl.load(values + places, there, other=0)
        average = average * shrink[:, None]
        average = tl.dot(shares.to(kind), value, average, input_precision="ieee")
        top = higher
    tl.store(out + heads * HEAD_DIM + lanes, (average / total[:, None]).to(kind), ok)


@triton.jit
def combine(
    parts, sums, row_positions, out,
    HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, SPLITS: tl.constexpr, KV_BLOCK: tl.constexpr,
):  # fmt: skip
    """The parts of a row's attention together; a split that had no block left none."""
    row, head = tl.program_id(0), tl.program_id(1)
    position = tl.load(row_positions + row)
    if position < 0:
        return
    splits = tl.arange(0, SPLITS)
    ok = (splits == 0) | (splits * KV_BLOCK < position)
    lanes = tl.arange(0, HEAD_DIM)
    place = row * SPLITS + splits
    logs = tl.load(sums + place * HEADS + head, ok, other=float("-inf"))
    shares = tl.exp(logs - tl.max(logs, axis=0))
    at = (place * HEADS + head)[:, None] * HEAD_DIM + lanes[None, :]
    averages = tl.load(parts + at, ok[:, None], other=0)
    whole = tl.sum(averages * shares[:, None], axis=0) / tl.sum(shares, axis=0)
    tl.store(out + (row * HEADS + head) * HEAD_DIM + lanes, whole.to(out.dtype.element_ty))
