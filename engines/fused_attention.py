"""Attention of one new token, split over the context, with all that precedes it in one kernel.

A program takes one query head and every SPLITS-th block of the context, so that the time does not
grow with one program's loop as long as there are fewer blocks than splits. It normalises and
rotates its query and the new key itself, which is cheaper than a kernel that does so once. What it
leaves is a softmax average over its blocks and the log of its sum: parts are combined by whoever
reads them (`load_input`). A split without a block leaves nothing and is not read.
"""

from __future__ import annotations

import triton
import triton.language as tl

from engines.fused_kernels import wait_for_the_kernel_before


@triton.jit
def rotated_head(x, gain, cosines, sines, epsilon, HEAD_DIM: tl.constexpr, NORMED: tl.constexpr):
    """Both halves of a head after its norm, if it has one, and its rotation (Su et al. 2021)."""
    half = tl.arange(0, HEAD_DIM // 2)
    low = tl.load(x + half, cache_modifier=".cg")
    high = tl.load(x + HEAD_DIM // 2 + half, cache_modifier=".cg")
    if NORMED:
        squares = tl.sum(low * low + high * high, axis=0)
        scale = tl.rsqrt(squares / HEAD_DIM + epsilon)
        low *= scale * tl.load(gain + half).to(tl.float32)
        high *= scale * tl.load(gain + HEAD_DIM // 2 + half).to(tl.float32)
    return low * cosines - high * sines, high * cosines + low * sines


@triton.jit
def attend(
    qkv, q_gain, k_gain, cosine_table, sine_table, positions, keys, values, parts, sums, epsilon,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, CAPACITY: tl.constexpr,
    SPLITS: tl.constexpr, KV_BLOCK: tl.constexpr, NORMED: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Keys and values [B, KV_HEADS, CAPACITY, HEAD_DIM] gain the new token's; parts [B, S, H·D]."""
    HALF: tl.constexpr = HEAD_DIM // 2
    GROUP: tl.constexpr = HEADS // KV_HEADS
    batch, head, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    kv_head = head // GROUP
    wait_for_the_kernel_before(PDL)
    position = tl.load(positions + batch, cache_modifier=".cg").to(tl.int32)
    blocks = position // KV_BLOCK + 1
    if split >= blocks:
        return
    half, whole = tl.arange(0, HALF), tl.arange(0, HEAD_DIM)
    cosines = tl.load(cosine_table + position * HALF + half)
    sines = tl.load(sine_table + position * HALF + half)
    qkv += batch * ((HEADS + 2 * KV_HEADS) * HEAD_DIM)
    q_low, q_high = rotated_head(
        qkv + head * HEAD_DIM, q_gain, cosines, sines, epsilon, HEAD_DIM, NORMED
    )
    new_key = qkv + (HEADS + kv_head) * HEAD_DIM
    k_low, k_high = rotated_head(new_key, k_gain, cosines, sines, epsilon, HEAD_DIM, NORMED)
    new_value = tl.load(new_key + KV_HEADS * HEAD_DIM + whole, cache_modifier=".cg")
    cache = (batch * KV_HEADS + kv_head).to(tl.int64) * CAPACITY * HEAD_DIM
    keys += cache
    values += cache
    dtype = keys.dtype.element_ty  # the new token is seen as it will be stored
    k_low, k_high, new_value = k_low.to(dtype), k_high.to(dtype), new_value.to(dtype)
    if (split == (blocks - 1) % SPLITS) & (head % GROUP == 0):
        tl.store(keys + position * HEAD_DIM + half, k_low)
        tl.store(keys + position * HEAD_DIM + HALF + half, k_high)
        tl.store(values + position * HEAD_DIM + whole, new_value)
    top, total = float("-inf"), 0.0
    average = tl.zeros([HEAD_DIM], tl.float32)
    block = split
    while block < blocks:  # a range with a bound from the device is too much for the interpreter
        at = block * KV_BLOCK + tl.arange(0, KV_BLOCK)
        past, now = (at < position)[:, None], (at == position)[:, None]
        row = keys + at[:, None] * HEAD_DIM
        low = tl.where(now, k_low[None, :], tl.load(row + half[None, :], past, other=0))
        high = tl.where(now, k_high[None, :], tl.load(row + HALF + half[None, :], past, other=0))
        value = tl.load(values + at[:, None] * HEAD_DIM + whole[None, :], past, other=0)
        value = tl.where(now, new_value[None, :], value)
        scores = tl.sum(low.to(tl.float32) * q_low[None, :], axis=1)
        scores += tl.sum(high.to(tl.float32) * q_high[None, :], axis=1)
        scores = tl.where(at <= position, scores * HEAD_DIM**-0.5, float("-inf"))
        higher = tl.maximum(top, tl.max(scores, axis=0))
        shares = tl.exp(scores - higher)
        shrink = tl.exp(top - higher)
        total = total * shrink + tl.sum(shares, axis=0)
        average = average * shrink + tl.sum(shares[:, None] * value.to(tl.float32), axis=0)
        top = higher
        block += SPLITS
    place = batch * SPLITS + split
    tl.store(parts + (place * HEADS + head) * HEAD_DIM + whole, average / total)
    tl.store(sums + place * HEADS + head, top + tl.log(total))
