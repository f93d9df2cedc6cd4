"""Throughput and latency against batch size: more for all, later for each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engines import cost, roofline
from reports.figures.style import (
    MUTED,
    SERIES,
    WIDTH_IN,
    Drawing,
    plain_log_axis,
    short,
    styled,
    whiskers,
)
from reports.units import printed_unit, significant

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

    from engines.shape import ModelShape
    from reports.figures.machine import Machine
    from reports.rows import EngineRow

BATCHES = (1, 2, 4, 8, 16, 32, 64)
MOST_ENGINES = 3


@styled
def draw(
    shape: ModelShape, machine: Machine, rows: Sequence[EngineRow] = (), context_tokens: int = 512
) -> Drawing:
    """Aggregate tok/s above, time per step below, both against batch size; theory and points."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH_IN, 4.8), layout="constrained")
    speed, step = figure.subplots(2, 1, sharex=True)
    theory = [_step_s(shape, machine, batch, context_tokens) for batch in BATCHES]
    measured = _engines(rows)
    unit = printed_unit("s", max([*theory, *(r.step_s.centre for r in rows if measured)]))
    speed.plot(
        BATCHES,
        [b / s for b, s in zip(BATCHES, theory, strict=True)],
        color=MUTED,
        linestyle="--",
        label="roofline",
    )
    step.plot(BATCHES, [s / unit.factor for s in theory], color=MUTED, linestyle="--")
    for engine, look in zip(measured, SERIES, strict=False):
        _draw_engine(speed, step, _sweep(rows, engine), unit.factor, look)
    for axes in (speed, step):
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
    step.set_xticks(BATCHES, [str(b) for b in BATCHES])
    step.minorticks_off()
    for axes in (speed, step):
        low, high = axes.get_ylim()
        axes.set_ylim(low / 1.25, high * 1.25)
        plain_log_axis(axes.yaxis)
    step.set_xlabel("batch size")
    speed.set_ylabel("all rows [tok/s]")
    step.set_ylabel(f"each row waits [{unit.label}]")
    speed.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, borderaxespad=0.2)
    first, last = BATCHES[0] / theory[0], BATCHES[-1] / theory[-1]
    words = (
        f"from B = {BATCHES[0]} to {BATCHES[-1]} the roofline allows "
        f"{significant(first)} to {significant(last)} tok/s in all, and a step takes "
        f"{unit.with_label(theory[0])} to {unit.with_label(theory[-1])}"
    )
    return Drawing(
        name="batching",
        title="Throughput and latency against batch size",
        caption=f"{machine.name}, {context_tokens} tokens of context: {words}.",
        alt=f"Two panels over batch size; {words}." + _described(rows, measured),
        figure=figure,
    )


def _step_s(shape: ModelShape, machine: Machine, batch: int, context: int) -> float:
    if machine.flops_per_s is None:
        return cost.decode_step_bytes(shape, context, batch) / machine.bandwidth_bytes_per_s
    found = roofline.batch_point(
        shape, machine.bandwidth_bytes_per_s, machine.flops_per_s, batch, context
    )
    return found.step_s


def _engines(rows: Sequence[EngineRow]) -> list[str]:
    """Engines measured at two batch sizes or more, the ones with most first."""
    sizes = {row.engine: _sweep(rows, row.engine) for row in rows}
    several = [engine for engine, found in sizes.items() if len(found) >= 2]
    return sorted(several, key=lambda engine: -len(sizes[engine]))[:MOST_ENGINES]


def _sweep(rows: Sequence[EngineRow], engine: str) -> list[EngineRow]:
    """One row per batch size, from the claim that measured the engine at the most of them."""
    by_claim: dict[str, dict[int, EngineRow]] = {}
    for row in rows:
        if row.engine == engine:
            by_claim.setdefault(row.claim, {})[row.batch_size] = row
    chosen = max(by_claim.values(), key=len)
    return [chosen[size] for size in sorted(chosen)]


def _draw_engine(
    speed: Axes, step: Axes, rows: Sequence[EngineRow], factor: float, look: dict[str, str]
) -> None:
    marks = {"color": look["color"], "marker": look["marker"]}
    for axes, values, scale in (
        (speed, [row.tokens_per_s for row in rows], 1.0),
        (step, [row.step_s for row in rows], factor),
    ):
        axes.plot(
            [row.batch_size for row in rows],
            [v.centre / scale for v in values],
            linewidth=1,
            color=look["color"],
            linestyle=look["linestyle"],
            marker=look["marker"],
            label=short(rows[0].engine),
        )
        for row, value in zip(rows, values, strict=True):
            ends = (None, None) if value.interval is None else value.interval
            low, high = (None if end is None else end / scale for end in ends)
            whiskers(axes, row.batch_size, value.centre / scale, low, high, **marks)


def _described(rows: Sequence[EngineRow], engines: Sequence[str]) -> str:
    shown = [
        f"{r.subject} {significant(r.tokens_per_s.centre)} tok/s"
        for engine in engines
        for r in _sweep(rows, engine)
    ]
    return f" Measured: {', '.join(shown)}." if shown else ""
