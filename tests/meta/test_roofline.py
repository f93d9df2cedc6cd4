"""FLOPs against those that torch counts, and the shape of the roofline."""

from __future__ import annotations

from pathlib import Path

import pytest

from engines import cost, formats, roofline
from engines.shape import ModelShape
from tests.meta.configs import transformers_config

SHAPES = Path(__file__).parents[2] / "fixtures" / "data" / "shapes"
EVERY = sorted(str(path.relative_to(SHAPES))[:-5] for path in SHAPES.rglob("*.json"))
QWEN3 = ModelShape.from_config(SHAPES / "qwen3-0.6b-shape.json")

# Families whose matrices are modules of their own, each with a structure of its own.
DENSE = ("llama", "qwen3", "gpt2", "phi3", "falcon", "gemma3_text", "starcoder2", "bloom", "mpt")


def shape_of(name: str) -> ModelShape:
    return ModelShape.from_config(SHAPES / f"{name}.json")


@pytest.mark.parametrize("name", EVERY)
def test_a_prefill_is_the_sum_of_the_decode_steps_that_it_replaces(name):
    """Token i attends to i tokens: with logits for all, both do the same arithmetic."""
    shape = shape_of(name)
    steps = sum(cost.decode_flops(shape, context) for context in range(1, 301))
    assert cost.prefill_flops(shape, 300, logits="all") == steps


def test_logits_for_the_last_token_only_save_the_others():
    """The head is 2 x 151,936 x 1,024 FLOP a token, 26 % of a token's matrix products."""
    saved = cost.prefill_flops(QWEN3, 100, logits="all") - cost.prefill_flops(QWEN3, 100)
    assert saved == 99 * 2 * 151_936 * 1024


def test_flops_equal_those_that_torch_counts_in_a_decode_step():
    """A tiny Qwen3 in eager attention, two rows, a context of nine: not one operation apart.

    transformers 5.17 takes the angles of the rotation from a matrix product, newer ones do not.
    """
    torch = pytest.importorskip("torch", reason="needs torch")
    from torch.utils.flop_counter import FlopCounterMode
    from transformers import AutoModelForCausalLM, DynamicCache
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    from engines.cache import cache_argument

    config = CONFIG_MAPPING["qwen3"](
        hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=2, head_dim=16, vocab_size=64,
    )  # fmt: skip
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    cached = {cache_argument(model): DynamicCache(config=config), "use_cache": True}
    batch, context = 2, 9
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model(input_ids=torch.zeros((batch, context - 1), dtype=torch.long), **cached)
        before = flops_but_for_angles(counter)
        model(input_ids=torch.zeros((batch, 1), dtype=torch.long), **cached)
        counted = flops_but_for_angles(counter) - before
    shape = ModelShape.from_config(config.to_dict())
    assert cost.decode_flops(shape, context, batch) == counted


def flops_but_for_angles(counter):
    by_module = counter.get_flop_counts()
    angles = [counts for name, counts in by_module.items() if name.endswith(".rotary_emb")]
    return counter.get_total_flops() - sum(sum(counts.values()) for counts in angles)


@pytest.mark.parametrize("family", DENSE, ids="family:{}".format)
def test_an_adapter_covers_exactly_the_linear_modules_of_the_model(family):
    """At rank 1 it has inputs + outputs values per module; the head is left out."""
    torch = pytest.importorskip("torch", reason="needs torch")
    from transformers import AutoModelForCausalLM

    config = transformers_config(family)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    head = model.get_output_embeddings()
    matrices = [
        module.weight
        for module in model.modules()
        if type(module).__name__ in {"Linear", "Conv1D", "FalconLinear"} and module is not head
    ]
    shape = ModelShape.from_config(config.to_dict())
    assert formats.lora_parameters(shape, 1) == sum(sum(matrix.shape) for matrix in matrices)


@pytest.mark.parametrize("name", EVERY)
def test_decode_is_memory_bound_and_prefill_of_a_long_prompt_is_not(name):
    """At batch 1 every fp16 model does about 1 FLOP per byte of weights."""
    shape = shape_of(name)
    assert 0.9 < roofline.decode_intensity(shape) < 2.1
    assert roofline.compute_bound_from(shape, ridge=200) is not None


def test_the_crossing_is_the_first_prompt_at_the_ridge():
    for logits in ("all", "last"):
        crossing = roofline.compute_bound_from(QWEN3, 203.125, logits)
        assert roofline.prefill_intensity(QWEN3, crossing, logits=logits) >= 203.125
        assert roofline.prefill_intensity(QWEN3, crossing - 1, logits=logits) < 203.125


def test_a_ridge_that_no_prompt_reaches_has_no_crossing():
    assert roofline.compute_bound_from(QWEN3, ridge=1e9) is None


def test_a_batch_turns_compute_bound_where_its_kv_is_small():
    """T4 at context 0: 65e12 / 320e9 = 203 rows, each adding FLOPs and no bytes to speak of."""
    below = roofline.batch_point(QWEN3, 320e9, 65e12, 203, 0)
    above = roofline.batch_point(QWEN3, 320e9, 65e12, 204, 0)
    assert (below.bound, above.bound) == ("memory", "compute")
    assert above.step_s > below.step_s


def test_a_format_as_wide_as_before_and_without_scales_saves_nothing():
    plain = formats.WeightFormat("plain", 2.0, scale_bytes=0)
    assert formats.quantized_weight_bytes(QWEN3, plain) == cost.weight_bytes(QWEN3)


def test_an_untied_head_stays_unquantized_and_its_embedding_unread():
    """8B: 36 layers of 192,937,984 weights in int8; the input embedding is stored, not read."""
    shape = shape_of("qwen3-8b-shape")
    stored = formats.quantized_weight_bytes(shape, formats.INT8)
    read = formats.decode_quantized_weight_bytes(shape, formats.INT8)
    assert stored - read == 2 * (151_936 - 1) * 4096
    matrices = 36 * (4096 * (4096 + 1024 + 1024 + 4096) + 3 * 4096 * 12_288)
    assert cost.weight_bytes(shape) - stored == matrices - 4 * 36 * (
        4096 + 1024 + 1024 + 4096 + 12_288 + 12_288 + 4096
    )


def test_the_last_group_of_a_matrix_may_be_short():
    """GPT-2's 768 x 2,304 is a multiple of 64; a group of 1,000 needs one scale more."""
    long = formats.WeightFormat("long", 2.0, scale_bytes=1, group=1000)
    added = formats.quantized_weight_bytes(shape_of("families/gpt2"), long) - cost.weight_bytes(
        shape_of("families/gpt2")
    )
    per_layer = sum(-(-768 * width // 1000) for width in (2304, 768, 3072, 3072))
    assert added == 12 * per_layer


@pytest.mark.parametrize("rank", [0, -1])
def test_a_rank_below_one_is_refused(rank):
    with pytest.raises(ValueError, match="expected 1 or more"):
        formats.lora_parameters(QWEN3, rank)
