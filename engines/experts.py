"""The feed-forward part of a layer: one MLP, or a mixture of experts.

A mixture stores all experts and reads, for one token, only those that its router picks: that is the
difference between the parameters of a model and the bytes of a decode step.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from engines.linear import Linear

if TYPE_CHECKING:
    from engines.configs import Config
    from engines.families import Family


def feed_forward(config: Config, family: Family, index: int) -> tuple[Linear, ...]:
    """The matrices behind attention in the layer at `index`."""
    if _is_mixture(config, family, index):
        return _mixture(config, family) + _shared_expert(config, family)
    stated = config.values.get("intermediate_size")
    usual = stated if family.gated else stated or 4 * config.whole("hidden_size")
    return _mlp(config, family, config.whole(family.dense_size, default=usual))


def _is_mixture(config: Config, family: Family, index: int) -> bool:
    if family.experts == "sparse_step":
        dense = config.sequence("mlp_only_layers") or []
        return index not in dense and (index + 1) % config.whole("decoder_sparse_step", 1) == 0
    if family.experts == "after_dense":
        return index >= config.whole("first_k_dense_replace", least=0)
    if family.experts == "interleaved":
        stated = config.sequence("moe_layers")
        step = config.whole("interleave_moe_layer_step")
        return (index + 1) % step == 0 if stated is None else index in stated
    return family.experts == "all"


def _mlp(config: Config, family: Family, size: int) -> tuple[Linear, ...]:
    hidden, bias = config.whole("hidden_size"), config.decides(family.mlp_bias)
    if family.fused_gate_up:
        inward: tuple[Linear, ...] = (Linear("gate_up_proj", hidden, 2 * size, bias),)
    else:
        names = ("gate_proj", "up_proj") if family.gated else ("up_proj",)
        inward = tuple(Linear(name, hidden, size, bias) for name in names)
    return (*inward, Linear("down_proj", size, hidden, bias))


def _mixture(config: Config, family: Family) -> tuple[Linear, ...]:
    """The router and its experts, which transformers keeps stacked in one tensor per matrix."""
    copies, active = config.whole("num_experts"), config.whole("num_experts_per_tok")
    if active > copies:
        raise ValueError(
            f"{config.source}: num_experts_per_tok is {active}, expected at most {copies} experts"
        )
    bias = family.expert_bias
    router = Linear("router", config.whole("hidden_size"), copies, bias, module=False)
    experts = (
        replace(
            linear,
            name=f"experts.{linear.name}",
            bias=bias,
            copies=copies,
            active=active,
            module=False,
        )
        for linear in _mlp(config, family, config.whole(family.expert_size))
    )
    return (router, *experts)


def _shared_expert(config: Config, family: Family) -> tuple[Linear, ...]:
    """What every token passes beside the experts of its own choice."""
    if family.shared_expert == "none":
        return ()
    if family.shared_expert == "gated":
        gate = Linear("shared_expert_gate", config.whole("hidden_size"), 1)
        return (gate, *_mlp(config, family, config.whole("shared_expert_intermediate_size")))
    size = config.whole(family.expert_size)
    if family.shared_expert == "multiple":
        shared = config.whole_or_none("n_shared_experts", least=0)
        return _mlp(config, family, shared * size) if shared else ()
    return _mlp(config, family, size)
