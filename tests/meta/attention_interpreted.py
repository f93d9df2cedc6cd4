"""The two attentions of the batched step, interpreted, beside a plain one around tile edges.

Prints the largest error of each as JSON; a process of its own, as `batched_interpreted`.
"""

from __future__ import annotations

import json
import sys

HEADS, KV_HEADS, HEAD_DIM, CAPACITY, KV_BLOCK = 4, 2, 16, 200, 64
GROUP = HEADS // KV_HEADS
POSITIONS = (0, 1, 62, 63, 64, 65, 127, 128, 129, 199)
PIECES = ((0, 5), (60, 8), (64, 1), (100, 30), (191, 9))
"""Begin and length, each in a slot of its own; a program takes 8 tokens of a piece."""
TOGETHER = 8
SIZES = {"HEADS": HEADS, "KV_HEADS": KV_HEADS, "HEAD_DIM": HEAD_DIM, "CAPACITY": CAPACITY}


def plain(query, keys, values):
    """One token's heads, [HEADS, D], over keys and values [KV_HEADS, S, D]."""
    import torch

    keys, values = (t.repeat_interleave(GROUP, dim=0) for t in (keys, values))
    scores = torch.einsum("hd,hsd->hs", query, keys) / HEAD_DIM**0.5
    return torch.einsum("hs,hsd->hd", scores.softmax(dim=-1), values)


def turned(heads, cosines, sines):
    """Heads [N, D], rotated."""
    import torch

    low, high = heads.chunk(2, dim=-1)
    return torch.cat([low * cosines - high * sines, high * cosines + low * sines], dim=-1)


def apart_error(splits: int) -> float:
    """Rows of different slots: heads are rotated and stored on the way, contexts are split."""
    import torch

    from engines import batched_attention

    rows, width = len(POSITIONS), (HEADS + 2 * KV_HEADS) * HEAD_DIM
    keys, values = (torch.randn(rows, KV_HEADS, CAPACITY, HEAD_DIM) for _ in range(2))
    cosines, sines = (torch.randn(CAPACITY, HEAD_DIM // 2) for _ in range(2))
    parts = torch.randn(2, rows, width)
    slots = torch.arange(rows, dtype=torch.int32).flip(0)
    positions = torch.tensor(POSITIONS, dtype=torch.int32)
    out = torch.zeros(rows, HEADS, HEAD_DIM)
    averages, sums = torch.zeros(rows, splits, HEADS, HEAD_DIM), torch.zeros(rows, splits, HEADS)
    expected = []
    for row, (slot, at) in enumerate(zip(slots.tolist(), POSITIONS, strict=True)):
        heads = parts.sum(dim=0)[row].view(-1, HEAD_DIM)
        query, key, value = heads.split([HEADS, KV_HEADS, KV_HEADS])
        query, key = (turned(t, cosines[at], sines[at]) for t in (query, key))
        own_keys, own_values = keys[slot, :, : at + 1].clone(), values[slot, :, : at + 1].clone()
        own_keys[:, at], own_values[:, at] = key, value
        expected.append((plain(query, own_keys, own_values), own_keys, own_values))
    batched_attention.attend[(rows, KV_HEADS, splits)](
        parts, parts, parts, cosines, sines, slots, positions, keys, values, out, averages, sums,
        rows, 1e-6, **SIZES, QKV_SPLITS=2, NORMED=False, SPLITS=splits, KV_BLOCK=KV_BLOCK, TILE=16,
    )  # fmt: skip
    if splits > 1:
        batched_attention.combine[(rows, HEADS)](
            averages, sums, positions, out,
            HEADS=HEADS, HEAD_DIM=HEAD_DIM, SPLITS=splits, KV_BLOCK=KV_BLOCK,
        )  # fmt: skip
    errors = []
    for row, (slot, at) in enumerate(zip(slots.tolist(), POSITIONS, strict=True)):
        answer, own_keys, own_values = expected[row]
        errors += [
            (out[row] - answer).abs().max(),
            (keys[slot, :, : at + 1] - own_keys).abs().max(),
            (values[slot, :, : at + 1] - own_values).abs().max(),
        ]
    return float(max(errors))


def placed_error() -> float:
    """Pieces of prompts whose keys are in the cache already."""
    import torch

    from engines import batched_attention

    slots, positions, counts = [], [], []
    for slot, (begin, length) in enumerate(PIECES):
        slots += [slot] * length
        positions += range(begin, begin + length)
        for start in range(0, length, TOGETHER):
            count = min(TOGETHER, length - start)
            counts += [count, *[0] * (count - 1)]
    rows = len(slots)
    keys, values = (torch.randn(len(PIECES), KV_HEADS, CAPACITY, HEAD_DIM) for _ in range(2))
    queries, out = torch.randn(rows, HEADS, HEAD_DIM), torch.zeros(rows, HEADS, HEAD_DIM)
    table = [torch.tensor(column, dtype=torch.int32) for column in (slots, positions, counts)]
    batched_attention.attend_placed[(rows, KV_HEADS)](
        queries, keys, values, *table, out, **SIZES, KV_BLOCK=KV_BLOCK, TILE=TOGETHER * GROUP
    )
    expected = [
        plain(queries[row], keys[slot, :, : at + 1], values[slot, :, : at + 1])
        for row, (slot, at) in enumerate(zip(slots, positions, strict=True))
    ]
    return float((out - torch.stack(expected)).abs().max())


def main() -> None:
    """Errors by case."""
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    found = {f"apart, {splits} splits": apart_error(splits) for splits in (1, 2, 4)}
    json.dump({**found, "placed": placed_error()}, sys.stdout)


if __name__ == "__main__":
    main()
