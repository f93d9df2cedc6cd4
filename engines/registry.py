"""Engines by name.

A module is imported only when its engine is built, so that a missing optional dependency disables
one engine and nothing else.
"""

from __future__ import annotations

import importlib
import inspect
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from engines.clock import Clock
    from engines.engine import Engine
    from engines.models import LoadedModel

_WHERE = {
    "naive": ("engines.naive", "Naive"),
    "static_kv": ("engines.static_kv", "StaticKV"),
    "compiled": ("engines.compiled", "Compiled"),
    "continuous": ("engines.continuous", "Continuous"),
    "continuous_graph": ("engines.continuous_graph", "ContinuousGraph"),
    "fused_continuous": ("engines.fused_continuous", "FusedContinuous"),
    "static_batch": ("engines.static_batch", "StaticBatch"),
    "generate_batch": ("engines.generate_batch", "GenerateBatch"),
    "int8": ("engines.quantized", "Int8"),
    "nf4": ("engines.quantized", "NF4"),
    "fused": ("engines.fused", "Fused"),
    "fused_int8": ("engines.fused", "FusedInt8"),
    "fused_nf4": ("engines.fused", "FusedNF4"),
    "vllm": ("engines.vllm_engine", "VLLM"),
    "vllm_eager": ("engines.vllm_engine", "VLLMEager"),
}
ENGINE_NAMES: tuple[str, ...] = tuple(_WHERE)
SHARED = ("batch_size", "max_tokens", "clock")
"""What every engine is built with; the other keywords of a constructor are its own options."""


def build_engine(
    name: str,
    loaded: LoadedModel,
    *,
    batch_size: int,
    max_tokens: int,
    clock: Clock,
    **options: Any,
) -> Engine:
    """The named engine around a loaded model; `max_tokens` bounds prompt plus answer of a request.

    `options` are the engine's own, for instance `backend="aot_eager"` for `compiled`. Raises
    ValueError for an unknown name or option or an absurd size, ImportError for what is missing.
    """
    if name not in _WHERE:
        raise ValueError(f"unknown engine {name!r}: expected one of {', '.join(ENGINE_NAMES)}")
    if batch_size < 1 or max_tokens < 2:
        raise ValueError(
            f"batch_size {batch_size} and max_tokens {max_tokens}: expected at least 1 row and at "
            "least 2 tokens (one of prompt, one of answer)"
        )
    module, attribute = _WHERE[name]
    kind: type = getattr(importlib.import_module(module), attribute)
    _refuse_unknown(options, name, _options_of(kind))
    engine: Engine = kind(
        loaded, batch_size=batch_size, max_tokens=max_tokens, clock=clock, **options
    )
    return engine


def _options_of(kind: type) -> list[str]:
    """Keywords of the constructors of this class and of those it hands the rest to."""
    parameters = [p for c in kind.__mro__[:-1] for p in inspect.signature(c).parameters.values()]
    return sorted({p.name for p in parameters if p.kind is p.KEYWORD_ONLY and p.name not in SHARED})


def _refuse_unknown(options: Iterable[str], name: str, known: list[str]) -> None:
    for option in options:
        if option not in known:
            expected = f"expected one of {', '.join(known)}" if known else "it has none"
            raise ValueError(f"engine {name} has no option {option!r}: {expected}")
