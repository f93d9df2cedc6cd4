"""Bytes, ceilings and budgets: what is stored and what is read, by hand and by their properties."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines import cost
from engines.linear import Linear
from engines.shape import ModelShape

SHAPES = Path(__file__).parents[2] / "fixtures" / "data" / "shapes"
EVERY = sorted(str(path.relative_to(SHAPES))[:-5] for path in SHAPES.rglob("*.json"))
T4 = 320e9


def shape_of(name: str) -> ModelShape:
    return ModelShape.from_config(SHAPES / f"{name}.json")


@pytest.mark.parametrize(
    ("name", "not_read"),
    [
        ("qwen3-0.6b-shape", 0),  # tied: the head reads what the input shares
        ("qwen3-8b-shape", (151_936 - 1) * 4096),  # untied: one row of the input embedding
        ("families/gpt2", (1024 - 1) * 768),  # one row of the position table
        ("families/gemma-2-2b", 0),
    ],
)
def test_a_dense_step_reads_all_weights_but_the_rows_it_does_not_look_up(name, not_read):
    shape = shape_of(name)
    assert cost.weight_bytes(shape) - cost.decode_weight_bytes(shape) == 2 * not_read


def test_the_8b_shape_stores_16_38_gb_and_reads_15_14():
    shape = shape_of("qwen3-8b-shape")
    assert round(cost.weight_bytes(shape) / 1e9, 2) == 16.38
    assert round(cost.decode_weight_bytes(shape) / 1e9, 2) == 15.14


@pytest.mark.parametrize(
    ("name", "active_billions"),
    [
        # As their publishers say it, with the whole input embedding: 12.9B, 3.3B, 37B, 3.6B, 17B.
        ("families/mixtral-8x7b-v0.1", 12.9),
        ("families/qwen3-30b-a3b", 3.35),
        ("families/deepseek-v3", 37.55),
        ("families/llama-4-scout", 17.2),
    ],
)
def test_a_mixture_reads_its_active_experts_at_batch_1(name, active_billions):
    shape = shape_of(name)
    with_embedding = cost.decode_weight_bytes(shape) / 2 + shape.embedding_parameters
    assert with_embedding / 1e9 == pytest.approx(active_billions, rel=0.005)


@pytest.mark.parametrize("name", EVERY)
def test_a_larger_batch_reads_more_experts_but_never_more_than_are_stored(name):
    shape = shape_of(name)
    read = [cost.decode_weight_bytes(shape, batch_size=2**k) for k in range(12)]
    assert read == sorted(read)
    assert read[-1] <= cost.weight_bytes(shape) + 2 * 2**12 * shape.hidden_size
    assert read[0] <= cost.weight_bytes(shape)


def test_experts_read_are_counted_right_under_uniform_routing():
    """8 rows, each picking 2 of 8 experts: simulated, the mean is within four standard errors."""
    import numpy as np

    rounds = 4000
    scores = np.random.default_rng(5).random((rounds, 8, 8))  # rounds, rows, experts
    chosen = scores >= np.sort(scores)[..., -2:-1]
    picked = chosen.any(axis=1).sum(axis=1)
    expected = Linear("experts", 1, 1, copies=8, active=2).copies_read(8)
    assert expected == pytest.approx(8 * (1 - 0.75**8))
    assert abs(np.mean(picked) - expected) < 4 * np.std(picked) / math.sqrt(rounds)


def test_windows_stop_the_growth_of_their_layers():
    """Gemma 3 4B: 29 layers keep 1,024 tokens at most, 5 keep all; 2 x 4 heads x 256 x 2 bytes."""
    shape = shape_of("families/gemma-3-4b-it")
    layer = 2 * 4 * 256 * 2
    assert cost.kv_cache_bytes(shape, 1024) == 34 * layer * 1024
    assert cost.kv_cache_bytes(shape, 100_000) == layer * (29 * 1024 + 5 * 100_000)
    assert cost.kv_bytes_per_token(shape) == 34 * layer


def test_a_static_cache_may_read_all_that_it_allocated():
    shape = shape_of("qwen3-0.6b-shape")
    assert cost.decode_kv_bytes(shape, 128) == 128 * 114_688
    assert cost.decode_kv_bytes(shape, 128, batch_size=4, allocated_tokens=512) == (
        4 * 512 * 114_688
    )


@pytest.mark.parametrize("bytes_per_value", [1, 2, 4, 0.5])
def test_kv_bytes_follow_the_width(bytes_per_value):
    shape = shape_of("qwen3-0.6b-shape")
    assert cost.kv_bytes_per_token(shape, bytes_per_value) == 57_344 * bytes_per_value


@pytest.mark.parametrize("name", EVERY)
@settings(max_examples=20, deadline=None)
@given(batch=st.integers(1, 64), extra=st.floats(1e6, 1e12))
def test_the_context_that_fills_a_memory_fills_it(name, batch, extra):
    """One token less fits, one more does not: the inverse of the cache's bytes."""
    shape = shape_of(name)
    weights = cost.weight_bytes(shape)
    context = cost.context_tokens_that_fill(shape, weights + extra, batch)
    if context is None:
        largest = max(layer.window for layer in shape.layers if layer.window)
        assert cost.kv_cache_bytes(shape, largest, batch) <= extra
        return
    assert cost.kv_cache_bytes(shape, math.floor(context), batch) <= extra + 1
    assert cost.kv_cache_bytes(shape, math.floor(context) + 1, batch) >= extra - 1


def test_no_context_fills_a_memory_when_every_layer_slides():
    shape = shape_of("families/mistral-7b-v0.1")
    assert cost.context_tokens_that_fill(shape, 80e9) is None
    assert cost.context_tokens_that_fill(shape, cost.weight_bytes(shape) + 131_072 * 100) == 100


def test_weights_that_do_not_fit_leave_room_for_nothing():
    shape = shape_of("qwen3-8b-shape")
    assert cost.max_sequences(shape, 16e9, 1024) == 0
    assert cost.context_tokens_that_fill(shape, 16e9) == 0


@pytest.mark.parametrize("name", EVERY)
def test_batching_raises_the_ceiling_of_all_and_lowers_that_of_each(name):
    shape = shape_of(name)
    all_rows = [cost.decode_ceiling_tokens_per_s(shape, T4, 512, batch_size=2**k) for k in range(8)]
    each = [rate / 2**k for k, rate in enumerate(all_rows)]
    assert all_rows == sorted(all_rows)
    assert each == sorted(each, reverse=True)


def test_an_engine_has_the_ceiling_of_its_own_bytes():
    """753.1 MB a step on a T4: 425 tok/s; twice the bandwidth, twice the ceiling."""
    assert round(cost.ceiling_tokens_per_s(753_074_176, T4)) == 425
    assert cost.ceiling_tokens_per_s(1e9, 2 * T4, 4) == 8 * cost.ceiling_tokens_per_s(1e9, T4)


def test_a_step_at_the_floor_has_no_overhead_per_layer():
    """0.6B on an H200: 745 us at 4 TB/s with 1,192,099,840 B leave 16 us for each of 28 layers."""
    floor_s = 1_192_099_840 / 4e12
    assert cost.layer_overhead_s(floor_s, 1_192_099_840, 4e12, 28) == 0
    overhead_s = cost.layer_overhead_s(floor_s + 28 * 16e-6, 1_192_099_840, 4e12, 28)
    assert overhead_s == pytest.approx(16e-6)


REFUSED = {
    "no width": lambda shape: cost.weight_bytes(shape, 0),
    "negative width": lambda shape: cost.weight_bytes(shape, -2.0),
    "width is no number": lambda shape: cost.weight_bytes(shape, float("nan")),
    "empty batch": lambda shape: cost.decode_weight_bytes(shape, batch_size=0),
    "negative context": lambda shape: cost.kv_cache_bytes(shape, -1),
    "negative batch": lambda shape: cost.kv_cache_bytes(shape, 10, batch_size=-1),
    "no KV width": lambda shape: cost.kv_bytes_per_token(shape, 0),
    "no bandwidth": lambda shape: cost.decode_ceiling_tokens_per_s(shape, 0),
    "no bytes": lambda _: cost.ceiling_tokens_per_s(0, T4),
    "sequences of nothing": lambda shape: cost.max_sequences(shape, 16e9, 0),
    "nobody fills": lambda shape: cost.context_tokens_that_fill(shape, 16e9, 0),
    "no layers": lambda _: cost.layer_overhead_s(1, 1, 1, 0),
    "empty prompt": lambda shape: cost.prefill_flops(shape, 0),
    "empty prompt's bytes": lambda shape: cost.prefill_bytes(shape, 0),
    "negative context's FLOPs": lambda shape: cost.decode_flops(shape, -1),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_is_refused_in_one_line(name):
    with pytest.raises(ValueError, match="expected") as caught:
        REFUSED[name](shape_of("qwen3-0.6b-shape"))
    assert "\n" not in str(caught.value)
