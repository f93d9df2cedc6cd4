"""From a measured interval and a claimed bound to one of five words.

Confirmed: the whole interval is on the claimed side. Refuted: wholly on the other. Undecided: it
straddles, or the sample is too small for an interval. Not applicable: other hardware, the number
stays as an observation. Measurement fault: the number cannot be trusted, whatever it says. Bounds
are written down before measuring, and nothing is measured again until it pleases.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from reports import significance
from reports.bounds import Bound, above, below, within
from reports.estimate import Estimate, exactly
from reports.judged import A_A_CONTROL, JUDGED, Outcome, Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = [
    "A_A_CONTROL",
    "Bound",
    "Outcome",
    "Verdict",
    "above",
    "below",
    "downgrade",
    "gate",
    "holm",
    "judge",
    "verdict_fails",
    "within",
]

SHOWS_A_DIFFERENCE = frozenset({Outcome.REFUTED, Outcome.FAULT})
ClaimsMode = Literal["strict", "report"]


def judge(
    measured: Estimate | float,
    bound: Bound,
    *,
    claim: str,
    subject: str,
    quantity: str,
    device: str,
    applies: str | None = None,
    faults: Sequence[str] = (),
    observation: bool = False,
    unit: str = "1",
    extra: Mapping[str, Any] | None = None,
) -> Verdict:
    """The verdict on one measured value.

    `applies` is the reason why the claim does not apply here, None where it does. A plain number is
    exact (a count, a derived figure) and has `unit`. Faults come first: a number that cannot be
    trusted is not even an observation.
    """
    if not bound.numeric:
        raise ValueError(
            f"{claim} {subject}: a bound needs a number to judge by, got {bound.text!r}"
        )
    estimate = measured if isinstance(measured, Estimate) else exactly(measured, unit)
    outcome, reason = _decide(estimate, bound, applies, faults)
    judged = outcome in JUDGED
    undecided = outcome is Outcome.UNDECIDED
    return Verdict(
        claim=claim,
        subject=subject,
        quantity=quantity,
        outcome=outcome,
        observation=observation,
        estimate=estimate,
        bound=bound,
        reason=reason,
        device=device,
        p_value=significance.p_value(estimate, bound) if judged else None,
        minimum_detectable_effect=(
            significance.minimum_detectable_effect(estimate, bound) if undecided else None
        ),
        extra=dict(extra or {}),
    )


def _decide(
    estimate: Estimate, bound: Bound, applies: str | None, faults: Sequence[str]
) -> tuple[Outcome, str]:
    if faults:
        return Outcome.FAULT, "; ".join(faults)
    if applies is not None:
        return Outcome.NOT_APPLICABLE, applies
    if estimate.interval is None:
        return Outcome.UNDECIDED, "; ".join(estimate.warnings) or "no interval"
    if bound.contains(*estimate.interval):
        return Outcome.CONFIRMED, ""
    if bound.excludes(*estimate.interval):
        return Outcome.REFUTED, ""
    return Outcome.UNDECIDED, "the interval contains the bound"


def verdict_fails(verdict: Verdict, mode: ClaimsMode = "strict") -> bool:
    """Whether this verdict fails its test.

    Faults always do. Refuted and undecided do in strict mode, unless they are observations.
    """
    if verdict.outcome is Outcome.FAULT:
        return True
    if mode == "report" or verdict.observation:
        return False
    return verdict.outcome in (Outcome.REFUTED, Outcome.UNDECIDED)


def downgrade(verdicts: Sequence[Verdict], reason: str) -> list[Verdict]:
    """The same verdicts with every timed one turned into a fault, after a failed A/A control.

    What was not applicable stays so, what was a fault keeps its own reason first.
    """
    return [_downgraded(verdict, reason) if verdict.timed else verdict for verdict in verdicts]


def _downgraded(verdict: Verdict, reason: str) -> Verdict:
    if verdict.outcome is Outcome.NOT_APPLICABLE:
        return verdict
    was_fault = verdict.outcome is Outcome.FAULT
    joined = f"{verdict.reason}; {reason}" if was_fault and verdict.reason else reason
    return replace(
        verdict,
        outcome=Outcome.FAULT,
        reason=joined,
        p_value=None,
        minimum_detectable_effect=None,
        extra=verdict.extra
        if was_fault
        else {**verdict.extra, "downgraded_from": str(verdict.outcome)},
    )


def gate(found: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Stored verdicts after the A/A control: where it shows a difference, timed ones are faults.

    An undecided control shows none: it says that the session could not have seen a small one.
    """
    verdicts = [Verdict.from_json(item) for item in found]
    failed = [v for v in verdicts if v.claim == A_A_CONTROL and v.outcome in SHOWS_A_DIFFERENCE]
    if failed:
        reason = f"the A/A control is {failed[0].outcome}: {failed[0].reason or failed[0].value()}"
        verdicts = downgrade(verdicts, reason)
    return [{**old, **new.to_json()} for old, new in zip(found, verdicts, strict=True)]


def holm(verdicts: Sequence[Verdict], alpha: float = 0.05) -> set[int]:
    """Indices of the timed verdicts that survive Holm's correction over all timed ones given."""
    family = [v.p_value if v.timed and v.outcome in JUDGED else None for v in verdicts]
    return significance.holm(family, alpha)
