"""Section 3.1, measured: the real cache has the predicted bytes, activations are negligible."""

from __future__ import annotations

import pytest

from engines import cost
from fixtures.inputs import prompt_ids
from fixtures.peak_memory import decode_peak_bytes, prefill_peak_bytes
from reports.bounds import above, below

NEGLIGIBLE = 0.05
"""Share of the weights that activations may take (C06)."""


@pytest.mark.claim("C05")
@pytest.mark.parametrize("prompt_tokens", [1, 7, 64], ids="prompt:{}".format)
def test_the_real_cache_has_exactly_the_predicted_bytes(prompt_tokens, loaded, judge):
    """Section 3.1: bytes of the cache tensors that the loaded model fills, against the formula."""
    judge.exact(
        _filled_cache_bytes(loaded, prompt_tokens),
        cost.kv_cache_bytes(loaded.shape, prompt_tokens, bytes_per_value=loaded.bytes_per_value),
        quantity=f"KV cache of {prompt_tokens} tokens",
        unit="B",
        subject=loaded.name,
    )


@pytest.mark.claim("C06")
@pytest.mark.devices("cuda")
def test_activations_are_negligible_in_decode(loaded, engines, measure, sizes, judge):
    """Section 3.1: peak − weights − KV of a decode is at most 5 % of the weights."""
    shape = measure.shape()
    engine = measure.engine("static_kv", shape)
    engine.warm_up(shape.prompt_tokens, shape.new_tokens)
    peak = decode_peak_bytes(engine, shape)
    judge(
        activation_share(peak.peak_bytes, peak.held_bytes, peak.weights_bytes),
        below(NEGLIGIBLE),
        quantity="activations over weights, decode",
        subject="static_kv@1",
    )


@pytest.mark.claim("C06")
@pytest.mark.devices("cuda")
@pytest.mark.parametrize("logits", ["last", "all"], ids="logits:{}".format)
def test_prefill_activations_are_negligible_only_without_all_the_logits(
    logits, loaded, measure, sizes, judge
):
    """Section 3.1: with the last position's logits alone the sentence holds, with all it does not.

    2,048 rows of 151,936 fp16 logits are 622 MB, half of the 0.6B model's weights.
    """
    tokens = sizes.long_prompt_tokens
    peak = prefill_peak_bytes(loaded, tokens, all_logits=logits == "all")
    share = activation_share(peak.peak_bytes, peak.held_bytes, peak.weights_bytes)
    predicted = tokens * loaded.shape.vocab_size * loaded.bytes_per_value / peak.weights_bytes
    if logits == "all" and predicted < NEGLIGIBLE:
        judge(
            share,
            above(NEGLIGIBLE),
            quantity=f"activations over weights, prefill of {tokens}, all logits",
            subject=loaded.name,
            applies=f"all logits are {predicted:.1%} of these weights",
        )
        return
    judge(
        share,
        above(NEGLIGIBLE) if logits == "all" else below(NEGLIGIBLE),
        quantity=f"activations over weights, prefill of {tokens}, {logits} logits",
        subject=loaded.name,
    )


def activation_share(peak_bytes: float, held_bytes: float, weights_bytes: float) -> float:
    """Share of the weights taken by what is neither weights nor cache."""
    return max(0.0, (peak_bytes - held_bytes) / weights_bytes)


def _filled_cache_bytes(loaded, prompt_tokens: int) -> int:
    import torch
    from transformers.cache_utils import DynamicCache

    from engines.cache import cache_argument
    from engines.footprint import cache_bytes

    cache = DynamicCache(config=loaded.model.config)
    ids = prompt_ids(prompt_tokens, loaded.shape.vocab_size, seed=3)
    with torch.inference_mode():
        loaded.model(
            input_ids=torch.tensor([ids], device=loaded.device),
            use_cache=True,
            **{cache_argument(loaded.model): cache},
        )
    return cache_bytes(cache)
