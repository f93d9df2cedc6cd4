"""Quantized models: their bytes, agreement with their own dequantized weights, planted faults."""

from __future__ import annotations

import sys
from functools import cache

import pytest

from engines.records import Request
from tests.meta import ragged

METHODS = ["int8", "nf4"]
PROMPT = (5, 17, 40, 2, 33)


@cache
def plain():
    """Random Qwen3 whose linear layers are multiples of 64 wide, as nf4's blocks want them."""
    import torch
    from transformers import Qwen3Config

    from engines.models import wrap
    from engines.weights import random_model

    config = Qwen3Config(
        vocab_size=ragged.VOCABULARY,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=64,
        initializer_range=0.2,
        tie_word_embeddings=True,
    )
    model = random_model(config, device="cpu", dtype=torch.float32, seed=0)
    return wrap("tiny random", "random", model, None, device="cpu", content_hash="seed 0")


@cache
def quantized(method: str):
    from engines.quantized import quantize

    return quantize(plain(), method)


def logits(model):
    import torch

    with torch.no_grad():
        return model(input_ids=torch.tensor([PROMPT]), use_cache=False).logits[0].float()


def linears(model):
    from torch import nn

    head = model.get_output_embeddings()
    return [m for m in model.modules() if isinstance(m, nn.Linear) and m is not head]


@pytest.mark.parametrize("method", METHODS)
def test_bytes_as_loaded_are_codes_scales_and_what_stays_plain(method):
    """Per layer: q 64x128, k and v 64x64, o 128x64, gate, up and down 64x128 = 49,152 weights.

    int8: a byte each and 4 bytes per output row (128 + 64 + 64 + 64 + 128 + 128 + 64 = 640 rows).
    nf4: half a byte each and 4 bytes per 64.
    """
    from engines.held_bytes import held_bytes

    held, whole = held_bytes(quantized(method).model), held_bytes(plain().model)
    assert (whole.codes, whole.scales, whole.tables) == (0, 0, 0)
    assert held.plain == whole.plain - 2 * 49_152 * 4
    expected = {"int8": (49_152, 640 * 4, 0), "nf4": (49_152 // 2, 49_152 // 64 * 4, 7 * 64)}
    codes, scales, tables = expected[method]
    assert (held.codes, held.scales) == (2 * codes, 2 * scales)
    assert held.tables <= 2 * tables


@pytest.mark.parametrize(("method", "total"), [("int8", 753_074_176), ("nf4", 559_022_080)])
def test_the_0_6b_shape_holds_the_bytes_that_the_cost_model_predicts(method, total):
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    from engines import formats
    from engines.shape import ModelShape

    config = Qwen3Config(
        vocab_size=151_936,
        hidden_size=1024,
        intermediate_size=3072,
        num_hidden_layers=28,
        num_attention_heads=16,
        num_key_value_heads=8,
        head_dim=128,
        tie_word_embeddings=True,
    )
    with torch.device("meta"):
        model = Qwen3ForCausalLM(config)
    layers = linears(model)
    weights = sum(m.weight.numel() for m in layers)
    rows = sum(m.out_features for m in layers)
    inside = weights + 4 * rows if method == "int8" else weights // 2 + weights // 64 * 4
    assert inside + 2 * (model.num_parameters() - weights) == total
    kind = {"int8": formats.INT8, "nf4": formats.NF4}[method]
    assert formats.quantized_weight_bytes(ModelShape.from_config(config.to_dict()), kind) == total


@pytest.mark.parametrize("method", METHODS)
def test_only_layers_inside_the_blocks_are_quantized_and_the_rest_is_shared(method):
    from engines.quantized_layers import quantized_layers

    small, whole = quantized(method).model, plain().model
    assert len(list(quantized_layers(small))) == 2 * 7
    assert not list(quantized_layers(whole))
    head, embedding = small.get_output_embeddings(), small.get_input_embeddings()
    assert head.weight is embedding.weight is whole.get_input_embeddings().weight


def test_int8_weights_are_off_by_at_most_half_a_step_of_their_row():
    """Half a step of the scale, and the rounding to fp16 that comes before (2^-11 of the value)."""
    from engines.quantized import dequantized

    back = dequantized(quantized("int8").model)
    for before, after in zip(linears(plain().model), linears(back), strict=True):
        largest = before.weight.abs().amax(dim=1, keepdim=True)
        error = (before.weight - after.weight).abs()
        assert bool((error <= largest / 127 / 2 + largest * 2**-10).all())


def test_nf4_weights_are_off_by_at_most_half_the_widest_gap_between_levels():
    """The widest gap of the 16 levels is between -1 and -0.6962: 0.3038, so at most 0.152 s."""
    from engines.quantized import dequantized

    back = dequantized(quantized("nf4").model)
    for before, after in zip(linears(plain().model), linears(back), strict=True):
        blocks = before.weight.reshape(-1, 64)
        error = (blocks - after.weight.reshape(-1, 64)).abs()
        assert bool((error <= 0.1520 * blocks.abs().amax(dim=1, keepdim=True)).all())


def test_an_nf4_model_computes_what_its_dequantized_weights_say():
    from engines.quantized import dequantized

    model = quantized("nf4").model
    assert float((logits(model) - logits(dequantized(model))).abs().max()) < 1e-4


def test_an_int8_layer_differs_from_its_dequantized_weights_only_by_rounded_activations():
    """|error| <= sum |w| * (half a step = max |x| / 254, + fp16 rounding of x) + that of y."""
    import torch

    from engines.quantized import dequantized
    from engines.quantized_layers import quantized_layers

    model = quantized("int8").model
    x = torch.randn(5, 64, generator=torch.Generator().manual_seed(0))
    layer, right = next(quantized_layers(model))[1], linears(dequantized(model))[0].weight
    exact, largest = x @ right.T, x.abs().amax(dim=1, keepdim=True)
    bound = right.abs().sum(dim=1) * largest * (1 / 254 + 2**-11) + exact.abs() * 2**-10
    error = (layer(x) - exact).abs()
    assert bool((error <= bound).all())
    assert float(error.max()) > 0, "activations were not rounded: this is not LLM.int8()"


def test_the_outlier_threshold_changes_the_result_and_zero_switches_it_off():
    import torch

    from engines.quantized import quantize
    from engines.quantized_layers import quantized_layers

    layers = {
        t: list(quantized_layers(quantize(plain(), "int8", threshold=t).model)) for t in (0, 6)
    }
    x = torch.ones(1, 64)
    x[0, 3] = 100.0  # the outlier takes the range: 1.0 becomes 1.27 steps, rounded to 1
    exact = x @ linears(plain().model)[0].weight.T
    error = {t: float((found[0][1](x) - exact).abs().max()) for t, found in layers.items()}
    assert error[6] < error[0] / 2


@pytest.mark.parametrize("method", METHODS)
def test_shuffled_scales_break_a_copy_and_leave_the_model_alone(method):
    from engines.held_bytes import held_bytes
    from engines.quantized import shuffle_scales

    model = quantized(method).model
    before = logits(model)
    broken = shuffle_scales(model, seed=0)
    assert bool((logits(model) == before).all())
    whole = logits(plain().model)
    harm = (logits(broken) - whole).abs().mean()
    assert float(harm) > 1.5 * float((before - whole).abs().mean())
    assert bool((logits(shuffle_scales(model, seed=0)) == logits(broken)).all())
    assert held_bytes(broken) == held_bytes(model)


@pytest.mark.parametrize("method", METHODS)
def test_the_engines_generate_what_their_weights_say_and_log_nothing(method, caplog):
    from engines.clock import Clock
    from engines.quantized import dequantized
    from engines.registry import build_engine

    engine = build_engine(method, plain(), batch_size=1, max_tokens=32, clock=Clock("cpu"))
    done = engine.run([Request(PROMPT, 12), Request((3, 4), 5)])
    assert [len(c.token_ids) for c in done] == [12, 5]
    assert engine.name == method
    assert not caplog.records
    if method == "nf4":
        answers = {str(i): c for i, c in enumerate(done)}
        ragged.check_alone(dequantized(engine.loaded.model), answers)


def test_nf4_under_continuous_batching_gives_the_tokens_of_each_request_alone():
    from engines.clock import Clock
    from engines.continuous import Continuous
    from engines.quantized import dequantized

    work = ragged.workload(3)
    engine = Continuous(
        quantized("nf4"), batch_size=work.slots, max_tokens=ragged.CAPACITY, clock=Clock("cpu")
    )
    done = ragged.serve(engine, work)
    assert ragged.check_alone(dequantized(engine.loaded.model), done)["tokens"] > 50


@pytest.mark.parametrize("method", METHODS)
def test_quantized_weights_leave_the_kv_cache_alone_and_lower_the_bytes_of_a_step(method):
    from engines.clock import Clock
    from engines.continuous import Continuous

    engines = [
        Continuous(loaded, batch_size=2, max_tokens=32, clock=Clock("cpu"))
        for loaded in (plain(), quantized(method))
    ]
    whole, small = (engine.memory() for engine in engines)
    assert small.kv_bytes == whole.kv_bytes
    assert small.weights_bytes < whole.weights_bytes
    saved = whole.weights_bytes - small.weights_bytes
    assert engines[0].bytes_per_step(10) - engines[1].bytes_per_step(10) == saved
    kv = whole.kv_bytes
    assert engines[0].bytes_per_step(10) > kv < engines[1].bytes_per_step(10)


def test_a_missing_bitsandbytes_is_named_in_one_line(monkeypatch):
    from engines import quantized as module

    module.check_available.cache_clear()
    monkeypatch.setitem(sys.modules, "bitsandbytes", None)
    with pytest.raises(module.QuantizationNotAvailable, match="pip install bitsandbytes") as caught:
        module.quantize(plain(), "int8")
    assert "\n" not in str(caught.value)


def test_a_missing_kernel_is_named_in_one_line(monkeypatch):
    from engines import quantized as module

    def no_kernel(*_):
        raise RuntimeError("no kernel image is available\nfor execution on the device")

    module.check_available.cache_clear()
    monkeypatch.setattr(module, "quantized_layer", no_kernel)
    with pytest.raises(
        module.QuantizationNotAvailable, match="no working nf4 kernel on cpu"
    ) as caught:
        module.quantize(plain(), "nf4")
    assert "\n" not in str(caught.value)


def test_what_cannot_be_quantized_says_so():
    from engines.quantized import quantize

    with pytest.raises(ValueError, match="quantized already"):
        quantize(quantized("nf4"), "nf4")
    with pytest.raises(ValueError, match="threshold must be 0"):
        quantize(plain(), "int8", threshold=-1.0)
    with pytest.raises(ValueError, match="nothing to quantize"):
        quantize(ragged.gpt2(), "int8")
