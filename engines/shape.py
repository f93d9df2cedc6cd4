"""`ModelShape`: what a Hugging Face `config.json` says about memory and arithmetic.

A shape answers two questions that are easily mixed up: how much a model *stores*, and how much one
decode step *reads*. They differ by the input embedding when it is not tied to the head (one row is
read), by the experts that a token does not pick, and by windows beyond which a layer forgets.
No torch and no transformers are needed: structure comes from `families.toml`.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from engines.configs import Config, read_config
from engines.families import Family, in_family
from engines.layers import Layer, decoder_layers, head_dim, kv_heads
from engines.linear import Linear

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

BYTES_PER_VALUE = {
    "float64": 8,
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
    "int8": 1,
    "uint8": 1,
}


@dataclass(frozen=True, slots=True)
class ModelShape:
    """Sizes of a decoder-only language model; of a multimodal one, its language model only."""

    model_type: str
    num_layers: int
    hidden_size: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    vocab_size: int
    max_position_embeddings: int | None
    tie_word_embeddings: bool
    dtype: str
    layers: tuple[Layer, ...]
    outer_vector_parameters: int = 0
    """Values of the norms outside the layers."""
    position_rows: int = 0
    """Rows of a learned position table."""
    head_bias: bool = False
    quantization: str | None = None
    """How the file says that its weights are packed (`awq`, `fp8` …); sizes are those before it."""
    notes: tuple[str, ...] = ()
    """What had to be assumed, one line each."""

    @classmethod
    def from_config(cls, config: str | os.PathLike[str] | Mapping[str, Any]) -> ModelShape:
        """The shape in a `config.json`, given as a path, a folder that holds it, or its content.

        Raises ValueError, one line, for a file that is not a config, for sizes that are missing or
        cannot be, and for layers that keep something else than K and V of every token.
        """
        return _shape(read_config(config))

    @property
    def embedding_parameters(self) -> int:
        """Values of the token embedding, which a tied head shares."""
        return self.vocab_size * self.hidden_size

    @property
    def head_parameters(self) -> int:
        """Values that the head multiplies with: read by every step, stored here or as embedding."""
        return self.embedding_parameters + self.vocab_size * self.head_bias

    @property
    def num_parameters(self) -> int:
        """Values stored, everything included and tied embeddings counted once."""
        untied = 0 if self.tie_word_embeddings else self.embedding_parameters
        positions = self.position_rows * self.hidden_size
        inside = sum(layer.count * layer.parameters for layer in self.layers)
        return untied + self.head_parameters + positions + inside + self.outer_vector_parameters

    @property
    def bytes_per_weight(self) -> float:
        """Bytes per value of the dtype that the config names."""
        return float(BYTES_PER_VALUE[self.dtype])

    def to_json(self) -> dict[str, Any]:
        """The fields as JSON has them."""
        return asdict(self)

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> ModelShape:
        """The shape that `to_json` wrote."""
        layers = tuple(
            Layer(**layer | {"linears": tuple(Linear(**each) for each in layer["linears"])})
            for layer in fields["layers"]
        )
        return cls(**{**fields, "layers": layers, "notes": tuple(fields["notes"])})


def _shape(config: Config) -> ModelShape:
    family, config, notes = in_family(config)
    return ModelShape(
        model_type=config.text("model_type", default=""),
        num_layers=config.whole("num_hidden_layers"),
        hidden_size=config.whole("hidden_size"),
        num_attention_heads=config.whole("num_attention_heads"),
        num_key_value_heads=kv_heads(config, family),
        head_dim=head_dim(config, family),
        vocab_size=config.whole("vocab_size"),
        max_position_embeddings=config.whole_or_none("max_position_embeddings"),
        tie_word_embeddings=config.flag("tie_word_embeddings"),
        dtype=_dtype(config),
        layers=decoder_layers(config, family),
        outer_vector_parameters=_outer_vectors(config, family),
        position_rows=_position_rows(config, family),
        head_bias=config.decides(family.head_bias),
        quantization=_quantization(config),
        notes=notes,
    )


def _dtype(config: Config) -> str:
    name = config.text("dtype", default="float32").removeprefix("torch.")
    if name not in BYTES_PER_VALUE:
        raise ValueError(
            f"{config.source}: dtype {name!r:.40}, expected one of {', '.join(BYTES_PER_VALUE)}"
        )
    return name


def _outer_vectors(config: Config, family: Family) -> int:
    final = config.flag("do_layer_norm_before", default=True)
    count = family.outer_norms if final else 0
    return count * family.norm_vectors * config.whole("hidden_size")


def _position_rows(config: Config, family: Family) -> int:
    if family.position_offset < 0:
        return 0
    return config.whole("max_position_embeddings") + family.position_offset


def _quantization(config: Config) -> str | None:
    stated = config.values.get("quantization_config")
    return str(stated.get("quant_method", "unknown")) if isinstance(stated, dict) else None
