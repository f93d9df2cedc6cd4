"""Sections 3.2 and 8, on paper: how fast weights can arrive, and what arithmetic does meanwhile."""

from __future__ import annotations

import pytest

from engines import cost
from reports.bounds import within
from tests.chapter import KV_TOKEN, PARAMETERS, QWEN3, T4, WEIGHTS

MODEL = "Qwen3-0.6B on a T4"


@pytest.mark.claim("C08")
@pytest.mark.parametrize(
    ("context_tokens", "printed"),
    [(0, 268.43), (95, 266.00), (512, 255.83)],
    ids=["tokens:0", "tokens:95", "tokens:512"],
)
def test_no_step_is_faster_than_its_bytes_arrive(context_tokens, printed, judge):
    """Section 3.2: 320e9 / (1,192,099,840 + context x 114,688) tokens per second."""
    ceiling = cost.decode_ceiling_tokens_per_s(QWEN3, T4.bandwidth_bytes_per_s, context_tokens)
    assert round(ceiling, 2) == printed
    judge.exact(
        ceiling,
        320e9 / (WEIGHTS + context_tokens * KV_TOKEN),
        quantity=f"decode ceiling at context {context_tokens}",
        unit="tok/s",
        subject=MODEL,
        rel=1e-12,
    )


@pytest.mark.claim("C08")
def test_the_printed_266_lies_between_the_ceilings_of_an_empty_and_a_short_context(judge):
    """Section 3.2 prints ~266 = 320 / 1.2, after rounding the weights up: bracketed, not exact."""
    rate = T4.bandwidth_bytes_per_s
    judge(
        320 / 1.2,
        within(
            cost.decode_ceiling_tokens_per_s(QWEN3, rate, 512),
            cost.decode_ceiling_tokens_per_s(QWEN3, rate, 0),
        ),
        quantity="the chapter's ceiling between those at 512 tokens and at none",
        subject=MODEL,
    )


@pytest.mark.claim("C09")
def test_at_the_ceiling_arithmetic_is_half_a_percent_of_what_the_card_can_do(judge):
    """Sections 3.2, 8: 266 tok/s x 2 x 596,049,920 FLOP = 0.3171 TFLOP/s, 0.488 % of 65.

    Two FLOP per parameter counts the norms' 65,536 weights as products; leaving them out, as
    `decode_flops` does, lowers the rate by 0.011 %.
    """
    rate = 266 * cost.decode_flops(QWEN3)
    judge.exact(
        rate / 1e12,
        266 * 2 * PARAMETERS / 1e12,
        quantity="arithmetic at 266 tok/s",
        unit="TFLOP/s",
        subject=MODEL,
        rel=1.2e-4,
    )
    judge.exact(
        100 * rate / T4.fp16_flops_per_s,
        0.488,
        quantity="share of the card's fp16 rate",
        unit="%",
        subject=MODEL,
        rel=1e-3,  # three digits are printed
    )
