"""From the journal of an interrupted run to the JSON that the run would have written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reports import journal, strict_json
from reports.verdict import gate

if TYPE_CHECKING:
    from pathlib import Path

_TEST_FIELDS = ("nodeid", "outcome", "duration_s", "block", "reason")


def salvage(path: str | Path) -> dict[str, Any]:
    """A run file from a journal; `pytest-benchmark compare` and every report read it."""
    return restored(journal.read(path))


def restored(found: journal.Journal) -> dict[str, Any]:
    """The run file that a journal stands for."""
    header = dict(found.header)
    document = {
        "machine_info": header.pop("machine_info", None) or _machine_info(header),
        "commit_info": header.pop("commit_info", None) or {},
        "benchmarks": [entry for test in found.tests for entry in test.get("benchmarks") or []],
        "datetime": str(header.get("started", "")),
        "version": "salvaged",
        "experiment": experiment(header, found.tests),
    }
    clean: dict[str, Any] = strict_json.purify(document)
    return clean


def experiment(header: dict[str, Any], tests: list[dict[str, Any]]) -> dict[str, Any]:
    """The `experiment` entry: header, and the tests taken apart into the run file's lists."""
    verdicts = [
        {**verdict, "nodeid": test["nodeid"], "block": test.get("block", 0)}
        for test in tests
        for verdict in test.get("verdicts") or []
    ]
    return {
        **header,
        "tests": [{key: test.get(key) for key in _TEST_FIELDS} for test in tests],
        "verdicts": gate(verdicts),
        "rows": _parts(tests, "rows"),
        "series": _parts(tests, "series"),
    }


def _parts(tests: list[dict[str, Any]], key: str) -> list[dict[str, Any]]:
    return [{**part, "nodeid": test["nodeid"]} for test in tests for part in test.get(key) or []]


def _machine_info(header: dict[str, Any]) -> dict[str, Any]:
    """The few fields that `pytest-benchmark compare` prints, from our own header."""
    device = header.get("device") or {}
    versions = header.get("versions") or {}
    return {
        "node": "",
        "machine": device.get("name"),
        "python_version": versions.get("python"),
        "cpu": {"brand_raw": device.get("cpu")},
    }
