"""Reading a `config.json`: nesting, the many names of one thing, and what cannot be true.

Model families spell the same quantity differently (`n_embd`, `d_model`, `hidden_size`), leave out
what their config class would fill in, and put the language model of a multimodal model one level
down. `read_config` turns all of that into one flat mapping with the usual names; `Config` hands out
its values only after checking them, so that a broken file ends in one line and not in a number.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import os

SPELLINGS = {
    "hidden_size": ("n_embd", "n_embed", "d_model"),
    "num_hidden_layers": ("n_layer", "n_layers", "num_layers"),
    "num_attention_heads": ("n_head", "n_heads", "num_heads"),
    "num_key_value_heads": ("num_kv_heads", "n_head_kv"),
    "intermediate_size": ("n_inner", "ffn_dim", "ffn_hidden_size"),
    "max_position_embeddings": ("n_positions", "max_seq_len", "max_sequence_length", "n_ctx"),
    "num_experts": ("num_local_experts", "n_routed_experts", "moe_num_experts"),
    "num_experts_per_tok": ("moe_k", "num_experts_per_token", "top_k_experts"),
    "dtype": ("torch_dtype",),
}
NESTED = ("text_config", "llm_config", "language_config", "thinker_config")
INHERITED = ("dtype", "torch_dtype", "quantization_config")

# Larger than anything that exists, so that beyond them a file is broken and not merely new.
LARGEST = {
    "num_hidden_layers": 10_000,
    "max_position_embeddings": 10**9,
    "sliding_window": 10**9,
    "attention_chunk_size": 10**9,
    "vocab_size": 10**8,
}
LARGEST_OTHER = 10**6


@dataclass(frozen=True, slots=True)
class Config:
    """A flat config with the usual key names; every value is checked when it is asked for."""

    values: Mapping[str, Any]
    source: str
    nested: bool = False

    def filled(self, defaults: Mapping[str, Any]) -> Config:
        """The same config, with `defaults` for the keys that it does not have."""
        return replace(self, values={**defaults, **self.values})

    def whole(self, key: str, default: int | None = None, *, least: int = 1) -> int:
        """The whole number at `key`, at least `least`; `default` where it is absent or null."""
        value = self.values.get(key)
        if value is None:
            value = default
        if value is None:
            raise ValueError(f"{self.source}: {key!r} is missing, expected a positive whole number")
        if isinstance(value, bool) or not isinstance(value, int):
            raise ValueError(f"{self.source}: {key} is {value!r:.40}, expected a whole number")
        most = LARGEST.get(key, LARGEST_OTHER)
        if not least <= value <= most:
            raise ValueError(f"{self.source}: {key} is {value!r:.20}, expected {least} to {most}")
        return value

    def whole_or_none(self, key: str, *, least: int = 1) -> int | None:
        """The whole number at `key`, or None where it is absent or null."""
        return None if self.values.get(key) is None else self.whole(key, least=least)

    def flag(self, key: str, default: bool = False) -> bool:
        """The truth value at `key`, `default` where it is absent or null."""
        value = self.values.get(key)
        value = default if value is None else value
        if not isinstance(value, bool):
            raise ValueError(f"{self.source}: {key} is {value!r:.40}, expected true or false")
        return value

    def decides(self, flag: bool | str) -> bool:
        """A fact about the family, or what the config says at the key that it names."""
        return self.flag(flag) if isinstance(flag, str) else flag

    def text(self, key: str, default: str) -> str:
        """The string at `key`, `default` where it is absent or null."""
        value = self.values.get(key)
        value = default if value is None else value
        if not isinstance(value, str):
            raise ValueError(f"{self.source}: {key} is {value!r:.40}, expected a string")
        return value

    def sequence(self, key: str) -> list[Any] | None:
        """The list at `key`, or None where it is absent or null."""
        value = self.values.get(key)
        if value is not None and not isinstance(value, list | tuple):
            raise ValueError(f"{self.source}: {key} is {value!r:.40}, expected a list")
        return None if value is None else list(value)


def read_config(config: str | os.PathLike[str] | Mapping[str, Any]) -> Config:
    """Read a `config.json`, a folder that holds one, or its content, as a flat `Config`.

    Raises ValueError, one line, for what is absent, unreadable, not JSON or not an object.
    """
    if isinstance(config, Mapping):
        values, source = dict(config), "config"
    else:
        path = Path(config)
        path = path / "config.json" if path.is_dir() else path
        values, source = _json_object(path), str(path)
    nested = next((key for key in NESTED if isinstance(values.get(key), Mapping)), None)
    if nested is None:
        return Config(_usual_names(values), source)
    inner = read_config(_with_inherited(values, values[nested]))
    return Config(inner.values, f"{source}: {nested}", nested=True)


def _json_object(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(
            f"{path}: {error.strerror or error}; expected a config.json or a folder that has one"
        ) from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: not JSON ({error}); expected a model's config.json") from None
    if not isinstance(content, dict):
        raise ValueError(f"{path}: a JSON {type(content).__name__}, expected an object with keys")
    return content


def _with_inherited(outer: Mapping[str, Any], inner: Mapping[str, Any]) -> dict[str, Any]:
    """The language model's own keys, and those that the model as a whole decides."""
    merged = {key: outer[key] for key in INHERITED if key in outer} | dict(inner)
    if isinstance(outer.get("tie_word_embeddings"), bool):
        merged["tie_word_embeddings"] = outer["tie_word_embeddings"]
    merged.setdefault("model_type", outer.get("model_type"))
    return merged


def _usual_names(values: Mapping[str, Any]) -> dict[str, Any]:
    named = dict(values)
    for usual, others in SPELLINGS.items():
        found = (named[name] for name in (usual, *others) if named.get(name) is not None)
        if (value := next(found, None)) is not None:
            named[usual] = value
    return named
