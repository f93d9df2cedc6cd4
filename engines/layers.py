"""The matrices of a decoder layer, and what it keeps of every token.

Everything that `cost.py` adds up starts here: a layer is a list of linear maps, some vectors, and a
number of KV values per token within an optional window. Keeping the matrices apart, and not only
their sum, is what lets one description answer for weights, LoRA adapters and quantized formats.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from engines.experts import feed_forward
from engines.linear import Linear
from engines.windows import layer_windows

if TYPE_CHECKING:
    from engines.configs import Config
    from engines.families import Family


@dataclass(frozen=True, slots=True)
class Layer:
    """`count` equal decoder layers of a model, not necessarily neighbours."""

    count: int
    linears: tuple[Linear, ...]
    vector_parameters: int
    """Values outside the matrices: norms, attention sinks."""
    kv_values: int
    """Values kept for each token in the KV cache: K and V, or the latent of MLA."""
    window: int | None
    """Tokens that a layer keeps and attends to at most; None without such a limit."""
    query_heads: int
    key_dim: int
    value_dim: int

    @property
    def parameters(self) -> int:
        """Values stored in one of these layers."""
        return self.vector_parameters + sum(linear.parameters for linear in self.linears)

    def tokens_kept(self, context_tokens: int) -> int:
        """Tokens of a context that the layer's cache holds, at most its window."""
        return context_tokens if self.window is None else min(context_tokens, self.window)


def decoder_layers(config: Config, family: Family) -> tuple[Layer, ...]:
    """The decoder layers of a model, equal ones put together, in the order of their first."""
    counts: dict[Layer, int] = {}
    for index, window in enumerate(layer_windows(config, family)):
        layer = _layer(config, family, index, window)
        counts[layer] = counts.get(layer, 0) + 1
    return tuple(replace(layer, count=count) for layer, count in counts.items())


def kv_heads(config: Config, family: Family) -> int:
    """KV heads that are really kept: one per query head where the config says nothing.

    Latent attention expands its latent to one per query head, whatever the config says.
    Raises ValueError when the query heads cannot be shared out among them.
    """
    heads = config.whole("num_attention_heads")
    if family.latent_attention:
        return heads
    grouped = not family.multi_query or config.flag("new_decoder_architecture")
    if not grouped:
        return 1 if config.flag("multi_query", default=True) else heads
    stated = config.whole("num_key_value_heads", default=heads)
    if heads % stated:
        raise ValueError(
            f"{config.source}: {heads} query heads cannot share {stated} KV heads, "
            "expected num_key_value_heads to divide num_attention_heads"
        )
    return stated


def head_dim(config: Config, family: Family) -> int:
    """Width of a query head; hidden_size / num_attention_heads unless the config says otherwise."""
    if family.latent_attention:
        return config.whole("qk_nope_head_dim") + config.whole("qk_rope_head_dim")
    hidden, heads = config.whole("hidden_size"), config.whole("num_attention_heads")
    stated = config.whole_or_none("head_dim")
    if stated is None and hidden % heads:
        raise ValueError(
            f"{config.source}: hidden_size {hidden} is not a multiple of {heads} heads, "
            "expected head_dim to be given"
        )
    return stated or hidden // heads


def _layer(config: Config, family: Family, index: int, window: int | None) -> Layer:
    attention = _latent_attention if family.latent_attention else _attention
    layer = attention(config, family)
    return replace(
        layer,
        linears=layer.linears + feed_forward(config, family, index),
        vector_parameters=layer.vector_parameters + _norms(config, family),
        window=window,
    )


def _attention(config: Config, family: Family) -> Layer:
    hidden, width = config.whole("hidden_size"), head_dim(config, family)
    heads, shared = config.whole("num_attention_heads"), kv_heads(config, family)
    q, kv = heads * width, shared * width
    bias = config.decides(family.qkv_bias)
    widths = {"q_proj": q, "k_proj": kv, "v_proj": kv}
    if family.fused_qkv:
        widths = {"qkv_proj": q + 2 * kv}
    inward = (Linear(name, hidden, width_out, bias) for name, width_out in widths.items())
    out = Linear("o_proj", q, hidden, config.decides(family.output_bias))
    qk_norm = {"none": 0, "head": 2 * width, "head_with_bias": 4 * width, "projection": q + kv}
    on = family.qk_norm_if == "" or config.flag(family.qk_norm_if)
    vectors = qk_norm[family.qk_norm] * on + heads * family.sinks
    return Layer(1, (*inward, out), vectors, 2 * kv, None, heads, width, width)


def _latent_attention(config: Config, family: Family) -> Layer:
    """Multi-head latent attention: one latent and one rotary key per token for all heads."""
    hidden, heads = config.whole("hidden_size"), config.whole("num_attention_heads")
    latent, rotary = config.whole("kv_lora_rank"), config.whole("qk_rope_head_dim")
    key, value = head_dim(config, family), config.whole("v_head_dim")
    query_rank = config.whole_or_none("q_lora_rank")
    bias = config.decides(family.qkv_bias)
    query: tuple[Linear, ...] = (Linear("q_proj", hidden, heads * key),)
    if query_rank is not None:
        query = (
            Linear("q_a_proj", hidden, query_rank, bias),
            Linear("q_b_proj", query_rank, heads * key),
        )
    linears = (
        *query,
        Linear("kv_a_proj", hidden, latent + rotary, bias),
        Linear("kv_b_proj", latent, heads * (key - rotary + value)),
        Linear("o_proj", heads * value, hidden, config.decides(family.output_bias)),
    )
    vectors = (query_rank or 0) + latent
    return Layer(1, linears, vectors, latent + rotary, None, heads, key, value)


def _norms(config: Config, family: Family) -> int:
    count = family.norms
    if family.one_norm_if and config.flag(family.one_norm_if):
        usual = 2 if config.flag("new_decoder_architecture") else 1
        count = config.whole("num_ln_in_parallel_attn", default=usual)
    return count * family.norm_vectors * config.whole("hidden_size")
