"""Attention functions that transformers lacks, registered under names of their own.

`sdpa_expanded`: the library's fast path for prefill asks SDPA for grouped queries, which before
sm_80 only the slow MATH kernel can do. Here keys and values are expanded first.

`reductions`: one new query per row is a matrix-vector product, and a general attention kernel uses
one block per head for it, a few of the chip's many. Written as two plain reductions, the compiler
spreads the work over the context and fuses scale, mask and cast into it. Only for compiled steps.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from torch.nn import functional
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.masking_utils import sdpa_mask

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch


def expanded_sdpa(
    _module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    scaling: float | None = None,
    **_kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Query [B, H, S, D], keys and values [B, KV, L, D]; output [B, S, H, D]."""
    groups = query.shape[1] // key.shape[1]
    causal = query.shape[2] > 1 and attention_mask is None
    output = functional.scaled_dot_product_attention(
        query,
        _expand(key, groups),
        _expand(value, groups),
        attn_mask=attention_mask,
        scale=scaling,
        is_causal=causal,
    )
    return output.transpose(1, 2).contiguous(), None


def decode_by_reductions(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Query [B, H, 1, D], boolean mask [B, 1, 1, L]; sums in float32, output [B, 1, H, D]."""
    batch, heads, length, width = query.shape
    if length > 1:
        return expanded_sdpa(module, query, key, value, attention_mask, scaling=scaling, **kwargs)
    grouped = query.reshape(batch, key.shape[1], -1, 1, width).float()
    scores = (grouped * key[:, :, None].float()).sum(dim=-1) * (scaling or width**-0.5)
    if attention_mask is not None:
        scores = scores.masked_fill(~attention_mask, float("-inf"))
    weights = scores.softmax(dim=-1)  # [B, KV, H / KV, L]
    output = (weights[..., None] * value[:, :, None].float()).sum(dim=-2)
    return output.to(query.dtype).reshape(batch, 1, heads, value.shape[-1]), None


def prefer_attention(model: PreTrainedModel, name: str) -> None:
    """Let a model that would use plain `sdpa` use this function instead, for good."""
    if model.config._attn_implementation == "sdpa":
        model.set_attn_implementation(name)


def _expand(states: torch.Tensor, groups: int) -> torch.Tensor:
    return states if groups == 1 else states.repeat_interleave(groups, dim=1)


@contextmanager
def using_attention(model: PreTrainedModel, name: str | None) -> Iterator[None]:
    """Run or trace the model with this attention function; None leaves it as it is."""
    before = model.config._attn_implementation
    model.config._attn_implementation = name or before
    try:
        yield
    finally:
        model.config._attn_implementation = before


for _name, _function in (("sdpa_expanded", expanded_sdpa), ("reductions", decode_by_reductions)):
    AttentionInterface.register(_name, _function)
    AttentionMaskInterface.register(_name, sdpa_mask)
