"""Bad files given to the reports: one line each, what was got, what was expected, what to do."""

from __future__ import annotations

import json

import pytest

from reports.__main__ import main
from tests.meta.sample_run import bare_run, gpu_run, saved


def other_schema():
    document = gpu_run()
    document["experiment"]["schema_version"] = 99
    return json.dumps(document)


COMMANDS = ("html", "diff", "plot", "check", "results", "summary")
BAD = {
    "empty": ("", "empty"),
    "truncated": (lambda: json.dumps(gpu_run())[:5000], "half-written"),
    "no JSON": ("hello", "not JSON"),
    "a list": ("[]", "expected a JSON object"),
    "another suite": (json.dumps({"machine_info": {}, "benchmarks": []}), "another suite"),
    "another tool": (json.dumps({"context": {}, "results": []}), "expected a run of this suite"),
    "another schema": (other_schema, "schema version 99, expected 1"),
}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_bad_file_is_one_line(tmp_path, capsys, command, name):
    content, expected = BAD[name]
    path = tmp_path / "bad.json"
    path.write_text(content if isinstance(content, str) else content(), encoding="utf-8")
    files = [str(path), str(path)] if command == "diff" else [str(path)]
    assert main([command, *files]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert expected in line
    assert sorted(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("command", COMMANDS)
def test_200_megabytes_are_refused_before_they_are_read(tmp_path, capsys, command):
    path = tmp_path / "huge.json"
    with path.open("wb") as file:
        file.truncate(200_000_000)
    files = [str(path), str(path)] if command == "diff" else [str(path)]
    assert main([command, *files]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "200 MB" in line


def test_two_runs_of_other_tests_are_one_line_and_no_green_nothing(tmp_path, capsys):
    other = gpu_run(2)
    for entry in other["benchmarks"]:
        entry["fullname"] = entry["fullname"].replace("test_below", "test_ใหม่")
    saved(tmp_path / "a.json", gpu_run(1))
    saved(tmp_path / "b.json", other)
    assert main(["diff", str(tmp_path / "a.json"), str(tmp_path / "b.json")]) == 2
    told = capsys.readouterr()
    (line,) = told.err.splitlines()
    assert "no benchmark in common" in line
    assert told.out == ""


@pytest.mark.parametrize("command", ["html", "diff"])
def test_nan_of_an_older_file_is_read_as_missing(tmp_path, command):
    document = bare_run() | {"benchmarks": gpu_run()["benchmarks"]}
    document["benchmarks"][0]["stats"]["median"] = float("nan")
    document["benchmarks"][3]["stats"]["stddev"] = float("nan")
    path = tmp_path / "old.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    output = tmp_path / "out.txt"
    files = [str(path), str(path)] if command == "diff" else [str(path)]
    assert main([command, *files, "-o", str(output)]) == 0
    text = output.read_text(encoding="utf-8")
    assert "2 numbers that are not finite read as missing" in text
    assert "nan" not in text.lower().replace("nano", "")


def test_a_folder_without_runs_and_an_impossible_margin_are_refused(tmp_path, capsys):
    saved(tmp_path / "a.json", gpu_run())
    (tmp_path / "empty").mkdir()
    run = str(tmp_path / "a.json")
    for arguments, expected in (
        ([run, str(tmp_path / "empty")], "a folder without runs"),
        ([run, run, "--margin", "3"], "--margin must be a share"),
        ([run, run, "--paired"], "--paired needs the same number of runs"),
        ([run, str(tmp_path / "absent.json")], "absent.json"),
    ):
        assert main(["diff", *arguments]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert expected in line
