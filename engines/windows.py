"""How far back each layer looks: the sliding and chunked windows of a config.

New files list their `layer_types`; older ones leave the pattern to the family's code, and some
carry a window that a second key switches off. A layer without a window is None.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from engines.configs import Config
    from engines.families import Family

WINDOW_KEY = {
    "full_attention": None,
    "sliding_attention": "sliding_window",
    "chunked_attention": "attention_chunk_size",
}


def layer_windows(config: Config, family: Family) -> list[int | None]:
    """The window of every layer [tokens], None where a layer attends to everything.

    Raises ValueError for a layer that is neither full nor windowed attention, such as a
    state-space or a linear-attention layer: its memory does not grow per token.
    """
    count = config.whole("num_hidden_layers")
    stated = config.sequence("layer_types")
    if stated is None:
        windowed = _PATTERNS[family.windows](config)
        key = "attention_chunk_size" if family.windows == "chunked" else "sliding_window"
        window = config.whole_or_none(key, least=0) or None
        return [window if windowed(index) else None for index in range(count)]
    _check_length(config, "layer_types", stated)
    return [_window_of(config, kind) for kind in stated[:count]]


def _check_length(config: Config, key: str, stated: list[Any]) -> None:
    count = config.whole("num_hidden_layers")
    if len(stated) < count:
        raise ValueError(
            f"{config.source}: {len(stated)} {key}, expected one for each of {count} layers"
        )


def _window_of(config: Config, kind: object) -> int | None:
    if not isinstance(kind, str) or kind not in WINDOW_KEY:
        raise ValueError(
            f"{config.source}: layer type {kind!r:.40} is not modelled, expected one of "
            f"{', '.join(WINDOW_KEY)}"
        )
    key = WINDOW_KEY[kind]
    return None if key is None else config.whole_or_none(key)


def _switched_on(config: Config) -> bool:
    return config.flag("use_sliding_window", default=True)


def _all(config: Config) -> Callable[[int], bool]:
    on = _switched_on(config)
    return lambda _: on


def _late(config: Config) -> Callable[[int], bool]:
    on, first = _switched_on(config), config.whole("max_window_layers", least=0)
    return lambda index: on and index >= first


def _even_early(config: Config) -> Callable[[int], bool]:
    on, end = _switched_on(config), config.whole("max_window_layers", least=0)
    return lambda index: on and index < end and index % 2 == 0


def _periodic(config: Config) -> Callable[[int], bool]:
    period = config.whole("sliding_window_pattern")
    return lambda index: (index + 1) % period != 0


def _with_rope(config: Config) -> Callable[[int], bool]:
    """Llama 4 marks rotary layers with 1 in `no_rope_layers`; those are chunked."""
    marks = config.sequence("no_rope_layers")
    if not marks:
        period = config.whole("no_rope_layer_interval")
        return lambda index: (index + 1) % period != 0
    _check_length(config, "no_rope_layers", marks)
    return lambda index: bool(marks[index])


def _without_rope(config: Config) -> Callable[[int], bool]:
    on, with_rope = config.flag("use_sliding_window"), _with_rope(config)
    return lambda index: on and not with_rope(index)


_PATTERNS: dict[str, Callable[[Config], Callable[[int], bool]]] = {
    "none": lambda _: lambda _: False,
    "all": _all,
    "late": _late,
    "even_early": _even_early,
    "periodic": _periodic,
    "chunked": _with_rope,
    "without_rope": _without_rope,
}
