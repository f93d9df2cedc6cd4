"""What the calculator of the page needs to know about models, cards and formats."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reports.budget import KV_VALUES, QUANTIZED, WEIGHTS, saved_bytes
from reports.catalogue import known_shapes
from reports.figures.gallery import CHAPTER_GPU, CHAPTER_MODEL
from reports.stored_shape import run_shape

if TYPE_CHECKING:
    from engines.shape import ModelShape
    from reports.runfile import RunFile


def budget_data(run: RunFile | None = None) -> dict[str, Any]:
    """Models with the run's own first, cards, formats, and what is chosen at the start."""
    from engines.gpus import GPUS

    shapes = dict(known_shapes())
    own = run_shape(run) if run is not None else None
    if run is not None and own is not None:
        name = str(run.experiment["model"]["name"])
        shapes = {name: own} | {known: shape for known, shape in shapes.items() if known != name}
    gpu = run.experiment["device"].get("gpu") if run is not None else None
    return {
        "models": {name: shape_data(shape) for name, shape in shapes.items()},
        "gpus": {
            name: {
                "label": f"{name}, {gpu.memory_bytes / 1e9:,.4g} GB",
                "memory_bytes": gpu.memory_bytes,
                "bandwidth_bytes_per_s": gpu.bandwidth_bytes_per_s,
            }
            for name, gpu in GPUS.items()
        },
        "weights": {
            key: {"label": label, "width": width} for key, (label, width) in WEIGHTS.items()
        },
        "kv": {key: {"label": label, "width": width} for key, (label, width) in KV_VALUES.items()},
        "chosen": {
            "model": next(iter(shapes)) if own is not None else CHAPTER_MODEL,
            "gpu": gpu if gpu in GPUS else CHAPTER_GPU,
            "weights": "fp16",
            "kv": "fp16",
        },
    }


def shape_data(shape: ModelShape) -> dict[str, Any]:
    """The numbers of a shape that `budget.js` adds up, in the order in which `cost.py` does."""
    return {
        "parameters": shape.num_parameters,
        "head": shape.head_parameters,
        "hidden": shape.hidden_size,
        "outer": shape.outer_vector_parameters,
        "tables": (not shape.tie_word_embeddings) + (shape.position_rows > 0),
        "saved": {key: saved_bytes(shape, key) for key in QUANTIZED},
        "layers": [
            {
                "count": layer.count,
                "kv": layer.kv_values,
                "window": layer.window,
                "vectors": layer.vector_parameters,
                "linears": [
                    {"parameters": one.parameters, "copies": one.copies, "active": one.active}
                    for one in layer.linears
                ],
            }
            for layer in shape.layers
        ],
    }
