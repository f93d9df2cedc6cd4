"""`results.json`: theory, measured, interval, unit, batch size and phase of every quantity."""

from __future__ import annotations

import json

import pytest

from reports.results import markdown, results_of, write_results
from tests.meta.sample_run import cpu_run, gpu_run, saved


@pytest.fixture
def gpu(tmp_path):
    return saved(tmp_path / "out.json", gpu_run(1))


def find(results, quantity, engine, batch_size=1):
    (found,) = [r for r in results if (r.quantity, r.engine, r.batch_size)
                == (quantity, engine, batch_size)]  # fmt: skip
    return found


def test_every_quantity_has_its_unit_batch_size_and_phase(gpu):
    results = results_of(gpu)
    assert {r.quantity for r in results} >= {"decode rate", "decode step", "TTFT", "ITL p50",
                                             "weights", "KV cache", "peak memory"}  # fmt: skip
    assert all(r.unit and r.batch_size >= 1 for r in results)
    assert {r.phase for r in results if r.quantity == "TTFT"} == {"prefill"}


def test_theory_of_a_decode_rate_is_the_lowest_ceiling_of_its_own_bytes(gpu):
    found = find(results_of(gpu), "decode rate", "compiled")
    row = next(row for row in gpu.rows if row.subject == "compiled@1")
    assert found.theory == pytest.approx(4.12e12 * 0.98 / row.bytes_per_step)
    assert found.theory_source == "ceiling by measured copy"
    assert (found.low, found.high) == row.tokens_per_s.interval


def test_theory_of_bytes_is_the_arithmetic_of_the_config(gpu):
    results = results_of(gpu)
    assert find(results, "weights", "naive").theory == 1_192_099_840
    assert find(results, "KV cache", "continuous", 16).theory == 16 * 256 * 114_688
    assert find(results, "weights", "nf4").theory == pytest.approx(559_000_000, rel=0.001)


def test_a_run_without_ceilings_has_no_theory_and_says_null(tmp_path):
    document = cpu_run(1)
    document["experiment"]["ceilings"] = {}
    run = saved(tmp_path / "a.json", document)
    assert find(results_of(run), "decode rate", "naive").theory is None
    write_results(run, tmp_path / "results.json")
    content = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    assert content["results"][0]["theory"] is None
    assert content["model"] == "tiny"


def test_the_table_is_markdown_with_one_line_per_quantity(gpu):
    lines = markdown(results_of(gpu)).splitlines()
    assert len(lines) == len(results_of(gpu)) + 2
    assert lines[2].startswith("| decode rate | naive@1 | decode | ")
