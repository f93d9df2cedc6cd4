"""LoRA adapters: attach, merge, compare merged with unmerged, export.

Merging computes W' = W + (alpha / r) * B * A **in place**: afterwards the "unmerged" model is the
merged one, and comparing the two gives an exact, meaningless zero. `merge_and_compare` therefore
owns the order, and a model that was merged already is refused.

With tied embeddings, `lm_head` and `embed_tokens` are one tensor. An adapter on either of them
changes one use of it while attached and both once merged: such a merge is wrong, and refused.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import safe_open

from engines.weights import hash_of_files

if TYPE_CHECKING:
    import torch

    from engines.models import LoadedModel

NO_ADAPTER = "none"


class AdapterMismatch(ValueError):
    """The adapter cannot be put on this model; the message is one line."""


class TiedEmbeddings(AdapterMismatch):
    """The adapter changes a tensor that is both the input embedding and the output head."""


class AlreadyMerged(RuntimeError):
    """Unmerged logits were asked of a model whose adapter is merged in already."""


@dataclass(frozen=True)
class AdapterInfo:
    """Which adapter a model carries; a synthetic one is seeded noise of a trained one's size."""

    name: str
    synthetic: bool
    content_hash: str
    path: Path | None


def apply(
    loaded: LoadedModel, adapter: str | None, own: Path | None, *, merge: bool, seed: int
) -> LoadedModel:
    """Put the named adapter, else the model's own, else a synthetic one on the model."""
    if adapter == NO_ADAPTER:
        return loaded
    folder = Path(adapter) if adapter is not None else own
    if folder is not None:
        attached = attach(loaded, folder)
    else:
        from engines.synthetic_adapter import attach_synthetic

        attached = attach_synthetic(loaded, seed=seed)
    return merged(attached) if merge else attached


def attach(loaded: LoadedModel, folder: Path) -> LoadedModel:
    """The model with the peft adapter of this folder beside its weights, not merged."""
    from peft import PeftModel

    check_fits(loaded.model, folder)
    wrapper = PeftModel.from_pretrained(loaded.model, folder, local_files_only=True)
    info = AdapterInfo(folder.name, False, hash_of_files(folder), folder)
    return with_adapter(loaded, wrapper, info)


def with_adapter(loaded: LoadedModel, wrapper: Any, info: AdapterInfo) -> LoadedModel:
    """The same model with LoRA layers in it; `wrapper` is peft's handle, which merging needs."""
    model = wrapper.get_base_model().eval().requires_grad_(False)
    return dataclasses.replace(loaded, model=model, adapter=info, unmerged=wrapper)


def merged(loaded: LoadedModel) -> LoadedModel:
    """The model with its adapter added into the weights; the LoRA layers are gone afterwards."""
    if loaded.unmerged is None:
        raise AlreadyMerged(
            f"{loaded.name} has no separate adapter to merge: load it with merge=False first"
        )
    model = loaded.unmerged.merge_and_unload(safe_merge=True)
    return dataclasses.replace(loaded, model=model.eval(), unmerged=None)


def check_fits(model: torch.nn.Module, folder: Path) -> None:
    """Compare names and shapes in the adapter's file with the model, before anything is changed."""
    _read_adapter_config(folder)
    weights = dict(model.named_parameters())
    for name, (rows, columns) in _adapted_shapes(folder).items():
        weight = weights.get(f"{name}.weight")
        there = None if weight is None else sorted(weight.shape)
        if there != sorted((rows, columns)):
            raise AdapterMismatch(
                f"{folder} was made for another base: it adapts {name} as {rows} x {columns}, "
                f"this model has {'no such layer' if there is None else there}: "
                "use an adapter trained on this model, or --adapter none"
            )
    refuse_tied(model, list(_adapted_shapes(folder)), folder)


def refuse_tied(model: Any, adapted: list[str], source: object) -> None:
    """Raise `TiedEmbeddings` where an adapted layer shares its tensor with another one."""
    embedding, head = model.get_input_embeddings(), model.get_output_embeddings()
    if head is None or head.weight is not embedding.weight:
        return
    names = {id(module): name for name, module in model.named_modules()}
    tied = {names[id(embedding)], names[id(head)]}
    for name in adapted:
        if name in tied:
            raise TiedEmbeddings(
                f"{source} adapts {name}, but {' and '.join(sorted(tied))} are tied (one tensor): "
                "merging would change both; train without it, or untie the embeddings first"
            )


def _read_adapter_config(folder: Path) -> dict[str, Any]:
    path = folder / "adapter_config.json"
    try:
        fields: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise AdapterMismatch(
            f"{folder} is not a peft adapter ({type(error).__name__} reading {path.name}): "
            "expected a folder with adapter_config.json and adapter_model.safetensors"
        ) from error
    return fields


def _adapted_shapes(folder: Path) -> dict[str, tuple[int, int]]:
    """(out, in) of every layer that the adapter's safetensors hold a pair of matrices for."""
    path = folder / "adapter_model.safetensors"
    if not path.is_file():
        raise AdapterMismatch(f"{folder} holds no adapter_model.safetensors: only that is read")
    shapes: dict[str, dict[str, list[int]]] = {}
    with safe_open(path, framework="pt") as file:
        for key in file.keys():  # noqa: SIM118  # safe_open is not a mapping
            name, _, part = key.removeprefix("base_model.model.").partition(".lora_")
            if not part.endswith("magnitude_vector"):
                shapes.setdefault(name, {})[part[0] if part[0] in "AB" else part[-1]] = (
                    file.get_slice(key).get_shape()
                )
    return {
        name: (pair["B"][0], pair["A"][-1])
        for name, pair in shapes.items()
        if {"A", "B"} <= set(pair)
    }
