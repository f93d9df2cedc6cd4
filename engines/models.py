"""Models by name, each loaded in the same way: adapter merged, no code of the model's own run.

Names: `tiny` (the embedded model), `smollm2-135m`, `qwen3-0.6b-shape` and `qwen3-8b-shape` (random
weights of the true shape, so that speed can be measured where no weights can be downloaded), a
local folder, or a hub id. A model that cannot be had is an error that names the alternatives:
nothing is ever swapped in silently, and random weights say so in `weights_kind`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch
from safetensors import SafetensorError
from transformers import AutoTokenizer, PreTrainedModel

from engines import adapter as adapters
from engines import weights
from engines.attention import prefer_attention
from engines.model_folder import ALTERNATIVES, RANDOM_NAMES, SHAPES, ModelNotAvailable, folder_of
from engines.precision import settings_here
from engines.shape import ModelShape
from engines.weight_budget import refuse_too_large

if TYPE_CHECKING:
    from pathlib import Path

    from engines.adapter import AdapterInfo

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


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
    _check_arguments(device, dtype)
    settings = settings_here(device)
    chosen = dtype or settings.dtype
    folder = None if name in RANDOM_NAMES else folder_of(name)
    source = folder or SHAPES / f"{name}.json"
    refuse_too_large(name, _shape(name, source), chosen, settings, device)
    if folder is None:
        loaded = _load_random(name, source, device, chosen, seed)
    else:
        loaded = _load_folder(name, folder, device, chosen)
    prefer_attention(loaded.model, settings.attention)
    return adapters.apply(loaded, adapter, _own_adapter(folder), merge=merge, seed=seed)


def _check_arguments(device: str, dtype: str | None) -> None:
    if device not in ("cpu", "cuda"):
        raise ValueError(f"unknown device {device!r}: expected cpu or cuda")
    if dtype is not None and dtype not in DTYPES:
        raise ValueError(f"unknown dtype {dtype!r}: expected one of {', '.join(DTYPES)}")
    if device == "cuda" and not torch.cuda.is_available():
        raise ValueError("device cuda was asked for, but torch sees no CUDA GPU: use device cpu")


def _shape(name: str, source: Path) -> ModelShape:
    try:
        return ModelShape.from_config(source)
    except (OSError, ValueError) as error:
        raise ModelNotAvailable(f"{name}: {first_line(error)}: {ALTERNATIVES}") from error


def _own_adapter(folder: Path | None) -> Path | None:
    """The adapter that a folder brings along, if it does."""
    if folder is None or not (folder / "adapter" / "adapter_config.json").is_file():
        return None
    return folder / "adapter"


def _load_random(name: str, source: Path, device: str, dtype: str, seed: int) -> LoadedModel:
    config = weights.read_config(source)
    model = weights.random_model(config, device=device, dtype=DTYPES[dtype], seed=seed)
    content_hash = weights.hash_of_text(
        config.to_json_string(), str(seed), dtype, str(weights.QUERY_SCALE)
    )
    return wrap(name, "random", model, None, device=device, content_hash=content_hash)


def _load_folder(name: str, folder: Path, device: str, dtype: str) -> LoadedModel:
    try:
        model = weights.pretrained_model(folder, dtype=DTYPES[dtype])
    except (OSError, ValueError, KeyError, SafetensorError) as error:
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
