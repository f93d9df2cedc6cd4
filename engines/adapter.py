"""LoRA adapters: attach, merge, compare merged with unmerged, export.

Merging computes W' = W + (alpha / r) * B * A **in place**: afterwards the "unmerged" model is the
merged one, and comparing the two gives an exact, meaningless zero. `merge_and_compare` therefore
owns the order, and a model that was merged already is refused.

Adding is exact only in real numbers: merged and unmerged logits differ by rounding. How much of
that fp16 can show at all is the spacing of its numbers at the largest logit.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from engines.adapter_files import check_fits
from engines.quiet import no_progress_bars, peft_notices_ignored
from engines.weights import hash_of_files

if TYPE_CHECKING:
    from engines.models import LoadedModel

NO_ADAPTER = "none"


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
    attached = attach(loaded, folder) if folder else attach_synthetic(loaded, seed=seed)
    return merged(attached) if merge else attached


def attach(loaded: LoadedModel, folder: Path) -> LoadedModel:
    """The model with the peft adapter of this folder beside its weights, not merged."""
    from peft import PeftModel

    check_fits(loaded.model, folder)
    with peft_notices_ignored():
        wrapper = PeftModel.from_pretrained(loaded.model, folder, local_files_only=True)
    return _with(loaded, wrapper, AdapterInfo(folder.name, False, hash_of_files(folder), folder))


def attach_synthetic(loaded: LoadedModel, *, seed: int) -> LoadedModel:
    """The model with a seeded random adapter beside its weights, not merged."""
    from engines.synthetic_adapter import attach_random

    wrapper, identity = attach_random(loaded.model, seed=seed)
    return _with(loaded, wrapper, AdapterInfo("synthetic r=16", True, identity, None))


def _with(loaded: LoadedModel, wrapper: Any, info: AdapterInfo) -> LoadedModel:
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


@dataclass(frozen=True)
class MergeComparison:
    """Largest differences of logits over the same prompts, and what fp16 could resolve there."""

    max_abs_delta: float
    """Merged against unmerged: rounding only, so small, but not exactly 0."""
    max_abs_delta_to_base: float
    """Merged against the model without adapter: what the adapter does, so not 0."""
    largest_logit: float
    ulp: float
    """Spacing of the compute dtype at the largest logit."""
    dtype: str

    @property
    def fault(self) -> str | None:
        """Why these numbers cannot be a comparison of merged with unmerged; None if they can."""
        if self.max_abs_delta_to_base == 0.0:
            return "merged logits equal those of the base: nothing was merged"
        if self.max_abs_delta == 0.0:
            return "merged and unmerged logits are identical: both were taken after merging"
        return None


def merge_and_compare(
    loaded: LoadedModel, prompt_ids: torch.Tensor
) -> tuple[LoadedModel, MergeComparison]:
    """Merge the attached adapter, comparing logits for ids [B, S] taken before and after.

    Raises `AlreadyMerged` for a model whose adapter is not separate any more.
    """
    if loaded.unmerged is None:
        raise AlreadyMerged(
            f"{loaded.name}: its adapter is merged already, so its logits are the merged ones: "
            "load it with merge=False"
        )
    with loaded.unmerged.disable_adapter():
        base = logits_of(loaded.model, prompt_ids)
    unmerged = logits_of(loaded.model, prompt_ids)
    after = merged(loaded)
    return after, compare(base, unmerged, logits_of(after.model, prompt_ids))


def compare(base: torch.Tensor, unmerged: torch.Tensor, merged_: torch.Tensor) -> MergeComparison:
    """The comparison of three sets of logits, in the dtype in which they were computed."""
    largest = unmerged.abs().max()
    above = torch.nextafter(largest, torch.full_like(largest, torch.inf))
    return MergeComparison(
        max_abs_delta=float((merged_.float() - unmerged.float()).abs().max()),
        max_abs_delta_to_base=float((merged_.float() - base.float()).abs().max()),
        largest_logit=float(largest),
        ulp=float(above - largest),
        dtype=str(unmerged.dtype).removeprefix("torch."),
    )


@torch.no_grad()
def logits_of(model: torch.nn.Module, prompt_ids: torch.Tensor) -> torch.Tensor:
    """Logits of every position, [B, S, vocabulary], without a cache."""
    logits: torch.Tensor = model(input_ids=prompt_ids, use_cache=False).logits
    return logits


def export(loaded: LoadedModel, folder: Path) -> Path:
    """Write the merged model as an ordinary one: safetensors, config and tokenizer, no adapter."""
    if loaded.unmerged is not None:
        raise ValueError(f"{loaded.name} has an adapter that is not merged: call merged() first")
    if folder.exists() and any(folder.iterdir()):
        raise FileExistsError(f"{folder} is not empty: export into a new folder")
    with no_progress_bars():
        loaded.model.save_pretrained(folder)
    if loaded.tokenizer is not None:
        loaded.tokenizer.save_pretrained(folder)
    return folder
