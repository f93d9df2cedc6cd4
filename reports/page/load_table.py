"""The load sweep as a table, each value printed by the unit in its key's ending."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from reports.load_sweep import read
from reports.page.cells import NOTHING
from reports.units import printed_unit, significant

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ENDINGS = {"_per_s": "/s", "_s": "s", "_bytes": "bytes"}
NAMES = {"ttft": "TTFT", "itl": "ITL", "e2e": "E2E", "tpot": "TPOT", "kv": "KV"}
COLUMNS = (
    "engine",
    "server",
    "utilisation",
    "offered_per_s",
    "achieved_per_s",
    "goodput_per_s",
    "ttft_p50_s",
    "ttft_p99_s",
    "itl_p50_s",
    "itl_p99_s",
    "e2e_p99_s",
    "requests",
    "failed",
    "valid",
)
"""Columns in their order; those that no point fills are left out."""


@dataclass(frozen=True)
class LoadTable:
    """Column names, and cells as text."""

    columns: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]


def load_table(points: Sequence[Mapping[str, Any]]) -> LoadTable | None:
    """One line per point; None without points."""
    if not points:
        return None
    keys = [key for key in COLUMNS if any(point.get(key) is not None for point in points)]
    if "engine" in keys and "server" in keys:
        keys.remove("server")
    lines = tuple(tuple(_cell(key, point.get(key)) for key in keys) for point in points)
    return LoadTable(tuple(_name(key) for key in keys), lines)


def _name(key: str) -> str:
    for ending in ENDINGS:
        key = key.removesuffix(ending)
    words = [NAMES.get(word, word) for word in key.split("_")]
    return " ".join(words)


def _cell(key: str, value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    estimate = read(value)
    if estimate is None:
        return NOTHING if value is None else str(value)
    if key == "utilisation":
        return f"{estimate.centre:.0%}"
    ending = next((unit for end, unit in ENDINGS.items() if key.endswith(end)), "1")
    unit = printed_unit(ending, estimate.centre)
    text = unit.with_label(estimate.centre) if ending != "1" else significant(estimate.centre)
    if estimate.interval is None:
        return text
    return f"{text} [{unit.number(estimate.interval[0])}, {unit.number(estimate.interval[1])}]"
