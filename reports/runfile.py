"""The run file: a pytest-benchmark JSON with one more key, `experiment`.

`pytest-benchmark compare` reads it like any other; the reports read `experiment`. A file may come
from another tool, another version, a full disk or another person, so that loading it checks
everything the reports rely on, and says in one line what does not fit.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from reports.fields import Fields
from reports.rows import EngineRow
from reports.verdict import Verdict

# History of the schema:
# 1  first version: device, versions, model, ceilings, blocks, tests, verdicts, rows, series
SCHEMA_VERSION = 1

MAX_BYTES = 100_000_000
"""A run of every claim writes a few MB; a larger file is something else, or keeps raw data."""

_OBJECTS = ("device", "versions", "ceilings")
_LISTS = ("blocks", "tests", "verdicts", "rows", "series")


class RunFileError(ValueError):
    """A file that is no run file, in one line: what was got, what was expected, what to do."""


@dataclass(frozen=True)
class RunFile:
    """A checked run. `document` is the whole JSON, `warnings` what was mended while reading."""

    path: Path
    document: dict[str, Any]
    warnings: tuple[str, ...] = ()

    @property
    def experiment(self) -> dict[str, Any]:
        """The part that is ours."""
        found: dict[str, Any] = self.document["experiment"]
        return found

    @property
    def benchmarks(self) -> list[dict[str, Any]]:
        """Entries of pytest-benchmark."""
        found: list[dict[str, Any]] = self.document["benchmarks"]
        return found

    @cached_property
    def verdicts(self) -> tuple[Verdict, ...]:
        """Verdicts in the order in which they were given."""
        return tuple(Verdict.from_json(item) for item in self.experiment["verdicts"])

    @cached_property
    def rows(self) -> tuple[EngineRow, ...]:
        """Engine rows in the order in which they were measured."""
        return tuple(EngineRow.from_json(item) for item in self.experiment["rows"])

    def series(self, name: str) -> list[dict[str, Any]]:
        """All series of that name."""
        return [item for item in self.experiment["series"] if item.get("name") == name]


def load_run(path: str | Path) -> RunFile:
    """Read and check a run file; RunFileError says in one line why it cannot be used."""
    path = Path(path)
    document, missing = _parse(path)
    if not isinstance(document, dict):
        raise RunFileError(f"{path}: expected a JSON object, got a {type(document).__name__}")
    try:
        check_document(document)
        warnings = (f"{missing} numbers that are not finite read as missing",) if missing else ()
        run = RunFile(path, document, warnings)
        _ = run.verdicts, run.rows
    except ValueError as problem:
        raise RunFileError(f"{path}: {problem}") from problem
    return run


def check_document(document: dict[str, Any]) -> None:
    """Raise ValueError, in one line, unless this is a run file of a schema we read."""
    if "experiment" not in document:
        raise ValueError(f"no 'experiment' in it: {_whose(document)}; expected a run of this suite")
    experiment = Fields(document["experiment"], "experiment")
    version = experiment.integer("schema_version")
    if version != SCHEMA_VERSION:
        advice = "update this package" if version > SCHEMA_VERSION else "run the experiment again"
        raise ValueError(f"schema version {version}, expected {SCHEMA_VERSION}: {advice}")
    for benchmark in Fields(document, "run").sequence("benchmarks"):
        Fields(benchmark, "benchmark").filled_text("fullname")
    _check_experiment(experiment)


def _check_experiment(experiment: Fields) -> None:
    experiment.filled_text("run_id")
    experiment.filled_text("profile")
    for key in _OBJECTS:
        experiment.mapping(key)
    for key in _LISTS:
        for number, item in enumerate(experiment.sequence(key)):
            Fields(item, f"experiment.{key}[{number}]")
    device = Fields(experiment.mapping("device"), "experiment.device")
    device.filled_text("kind")
    device.filled_text("name")
    model = experiment.optional_mapping("model")
    if model is not None:
        Fields(model, "experiment.model").filled_text("name")


def _parse(path: Path) -> tuple[Any, int]:
    """The parsed JSON, and how many NaN or Infinity (older files) became None."""
    try:
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise RunFileError(
                f"{path}: {size / 1e6:.0f} MB, expected at most {MAX_BYTES / 1e6:.0f}: "
                "write it without --benchmark-save-data"
            )
        text = path.read_text(encoding="utf-8")
    except OSError as problem:
        raise RunFileError(f"{path}: cannot be read: {problem.strerror}") from problem
    except UnicodeDecodeError as problem:
        raise RunFileError(
            f"{path}: not UTF-8 text at byte {problem.start}: not a run file"
        ) from None
    if not text.strip():
        raise RunFileError(f"{path}: empty: the run was cut before its end; see 'reports salvage'")
    return _decode(path, text)


def _decode(path: Path, text: str) -> tuple[Any, int]:
    missing: list[str] = []
    try:
        return json.loads(text, parse_constant=missing.append), len(missing)
    except json.JSONDecodeError as problem:
        if _is_journal(text):
            advice = "this is a journal: 'python -m reports salvage' makes a run file of it"
        else:
            advice = "half-written or not JSON; 'reports salvage' rebuilds it from the .jsonl"
        raise RunFileError(f"{path}: line {problem.lineno}: {problem.msg}: {advice}") from None
    except RecursionError:
        raise RunFileError(f"{path}: nested too deeply to be a run file") from None


def _is_journal(text: str) -> bool:
    first = text.split("\n", 1)[0]
    try:
        header = json.loads(first)
    except ValueError:
        return False
    return isinstance(header, dict) and header.get("kind") == "header"


def _whose(document: dict[str, Any]) -> str:
    if "machine_info" in document and "benchmarks" in document:
        return "a pytest-benchmark file of another suite"
    keys = ", ".join(sorted(map(str, document))[:5])
    return f"it has {keys}" if keys else "it is an empty object"
