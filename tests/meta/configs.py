"""Configs of transformers' own classes, one per family and per switch that changes the layers."""

from __future__ import annotations

from typing import Any

from engines.families import families

# What a class needs beside its defaults to be buildable, and enough layers to show its pattern.
NEEDED: dict[str, dict[str, Any]] = {
    "hunyuan_v1_dense": {"head_dim": 128},
    "ministral": {"head_dim": 128},
    "nemotron": {"num_key_value_heads": 8},
    "glm4_moe": {"head_dim": 128},
    "deepseek_v2": {"num_experts_per_tok": 6, "moe_intermediate_size": 1408},
    "gemma3_text": {"num_hidden_layers": 7},
    "deepseek_v3": {"num_hidden_layers": 5},
}

SWITCHES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama with biases": ("llama", {"attention_bias": True, "mlp_bias": True}),
    "llama tied": ("llama", {"tie_word_embeddings": True, "num_key_value_heads": 4}),
    "qwen3 with biases": ("qwen3", {"attention_bias": True}),
    "qwen2 sliding late": ("qwen2", {"use_sliding_window": True, "max_window_layers": 2}),
    "qwen3 sliding everywhere": ("qwen3", {"use_sliding_window": True, "max_window_layers": 0}),
    "mistral without a window": ("mistral", {"sliding_window": None}),
    "phi3 with a window": ("phi3", {"sliding_window": 2047}),
    "starcoder2 without biases": ("starcoder2", {"use_bias": False, "sliding_window": 4096}),
    "cohere with qk-norm": ("cohere", {"use_qk_norm": True, "attention_bias": True}),
    "stablelm parallel": ("stablelm", {"use_parallel_residual": True, "use_qkv_bias": True}),
    "stablelm with qk-norm": ("stablelm", {"qk_layernorm": True, "num_key_value_heads": 8}),
    "phi with qk-norm": ("phi", {"qk_layernorm": True}),
    "falcon with biases": ("falcon", {"bias": True}),
    "falcon multi-head": ("falcon", {"multi_query": False}),
    "falcon serial": ("falcon", {"parallel_attn": False}),
    "falcon new": ("falcon", {"new_decoder_architecture": True, "num_attention_heads": 64,
                              "num_kv_heads": 8, "hidden_size": 4096}),
    "gpt_bigcode multi-head": ("gpt_bigcode", {"multi_query": False}),
    "gpt2 with an inner size": ("gpt2", {"n_inner": 1000, "tie_word_embeddings": False}),
    "opt normalised after": ("opt", {"do_layer_norm_before": False}),
    "gpt_neox without biases": ("gpt_neox", {"attention_bias": False}),
    "seed_oss with all biases": ("seed_oss", {"attention_out_bias": True, "mlp_bias": True}),
    "mixtral with a window": ("mixtral", {"sliding_window": 4096}),
    "qwen2_moe sparse": ("qwen2_moe", {"decoder_sparse_step": 2, "mlp_only_layers": [3],
                                       "use_sliding_window": True, "max_window_layers": 3}),
    "qwen3_moe partly dense": ("qwen3_moe", {"mlp_only_layers": [0], "use_sliding_window": True}),
    "glm4_moe with qk-norm": ("glm4_moe", {"use_qk_norm": True, "attention_bias": True,
                                           "head_dim": 128}),
    "deepseek_v2 lite": ("deepseek_v2", {"q_lora_rank": None, "first_k_dense_replace": 1,
                                         "num_experts_per_tok": 6, "moe_intermediate_size": 1408}),
    "deepseek_v3 with biases": ("deepseek_v3", {"attention_bias": True, "num_hidden_layers": 5}),
    "llama4 interleaved": ("llama4_text", {"interleave_moe_layer_step": 2}),
    "phimoe with biases": ("phimoe", {"attention_bias": True, "lm_head_bias": True}),
    "gemma3 other pattern": ("gemma3_text", {"sliding_window_pattern": 3}),
    "smollm3 sliding": ("smollm3", {"use_sliding_window": True, "sliding_window": 512}),
}  # fmt: skip

VARIANTS = (*families(), *SWITCHES)


def transformers_config(variant: str) -> Any:
    """The config object of a family by its `model_type`, or of a named switch; four layers."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    name, changes = SWITCHES.get(variant, (variant, NEEDED.get(variant, {})))
    return CONFIG_MAPPING[name](**{"num_hidden_layers": 4} | changes)
