"""Memory against context: where a batch of sequences fills the card."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from engines import cost
from reports.figures.style import INK, MUTED, SERIES, Drawing, new_axes, styled, whiskers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

    from engines.shape import ModelShape
    from reports.rows import EngineRow

BATCHES = (1, 4, 16)
POINTS = 400
LOOKS = (SERIES[3], SERIES[1], SERIES[0])


@dataclass(frozen=True)
class Card:
    """A memory to be filled, and what it is called."""

    name: str
    memory_bytes: float


@styled
def draw(
    shape: ModelShape, card: Card, rows: Sequence[EngineRow] = (), bytes_per_value: float = 2.0
) -> Drawing:
    """Weights and KV for B = 1, 4, 16, the card's line, and the crossing of each batch with it."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    figure, axes = new_axes()
    longest = shape.max_position_embeddings or 32_768
    contexts = np.unique(np.linspace(0, longest, POINTS).astype(int))
    crossings = []
    for batch_size, look in zip(BATCHES, LOOKS, strict=True):
        held = [
            cost.weight_bytes(shape, bytes_per_value)
            + cost.kv_cache_bytes(shape, int(context), batch_size, bytes_per_value)
            for context in contexts
        ]
        line = {key: look[key] for key in ("color", "linestyle")}
        axes.plot(contexts, np.array(held) / 1e9, label=f"B = {batch_size}", **line)
        full = cost.context_tokens_that_fill(
            shape, card.memory_bytes, batch_size, bytes_per_value, bytes_per_value
        )
        if full is not None and 0 < full <= longest:
            crossings.append((batch_size, full))
            axes.plot([full], [card.memory_bytes / 1e9], color=look["color"], marker=look["marker"])
    _mark_card(axes, card, crossings)
    for row in rows:
        bytes_ = row.peak_bytes or row.weights_bytes + row.kv_bytes
        whiskers(axes, row.prompt_tokens + row.new_tokens, bytes_ / 1e9, None, None, color=INK)
    axes.set_xlim(0, longest)
    axes.set_ylim(0, card.memory_bytes / 1e9 * 1.35)
    axes.set_xlabel("context per sequence [tokens]")
    axes.set_ylabel("weights and KV cache [GB]")
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.yaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.legend(loc="best")
    reached = "; ".join(f"B = {b} fills it at {int(tokens):,} tokens" for b, tokens in crossings)
    return Drawing(
        name="memory",
        title="Memory against context",
        caption=f"Lines: weights plus KV cache. {card.name}: {reached or 'no batch fills it'}."
        + (" Hollow points: bytes held by engines of this run." if rows else ""),
        alt="Bytes held against context for batch sizes 1, 4 and 16, with the line of "
        f"{card.name}: {reached or 'none crosses it'}.",
        figure=figure,
    )


def _mark_card(axes: Axes, card: Card, crossings: Sequence[tuple[int, float]]) -> None:
    level = card.memory_bytes / 1e9
    axes.axhline(level, color=INK, linewidth=1.2)
    axes.annotate(
        card.name,
        (1, level),
        xycoords=("axes fraction", "data"),
        xytext=(0, 4),
        textcoords="offset points",
        ha="right",
        color=INK,
        fontsize=9,
    )
    for _, tokens in crossings[-1:]:
        axes.plot([tokens, tokens], [0, level], color=MUTED, linewidth=0.9, linestyle=":")
        axes.annotate(
            f"{int(tokens):,}",
            (tokens, level),
            xytext=(-5, 6),
            ha="right",
            textcoords="offset points",
            color=INK,
            fontsize=9,
        )
