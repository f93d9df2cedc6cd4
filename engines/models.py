"""Models by name, each loaded in the same way: adapter merged, no code of the model's own run.

Names: `tiny` (the embedded model), `smollm2-135m`, `qwen3-0.6b-shape` and `qwen3-8b-shape` (random
weights of the true shape, so that speed can be measured where no weights can be downloaded), a
local folder, or a hub id. A model that cannot be had is an error that names the alternatives:
nothing is ever swapped in silently, and random weights say so in `weights_kind`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from transformers import AutoTokenizer, PreTrainedModel

from engines import adapter as adapters
from engines import weights
from engines.precision import default_dtype
from engines.shape import ModelShape

if TYPE_CHECKING:
    from engines.adapter import AdapterInfo

ROOT = Path(__file__).parents[1]
EMBEDDED = ROOT / "fixtures" / "models" / "embedded"
SHAPES = ROOT / "fixtures" / "data" / "shapes"
RANDOM_NAMES = ("qwen3-0.6b-shape", "qwen3-8b-shape")
MODEL_NAMES = ("tiny", "smollm2-135m", *RANDOM_NAMES)
DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
ALTERNATIVES = f"use one of {', '.join(MODEL_NAMES)}, a local folder or a hub id"


class ModelNotAvailable(ValueError):
    """The model cannot be had here; the message is one line and names the alternatives."""


@dataclass
class LoadedModel:
    """A causal language model ready to serve, and what has to be known about it in a record."""

    name: str
    weights_kind: Literal["trained", "random"]
    model: PreTrainedModel
    tokenizer: Any | None
    shape: ModelShape
    dtype: str
    device: str
    content_hash: str
    adapter: AdapterInfo | None
    unmerged: Any | None = None
    """peft's handle while the adapter is attached and not merged."""

    @property
    def bytes_per_value(self) -> int:
        """Size of one weight, and of one cached key or value [bytes]."""
        return DTYPES[self.dtype].itemsize

    @property
    def stop_ids(self) -> frozenset[int]:
        """Token ids at which the model itself wants to end an answer; may be empty."""
        ids = self.model.generation_config.eos_token_id
        if ids is None:
            return frozenset()
        return frozenset([ids] if isinstance(ids, int) else ids)


def load_model(
    name: str,
    *,
    device: str,
    dtype: str | None = None,
    adapter: str | None = None,
    merge: bool = True,
    seed: int = 0,
) -> LoadedModel:
    """Load a model by name with its adapter merged, or attached when `merge` is False.

    `adapter` is a peft folder, "none" for the bare base, or None for the model's own adapter and,
    where it has none, a synthetic one. Raises `ModelNotAvailable`, and `AdapterMismatch` for an
    adapter that was made for another base.
    """
    chosen = dtype or default_dtype(device)
    if chosen not in DTYPES:
        raise ValueError(f"unknown dtype {chosen!r}: expected one of {', '.join(DTYPES)}")
    if device == "cuda" and not torch.cuda.is_available():
        raise ValueError("device cuda was asked for, but torch sees no CUDA GPU: use device cpu")
    if name in RANDOM_NAMES:
        loaded = _load_random(name, device, chosen, seed)
        return adapters.apply(loaded, adapter, None, merge=merge, seed=seed)
    folder = _folder(name)
    own = folder / "adapter" if (folder / "adapter" / "adapter_config.json").is_file() else None
    loaded = _load_folder(name, folder, device, chosen)
    return adapters.apply(loaded, adapter, own, merge=merge, seed=seed)


def _load_random(name: str, device: str, dtype: str, seed: int) -> LoadedModel:
    config = weights.read_config(SHAPES / f"{name}.json")
    model = weights.random_model(config, device=device, dtype=DTYPES[dtype], seed=seed)
    content_hash = weights.hash_of_text(config.to_json_string(), str(seed), dtype)
    return wrap(name, "random", model, None, device=device, content_hash=content_hash)


def _load_folder(name: str, folder: Path, device: str, dtype: str) -> LoadedModel:
    try:
        model = weights.pretrained_model(folder, dtype=DTYPES[dtype])
    except (OSError, ValueError, KeyError) as error:
        raise ModelNotAvailable(
            f"{name}: {folder} cannot be loaded ({first_line(error)}): {ALTERNATIVES}"
        ) from error
    return wrap(
        name,
        "trained",
        model.to(device),
        _tokenizer(folder),
        device=device,
        content_hash=weights.hash_of_files(folder),
    )


def wrap(
    name: str,
    weights_kind: Literal["trained", "random"],
    model: PreTrainedModel,
    tokenizer: Any | None,
    *,
    device: str,
    content_hash: str,
) -> LoadedModel:
    """A `LoadedModel` around a model that is already in memory, without an adapter."""
    return LoadedModel(
        name=name,
        weights_kind=weights_kind,
        model=model.eval().requires_grad_(False),
        tokenizer=tokenizer,
        shape=ModelShape.from_config(model.config.to_dict()),
        dtype=str(model.dtype).removeprefix("torch."),
        device=device,
        content_hash=content_hash,
        adapter=None,
    )


def _folder(name: str) -> Path:
    """The local folder behind a name; hub ids are looked up in the cache first, then downloaded."""
    if name == "tiny":
        return EMBEDDED
    if name == "smollm2-135m":
        return _smollm2()
    if Path(name).is_dir():
        return Path(name)
    return _from_hub(name)


def _smollm2() -> Path:
    from engines import smollm2

    if package := smollm2.missing_package():
        raise ModelNotAvailable(
            f"smollm2-135m needs the package {package}, which is not installed: {smollm2.HOW_TO}, "
            "or use tiny"
        )
    return smollm2.converted_folder()


def _from_hub(name: str) -> Path:
    from huggingface_hub import snapshot_download

    try:
        folder = snapshot_download(
            name, allow_patterns=["*.safetensors", "*.json", "*.txt", "*.model"]
        )
    except (
        Exception
    ) as error:  # the hub client raises some twenty kinds, all meaning "not to be had"
        raise ModelNotAvailable(
            f"{name} is neither a local folder nor to be had from the hub "
            f"({type(error).__name__}): {ALTERNATIVES}"
        ) from error
    return Path(folder)


def _tokenizer(folder: Path) -> Any | None:
    if (
        not (folder / "tokenizer.json").is_file()
        and not (folder / "tokenizer_config.json").is_file()
    ):
        return None
    return AutoTokenizer.from_pretrained(folder, trust_remote_code=False)


def first_line(error: BaseException) -> str:
    """The first line of an error's text, for messages that must stay on one line."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
