"""Journal, resume, salvage and the JSON at the end, on a small suite in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from reports import journal
from reports.runfile import load_run
from tests.meta.mini_suite import ROOT, MiniSuite

FAULTY = """
import pytest
from reports.bounds import above

@pytest.mark.claim("C10")
def test_refuted(judge):
    judge(1.0, above(2.0), quantity="rate", subject="engine@1")
    judge(3.0, above(2.0), quantity="rate", subject="engine@2")

@pytest.mark.claim("C11")
def test_crashes(judge, benchmark):
    benchmark.pedantic(lambda: None, rounds=1, iterations=1)
    raise RuntimeError("CUDA out of memory, or worse")

def test_not_a_number(record_series, benchmark):
    benchmark.pedantic(lambda: None, rounds=2, iterations=1)
    record_series("odd", [{"nan": float("nan"), 3: {1, 2}}])
"""


@pytest.fixture
def suite(tmp_path):
    return MiniSuite(tmp_path)


def test_a_finished_run_has_journal_and_json_with_the_same_tests(suite):
    done = suite.run()
    assert done.returncode == 0, done.stdout + done.stderr
    run = load_run(suite.json)
    lines = journal.read(suite.journal)
    assert len(lines.tests) == 4
    experiment = json.loads(suite.json.read_text())["experiment"]
    assert [t["nodeid"] for t in experiment["tests"]] == [t["nodeid"] for t in lines.tests]
    assert len(experiment["verdicts"]) == 4
    assert run is not None
    assert json.loads((suite.folder / "results.json").read_text())["run_id"] == experiment["run_id"]


def test_a_refuted_claim_fails_and_the_later_numbers_of_the_test_are_kept(tmp_path):
    suite = MiniSuite(tmp_path, FAULTY)
    done = suite.run()
    assert done.returncode == 1
    tests = {t["nodeid"].split("::")[1]: t for t in journal.read(suite.journal).tests}
    assert tests["test_refuted"]["outcome"] == "failed"
    assert [v["outcome"] for v in tests["test_refuted"]["verdicts"]] == ["refuted", "confirmed"]
    assert tests["test_crashes"]["outcome"] == "error"
    assert "CUDA out of memory" in tests["test_crashes"]["reason"]


@pytest.mark.thorough
def test_report_mode_records_a_refuted_claim_without_failing(tmp_path):
    suite = MiniSuite(tmp_path, FAULTY)
    done = suite.run("--claims", "report", "-k", "refuted")
    assert done.returncode == 0, done.stdout
    assert "1 refuted" in done.stdout


@pytest.mark.thorough
def test_everything_written_is_strict_json(tmp_path):
    suite = MiniSuite(tmp_path, FAULTY)
    suite.run("-k", "not_a_number")

    def refuse(name):
        raise AssertionError(f"{name} in the JSON")

    found = json.loads(suite.json.read_text(), parse_constant=refuse)
    assert found["experiment"]["series"][0]["points"] == [{"nan": None, "3": [1, 2]}]


def test_resume_finishes_without_repeating(suite):
    suite.run("-k", "n:0 or n:1", "--benchmark-disable-gc")
    done = suite.run("--resume")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout
    found = json.loads(suite.json.read_text())
    assert len(found["experiment"]["tests"]) == 4
    assert len(found["benchmarks"]) == 4
    assert [block["block"] for block in found["experiment"]["blocks"]] == [0, 1]
    assert [t["block"] for t in found["experiment"]["tests"]] == [0, 0, 1, 1]


@pytest.mark.thorough
@pytest.mark.thorough
def test_resume_refuses_another_kind_of_run(suite):
    """One run with everything changed; each difference alone is in test_journal."""
    suite.run("-k", "n:0")
    lines = suite.journal.read_text().splitlines()
    header = json.loads(lines[0])
    header["device"] |= {"name": "Tesla T4", "driver": "999.99"}
    header["versions"] |= {"torch": "2.11.0", "transformers": "4.0.0"}
    header["profile"] = "full"
    suite.journal.write_text("\n".join([json.dumps(header), *lines[1:]]) + "\n")
    done = suite.run("--resume")
    assert done.returncode == 4
    assert "--resume: this is another run" in done.stderr
    for was in ("Tesla T4", "999.99", "2.11.0", "4.0.0", "full"):
        assert was in done.stderr


@pytest.mark.thorough
def test_resume_accepts_another_host_of_the_same_kind_as_a_new_block(suite):
    suite.run("-k", "n:0")
    lines = suite.journal.read_text().splitlines()
    header = json.loads(lines[0])
    header["blocks"][0]["host"] = "another-host"
    suite.journal.write_text("\n".join([json.dumps(header), *lines[1:]]) + "\n")
    assert suite.run("--resume").returncode == 0
    blocks = json.loads(suite.json.read_text())["experiment"]["blocks"]
    assert blocks[0]["host"] == "another-host" != blocks[1]["host"]


@pytest.mark.thorough
def test_an_older_file_is_moved_away_and_never_looks_new(suite):
    suite.json.write_text("old")
    suite.run("-k", "n:0")
    assert (suite.folder / "out.previous.json").read_text() == "old"


@pytest.mark.thorough
def test_a_missing_folder_is_said_at_the_start(suite):
    done = suite.run("--benchmark-json=nowhere/out.json", journal=False)
    assert done.returncode == 4
    assert "folder nowhere does not exist" in done.stderr
    assert len([line for line in done.stderr.splitlines() if line.strip()]) == 1


@pytest.mark.thorough
def test_salvage_gives_a_json_that_pytest_benchmark_compares(suite):
    suite.run()
    suite.json.unlink()
    for command in (
        [sys.executable, "-m", "reports", "salvage", str(suite.journal), "-o", str(suite.json)],
        [sys.executable, "-m", "pytest_benchmark", "compare", str(suite.json)],
    ):
        done = subprocess.run(
            command, cwd=ROOT, env=suite.environment(), capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
    assert "test_number" in done.stdout


MANY_ROUNDS = """
def test_many(benchmark):
    benchmark.pedantic(lambda: None, rounds=1500, iterations=1)

def test_few(benchmark):
    benchmark.pedantic(lambda: None, rounds=5, iterations=1)
"""


@pytest.mark.thorough
def test_many_raw_values_are_left_out_and_their_statistics_stay(tmp_path):
    suite = MiniSuite(tmp_path, MANY_ROUNDS)
    suite.run()
    written = json.loads(suite.json.read_text())["benchmarks"]
    kept = [entry for test in journal.read(suite.journal).tests for entry in test["benchmarks"]]
    for entries in (written, kept):
        stats = {entry["name"]: entry["stats"] for entry in entries}
        assert "data" not in stats["test_many"]
        assert stats["test_many"]["rounds"] == 1500
        assert len(stats["test_few"]["data"]) == 5
    command = [sys.executable, "-m", "pytest_benchmark", "compare", str(suite.json)]
    assert subprocess.run(command, env=suite.environment(), check=False).returncode == 0
