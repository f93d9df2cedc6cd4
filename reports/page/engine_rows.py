"""Engine rows as the page shows them: speed, memory and quality of one engine in one line."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from reports.page.cells import NOTHING, Cell, cell, size

if TYPE_CHECKING:
    from reports.rows import EngineRow
    from reports.runfile import RunFile

SIZES = ("Weights", "KV cache", "Peak")


@dataclass(frozen=True)
class RowView:
    """Speed, memory and quality of one engine in one line; `notes` tell equal subjects apart."""

    subject: str
    notes: tuple[str, ...]
    times: tuple[Cell, ...]
    sizes: tuple[str, ...]
    quality: str


@dataclass(frozen=True)
class EngineTable:
    """All engine rows, the setting that they share, and the sizes that at least one of them has."""

    setting: str
    sizes: tuple[str, ...]
    rows: tuple[RowView, ...]


def engine_table(run: RunFile) -> EngineTable:
    """What all rows share stands once above the table; what they do not, behind the name."""
    shared = {_setting(row) for row in run.rows}
    repeated = Counter(row.subject for row in run.rows)
    views = tuple(
        _row(row, _notes(row, setting=len(shared) > 1, claim=repeated[row.subject] > 1))
        for row in run.rows
    )
    known = [i for i in range(len(SIZES)) if any(view.sizes[i] != NOTHING for view in views)]
    return EngineTable(
        setting=next(iter(shared)) if len(shared) == 1 else "Prompt and output as named.",
        sizes=tuple(SIZES[i] for i in known),
        rows=tuple(_only(view, known) for view in views),
    )


def _setting(row: EngineRow) -> str:
    return (
        f"Prompt {row.prompt_tokens}, output {row.new_tokens} tokens, {row.dtype} on {row.device}; "
        f"n = {row.tokens_per_s.n} {row.tokens_per_s.resampled}s."
    )


def _notes(row: EngineRow, *, setting: bool, claim: bool) -> tuple[str, ...]:
    notes = ([_setting(row)] if setting else []) + ([f"measured for {row.claim}"] if claim else [])
    return tuple(notes)


def _row(row: EngineRow, notes: tuple[str, ...]) -> RowView:
    return RowView(
        subject=row.subject,
        notes=notes,
        times=tuple(map(cell, (row.tokens_per_s, row.ttft_s, row.itl_p50_s, row.itl_p99_s))),
        sizes=(size(row.weights_bytes), size(row.kv_bytes), size(row.peak_bytes)),
        quality=row.quality.text,
    )


def _only(view: RowView, known: list[int]) -> RowView:
    sizes = tuple(view.sizes[i] for i in known)
    return RowView(view.subject, view.notes, view.times, sizes, view.quality)
