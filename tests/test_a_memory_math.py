"""Section 3.1, on paper: what a token costs in the KV cache, and how soon a card is full."""

from __future__ import annotations

import pytest

from engines import cost
from engines.shape import ModelShape
from reports import verdict
from reports.bounds import within
from reports.verdict import Outcome
from tests.chapter import CONFIG, KV_TOKEN, QWEN3, T4, WEIGHTS

KIB = 1024
MODEL = "Qwen3-0.6B"


@pytest.mark.claim("C01")
def test_a_token_costs_two_times_layers_kv_heads_head_dim_and_bytes(judge):
    """Section 3.1: 2 x 28 x 8 x 128 x 2 = 114,688 B = 112 KiB, to the byte."""
    assert KV_TOKEN == 112 * KIB
    judge.exact(
        cost.kv_bytes_per_token(QWEN3),
        2 * 28 * 8 * 128 * 2,
        quantity="KV bytes per token",
        unit="B",
        subject=MODEL,
    )


@pytest.mark.claim("C02")
def test_counting_attention_heads_for_kv_heads_doubles_it(judge):
    """Section 3.1: 16 query heads share 8 KV heads; taking 16 gives 224 KiB instead of 112."""
    mistaken = ModelShape.from_config(CONFIG | {"num_key_value_heads": 16})
    judge.exact(
        cost.kv_bytes_per_token(mistaken),
        224 * KIB,
        quantity="KV bytes per token with 16 heads for 8",
        unit="B",
        subject=MODEL,
    )


@pytest.mark.claim("C02")
def test_the_mistaken_count_is_rejected(judge):
    """The verdict on C01 must turn when 16 heads are counted for 8."""
    mistaken = ModelShape.from_config(CONFIG | {"num_key_value_heads": 16})
    found = verdict.judge(
        cost.kv_bytes_per_token(mistaken),
        within(KV_TOKEN, KV_TOKEN),
        claim="C01",
        subject=MODEL,
        quantity="KV bytes per token",
        device="cpu",
    )
    judge.exact(
        found.outcome is Outcome.REFUTED,
        1,
        quantity="224 KiB refuted as the cost of a token",
        unit="1",
        subject=MODEL,
    )


@pytest.mark.claim("C03")
def test_one_sequence_at_full_context_holds_four_times_the_weights(judge):
    """Section 3.1: 40,960 tokens x 114,688 B = 4,697,620,480 B, 3.9406 x 1,192,099,840 B."""
    held = cost.kv_cache_bytes(QWEN3, 40_960)
    judge.exact(
        held,
        40_960 * KV_TOKEN,
        quantity="KV bytes at full context",
        unit="B",
        subject=MODEL,
    )
    judge.exact(
        held / cost.weight_bytes(QWEN3),
        3.9406,
        quantity="KV at full context over weights",
        unit="1",
        subject=MODEL,
        rel=1e-5,  # the claim prints four decimals
    )


@pytest.mark.claim("C04")
def test_sixteen_sequences_fill_16_gb_at_8070_tokens(judge):
    """Section 3.1: (16e9 - 1,192,099,840) / (16 x 114,688) = 8,069.67 tokens."""
    judge.exact(
        cost.context_tokens_that_fill(QWEN3, T4.memory_bytes, batch_size=16),
        (16e9 - WEIGHTS) / (16 * KV_TOKEN),
        quantity="context at which 16 sequences fill the card",
        unit="token",
        subject=f"{MODEL} on a T4",
        rel=1e-12,
    )


@pytest.mark.claim("C04")
@pytest.mark.parametrize(
    ("batch_size", "tokens"),
    [(1, 129_114.64), (4, 32_278.66), (16, 8_069.67)],
    ids=["batch:1", "batch:4", "batch:16"],
)
def test_each_line_of_the_figure_meets_16_gb_where_it_is_drawn(batch_size, tokens, judge):
    """Section 3.1: the lines for 1, 4 and 16 sequences; 14,807,900,160 B / 114,688 B / batch."""
    judge.exact(
        cost.context_tokens_that_fill(QWEN3, T4.memory_bytes, batch_size),
        tokens,
        quantity=f"context at which {batch_size} sequences fill the card",
        unit="token",
        subject=f"{MODEL} on a T4",
        rel=1e-6,  # two decimals of 8,069.67
    )


@pytest.mark.claim("C07")
def test_the_kv_budget_holds_about_125_sequences_of_1024_tokens(judge):
    """Section 3.1: (16e9 - 1,192,099,840) / (1,024 x 114,688) = 126.09; the chapter rounds to 125.

    A budget below 120 or above 130 sequences would be another statement.
    """
    sequences = cost.max_sequences(QWEN3, T4.memory_bytes, 1024)
    assert sequences == pytest.approx((16e9 - WEIGHTS) / (1024 * KV_TOKEN))
    judge(
        sequences,
        within(120, 130, text="about 125"),
        quantity="sequences of 1,024 tokens that fit",
        subject=f"{MODEL} on a T4",
    )
