"""Two sides of runs, compared: what changed, by how much, and what else was different.

A side is one run or several; with several, the run is the resampling unit. A slower benchmark is a
regression only on the same kind of machine with the same model: everything else is a comparison.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from reports.contrast import Change, Contrast, RunTiming, contrasts
from reports.differences import (
    QualityChange,
    Setting,
    VerdictChange,
    quality_changes,
    settings_that_differ,
    verdict_changes,
)
from reports.moments import spreads_seen
from reports.run_spread import assumed_spread
from reports.timings import labels, timings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from reports.runfile import RunFile

MARGIN = 0.03
ACROSS = "across machines"


class NothingInCommonError(ValueError):
    """The two sides share no benchmark, which is not the same as "no change"."""


@dataclass(frozen=True)
class BenchmarkChange:
    """One benchmark on both sides. `label` is short where it can be: `static_kv@1 decode`.

    `detectable` is the smallest change, as a share, that these runs find four times in five.
    """

    fullname: str
    label: str
    contrast: Contrast
    change: Change
    seconds: tuple[float, float]
    detectable: float | None = None


@dataclass(frozen=True)
class Comparison:
    """Everything that a diff prints."""

    names: tuple[str, str]
    runs: tuple[int, int]
    margin: float
    paired: bool
    run_spread: float
    unlike: tuple[str, ...]
    verdicts: tuple[VerdictChange, ...]
    benchmarks: tuple[BenchmarkChange, ...]
    quality: tuple[QualityChange, ...]
    missing: tuple[str, ...]
    new: tuple[str, ...]
    settings: tuple[Setting, ...]
    notes: tuple[str, ...] = field(default=())

    @property
    def within_run_only(self) -> bool:
        """One run per side: nothing is known about how runs differ among themselves."""
        return self.runs == (1, 1)

    def regressions(self) -> tuple[BenchmarkChange, ...]:
        """Benchmarks that became slower, where a comparison can say so at all."""
        if self.unlike:
            return ()
        return tuple(b for b in self.benchmarks if b.change is Change.SLOWER)

    def worse_verdicts(self) -> tuple[VerdictChange, ...]:
        """Confirmed before and not any more, observations apart."""
        return tuple(v for v in self.verdicts if v.worse)


def compare(
    before: Sequence[RunFile],
    after: Sequence[RunFile],
    *,
    margin: float = MARGIN,
    paired: bool = False,
    run_spread: float | None = None,
) -> Comparison:
    """Compare two sides. NothingInCommonError when they share no benchmark."""
    if paired and (len(before) != len(after) or len(before) < 2):
        raise ValueError(
            f"--paired needs the same number of runs on both sides, two or more: "
            f"got {len(before)} and {len(after)}"
        )
    unlike = _unlike(before, after)
    spread = run_spread
    if spread is None:
        spread = assumed_spread(before, after, one_machine=ACROSS not in unlike)
    sides = timings(before), timings(after)
    common = [name for name in sides[0] if name in sides[1]]
    if not common:
        raise NothingInCommonError(_no_overlap(sides))
    pairs = [(sides[0][name], sides[1][name]) for name in common]
    complete = paired and all(len(b) == len(a) == len(before) for b, a in pairs)
    if paired and not complete:
        raise ValueError("--paired needs every common benchmark in every run; some lack one")
    seen = {} if run_spread is not None else spreads_seen([*before, *after], common)
    spreads = [max(spread, seen.get(name, 0.0)) for name in common]
    found = contrasts(pairs, run_spread=spreads, paired=paired)
    itself = _run_ids(before) == _run_ids(after)
    names = labels(before, common)
    return Comparison(
        names=_side_names(before, after),
        runs=(len(before), len(after)),
        margin=margin,
        paired=paired,
        run_spread=spread,
        unlike=unlike,
        verdicts=verdict_changes(before, after),
        benchmarks=tuple(
            BenchmarkChange(
                name,
                names[name],
                one,
                Change.SAME if itself and one.log_ratio == 0 else one.change(margin),
                _seconds(pair),
                one.detectable(margin),
            )
            for name, one, pair in zip(common, found, pairs, strict=True)
        ),
        quality=quality_changes(before, after),
        missing=tuple(sorted(sides[0].keys() - sides[1].keys())),
        new=tuple(sorted(sides[1].keys() - sides[0].keys())),
        settings=settings_that_differ(before, after),
        notes=_notes(before, after),
    )


def _unlike(before: Sequence[RunFile], after: Sequence[RunFile]) -> tuple[str, ...]:
    """Reasons why a slower benchmark is no regression."""
    reasons = []
    if _all(before, _device) != _all(after, _device):
        reasons.append(ACROSS)
    if _all(before, _model) != _all(after, _model):
        reasons.append("different models")
    if _all(before, _profile) != _all(after, _profile):
        reasons.append("different profiles")
    return tuple(reasons)


def _all(runs: Sequence[RunFile], key: Any) -> set[Any]:
    return {key(run) for run in runs}


def _device(run: RunFile) -> tuple[Any, Any]:
    return run.experiment["device"].get("kind"), run.experiment["device"].get("name")


def _model(run: RunFile) -> tuple[Any, Any]:
    model = run.experiment.get("model") or {}
    return model.get("name"), model.get("dtype")


def _profile(run: RunFile) -> Any:
    return run.experiment.get("profile")


def _notes(before: Sequence[RunFile], after: Sequence[RunFile]) -> tuple[str, ...]:
    notes = [warning for run in (*before, *after) for warning in run.warnings]
    if set(_run_ids(before)) & set(_run_ids(after)):
        notes.append("the same run is on both sides")
    return tuple(notes)


def _run_ids(runs: Sequence[RunFile]) -> list[str]:
    return sorted(str(run.experiment["run_id"]) for run in runs)


def _no_overlap(sides: tuple[Mapping[str, Any], Mapping[str, Any]]) -> str:
    return (
        f"no benchmark in common: {len(sides[0])} before and {len(sides[1])} after, none with the "
        "same name; expected two runs of the same tests (were they renamed, or is one side empty?)"
    )


def _side_names(before: Sequence[RunFile], after: Sequence[RunFile]) -> tuple[str, str]:
    """File names, with their folders where both sides would be called the same."""
    short, long = [(_side_name(before, n), _side_name(after, n)) for n in (1, 2)]
    return long if short[0] == short[1] and long[0] != long[1] else short


def _side_name(runs: Sequence[RunFile], parts: int) -> str:
    names = ["/".join(run.path.parts[-parts:]) for run in runs]
    return names[0] if len(names) == 1 else f"{len(names)} runs ({names[0]} … {names[-1]})"


def _seconds(pair: tuple[Sequence[RunTiming], Sequence[RunTiming]]) -> tuple[float, float]:
    means = [math.exp(sum(run.log_s for run in side) / len(side)) for side in pair]
    return means[0], means[1]
