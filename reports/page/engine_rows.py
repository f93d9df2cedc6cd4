"""Engine rows as the page shows them: speed, memory and quality of one engine in one line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from reports.page.cells import Cell, cell, size

if TYPE_CHECKING:
    from reports.rows import EngineRow
    from reports.runfile import RunFile


@dataclass(frozen=True)
class RowView:
    """Speed, memory and quality of one engine in one line."""

    subject: str
    setting: str
    times: tuple[Cell, ...]
    sizes: tuple[str, ...]
    quality: str


@dataclass(frozen=True)
class EngineTable:
    """All engine rows, and the setting that they share."""

    setting: str
    rows: tuple[RowView, ...]


def engine_table(run: RunFile) -> EngineTable:
    """What all rows share stands once above the table; what they do not, behind the name."""
    shared = {_setting(row) for row in run.rows}
    named = len(shared) > 1
    return EngineTable(
        setting=next(iter(shared)) if len(shared) == 1 else "Prompt and output as named.",
        rows=tuple(_row(row, _setting(row) if named else "") for row in run.rows),
    )


def _setting(row: EngineRow) -> str:
    return (
        f"Prompt {row.prompt_tokens}, output {row.new_tokens} tokens, {row.dtype} on {row.device}."
    )


def _row(row: EngineRow, setting: str) -> RowView:
    return RowView(
        subject=row.subject,
        setting=setting,
        times=tuple(map(cell, (row.tokens_per_s, row.ttft_s, row.itl_p50_s, row.itl_p99_s))),
        sizes=(size(row.weights_bytes), size(row.kv_bytes), size(row.peak_bytes)),
        quality=row.quality.text,
    )
