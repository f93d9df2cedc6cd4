"""What the fused kernels need to know of a model: its sizes, its matrices, its rotation table.

Matrices are used where they are: nothing is copied or concatenated, so the engine holds no weight
twice. A matrix is its stored codes and, where it is quantized, its scales (`fused_formats.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from engines.fused_formats import FORMATS, WeightOnlyLinear

if TYPE_CHECKING:
    from transformers import PreTrainedModel

FAMILIES = ("qwen3", "llama")
ROTATIONS = ("default", "linear", "llama3")


class FusedNotAvailable(RuntimeError):
    """The fused step cannot run this model, or not here; the message is one line."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """Whole numbers that the kernels are compiled for."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int

    @property
    def query(self) -> int:
        """Values of all query heads."""
        return self.heads * self.head_dim

    @property
    def key(self) -> int:
        """Values of all key heads; as many are values."""
        return self.kv_heads * self.head_dim


@dataclass(frozen=True, slots=True)
class Matrix:
    """Rows of codes, [rows, stored columns], and their scales: the codes again if there are none.

    `encoding` is 0 for plain values, 1 for int8 with one scale per row, 2 for nf4 with one scale
    per 64 columns.
    """

    codes: torch.Tensor
    scales: torch.Tensor
    encoding: int

    @classmethod
    def of(cls, module: Any) -> Matrix:
        """The matrix of a linear layer, plain or quantized by us."""
        if isinstance(module, WeightOnlyLinear):
            return cls(module.codes, module.scales, FORMATS.index(module.method) + 1)
        return cls(module.weight, module.weight, 0)


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """One decoder layer. `query_norm` and `key_norm` are None where the family has none."""

    attention_norm: torch.Tensor
    q: Matrix
    k: Matrix
    v: Matrix
    query_norm: torch.Tensor | None
    key_norm: torch.Tensor | None
    o: Matrix
    ffn_norm: torch.Tensor
    gate: Matrix
    up: Matrix
    down: Matrix


@dataclass(frozen=True, slots=True)
class FusedWeights:
    """A whole model, as the kernels see it; cosines and sines are [capacity, head_dim / 2] fp32."""

    sizes: Sizes
    epsilon: float
    embedding: torch.Tensor
    layers: tuple[LayerWeights, ...]
    norm: torch.Tensor
    head: torch.Tensor
    cosines: torch.Tensor
    sines: torch.Tensor

    @classmethod
    def of(cls, model: PreTrainedModel, capacity: int) -> FusedWeights:
        """Look up everything; FusedNotAvailable for a model that the kernels do not know."""
        config = model.config.get_text_config()
        _refuse_unknown(config)
        cosines, sines = _rotation(model, capacity, config.head_dim)
        decoder: Any = model.model
        return cls(
            sizes=_sizes(config),
            epsilon=config.rms_norm_eps,
            embedding=decoder.embed_tokens.weight,
            layers=tuple(_layer(layer) for layer in decoder.layers),
            norm=decoder.norm.weight,
            head=model.get_output_embeddings().weight,
            cosines=cosines,
            sines=sines,
        )


def _refuse_unknown(config: Any) -> None:
    rotation = (getattr(config, "rope_parameters", None) or {}).get("rope_type", "default")
    biases = getattr(config, "attention_bias", False) or getattr(config, "mlp_bias", False)
    windows = "sliding_attention" in (getattr(config, "layer_types", None) or ())
    head_dim = config.head_dim or 0
    known = (
        (config.model_type in FAMILIES, f"model_type {config.model_type}", " or ".join(FAMILIES)),
        (rotation in ROTATIONS, f"rope_type {rotation}", " or ".join(ROTATIONS)),
        (config.hidden_act == "silu", f"hidden_act {config.hidden_act}", "silu"),
        (not biases, "biases in its linear layers", "none"),
        (not windows, "layers with a sliding window", "full attention"),
        (head_dim >= 16 and head_dim & (head_dim - 1) == 0, f"head_dim {head_dim}", "2**n >= 16"),
    )
    for is_known, got, expected in known:
        if not is_known:
            raise FusedNotAvailable(
                f"the fused step does not know models with {got}, expected {expected}: "
                "use the engine compiled"
            )


def _sizes(config: Any) -> Sizes:
    return Sizes(
        layers=config.num_hidden_layers,
        hidden=config.hidden_size,
        heads=config.num_attention_heads,
        kv_heads=config.num_key_value_heads,
        head_dim=config.head_dim,
        ffn=config.intermediate_size,
        vocab=config.vocab_size,
    )


def _rotation(
    model: PreTrainedModel, capacity: int, head_dim: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """The model's own angles for every position; its two halves are equal."""
    positions = torch.arange(capacity, device=model.device)[None]
    like = torch.empty(0, device=model.device, dtype=torch.float32)
    rotary: Any = model.model
    with torch.no_grad():
        cosines, sines = rotary.rotary_emb(like, positions)
    half = head_dim // 2
    return cosines[0, :, :half].contiguous(), sines[0, :, :half].contiguous()


def _layer(layer: Any) -> LayerWeights:
    attention, ffn = layer.self_attn, layer.mlp
    return LayerWeights(
        attention_norm=layer.input_layernorm.weight,
        q=Matrix.of(attention.q_proj),
        k=Matrix.of(attention.k_proj),
        v=Matrix.of(attention.v_proj),
        query_norm=attention.q_norm.weight if hasattr(attention, "q_norm") else None,
        key_norm=attention.k_norm.weight if hasattr(attention, "k_norm") else None,
        o=Matrix.of(attention.o_proj),
        ffn_norm=layer.post_attention_layernorm.weight,
        gate=Matrix.of(ffn.gate_proj),
        up=Matrix.of(ffn.up_proj),
        down=Matrix.of(ffn.down_proj),
    )
