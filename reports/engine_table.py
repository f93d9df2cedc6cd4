"""Speed, memory and quality of every engine, in one row each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reports.markdown import table
from reports.units import printed_unit, significant

if TYPE_CHECKING:
    from reports.estimate import Estimate
    from reports.rows import EngineRow
    from reports.runfile import RunFile

HEAD = [
    "engine", "model", "prompt + new", "tok/s", "step", "ITL p50", "ITL p99", "TTFT",
    "of datasheet", "of read", "s/layer over floor", "weights", "KV", "peak", "quality",
]  # fmt: skip


def engine_table(run: RunFile) -> str:
    """The table as Markdown, or nothing where the run has no engine rows."""
    if not run.rows:
        return ""
    ceilings = run.experiment["ceilings"]
    datasheet = ceilings.get("datasheet_bytes_per_s")
    read = ceilings.get("read_bytes_per_s")
    measured = read.get("centre") if isinstance(read, dict) else read
    rows = [_cells(row, datasheet, measured) for row in run.rows]
    note = (
        "tok/s is the aggregate over the batch. ITL p99 stands where the sample allows one. Shares "
        "are of the ceiling that the engine's own bytes set."
    )
    return f"## Engines\n\n{table(HEAD, rows)}\n\n{note}"


def _cells(row: EngineRow, datasheet: Any, read: Any) -> list[str]:
    return [
        row.subject,
        f"{row.model} {row.dtype}",
        f"{row.prompt_tokens} + {row.new_tokens}",
        with_interval(row.tokens_per_s),
        with_interval(row.step_s),
        with_interval_or_dash(row.itl_p50_s),
        with_interval_or_dash(row.itl_p99_s),
        with_interval_or_dash(row.ttft_s),
        share_of_ceiling(row, datasheet),
        share_of_ceiling(row, read),
        with_interval_or_dash(row.layer_overhead_s),
        bytes_or_dash(row.weights_bytes),
        bytes_or_dash(row.kv_bytes),
        bytes_or_dash(row.peak_bytes),
        row.quality.text,
    ]


def share_of_ceiling(row: EngineRow, bandwidth_bytes_per_s: float | None) -> str:
    """How near the step comes to moving its bytes at this bandwidth, in percent."""
    if not bandwidth_bytes_per_s or row.step_s.centre <= 0:
        return "–"
    floor_s = row.bytes_per_step / bandwidth_bytes_per_s
    return f"{significant(100 * floor_s / row.step_s.centre)} %"


def with_interval(estimate: Estimate) -> str:
    """`31.2 tok/s [30.8, 31.7]`; without an interval, `no interval` says so."""
    unit = printed_unit(estimate.unit, estimate.centre)
    if estimate.interval is None:
        return f"{unit.with_label(estimate.centre)} (no interval)"
    if estimate.exact:
        return unit.with_label(estimate.centre)
    low, high = estimate.interval
    return f"{unit.with_label(estimate.centre)} [{unit.number(low)}, {unit.number(high)}]"


def with_interval_or_dash(estimate: Estimate | None) -> str:
    """As `with_interval`, or a dash where nothing was measured."""
    return "–" if estimate is None else with_interval(estimate)


def bytes_or_dash(value: int | None) -> str:
    """`1.21 GB`, or a dash where nothing is known."""
    return "–" if value is None else printed_unit("bytes", value).with_label(value)
