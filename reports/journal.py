"""The journal `out.jsonl`: one fsynced line per finished test.

pytest-benchmark writes its JSON when a session ends, and a killed session has none. The journal has
every finished test. Its first line is the header; a resumed run adds a block; `update` lines add to
the header what was known only later. A line that was being written when the power went is dropped.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reports import strict_json

if TYPE_CHECKING:
    from collections.abc import Mapping
    from io import FileIO

KINDS = ("header", "block", "update", "test")


class JournalError(OSError, ValueError):
    """A journal that cannot be written, read or resumed, in one line.

    An OSError as well, so that whoever guards a write against a full disk catches it.
    """


@dataclass(frozen=True)
class Journal:
    """What a journal holds: the header with later blocks and updates merged in, and the tests.

    `tests` has one entry per test: of a repeated test the last. `warnings` name unreadable lines.
    """

    path: Path
    header: dict[str, Any]
    tests: list[dict[str, Any]]
    warnings: list[str] = field(default_factory=list)


def append(path: str | Path, record: Mapping[str, Any]) -> None:
    """Add one line and return when it is on the disk.

    JournalError when it cannot be (disk full); then the lines before it are untouched, and no half
    line is left behind.
    """
    line = strict_json.dumps(record).encode("utf-8") + b"\n"
    try:
        with Path(path).open("ab+", buffering=0) as file:
            end = _drop_half_line(file)
            _write_or_undo(file, line, end)
    except OSError as problem:
        raise JournalError(
            f"{path}: a line of the journal could not be written: {problem.strerror}; every line "
            "before it is kept: free some space and go on with --resume"
        ) from problem


def _drop_half_line(file: FileIO) -> int:
    """Cut what a killed writer left after the last line break; return the length kept."""
    end = file.seek(0, os.SEEK_END)
    if end == 0:
        return 0
    file.seek(end - 1)
    if file.read(1) == b"\n":
        return end
    file.seek(0)
    content = file.read()
    kept = content.rfind(b"\n") + 1
    if _parsed(content[kept:]) is not None:  # only the line break was lost
        file.write(b"\n")
        return end + 1
    file.truncate(kept)
    return kept


def _write_or_undo(file: FileIO, line: bytes, end: int) -> None:
    rest = memoryview(line)
    try:
        while rest:
            rest = rest[file.write(rest) :]
        os.fsync(file.fileno())
    except OSError:
        file.truncate(end)
        raise


def read(path: str | Path) -> Journal:
    """Read a journal, also one whose last line is half-written; JournalError when none is there."""
    path = Path(path)
    lines, warnings = _lines(path)
    if not lines or lines[0].get("kind") != "header":
        raise JournalError(f"{path}: no header in its first line, expected a journal (out.jsonl)")
    header = {key: value for key, value in lines[0].items() if key != "kind"}
    header["blocks"] = list(header.get("blocks") or [])
    tests: dict[str, dict[str, Any]] = {}
    for line in lines[1:]:
        content = {key: value for key, value in line.items() if key != "kind"}
        if line["kind"] == "block":
            header["blocks"].append(content)
        elif line["kind"] == "update":
            header.update(content)
        elif line["kind"] == "test":
            tests.pop(str(line["nodeid"]), None)
            tests[str(line["nodeid"])] = content
    return Journal(path, header, list(tests.values()), warnings)


def _lines(path: Path) -> tuple[list[dict[str, Any]], list[str]]:
    try:
        raw = path.read_bytes().split(b"\n")
    except OSError as problem:
        raise JournalError(f"{path}: cannot be read: {problem.strerror}") from problem
    lines, warnings = [], []
    for number, content in enumerate(raw, start=1):
        parsed = _parsed(content)
        if parsed is not None:
            lines.append(parsed)
        elif content.strip():
            why = "half-written" if number == len(raw) else "unreadable"
            warnings.append(f"{path}: line {number} is {why} and left out")
    return lines, warnings


def _parsed(content: bytes) -> dict[str, Any] | None:
    """One line as a record of a known kind, or None."""
    try:
        record = json.loads(content)
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict) or record.get("kind") not in KINDS:
        return None
    return None if record["kind"] == "test" and "nodeid" not in record else record


def fingerprint(header: Mapping[str, Any]) -> dict[str, object]:
    """What must be the same on both sides of an interruption for the halves to be one run.

    The host is not in it: a cut session may come back on another machine of the same kind.
    """
    device = header.get("device") or {}
    versions = header.get("versions") or {}
    found = {
        "schema version": header.get("schema_version"),
        "profile": header.get("profile"),
        "device": device.get("name"),
        "driver": device.get("driver"),
        "torch": versions.get("torch"),
        "transformers": versions.get("transformers"),
    }
    model = header.get("model")
    return found if model is None else {**found, **_model_fingerprint(model)}


def _model_fingerprint(model: Mapping[str, Any]) -> dict[str, object]:
    return {
        "model": model.get("name"),
        "model hash": model.get("content_hash"),
        "dtype": model.get("dtype"),
        "adapter hash": (model.get("adapter") or {}).get("content_hash"),
    }


def check_resumable(header: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Raise JournalError, naming every difference, unless `now` may go on where `header` stopped.

    A resumed session that selected no test with a model has none to compare.
    """
    before = fingerprint(header)
    differing = [
        f"{name} was {before.get(name) or 'none'}, is {value or 'none'}"
        for name, value in fingerprint(now).items()
        if before.get(name) != value
    ]
    if differing:
        raise JournalError(
            f"--resume: this is another run: {'; '.join(differing)}: "
            "restore what differs, or start anew without --resume"
        )
