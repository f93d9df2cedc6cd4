"""Knowledge about model families that no `config.json` contains.

A config gives sizes, not structure: that Qwen2 has biases on Q, K and V only, that Gemma 2 has four
norms a layer, or that Falcon-7B keeps one KV head while its file says 71 is known of the family.
It is written down once, as data, in `families.toml`, and checked there against transformers' own
model classes, so that this package gives the same answer where transformers is not installed.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from engines.configs import Config

Flag = bool | str
"""True, False, or the name of the config key that decides."""


@dataclass(frozen=True, slots=True)
class Family:
    """Structure of one family's decoder; the defaults of the fields describe Llama."""

    qkv_bias: Flag = "attention_bias"
    output_bias: Flag = "attention_bias"
    mlp_bias: Flag = "mlp_bias"
    head_bias: Flag = False
    fused_qkv: bool = False  # one matrix instead of three: the same bytes, a smaller LoRA
    fused_gate_up: bool = False
    gated: bool = True  # gate, up and down; otherwise up and down, 4 x hidden unless stated
    norms: int = 2  # per layer
    one_norm_if: str = ""  # attention and MLP run in parallel behind one norm
    norm_vectors: int = 1  # a weight; 2: a weight and a bias; 0: no parameters
    qk_norm: Literal["none", "head", "head_with_bias", "projection"] = "none"
    qk_norm_if: str = ""
    outer_norms: int = 1  # 1: before the head; 2: behind the embedding too
    position_offset: int = -1  # extra rows of a learned position table; -1: there is none
    latent_attention: bool = False  # MLA
    multi_query: bool = False  # the key `multi_query` overrules the stated number of KV heads
    sinks: bool = False  # one learned value per head
    windows: Literal["none", "all", "late", "even_early", "periodic", "chunked", "without_rope"] = (
        "none"
    )
    experts: Literal["none", "all", "sparse_step", "after_dense", "interleaved"] = "none"
    shared_expert: Literal["none", "one", "multiple", "gated"] = "none"
    expert_size: str = "moe_intermediate_size"
    dense_size: str = "intermediate_size"
    expert_bias: bool = False
    defaults: Mapping[str, Any] = field(default_factory=dict)
    inner: Mapping[str, Any] = field(default_factory=dict)


# Layers whose memory is not K and V per token, or is shared between layers.
NOT_MODELLED = (
    "is_encoder_decoder",
    "state_size",
    "ssm_cfg",
    "mamba_d_state",
    "attn_layer_period",
    "hybrid_override_pattern",
    "layers_block_type",
    "block_types",
    "linear_num_value_heads",
    "num_kv_shared_layers",
    "hidden_size_per_layer_input",
    "global_head_dim",
    "index_topk",
    "cross_attention_layers",
)

# Structure that cannot be assumed of a family that is not known.
NOT_ASSUMED = ("num_experts", "kv_lora_rank")

SAME_LAYERS = {
    "qwen2_vl": "qwen2",
    "qwen2_vl_text": "qwen2",
    "qwen2_5_vl": "qwen2",
    "qwen2_5_vl_text": "qwen2",
    "qwen3_vl": "qwen3",
    "qwen3_vl_text": "qwen3",
    "qwen3_vl_moe_text": "qwen3_moe",
    "gemma3": "gemma3_text",
    "llama4": "llama4_text",
    "mistral3": "mistral",
    "kimi_k2": "deepseek_v3",
    "llava": "llama",
}


@cache
def families() -> dict[str, Family]:
    """Every family known, by the `model_type` of its config."""
    table = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    return {name: Family(**_inherited(table, name)) for name in table}


def _inherited(table: Mapping[str, dict[str, Any]], name: str) -> dict[str, Any]:
    own = dict(table[name])
    parent = own.pop("like", None)
    return own if parent is None else _inherited(table, parent) | own


def find_family(model_type: str) -> Family | None:
    """The family of a `model_type`, or None where nothing is known about it."""
    return families().get(SAME_LAYERS.get(model_type, model_type))


def in_family(config: Config) -> tuple[Family, Config, tuple[str, ...]]:
    """The family of a config, the config with what it leaves unsaid, and what had to be assumed.

    A family that is not known is read as Llama's layers, and a note says so. Raises ValueError for
    layers whose memory is not K and V of each token.
    """
    for key in NOT_MODELLED:
        if config.values.get(key):
            raise ValueError(
                f"{config.source}: {key!r} means layers that keep something else than K and V of "
                "each token, expected a decoder-only attention model"
            )
    model_type = config.text("model_type", default="")
    known = find_family(model_type)
    if known is not None:
        return known, _filled(config, known), ()
    for key in NOT_ASSUMED:
        if config.values.get(key):
            raise ValueError(
                f"{config.source}: model_type {model_type!r:.60} is not known and has {key!r}, "
                "expected a known family for experts or latent attention (engines/families.toml)"
            )
    note = f"model_type {model_type!r:.60} is not known, its layers are counted as Llama's"
    return Family(windows="all"), config, (note,)


def _filled(config: Config, family: Family) -> Config:
    """The config with what its family's class fills in.

    A default number of KV heads that cannot be (32 beside 16 query heads) is not used: such a
    config has one per query head.
    """
    config = config.filled(family.inner if config.nested else {})
    defaults = dict(family.defaults)
    if config.whole("num_attention_heads") % defaults.get("num_key_value_heads", 1):
        del defaults["num_key_value_heads"]
    return config.filled(defaults)
