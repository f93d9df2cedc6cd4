"""Engines by name.

A module is imported only when its engine is built, so that a missing optional dependency disables
one engine and nothing else.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from engines.engine import Engine

if TYPE_CHECKING:
    from engines.clock import Clock
    from engines.models import LoadedModel

Builder = Callable[..., Engine]

_WHERE = {
    "naive": ("engines.naive", "Naive"),
    "static_kv": ("engines.static_kv", "StaticKV"),
    "compiled": ("engines.compiled", "Compiled"),
    "continuous": ("engines.continuous", "Continuous"),
    "static_batch": ("engines.static_batch", "StaticBatch"),
    "generate_batch": ("engines.generate_batch", "GenerateBatch"),
    "int8": ("engines.quantized", "Int8"),
    "nf4": ("engines.quantized", "NF4"),
}
ENGINE_NAMES: tuple[str, ...] = tuple(_WHERE)


def build_engine(
    name: str, loaded: LoadedModel, *, batch_size: int, max_tokens: int, clock: Clock
) -> Engine:
    """The named engine around a loaded model; `max_tokens` bounds prompt plus answer of a request.

    Raises ValueError for an unknown name or an absurd size, ImportError for a missing dependency.
    """
    if name not in _WHERE:
        raise ValueError(f"unknown engine {name!r}: expected one of {', '.join(ENGINE_NAMES)}")
    if batch_size < 1 or max_tokens < 2:
        raise ValueError(
            f"batch_size {batch_size} and max_tokens {max_tokens}: expected at least 1 row and at "
            "least 2 tokens (one of prompt, one of answer)"
        )
    module, attribute = _WHERE[name]
    builder = cast("Builder", getattr(importlib.import_module(module), attribute))
    return builder(loaded, batch_size=batch_size, max_tokens=max_tokens, clock=clock)
