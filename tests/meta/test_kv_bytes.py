"""KV bytes are those of the tensors in transformers' own cache objects, on tiny random models."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from engines import cost
from engines.shape import ModelShape

TOKENS, BATCH, FLOAT32 = 10, 2, 4
SIZES = {"hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4, "vocab_size": 64}
FFN = {"intermediate_size": 48}
MLA = {
    "num_key_value_heads": 4,
    "kv_lora_rank": 12,
    "qk_rope_head_dim": 4,
    "qk_nope_head_dim": 8,
    "v_head_dim": 8,
}
EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2}

TINY: dict[str, dict[str, Any]] = {
    "llama": SIZES | FFN,
    "qwen3": SIZES | FFN | {"num_key_value_heads": 2, "head_dim": 16},
    "falcon": SIZES | {"num_kv_heads": 4},
    "gpt2": {"n_embd": 32, "n_layer": 4, "n_head": 4, "vocab_size": 64, "n_positions": 32},
    "mistral": SIZES | FFN | {"num_key_value_heads": 2, "sliding_window": 6},
    "gemma2": SIZES | FFN | {"num_key_value_heads": 2, "head_dim": 16, "sliding_window": 6},
    "gemma3_text": SIZES | FFN | {"num_key_value_heads": 1, "head_dim": 16, "sliding_window": 6,
                                  "sliding_window_pattern": 3},
    "gpt_oss": SIZES | FFN | EXPERTS | {"num_key_value_heads": 2, "head_dim": 16,
                                        "sliding_window": 6},
    "mixtral": SIZES | FFN | EXPERTS | {"num_key_value_heads": 2},
    "deepseek_v3": SIZES | FFN | MLA | {"q_lora_rank": 16, "n_routed_experts": 4, "n_group": 2,
                                        "topk_group": 1, "num_experts_per_tok": 2,
                                        "moe_intermediate_size": 16, "first_k_dense_replace": 1},
    "deepseek_v2": SIZES | FFN | MLA | {"q_lora_rank": None, "n_routed_experts": 4,
                                        "num_experts_per_tok": 2, "moe_intermediate_size": 16},
}  # fmt: skip


def run_with(cache, model):
    """One forward over `TOKENS` tokens of `BATCH` rows, under the keyword of this version."""
    import torch

    from engines.cache import cache_argument

    ids = torch.zeros((BATCH, TOKENS), dtype=torch.long)
    with torch.no_grad():
        model(input_ids=ids, use_cache=True, **{cache_argument(model): cache})
    return sum(
        tensor.numel() * tensor.element_size()
        for layer in cache.layers
        for tensor in (layer.keys, layer.values)
    )


@pytest.fixture(params=TINY, ids="family:{}".format)
def tiny(request):
    """A tiny random model and its shape."""
    torch = pytest.importorskip("torch", reason="needs torch")
    from transformers import AutoModelForCausalLM
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    config = CONFIG_MAPPING[request.param](**TINY[request.param])
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    return model, ModelShape.from_config(config.to_dict())


def test_a_static_cache_holds_exactly_the_predicted_bytes(tiny):
    """Its windowed layers hold W tokens, and all of it is there from the start."""
    from transformers import StaticCache

    model, shape = tiny
    held = run_with(StaticCache(config=model.config, max_cache_len=TOKENS), model)
    assert held == cost.kv_cache_bytes(shape, TOKENS, BATCH, FLOAT32)


def test_a_dynamic_cache_holds_one_token_less_than_the_window(tiny):
    """Between steps a window of W needs W - 1 old tokens; the W-th is the one to come."""
    from transformers import DynamicCache

    model, shape = tiny
    between = replace(
        shape,
        layers=tuple(
            layer if layer.window is None else replace(layer, window=layer.window - 1)
            for layer in shape.layers
        ),
    )
    held = run_with(DynamicCache(config=model.config), model)
    assert held == cost.kv_cache_bytes(between, TOKENS, BATCH, FLOAT32)


def test_falcon_7b_would_be_71_times_larger_by_its_own_file():
    """The trap: `num_kv_heads` is 71 in the file, one head is kept."""
    wrong = 2 * 32 * 71 * 64 * 2
    shape = ModelShape.from_config(
        {"model_type": "falcon", "num_kv_heads": 71, "num_attention_heads": 71,
         "hidden_size": 4544, "num_hidden_layers": 32, "vocab_size": 65024}
    )  # fmt: skip
    assert cost.kv_bytes_per_token(shape) * 71 == wrong
