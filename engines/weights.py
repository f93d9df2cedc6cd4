"""Where weights come from: safetensors on disk, or a seed.

Random weights are made directly on the device in the wanted dtype, so an 8B shape needs no host
copy of 16 GB. Their scale is the model's own initializer range, except that queries are enlarged.
With the plain range every query attends to all tokens alike, all positions end up with nearly the
same hidden state, and greedy decoding says one token for ever: a comparison of engines that proves
nothing. With sharp attention, 12 tokens of the 28-layer shape were 11 or 12 different ones.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

import torch
from transformers import AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from engines.quiet import no_progress_bars

if TYPE_CHECKING:
    from pathlib import Path


QUERY_SCALE = 4.0
"""Weight of the query norms: attention scores of that standard deviation, instead of 1."""


def read_config(path: Path) -> PreTrainedConfig:
    """The transformers config in one JSON file."""
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise FileNotFoundError(
            f"{path}: expected a model config there, got {error.strerror}"
        ) from error
    return CONFIG_MAPPING[fields["model_type"]].from_dict(fields)


def random_model(
    config: PreTrainedConfig, *, device: str, dtype: torch.dtype, seed: int
) -> PreTrainedModel:
    """A model of this shape with seeded random weights, made on the device in this dtype."""
    devices = [torch.cuda.current_device()] if device == "cuda" else []
    with torch.random.fork_rng(devices=devices), torch.device(device):
        torch.manual_seed(seed)
        model: PreTrainedModel = AutoModelForCausalLM.from_config(config, dtype=dtype)
        _sharpen_attention(model)
    return model.eval()


def _sharpen_attention(model: torch.nn.Module) -> None:
    for name, weight in model.named_parameters():
        if name.endswith("q_norm.weight"):
            weight.data.fill_(QUERY_SCALE)


def pretrained_model(folder: Path, *, dtype: torch.dtype) -> PreTrainedModel:
    """A model from a local folder: safetensors only, none of the folder's code is run."""
    if not any(folder.glob("*.safetensors")):
        raise FileNotFoundError(f"no *.safetensors in {folder}")
    with no_progress_bars():
        model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(
            folder,
            dtype=dtype,
            use_safetensors=True,
            trust_remote_code=False,
            local_files_only=True,
        )
    return model


def hash_of_files(folder: Path) -> str:
    """Hash over names and full contents of the folder's safetensors and its config.json."""
    digest = hashlib.blake2b(digest_size=16)
    for path in sorted([*folder.glob("*.safetensors"), *folder.glob("config.json")]):
        with path.open("rb") as file:
            content = hashlib.file_digest(file, "blake2b").hexdigest()
        digest.update(f"{path.name}:{content}\n".encode())
    return digest.hexdigest()


def hash_of_text(*parts: str) -> str:
    """Hash of what fully determines something that is made and not stored: config, seed, dtype."""
    return hashlib.blake2b("\n".join(parts).encode(), digest_size=16).hexdigest()
