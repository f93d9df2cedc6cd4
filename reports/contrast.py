"""One benchmark on two sides: the ratio of their speeds, its interval, and one word.

The runs of a side are what varies independently; rounds inside a run share its process, clocks and
neighbours. Ratios live on the log scale: a t interval there, with the variance between runs. Two to
five runs give a poor variance, so the benchmarks of one comparison inform each other: each variance
is drawn toward the typical one as far as their scatter allows (the moderated t of Smyth 2004,
Stat. Appl. Genet. Mol. Biol. 3:3), with at most the weight of the benchmark's own runs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np

from reports.typical_variance import typical_variance

if TYPE_CHECKING:
    from collections.abc import Sequence

CONFIDENCE = 0.95
POWER = 0.8
FEWEST_TO_POOL = 5


class Change(StrEnum):
    """What a comparison says about one benchmark."""

    FASTER = "faster"
    SLOWER = "slower"
    SAME = "same"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True)
class RunTiming:
    """Typical time of one benchmark in one run, on the log scale, and how well the run knows it."""

    log_s: float
    log_error: float | None
    rounds: int


@dataclass(frozen=True, slots=True)
class Contrast:
    """Speed of `after` over `before` (above 1 is faster) with interval, on the log scale inside."""

    log_ratio: float
    log_error: float | None
    df: float
    runs: tuple[int, int]
    within_run_only: bool
    log_interval_error: float | None
    p_value: float | None = None
    adjusted_p: float | None = None
    family: int = 1

    @property
    def ratio(self) -> float:
        """Speed of after over before."""
        return math.exp(self.log_ratio)

    @property
    def interval(self) -> tuple[float, float] | None:
        """95 % interval of the ratio; None where nothing tells how much it varies."""
        if self.log_interval_error is None:
            return None
        half = _t_quantile(self.df, (1 + CONFIDENCE) / 2) * self.log_interval_error
        return math.exp(self.log_ratio - half), math.exp(self.log_ratio + half)

    def detectable(self, margin: float, alpha: float = 0.05) -> float | None:
        """Smallest change, as a share, that these runs would call a change four times in five.

        It has to stand out after the correction over the whole family, and from the margin.
        """
        if self.log_error is None:
            return None
        certain = _t_quantile(self.df, 1 - alpha / (2 * self.family)) * self.log_error
        usual = _t_quantile(self.df, POWER) * self.log_error
        return math.expm1(max(certain, math.log1p(margin)) + usual)

    def change(self, margin: float, alpha: float = 0.05) -> Change:
        """The word: a difference counts if it survives the correction *and* exceeds the margin."""
        if self.adjusted_p is None or self.log_error is None:
            return Change.UNDECIDED
        edge = math.log1p(margin)
        if self.adjusted_p < alpha and abs(self.log_ratio) > edge:
            return Change.FASTER if self.log_ratio > 0 else Change.SLOWER
        half = _t_quantile(self.df, (1 + CONFIDENCE) / 2) * (self.log_interval_error or 0.0)
        inside = abs(self.log_ratio) + half <= edge
        return Change.SAME if inside else Change.UNDECIDED


def contrasts(
    pairs: Sequence[tuple[Sequence[RunTiming], Sequence[RunTiming]]],
    *,
    run_spread: float | Sequence[float],
    paired: bool = False,
) -> list[Contrast]:
    """One contrast per benchmark, with p-values corrected over all of them (Holm).

    `run_spread` is the standard deviation between runs, as a share, that is assumed where a single
    run per side cannot show it: one for all, or one per benchmark. `paired` takes the i-th runs of
    both sides as one pair.
    """
    spreads = np.broadcast_to(run_spread, len(pairs)).tolist()
    raw = [
        _paired(b, a) if paired else _unpaired(b, a, spread)
        for (b, a), spread in zip(pairs, spreads, strict=True)
    ]
    moderated = _moderate(raw)
    p_values = [_p_value(one) for one in moderated]
    adjusted = holm_adjusted(p_values)
    family = max(1, sum(p is not None for p in p_values))
    return [
        replace(one, p_value=p, adjusted_p=q, family=family)
        for one, p, q in zip(moderated, p_values, adjusted, strict=True)
    ]


def holm_adjusted(p_values: Sequence[float | None]) -> list[float | None]:
    """Holm's step-down p-values; None entries are not part of the family."""
    known = sorted((p, i) for i, p in enumerate(p_values) if p is not None)
    adjusted: list[float | None] = [None] * len(p_values)
    highest = 0.0
    for rank, (p, index) in enumerate(known):
        highest = max(highest, min(1.0, p * (len(known) - rank)))
        adjusted[index] = highest
    return adjusted


def _unpaired(
    before: Sequence[RunTiming], after: Sequence[RunTiming], run_spread: float
) -> Contrast:
    logs = [np.array([run.log_s for run in side]) for side in (before, after)]
    runs = (len(before), len(after))
    log_ratio = float(logs[0].mean() - logs[1].mean())
    df = sum(runs) - 2
    if df == 0:
        within = _within_run_error(before[0], after[0])
        rounds = before[0].rounds + after[0].rounds - 2
        wide = None if within is None else math.hypot(within, run_spread * math.sqrt(2))
        return Contrast(log_ratio, wide, max(rounds, 1), runs, True, within)
    squares = sum(float(((side - side.mean()) ** 2).sum()) for side in logs)
    error = math.sqrt(squares / df * (1 / runs[0] + 1 / runs[1]))
    return Contrast(log_ratio, error, df, runs, False, error)


def _paired(before: Sequence[RunTiming], after: Sequence[RunTiming]) -> Contrast:
    gaps = np.array([b.log_s - a.log_s for b, a in zip(before, after, strict=True)])
    error = float(gaps.std(ddof=1) / math.sqrt(len(gaps)))
    runs = (len(before), len(after))
    return Contrast(float(gaps.mean()), error, len(gaps) - 1, runs, False, error)


def _within_run_error(before: RunTiming, after: RunTiming) -> float | None:
    if before.log_error is None or after.log_error is None:
        return None
    return math.hypot(before.log_error, after.log_error)


def _moderate(raw: Sequence[Contrast]) -> list[Contrast]:
    """Draw the errors of equal design toward their typical size; exact ties are left alone."""
    result = list(raw)
    between = [i for i, c in enumerate(raw) if not c.within_run_only and c.log_error]
    for design in {(raw[i].runs, raw[i].df) for i in between}:
        group = [i for i in between if (raw[i].runs, raw[i].df) == design]
        if len(group) < FEWEST_TO_POOL:
            continue
        squares = np.array([(raw[i].log_error or 0.0) ** 2 for i in group])
        df = design[1]
        prior, weight = typical_variance(squares, df)
        errors = np.sqrt((df * squares + weight * prior) / (df + weight))
        for i, error in zip(group, errors.tolist(), strict=True):
            result[i] = replace(raw[i], log_error=error, log_interval_error=error, df=df + weight)
    return result


def _p_value(contrast: Contrast) -> float | None:
    if contrast.log_error is None:
        return None
    if contrast.log_error == 0:
        return 1.0 if contrast.log_ratio == 0 else 0.0
    from scipy.special import stdtr

    return float(2 * stdtr(contrast.df, -abs(contrast.log_ratio) / contrast.log_error))


def _t_quantile(df: float, share: float) -> float:
    from scipy.special import stdtrit

    return float(stdtrit(df, share))
