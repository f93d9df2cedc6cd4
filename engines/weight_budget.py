"""Whether a model's weights fit on a device, answered before a byte of them is allocated.

Without it a model that is too large fails minutes later, deep inside a loader, and on a host with
little memory it takes the whole session with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engines import cost
from engines.model_folder import EMBEDDED, RANDOM_NAMES, SHAPES, ModelNotAvailable
from engines.shape import ModelShape

if TYPE_CHECKING:
    from engines.precision import Settings

BYTES_PER_WEIGHT = {"float32": 4, "float16": 2, "bfloat16": 2}


def refuse_too_large(
    name: str, shape: ModelShape, dtype: str, settings: Settings, device: str
) -> None:
    """Raise `ModelNotAvailable`, naming what would fit, for weights over the device's budget."""
    needed = cost.weight_bytes(shape, BYTES_PER_WEIGHT[dtype])
    budget = settings.weight_budget_bytes
    if needed > budget:
        raise ModelNotAvailable(
            f"{name} has {needed / 1e9:.1f} GB of weights in {dtype}, {device} takes at most "
            f"{budget / 1e9:.1f} GB of its {settings.memory_bytes / 1e9:.1f} GB: "
            f"use {' or '.join(_what_fits(shape, dtype, budget))}"
        )


def _what_fits(shape: ModelShape, dtype: str, budget: int) -> list[str]:
    """Ways out, the nearest first: half the bytes per weight, then the models that are small."""
    half = [f"dtype {d}" for d in ("float16",) if cost.weight_bytes(shape, 2) <= budget]
    configs = {n: SHAPES / f"{n}.json" for n in RANDOM_NAMES} | {"tiny": EMBEDDED}
    sizes = {
        n: cost.weight_bytes(ModelShape.from_config(path), BYTES_PER_WEIGHT[dtype])
        for n, path in configs.items()
    }
    smaller = [f"{n} ({size / 1e9:.2f} GB)" for n, size in sizes.items() if size <= budget]
    return [*half, *smaller] or ["a device with more memory"]
