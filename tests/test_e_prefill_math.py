"""Section 3.5, on paper: FLOPs per byte of the two phases, and where prefill meets the ridge."""

from __future__ import annotations

import pytest

from engines import roofline
from reports.bounds import within
from tests.chapter import EMBEDDING, PARAMETERS, QWEN3, T4

RIDGE = 65e12 / 320e9  # 203.125 FLOP per byte


@pytest.mark.claim("C27")
def test_a_t4_needs_two_hundred_flop_per_byte(judge):
    """Section 3.5: 65e12 / 320e9 = 203.1."""
    judge.exact(
        T4.ridge_point, RIDGE, quantity="ridge point", unit="FLOP/B", subject="T4", rel=1e-12
    )


@pytest.mark.claim("C27")
def test_decode_does_one_flop_per_byte(judge):
    """Section 3.5: 2 FLOP per parameter of 2 bytes; the norms' 0.011 % are no products."""
    judge.exact(
        roofline.decode_intensity(QWEN3),
        1.0,
        quantity="arithmetic intensity of decode",
        unit="FLOP/B",
        subject="Qwen3-0.6B@1",
        rel=1.2e-4,
    )


@pytest.mark.claim("C28")
@pytest.mark.parametrize("prompt_tokens", [16, 64, 256, 1024, 4096], ids="tokens:{}".format)
def test_a_prefill_of_s_tokens_does_s_flop_per_byte(prompt_tokens, judge):
    """Section 3.5, logits for every token: attention and KV cancel to within the norms' share.

    FLOP: s (2 P + 114,688 (s + 1)), bytes: 2 P + 114,688 s, norms aside.
    """
    judge.exact(
        roofline.prefill_intensity(QWEN3, prompt_tokens, logits="all"),
        prompt_tokens,
        quantity=f"arithmetic intensity of a prefill of {prompt_tokens}",
        unit="FLOP/B",
        subject="Qwen3-0.6B@1",
        rel=1.2e-4,
    )


@pytest.mark.claim("C28")
def test_prefill_is_bound_by_compute_from_about_200_tokens(judge):
    """Section 3.5, logits for every token: the first whole prompt past 203.1 has 204 tokens."""
    judge.exact(
        roofline.compute_bound_from(QWEN3, T4.ridge_point, "all"),
        204,
        quantity="first compute-bound prompt, all logits",
        unit="token",
        subject="Qwen3-0.6B on a T4",
    )


@pytest.mark.claim("C28")
def test_with_the_last_logits_only_it_takes_about_275(judge):
    """By weights alone 203.125 x P / (P - E) = 274.9: the head's share of a token is not done.

    Attention then adds 114,688 s FLOP a token that no head pays for, and lowers it to 273.
    """
    by_weights = RIDGE * PARAMETERS / (PARAMETERS - EMBEDDING)
    assert round(by_weights, 1) == 274.9
    crossing = roofline.compute_bound_from(QWEN3, T4.ridge_point, "last")
    assert crossing == 273
    judge(
        crossing,
        within(0.99 * by_weights, 1.01 * by_weights, text="about 275"),
        quantity="first compute-bound prompt, last logits",
        subject="Qwen3-0.6B on a T4",
    )
