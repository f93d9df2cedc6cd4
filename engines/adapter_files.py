"""A peft folder against the model it is to be put on, checked before anything is changed.

An adapter of another base either fails deep inside the loader or, worse, fits by accident in some
layers. And with tied embeddings `lm_head` and `embed_tokens` are one tensor: an adapter on either
changes one use of it while attached, and both once merged. Such a merge is wrong, and refused.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError, safe_open

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    import torch

PREFIX = "base_model.model."


class AdapterMismatch(ValueError):
    """The adapter cannot be put on this model; the message is one line."""


class TiedEmbeddings(AdapterMismatch):
    """The adapter changes a tensor that is both the input embedding and the output head."""


def check_fits(model: torch.nn.Module, folder: Path) -> None:
    """Compare names and shapes in the adapter's files with the model's; raise `AdapterMismatch`."""
    config = _read_config(folder)
    adapted = _adapted_shapes(folder)
    _refuse_unused_patterns(config, adapted, folder)
    weights = dict(model.named_parameters(remove_duplicate=False))
    for name, shape in adapted.items():
        weight = weights.get(f"{name}.weight")
        there = None if weight is None else tuple(weight.shape)
        if there not in (shape, shape[::-1]):
            found = "no such layer" if there is None else f"{there[0]} x {there[1]}"
            raise AdapterMismatch(
                f"{folder} was made for another base: it adapts {name} as {shape[0]} x {shape[1]}, "
                f"this model has {found}: use an adapter trained on this model, or --adapter none"
            )
    refuse_tied(model, adapted, folder)


def refuse_tied(model: Any, adapted: Iterable[str], source: object) -> None:
    """Raise `TiedEmbeddings` where an adapted layer shares its tensor with another one."""
    embedding, head = model.get_input_embeddings(), model.get_output_embeddings()
    if head is None or head.weight is not embedding.weight:
        return
    tied = {name for name, module in model.named_modules() if module is embedding or module is head}
    for name in adapted:
        if name in tied:
            raise TiedEmbeddings(
                f"{source} adapts {name}, but {' and '.join(sorted(tied))} are tied (one tensor): "
                "merging would change both; train without it, or untie the embeddings first"
            )


def _read_config(folder: Path) -> Mapping[str, Any]:
    path = folder / "adapter_config.json"
    try:
        config: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        kind = config["peft_type"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise AdapterMismatch(
            f"{folder} is not a peft adapter ({type(error).__name__} reading {path.name}): "
            "expected a folder with adapter_config.json and adapter_model.safetensors"
        ) from error
    if kind != "LORA":
        raise AdapterMismatch(f"{folder} holds a {kind} adapter: expected LORA")
    return config


def _refuse_unused_patterns(
    config: Mapping[str, Any], adapted: Iterable[str], folder: Path
) -> None:
    """A typo in a pattern is silently ignored by peft, which then scales that layer wrongly."""
    names = list(adapted)
    for table in ("alpha_pattern", "rank_pattern"):
        for pattern in config.get(table) or {}:
            if not any(re.match(rf"(.*\.)?({pattern})$", name) for name in names):
                raise AdapterMismatch(
                    f"{folder}: {table} names {pattern!r}, which no adapted layer matches: "
                    "correct the name or remove it"
                )


def _adapted_shapes(folder: Path) -> dict[str, tuple[int, int]]:
    """(out, in) of every layer for which the folder's safetensors hold a pair of matrices."""
    path = folder / "adapter_model.safetensors"
    if not path.is_file():
        raise AdapterMismatch(f"{folder} has no adapter_model.safetensors: nothing else is read")
    sides: dict[str, dict[str, list[int]]] = {}
    for key, shape in _stored_shapes(path).items():
        name, _, part = key.removeprefix(PREFIX).partition(".lora_")
        side = part.removesuffix(".weight").removeprefix("embedding_")
        if side in ("A", "B"):
            sides.setdefault(name, {})[side] = shape
    return {name: (pair["B"][0], pair["A"][-1]) for name, pair in sides.items() if len(pair) == 2}


def _stored_shapes(path: Path) -> dict[str, list[int]]:
    try:
        with safe_open(path, framework="pt") as file:
            return {key: file.get_slice(key).get_shape() for key in file.keys()}  # noqa: SIM118  # safe_open is not a mapping
    except SafetensorError as error:
        raise AdapterMismatch(
            f"{path} cannot be read ({error}): copy the adapter again, it may be cut short"
        ) from error
