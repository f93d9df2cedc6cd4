"""One fsynced line per test: what survives a kill, a full disk, half a line, another machine."""

from __future__ import annotations

import copy
import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from reports import journal
from reports.__main__ import main
from reports.runfile import load_run
from reports.salvage import salvage
from reports.verdict import A_A_CONTROL
from tests.meta.make_run import journal_lines, make_run

ROOT = Path(__file__).parents[2]


@pytest.fixture
def lines() -> list[dict]:
    return journal_lines(make_run())


@pytest.fixture
def written(tmp_path, lines) -> Path:
    path = tmp_path / "out.jsonl"
    for line in lines:
        journal.append(path, line)
    return path


def test_what_is_appended_is_read_back(written, lines):
    found = journal.read(written)
    assert found.header["run_id"] == "synthetic"
    assert [test["nodeid"] for test in found.tests] == [line["nodeid"] for line in lines[1:]]
    assert found.warnings == []


def test_blocks_and_updates_are_merged_into_the_header(written):
    journal.append(written, {"kind": "block", "block": 1, "host": "host-2", "started": "later"})
    journal.append(written, {"kind": "update", "ceilings": {"read_bytes_per_s": 1.0}})
    header = journal.read(written).header
    assert [block["host"] for block in header["blocks"]] == ["host-1", "host-2"]
    assert header["ceilings"] == {"read_bytes_per_s": 1.0}


def test_of_a_repeated_test_the_last_counts(written, lines):
    journal.append(written, {**lines[1], "outcome": "failed", "block": 1})
    tests = journal.read(written).tests
    assert len(tests) == len(lines) - 1
    assert (tests[-1]["nodeid"], tests[-1]["outcome"]) == (lines[1]["nodeid"], "failed")


@pytest.mark.parametrize("cut", [1, 7, 40, -2])
def test_a_half_written_last_line_is_left_out_and_named(written, lines, cut):
    whole = written.read_bytes().splitlines(keepends=True)
    written.write_bytes(b"".join(whole[:-1]) + whole[-1][:cut])
    found = journal.read(written)
    assert len(found.tests) == len(lines) - 2
    assert found.warnings == [f"{written}: line {len(lines)} is half-written and left out"]


def test_going_on_after_half_a_line_loses_nothing(written, lines):
    whole = written.read_bytes().splitlines(keepends=True)
    written.write_bytes(b"".join(whole[:-1]) + whole[-1][:30])
    journal.append(written, lines[-1])
    found = journal.read(written)
    assert len(found.tests) == len(lines) - 1
    assert found.warnings == []


def test_a_last_line_that_lacks_only_its_line_break_is_kept(written, lines):
    written.write_bytes(written.read_bytes()[:-1])
    assert len(journal.read(written).tests) == len(lines) - 1
    journal.append(written, {"kind": "block", "block": 1})
    assert len(journal.read(written).tests) == len(lines) - 1


def test_a_damaged_line_in_the_middle_costs_only_itself(written, lines):
    whole = written.read_bytes().splitlines(keepends=True)
    whole[1] = b"\x00\x00\xff{\n"
    written.write_bytes(b"".join(whole))
    found = journal.read(written)
    assert len(found.tests) == len(lines) - 2
    assert found.warnings == [f"{written}: line 2 is unreadable and left out"]


def test_a_full_disk_is_one_line_and_leaves_no_half_line(written, lines, monkeypatch):
    before = written.read_bytes()

    def full(_descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(journal.JournalError, match="No space left on device") as caught:
        journal.append(written, lines[1])
    assert "\n" not in str(caught.value)
    assert written.read_bytes() == before


def test_a_full_disk_in_mid_line_leaves_no_half_line(tmp_path):
    """A real limit on the size of a file: the kernel writes a part and then refuses."""
    pytest.importorskip("resource", reason="limits of the size of a file are POSIX")
    path = tmp_path / "out.jsonl"
    code = (
        "import resource, signal, sys\n"
        "from reports import journal\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        f"path = {str(path)!r}\n"
        "journal.append(path, {'kind': 'header', 'run_id': 'x'})\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100, resource.RLIM_INFINITY))\n"
        "try:\n"
        "    journal.append(path, {'kind': 'test', 'nodeid': 'a' * 500})\n"
        "except journal.JournalError as problem:\n"
        "    print(problem)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert "could not be written: File too large; every line before it is kept" in done.stdout
    assert path.read_bytes() == b'{"kind": "header", "run_id": "x"}\n'


def test_a_journal_error_is_caught_by_who_guards_against_a_full_disk():
    assert issubclass(journal.JournalError, OSError)
    assert issubclass(journal.JournalError, ValueError)


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
def test_kill_9_at_any_moment_loses_at_most_the_line_in_flight(tmp_path):
    path = tmp_path / "out.jsonl"
    code = (
        "import sys\n"
        "from reports import journal\n"
        "path = sys.argv[1]\n"
        "journal.append(path, {'kind': 'header'})\n"
        "for number in range(10**6):\n"
        "    journal.append(path, {'kind': 'test', 'nodeid': str(number), 'fill': 'x' * 5000})\n"
        "    print(number, flush=True)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    assert process.stdout is not None
    while process.stdout.readline().strip() != "5":
        pass
    time.sleep(0.05)
    process.kill()
    acknowledged = [5, *map(int, process.communicate()[0].split())]
    tests = journal.read(path).tests
    assert len(tests) >= acknowledged[-1] + 1
    assert [test["nodeid"] for test in tests] == [str(number) for number in range(len(tests))]


BAD_FILES = {
    "missing": None,
    "empty": b"",
    "json": b"{}\n",
    "binary": b"\x00\xff\xfe",
    "list": b"[1]\n",
}


@pytest.mark.parametrize("content", BAD_FILES.values(), ids=BAD_FILES)
def test_what_is_no_journal_is_one_line(tmp_path, content, capsys):
    path = tmp_path / "x.jsonl"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(journal.JournalError, match=r"x\.jsonl: "):
        journal.read(path)
    assert main(["salvage", str(path)]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def _changed(header, *keys, value):
    found = copy.deepcopy(header)
    inner = found
    for key in keys[:-1]:
        inner = inner[key]
    inner[keys[-1]] = value
    return found


@pytest.mark.parametrize(
    ("keys", "value", "named"),
    [
        (("device", "name"), "NVIDIA L4", "device was Tesla T4, is NVIDIA L4"),
        (("device", "driver"), "570.1", "driver was 550.54, is 570.1"),
        (("versions", "torch"), "2.14.0", "torch was 2.13.0, is 2.14.0"),
        (("versions", "transformers"), "5.17.0", "transformers was 5.24.0, is 5.17.0"),
        (("model", "name"), "tiny", "model was Qwen/Qwen3-0.6B, is tiny"),
        (("model", "content_hash"), "sha256:3", "model hash was sha256:1111, is sha256:3"),
        (("model", "dtype"), "bfloat16", "dtype was float16, is bfloat16"),
        (("model", "adapter", "content_hash"), "3", "adapter hash was 2222, is 3"),
        (("model", "adapter"), None, "adapter hash was 2222, is none"),
        (("profile",), "full", "profile was quick, is full"),
        (("schema_version",), 2, "schema version was 1, is 2"),
    ],
    ids=lambda value: ".".join(value) if isinstance(value, tuple) else None,
)  # fmt: skip
def test_another_machine_version_or_model_is_refused(lines, keys, value, named):
    header = lines[0]
    with pytest.raises(journal.JournalError, match="--resume: this is another run") as caught:
        journal.check_resumable(header, _changed(header, *keys, value=value))
    assert named in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("keys", "value"),
    [
        (("blocks",), [{"block": 0, "host": "another", "started": "later"}]),
        (("device", "cpu"), "another processor beside the same GPU"),
        (("device", "threads"), 8),
        (("versions", "numpy"), "2.5.0"),
        (("run_id",), "another"),
        (("claims_mode",), "strict"),
        (("model",), None),
    ],
    ids=lambda value: ".".join(value) if isinstance(value, tuple) else None,
)
def test_another_host_of_the_same_kind_is_accepted(lines, keys, value):
    journal.check_resumable(lines[0], _changed(lines[0], *keys, value=value))


def test_a_salvaged_run_is_the_run(tmp_path, written):
    assert main(["salvage", str(written)]) == 0
    run, whole = load_run(tmp_path / "out.json"), make_run()
    for part in ("tests", "rows", "series", "verdicts"):
        assert sorted(run.experiment[part], key=str) == sorted(whole["experiment"][part], key=str)
    assert sorted(run.benchmarks, key=str) == sorted(whole["benchmarks"], key=str)


def test_salvage_downgrades_timed_verdicts_after_a_failed_control(tmp_path, lines):
    broken = copy.deepcopy(lines)
    for verdict in (v for line in broken[1:] for v in line["verdicts"]):
        if verdict["claim"] == A_A_CONTROL:
            verdict["outcome"] = "refuted"
    path = tmp_path / "out.jsonl"
    for line in broken:
        journal.append(path, line)
    outcomes = {
        verdict["claim"]: verdict["outcome"] for verdict in salvage(path)["experiment"]["verdicts"]
    }
    assert outcomes["C10"] == outcomes["C12"] == "measurement fault"
    assert outcomes["C01"] == "confirmed"


def test_salvage_does_not_replace_a_file_unless_told_to(tmp_path, written, capsys):
    (tmp_path / "out.json").write_text("precious")
    assert main(["salvage", str(written)]) == 2
    assert "exists already" in capsys.readouterr().err
    assert (tmp_path / "out.json").read_text() == "precious"
    assert main(["salvage", str(written), "--force"]) == 0
    assert json.loads((tmp_path / "out.json").read_text())["version"] == "salvaged"


def test_pytest_benchmark_compares_a_salvaged_run(tmp_path, written):
    """Cut in the middle, as after a kill; `compare` must read what is left."""
    whole = written.read_bytes().splitlines(keepends=True)
    written.write_bytes(b"".join(whole[:2]) + whole[2][:100])
    assert main(["salvage", str(written)]) == 0
    done = subprocess.run(
        [sys.executable, "-m", "pytest_benchmark", "compare", str(tmp_path / "out.json")],
        capture_output=True, text=True, cwd=tmp_path, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "::itl" in done.stdout
