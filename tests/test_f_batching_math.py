"""Section 4, on paper: one pass over the weights serves many rows, and each row waits for all."""

from __future__ import annotations

import pytest

from engines import roofline
from reports.bounds import above
from tests.chapter import KV_TOKEN, QWEN3, T4, WEIGHTS

CONTEXT = 512


def point(batch_size: int) -> roofline.BatchPoint:
    return roofline.batch_point(
        QWEN3, T4.bandwidth_bytes_per_s, T4.fp16_flops_per_s, batch_size, CONTEXT
    )


@pytest.mark.claim("C31")
@pytest.mark.parametrize(
    ("batch_size", "tokens_per_s", "step_ms"),
    [(1, 256, 3.9), (16, 2402, 6.7), (32, 3334, 9.6)],
    ids=["batch:1", "batch:16", "batch:32"],
)
def test_the_roofline_of_a_t4_at_512_tokens(batch_size, tokens_per_s, step_ms, judge):
    """Section 4: (1,192,099,840 + B x 512 x 114,688) B / 320e9 B/s a step, B tokens each."""
    at = point(batch_size)
    assert at.bound == "memory"
    assert (round(at.tokens_per_s), round(at.step_s * 1e3, 1)) == (tokens_per_s, step_ms)
    judge.exact(
        at.tokens_per_s,
        batch_size * 320e9 / (WEIGHTS + batch_size * CONTEXT * KV_TOKEN),
        quantity="aggregate decode rate by the roofline",
        unit="tok/s",
        subject=f"T4@{batch_size}",
        rel=1e-12,
    )


@pytest.mark.claim("C31")
@pytest.mark.parametrize("batch_size", [2, 4, 8, 16, 32, 64], ids="batch:{}".format)
def test_doubling_the_batch_raises_throughput_and_the_latency_of_each(batch_size, judge):
    """Section 4: both ratios to half the batch are above 1."""
    half, whole = point(batch_size // 2), point(batch_size)
    judge(
        whole.tokens_per_s / half.tokens_per_s,
        above(1.0),
        quantity="aggregate rate over that of half the batch",
        subject=f"T4@{batch_size}",
    )
    judge(
        whole.step_s / half.step_s,
        above(1.0),
        quantity="time per token over that of half the batch",
        subject=f"T4@{batch_size}",
    )
