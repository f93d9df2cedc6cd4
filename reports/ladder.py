"""The rungs of the ladder: each engine at batch 1 against the ceilings of its own bytes.

A ceiling is bandwidth / bytes per step. There are three, and they are different numbers: by the
datasheet's bandwidth, by the read bandwidth measured in this run, and by the measured copy. A CPU
has no datasheet here: its measured read is the ceiling.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from reports.estimate import Estimate
    from reports.rows import EngineRow
    from reports.runfile import RunFile

ORDER = ("naive", "static_kv", "compiled", "fused")
BESIDE = ("fused_int8", "fused_nf4", "continuous", "continuous_graph", "fused_continuous", "vllm")
"""Engines that are no rungs, shown below the ladder for comparison."""
CEILINGS = {
    "datasheet_bytes_per_s": "datasheet",
    "read_bytes_per_s": "measured read",
    "copy_bytes_per_s": "measured copy",
}


@dataclass(frozen=True)
class Rung:
    """One engine, its ceilings [tok/s] by name, and its gain over the rung before.

    The first rung has no gain, nor has an engine that only stands `beside` the ladder.
    """

    row: EngineRow
    ceilings: Mapping[str, float]
    gain: float | None
    beside: bool = False

    @property
    def speed(self) -> Estimate:
        """Aggregate tokens per second."""
        return self.row.tokens_per_s

    def share(self, ceiling: str) -> float | None:
        """Measured speed over that ceiling, None where the ceiling is not known."""
        return self.speed.centre / self.ceilings[ceiling] if ceiling in self.ceilings else None


def bandwidths(run: RunFile) -> dict[str, float]:
    """The known bandwidths [bytes/s] by printed name."""
    found = {}
    for key, name in CEILINGS.items():
        value = run.experiment["ceilings"].get(key)
        value = value.get("centre") if isinstance(value, Mapping) else value
        if isinstance(value, int | float) and value > 0:
            found[name] = float(value)
    return found


def row_ceilings(row: EngineRow, known: Mapping[str, float]) -> dict[str, float]:
    """Tokens per second at each bandwidth, from the bytes that this row's step must read."""
    if row.bytes_per_step <= 0:
        return {}
    return {name: row.batch_size * b / row.bytes_per_step for name, b in known.items()}


def rungs(run: RunFile) -> list[Rung]:
    """Rungs of the ladder in its order, then what stands beside it: one prompt and output for all.

    Without a rung there is nothing to stand beside, and the list is empty.
    """
    rows = [row for row in run.rows if row.batch_size == 1 and row.phase == "decode"]
    rows = [row for row in rows if row.engine in (*ORDER, *BESIDE)]
    rows = _of_one_setting(rows)
    known, climbed = bandwidths(run), list[Rung]()
    for engine in ORDER:
        row = next((row for row in rows if row.engine == engine), None)
        if row is None:
            continue
        before = climbed[-1].speed.centre if climbed else None
        gain = row.tokens_per_s.centre / before if before else None
        climbed.append(Rung(row, row_ceilings(row, known), gain))
    if not climbed:
        return []
    peers = [next((r for r in rows if r.engine == engine), None) for engine in BESIDE]
    found = [Rung(row, row_ceilings(row, known), None, beside=True) for row in peers if row]
    return climbed + found


def _of_one_setting(rows: list[EngineRow]) -> list[EngineRow]:
    """Rows of the setting with the most rungs; where two have as many, with the most engines."""

    def setting(row: EngineRow) -> tuple[str, int, int]:
        return row.device, row.prompt_tokens, row.new_tokens

    measured = {(setting(row), row.engine) for row in rows}
    if not measured:
        return []
    engines_of = Counter(s for s, _ in measured)
    rungs_of = Counter(s for s, engine in measured if engine in ORDER)
    chosen = max(engines_of, key=lambda s: (rungs_of[s], engines_of[s]))
    return [row for row in rows if setting(row) == chosen]
