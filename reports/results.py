"""`results.json`: for each quantity what theory says, what was measured, how sure, and at which B.

Theory for a decode rate is the lowest known ceiling of the row's own bytes; for bytes it is the
arithmetic of `engines.cost` on the shape that the run stored. A quantity without theory says null.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from engines import cost
from reports import strict_json
from reports.ladder import bandwidths, row_ceilings
from reports.markdown import table
from reports.stored_shape import run_shape
from reports.units import printed_unit

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from engines.shape import ModelShape
    from reports.estimate import Estimate
    from reports.rows import EngineRow
    from reports.runfile import RunFile

SCHEMA_VERSION = 1
FILE_NAME = "results.json"
QUANTIZED = ("int8", "nf4")


@dataclass(frozen=True)
class Result:
    """One quantity of one engine. `low` and `high` are None where there is no interval."""

    quantity: str
    engine: str
    batch_size: int
    phase: str
    unit: str
    theory: float | None
    theory_source: str
    measured: float
    low: float | None
    high: float | None
    n: int | None
    method: str | None


def results_of(run: RunFile) -> list[Result]:
    """All quantities of all engine rows, in the order of the run."""
    known, shape = bandwidths(run), run_shape(run)
    return [result for row in run.rows for result in _of_row(row, known, shape)]


def write_results(run: RunFile, path: Path) -> None:
    """Write `results.json`, strict JSON."""
    model = run.experiment.get("model") or {}
    content = {
        "schema_version": SCHEMA_VERSION,
        "run_id": run.experiment["run_id"],
        "device": run.experiment["device"]["name"],
        "model": model.get("name"),
        "weights_kind": model.get("weights_kind"),
        "results": [asdict(result) for result in results_of(run)],
    }
    path.write_text(strict_json.dumps(content, indent=1) + "\n", encoding="utf-8")


def _of_row(row: EngineRow, known: dict[str, float], shape: ModelShape | None) -> Iterator[Result]:
    ceilings = row_ceilings(row, known)
    name = min(ceilings, key=lambda ceiling: ceilings[ceiling], default="")
    ceiling, source = ceilings.get(name), f"ceiling by {name}" if name else ""
    step = row.batch_size / ceiling if ceiling else None
    yield _timed("decode rate", row, row.tokens_per_s, ceiling, source)
    yield _timed("decode step", row, row.step_s, step, source)
    for quantity, estimate in (("ITL p50", row.itl_p50_s), ("ITL p99", row.itl_p99_s)):
        if estimate is not None:
            yield _timed(quantity, row, estimate, step, source)
    if row.ttft_s is not None:
        yield _timed("TTFT", row, row.ttft_s, None, "", phase="prefill")
    if row.layer_overhead_s is not None:
        yield _timed("overhead per layer", row, row.layer_overhead_s, 0.0, "no overhead")
    weights, kv = _predicted_bytes(row, shape)
    yield _counted("weights", row, row.weights_bytes, weights)
    yield _counted("KV cache", row, row.kv_bytes, kv)
    if row.peak_bytes is not None:
        both = None if weights is None or kv is None else weights + kv
        yield _counted("peak memory", row, row.peak_bytes, both)


def _predicted_bytes(row: EngineRow, shape: ModelShape | None) -> tuple[int | None, int | None]:
    """Weights and KV by arithmetic; a quantized engine's weights are its format's, not fp16's."""
    from engines.shape import BYTES_PER_VALUE
    from reports.budget import saved_bytes

    width = BYTES_PER_VALUE.get(row.dtype)
    if shape is None or width is None:
        return None, None
    saved = saved_bytes(shape, row.engine) if row.engine in QUANTIZED and width == 2 else 0
    context = row.prompt_tokens + row.new_tokens
    kv = cost.kv_cache_bytes(shape, context, row.batch_size, width)
    unsure = row.engine in QUANTIZED and width != 2
    return None if unsure else cost.weight_bytes(shape, width) - saved, kv


def _timed(
    quantity: str,
    row: EngineRow,
    estimate: Estimate,
    theory: float | None,
    source: str,
    phase: str = "decode",
) -> Result:
    return Result(
        quantity=quantity,
        engine=row.engine,
        batch_size=row.batch_size,
        phase=phase,
        unit=estimate.unit,
        theory=theory,
        theory_source=source,
        measured=estimate.centre,
        low=estimate.low,
        high=estimate.high,
        n=estimate.n,
        method=estimate.method,
    )


def _counted(quantity: str, row: EngineRow, measured: int, theory: int | None) -> Result:
    source = "" if theory is None else "arithmetic on the config"
    return Result(
        quantity,
        row.engine,
        row.batch_size,
        "decode",
        "bytes",
        theory,
        source,
        measured,
        None,
        None,
        None,
        None,
    )


def markdown(results: Sequence[Result]) -> str:
    """The results as a Markdown table, fit for a job summary."""
    head = ("quantity", "engine@B", "phase", "theory", "measured", "interval")
    lines = [
        (
            r.quantity,
            f"{r.engine}@{r.batch_size}",
            r.phase,
            _shown(r, r.theory),
            _shown(r, r.measured),
            _interval(r),
        )
        for r in results
    ]
    return table(head, lines)


def _shown(result: Result, value: float | None) -> str:
    if value is None or not math.isfinite(value):
        return "–"
    return printed_unit(result.unit, result.measured).with_label(value)


def _interval(result: Result) -> str:
    if result.low is None or result.high is None:
        return "counted" if result.method is None else "–"
    unit = printed_unit(result.unit, result.measured)
    return f"[{unit.number(result.low)}, {unit.number(result.high)}] (n = {result.n})"
