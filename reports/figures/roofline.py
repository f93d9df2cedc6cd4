"""The roofline with prefill and decode placed on it: two different worlds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engines import flops
from engines import roofline as theory
from reports.figures.style import (
    ACCENT,
    INK,
    MUTED,
    SOFT,
    Drawing,
    new_axes,
    plain_log_axis,
    styled,
    whiskers,
)
from reports.units import significant

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

    from engines.shape import ModelShape
    from reports.figures.machine import Machine
    from reports.rows import EngineRow

PROMPTS = (128, 1024)
BATCHES = (1, 16)


@styled
def draw(shape: ModelShape, machine: Machine, rows: Sequence[EngineRow] = ()) -> Drawing:
    """Attainable TFLOP/s against FLOP per byte; needs a device whose FLOP/s are known."""
    if machine.flops_per_s is None:
        raise ValueError(f"{machine.name}: a roofline needs the FLOP/s of a datasheet, got none")
    figure, axes = new_axes()
    ridge = theory.ridge_point(machine.flops_per_s, machine.bandwidth_bytes_per_s)
    peak = machine.flops_per_s / 1e12
    axes.plot([0.3, ridge, 6000], [0.3 * peak / ridge, peak, peak], color=INK, linewidth=1.6)
    axes.plot([ridge, ridge], [1e-9, peak], color=MUTED, linestyle=":", linewidth=1)
    axes.annotate(
        f"ridge {significant(ridge)} FLOP/B",
        (ridge, peak),
        xytext=(-6, 5),
        ha="right",
        textcoords="offset points",
        color=INK,
        fontsize=9,
    )
    for batch in BATCHES:
        x = theory.decode_intensity(shape, 512, batch)
        _place(axes, x, peak, ridge, f"decode, B = {batch}", ACCENT, "o")
    for prompt in PROMPTS:
        x = theory.prefill_intensity(shape, prompt)
        _place(axes, x, peak, ridge, f"prefill, {prompt:,}", SOFT, "s")
    for row in rows:
        _measured(axes, shape, row)
    axes.set_xscale("log")
    axes.set_yscale("log")
    low = [_achieved(shape, row) / 1e12 for row in rows]
    axes.set_ylim(min([0.3 * peak / ridge, *low]) / 2, peak * 2.2)
    axes.set_xlim(0.3, 6000)
    plain_log_axis(axes.xaxis)
    plain_log_axis(axes.yaxis)
    axes.set_xlabel("arithmetic intensity [FLOP/byte]")
    axes.set_ylabel("attainable [TFLOP/s]")
    decode = theory.decode_intensity(shape, 512, 1)
    share = min(1.0, decode / ridge)
    return Drawing(
        name="roofline",
        title="Prefill and decode on the roofline",
        caption=f"{machine.name}: at batch 1 decode does {significant(decode, 2)} FLOP per byte "
        f"and can use {100 * share:.1f} % of the arithmetic; a long prefill reaches the roof."
        + (" Hollow: measured decode steps." if rows else ""),
        alt=f"Roofline of {machine.name} with its ridge at {significant(ridge)} FLOP per byte. "
        f"Decode at batch 1 lies at {significant(decode, 2)}, far left of it; a prefill of 1,024 "
        "tokens lies right of it.",
        figure=figure,
    )


def _place(
    axes: Axes, x: float, peak: float, ridge: float, label: str, color: str, marker: str
) -> None:
    y = min(peak, peak * x / ridge)
    axes.plot([x], [y], marker=marker, color=color, markersize=7)
    axes.annotate(label, (x, y), xytext=(8, -12), textcoords="offset points", color=INK, fontsize=9)


def _achieved(shape: ModelShape, row: EngineRow) -> float:
    """FLOP/s that a measured decode step did."""
    context = row.prompt_tokens + row.new_tokens // 2
    return flops.decode_flops(shape, context, row.batch_size) / row.step_s.centre


def _measured(axes: Axes, shape: ModelShape, row: EngineRow) -> None:
    context = row.prompt_tokens + row.new_tokens // 2
    x = flops.decode_flops(shape, context, row.batch_size) / row.bytes_per_step
    whiskers(axes, x, _achieved(shape, row) / 1e12, None, None, color=ACCENT)
