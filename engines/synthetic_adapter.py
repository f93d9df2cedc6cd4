"""A seeded, non-zero adapter for models that bring none, so that merging can be measured on them.

A fresh LoRA has B = 0 and changes nothing: a test on it passes whatever merging does. This one is
noise of a trained adapter's size: every layer's update is scaled to the same share of its weight,
the share that the embedded model's trained adapter has over all layers. It is labelled synthetic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from engines.quiet import peft_notices_ignored
from engines.weights import hash_of_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from transformers import PreTrainedModel

RANK = 16
ALPHA = 32
RELATIVE_NORM = 0.2165
"""‖ΔW‖/‖W‖ of the embedded model's trained adapter, by `relative_norm`; a test recomputes it."""


def attach_random(model: PreTrainedModel, *, seed: int) -> tuple[Any, str]:
    """Put a random r=16 adapter on all linear layers; peft's handle on it, and a hash."""
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(
        r=RANK,
        lora_alpha=ALPHA,
        target_modules="all-linear",  # the output head excepted
        init_lora_weights=False,
        task_type="CAUSAL_LM",
    )
    with peft_notices_ignored():
        wrapper = get_peft_model(model, config)
    generator = torch.Generator(device=model.device).manual_seed(seed)
    with torch.no_grad():
        for _, layer in lora_layers(model):
            _randomize(layer, generator)
    return wrapper, hash_of_text("synthetic", str(seed), str(RANK), str(ALPHA), str(RELATIVE_NORM))


def lora_layers(model: torch.nn.Module) -> Iterator[tuple[str, Any]]:
    """Name and module of every layer that carries LoRA matrices."""
    from peft.tuners.lora import LoraLayer

    return ((name, m) for name, m in model.named_modules() if isinstance(m, LoraLayer))


def relative_norm(model: torch.nn.Module) -> float:
    """‖ΔW‖/‖W‖ over all adapted layers of a model with an attached adapter (Frobenius norms)."""
    with torch.no_grad():
        pairs = [(_delta_norm(m), _weight_norm(m)) for _, m in lora_layers(model)]
    delta, weight = (sum(norm**2 for norm in norms) ** 0.5 for norms in zip(*pairs, strict=True))
    return float(delta / weight)


def _randomize(layer: Any, generator: torch.Generator) -> None:
    """Normal A and B, then B scaled so that the update has its share of the weight's norm."""
    for matrix in _matrices(layer):
        matrix.normal_(generator=generator)
    _matrices(layer)[1].mul_(RELATIVE_NORM * _weight_norm(layer) / _delta_norm(layer))


def _matrices(layer: Any) -> tuple[torch.Tensor, torch.Tensor]:
    return layer.lora_A["default"].weight, layer.lora_B["default"].weight


def _weight_norm(layer: Any) -> float:
    return float(layer.base_layer.weight.float().norm())


def _delta_norm(layer: Any) -> float:
    """‖s B A‖ from the two r x r products: ‖BA‖² = trace(BᵀB AAᵀ); the update is never formed."""
    a, b = (matrix.double() for matrix in _matrices(layer))
    squared = torch.trace((b.T @ b) @ (a @ a.T))
    return float(layer.scaling["default"] * squared.sqrt())
