"""One line per engine of a committed run: batch 1 beside batch 16, and an independent figure.

The last column holds what the same engine did in measurements made before this program existed
(one H200, fp16, random weights of the true shape, prompt 128, output 128, torch 2.11, transformers
5.17, vLLM 0.25.1). Hosts differ: `generate` alone gave 27 and 39 tok/s on two of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from reports.engine_table import bytes_or_dash, share_of_ceiling, with_interval_or_dash
from reports.ladder import BESIDE, bandwidths
from reports.ladder import ORDER as RUNGS
from reports.markdown import table
from reports.units import printed_unit, significant

if TYPE_CHECKING:
    from reports.estimate import Estimate
    from reports.rows import EngineRow
    from reports.runfile import RunFile

BATCH = 16
ORDER = (*RUNGS, "int8", "nf4", "static_batch", "generate_batch", *BESIDE)
INDEPENDENT = {
    ("qwen3-0.6b-shape", "naive"): {1: 39.0},
    ("qwen3-0.6b-shape", "compiled"): {1: 697.0},
    ("qwen3-0.6b-shape", "fused"): {1: 1487.0},
    ("qwen3-0.6b-shape", "int8"): {1: 15.8},
    ("qwen3-0.6b-shape", "nf4"): {1: 32.8},
    ("qwen3-0.6b-shape", "generate_batch"): {16: 149.0},
    ("qwen3-0.6b-shape", "continuous_graph"): {16: 3686.0},
    ("qwen3-0.6b-shape", "vllm"): {1: 559.0, 16: 8238.0},
    ("qwen3-8b-shape", "naive"): {1: 32.6},
    ("qwen3-8b-shape", "compiled"): {1: 187.5},
    ("qwen3-8b-shape", "fused"): {1: 238.0},
    ("qwen3-8b-shape", "vllm"): {1: 186.8},
}
"""tok/s by model and engine, and by batch size."""
HEAD = [
    "engine", "tok/s@1", "ITL p50", "ITL p99", "TTFT", f"tok/s@{BATCH}", "memory", "of datasheet",
    "of measured read", "per layer over the floor", "measured independently",
]  # fmt: skip


def overview(run: RunFile) -> str:
    """The table as Markdown: a line per engine of the run; arms of comparisons have none."""
    rows = [row for row in run.rows if row.phase == "decode" and row.batch_size in (1, BATCH)]
    known = bandwidths(run)
    present = {row.engine for row in rows}
    return table(HEAD, [_line(engine, rows, known) for engine in ORDER if engine in present])


def _line(engine: str, rows: list[EngineRow], known: dict[str, float]) -> list[str]:
    one, many = (_longest(engine, size, rows) for size in (1, BATCH))
    row = one or many
    assert row is not None, "the engine was taken from these rows"
    return [
        engine,
        with_interval_or_dash(one.tokens_per_s if one else None),
        with_interval_or_dash(row.itl_p50_s),
        _centre(row.itl_p99_s),
        _centre(row.ttft_s),
        with_interval_or_dash(many.tokens_per_s if many else None),
        bytes_or_dash(row.peak_bytes or row.weights_bytes + row.kv_bytes),
        share_of_ceiling(row, known.get("datasheet")),
        share_of_ceiling(row, known.get("measured read")),
        with_interval_or_dash(row.layer_overhead_s),
        _independent(row),
    ]


def _longest(engine: str, batch_size: int, rows: list[EngineRow]) -> EngineRow | None:
    """The row with the longest output: the steadiest figure of this engine and batch size."""
    own = [row for row in rows if (row.engine, row.batch_size) == (engine, batch_size)]
    return max(own, key=lambda row: row.new_tokens, default=None)


def _centre(estimate: Estimate | None) -> str:
    if estimate is None:
        return "–"
    return printed_unit(estimate.unit, estimate.centre).with_label(estimate.centre)


def _independent(row: EngineRow) -> str:
    found = INDEPENDENT.get((row.model, row.engine), {})
    return ", ".join(f"{significant(rate)} tok/s@{size}" for size, rate in found.items()) or "–"
