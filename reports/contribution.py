"""What a run must have before others compare with it.

A baseline is read for years by people who were not there: it must say on what it was measured, hold
an interval or a reason for every number, and hold nothing that belongs to its contributor alone.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from reports.claims import CLAIMS
from reports.judged import A_A_CONTROL, Outcome

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reports.runfile import RunFile

LARGEST_BYTES = 2_000_000
PROFILES = ("quick", "full")
NEEDED = {
    "device": ("kind", "name", "cpu"),
    "versions": ("python", "torch", "transformers", "numpy", "scipy"),
    "model": ("name", "weights_kind", "dtype", "content_hash", "shape"),
}
CUDA_NEEDS = ("driver", "capability", "memory_bytes")
PRIVATE = re.compile(
    r"(?:/home/|/Users/|C:\\+Users\\+)[^/\\\"\s]+|\bhf_[A-Za-z0-9]{20,}|\bsk-[A-Za-z0-9_-]{20,}"
)
"""Home folders and access tokens, which end up in node ids, paths and error texts."""


def problems_of(run: RunFile) -> list[str]:
    """Everything that stands in the way, one line each; empty for a run that is fit."""
    return list(_problems(run))


def _problems(run: RunFile) -> Iterator[str]:
    yield from _size(run)
    yield from _missing_facts(run.experiment)
    yield from _profile(run.experiment)
    yield from _verdicts(run)
    yield from _rows(run)
    yield from run.warnings
    yield from _private(run.document)


def _size(run: RunFile) -> Iterator[str]:
    size = run.path.stat().st_size
    if size > LARGEST_BYTES:
        yield (
            f"{size / 1e6:.1f} MB, expected at most {LARGEST_BYTES / 1e6:.0f}: "
            "run without --benchmark-save-data"
        )


def _missing_facts(experiment: dict[str, Any]) -> Iterator[str]:
    needed = {name: list(keys) for name, keys in NEEDED.items()}
    if (experiment.get("device") or {}).get("kind") == "cuda":
        needed["device"] += CUDA_NEEDS
    for part, keys in needed.items():
        content = experiment.get(part) or {}
        absent = [key for key in keys if content.get(key) in (None, "", {})]
        if absent:
            yield f"{part} does not say {', '.join(absent)}: run it with the current version"
    if not any((experiment.get("ceilings") or {}).values()):
        yield "no bandwidth, expected at least the measured read: run the whole suite"


def _profile(experiment: dict[str, Any]) -> Iterator[str]:
    if experiment["profile"] not in PROFILES:
        yield f"profile is {experiment['profile']!r}, expected {' or '.join(PROFILES)}"


def _verdicts(run: RunFile) -> Iterator[str]:
    if not run.verdicts:
        yield "no verdict: run the whole suite"
    unknown = {verdict.claim for verdict in run.verdicts} - CLAIMS.keys() - {A_A_CONTROL}
    if unknown:
        yield f"claims that the registry does not have: {', '.join(sorted(unknown))}"
    faults = [verdict for verdict in run.verdicts if verdict.outcome is Outcome.FAULT]
    if faults:
        first = faults[0]
        yield (
            f"{len(faults)} measurement faults, the first: {first.claim} {first.subject}: "
            f"{first.reason}; measure again on an idle machine"
        )
    errors = [t for t in run.experiment["tests"] if t.get("outcome") == "error"]
    if errors:
        yield f"{len(errors)} tests ended in an error, the first: {errors[0].get('nodeid')}"


def _rows(run: RunFile) -> Iterator[str]:
    if not run.rows:
        yield "no engine row: nothing for others to compare with"
    unsure = [row.subject for row in run.rows if row.tokens_per_s.interval is None]
    if unsure:
        yield f"no interval for the speed of {', '.join(unsure)}: use --profile quick or full"


def _private(document: dict[str, Any]) -> Iterator[str]:
    found = sorted(set(PRIVATE.findall(json.dumps(document, ensure_ascii=False))))
    if found:
        yield f"holds what looks private: {', '.join(found[:3])}; remove it from the file"
