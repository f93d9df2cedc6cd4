"""A run file from anywhere is read, or refused in one line that says what to do."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest

from reports import runfile
from reports.__main__ import main
from reports.runfile import RunFileError, load_run
from tests.meta.make_run import journal_lines, make_run, write_run


def test_a_whole_run_is_read(tmp_path):
    run = load_run(write_run(tmp_path / "out.json"))
    assert run.experiment["run_id"] == "synthetic"
    assert {row.subject for row in run.rows} == {"naive@1", "compiled@1"}
    assert {"A/A", "C01", "C10"} <= {verdict.claim for verdict in run.verdicts}
    assert [series["name"] for series in run.series("telemetry")] == ["telemetry"]
    assert run.warnings == ()


@pytest.mark.parametrize("kind", ["cuda", "cpu"])
@pytest.mark.parametrize("weights_kind", ["trained", "random"])
def test_the_synthetic_run_is_valid_for_every_device_and_kind_of_weights(
    tmp_path, kind, weights_kind
):
    run = load_run(write_run(tmp_path / "out.json", device=kind, weights_kind=weights_kind))
    assert all(verdict.observation for verdict in run.verdicts if kind == "cpu" and verdict.timed)


def _without(document, *keys):
    inner = document
    for key in keys[:-1]:
        inner = inner[key]
    del inner[keys[-1]]
    return document


def _with(document, value, *keys):
    inner = document
    for key in keys[:-1]:
        inner = inner[key]
    inner[keys[-1]] = value
    return document


BROKEN = {
    "another suite": (lambda d: _without(d, "experiment"), "of another suite"),
    "another tool": (lambda _: {"results": []}, "no 'experiment' in it: it has results"),
    "empty object": (lambda _: {}, "it is an empty object"),
    "list": (lambda _: [1, 2], "expected a JSON object, got a list"),
    "text": (lambda _: "x", "expected a JSON object, got a str"),
    "newer": (lambda d: _with(d, 2, "experiment", "schema_version"), "update this package"),
    "older": (lambda d: _with(d, 0, "experiment", "schema_version"), "run the experiment again"),
    "version as text": (lambda d: _with(d, "1", "experiment", "schema_version"), "whole number"),
    "no device": (lambda d: _without(d, "experiment", "device"), "device must be an object"),
    "no device name": (lambda d: _without(d, "experiment", "device", "name"), "device.name"),
    "verdicts no list": (lambda d: _with(d, "x", "experiment", "verdicts"), "must be a list"),
    "verdict no object": (lambda d: _with(d, [3], "experiment", "verdicts"), "be a JSON object"),
    "outcome": (lambda d: _with(d, "maybe", "experiment", "verdicts", 0, "outcome"), "be one of"),
    "row": (lambda d: _without(d, "experiment", "rows", 0, "batch_size"), "row.batch_size"),
    "interval": (
        lambda d: _with(d, -1.0, "experiment", "rows", 0, "step_s", "high"), "finite and ascend"),
    "benchmark": (lambda d: _without(d, "benchmarks", 0, "fullname"), "benchmark.fullname"),
}  # fmt: skip


@pytest.mark.parametrize(("change", "message"), BROKEN.values(), ids=BROKEN)
def test_what_does_not_fit_is_one_line(tmp_path, change, message, capsys):
    path = tmp_path / "out.json"
    path.write_text(json.dumps(change(copy.deepcopy(make_run()))))
    with pytest.raises(RunFileError, match=r"out\.json: ") as caught:
        load_run(path)
    assert message in str(caught.value)
    assert main(["summary", str(path)]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def _bytes(text: str) -> bytes:
    return text.encode()


RAW = {
    "empty": (b"", "empty: the run was cut"),
    "blank": (b" \n", "empty: the run was cut"),
    "half": (_bytes(json.dumps(make_run())[:5000]), "half-written or not JSON"),
    "binary": (b"\x89PNG\xff\x00", "not UTF-8 text at byte 0"),
    "utf-16": ("{}".encode("utf-16"), "not UTF-8 text at byte 0"),
    "journal": (
        _bytes("\n".join(map(json.dumps, journal_lines(make_run())))),
        "this is a journal: 'python -m reports salvage'",
    ),
    "deep": (b"[" * 100_000, "nested too deeply"),
    "prose": (b"Hello", "line 1"),
}


@pytest.mark.parametrize(("content", "message"), RAW.values(), ids=RAW)
def test_a_file_that_is_no_json_is_one_line(tmp_path, content, message):
    path = tmp_path / "out.json"
    path.write_bytes(content)
    with pytest.raises(RunFileError, match=r"out\.json: ") as caught:
        load_run(path)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_of_200_mb_is_refused_before_it_is_read(tmp_path):
    path = tmp_path / "out.json"
    with path.open("wb") as file:
        file.truncate(200_000_000)
    with pytest.raises(RunFileError, match=r"200 MB, expected at most 100"):
        load_run(path)


def test_a_missing_file_and_a_folder_are_one_line(tmp_path):
    with pytest.raises(RunFileError, match="cannot be read: No such file"):
        load_run(tmp_path / "none.json")
    with pytest.raises(RunFileError, match="cannot be read: Is a directory"):
        load_run(tmp_path)


def test_nan_of_an_older_file_reads_as_missing_and_is_said(tmp_path):
    document = make_run()
    document["benchmarks"][0]["stats"]["stddev"] = float("nan")
    document["experiment"]["series"][0]["points"][0]["power_w"] = float("inf")
    path = tmp_path / "out.json"
    path.write_text(json.dumps(document))
    run = load_run(path)
    assert run.benchmarks[0]["stats"]["stddev"] is None
    assert run.warnings == ("2 numbers that are not finite read as missing",)


def test_nan_where_a_number_is_needed_is_one_line(tmp_path):
    document = make_run()
    document["experiment"]["rows"][0]["step_s"]["centre"] = float("nan")
    path = tmp_path / "out.json"
    path.write_text(json.dumps(document))
    with pytest.raises(RunFileError, match=r"estimate\.centre must be a finite number, got None"):
        load_run(path)


def test_thai_ids_are_read_and_printed(tmp_path, capsys):
    document = make_run()
    for test in document["experiment"]["tests"]:
        test.update(nodeid="tests/test_ก.py::test_ข[คำถาม]", outcome="failed", reason="ผิด")
    path = tmp_path / "ไฟล์.json"
    path.write_text(json.dumps(document, ensure_ascii=False), encoding="utf-8")
    assert main(["summary", str(path)]) == 0
    assert "test_ข[คำถาม] | failed | ผิด" in capsys.readouterr().out


def test_the_history_of_the_schema_names_its_current_version():
    source = Path(runfile.__file__).read_text(encoding="utf-8")
    assert f"\n# {runfile.SCHEMA_VERSION}  " in source
