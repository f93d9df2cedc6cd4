"""A disk that fills up costs the journal its later lines, and no number that was measured."""

from __future__ import annotations

import errno
import os

import pytest

from reports import journal
from tests.meta.inner_run import InnerRun

SUITE = """
import pytest
from fixtures.recording import run_record
from reports.bounds import below

@pytest.mark.claim("C10")
@pytest.mark.parametrize("index", range(4))
def test_number(index, judge, benchmark):
    benchmark.pedantic(lambda: None, rounds=2, iterations=1)
    judge(float(index), below(10.0), quantity="index", subject=f"engine@{index}")

def test_that_adds_to_the_header(request):
    run_record(request.config).update_header(ceilings={"read_bytes_per_s": 1.0})
"""
HEADER_AND_TWO_TESTS = 3


@pytest.fixture
def run(pytester, monkeypatch):
    return InnerRun(pytester, monkeypatch)


@pytest.fixture
def full_disk(monkeypatch):
    """The disk takes this many lines and then is full."""
    lines = []
    fsync = os.fsync

    def until_full(descriptor):
        lines.append(descriptor)
        if len(lines) > HEADER_AND_TWO_TESTS:
            raise OSError(errno.ENOSPC, "No space left on device")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", until_full)
    return lines


def test_the_run_goes_on_says_so_once_and_writes_its_json(run, full_disk):
    done = run(SUITE, "--benchmark-json=out.json")
    done.assert_outcomes(passed=5)
    notices = [line for line in done.outlines if "No space left on device" in line]
    assert len(notices) == 1
    assert "every line before it is kept: free some space and go on with --resume" in notices[0]
    assert len(run.outcomes) == 5
    assert len(run.json["experiment"]["verdicts"]) == 4
    assert len(run.json["benchmarks"]) == 4
    assert run.json["experiment"]["ceilings"] == {"read_bytes_per_s": 1.0}


def test_the_journal_keeps_whole_lines_and_can_be_resumed(run, full_disk, monkeypatch):
    run(SUITE, "--benchmark-json=out.json")
    kept = journal.read(run.folder / "out.jsonl")
    assert len(kept.tests) == 2
    assert kept.warnings == []
    full_disk.clear()
    monkeypatch.setattr(os, "fsync", lambda _: None)
    run(SUITE, "--benchmark-json=out.json", "--resume").assert_outcomes(passed=3, deselected=2)
    assert len(run.outcomes) == 5
    assert len(run.json["experiment"]["verdicts"]) == 4


def test_a_notice_is_printed_without_any_verdict(run, full_disk):
    tests = "import pytest\n@pytest.mark.parametrize('i', range(4))\ndef test_plain(i): pass\n"
    done = run(tests, "--benchmark-json=out.json")
    assert sum("No space left on device" in line for line in done.outlines) == 1
    assert len(run.outcomes) == 4


def test_a_disk_that_is_full_from_the_start_is_refused_in_one_line(run, monkeypatch):
    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    done = run(SUITE, "--benchmark-json=out.json")
    assert done.ret == 4
    (line,) = [line for line in done.stderr.lines if line.strip()]
    assert "No space left on device" in line
