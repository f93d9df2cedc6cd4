"""The record of a judged claim: five words, the number they rest on, and the sentence they make."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from reports.bounds import UNSCALED, Bound
from reports.claim_list import CLAIM_LIST
from reports.estimate import Estimate
from reports.fields import Fields
from reports.units import PrintedUnit, exact_unit, printed_unit

A_A_CONTROL = "A/A"
"""Claim id under which a session records the control that times one engine against itself."""

_NEVER_TIMED = frozenset({A_A_CONTROL, *(claim.id for claim in CLAIM_LIST if not claim.timed)})


class Outcome(StrEnum):
    """The five words of a verdict."""

    CONFIRMED = "confirmed"
    REFUTED = "refuted"
    UNDECIDED = "undecided"
    NOT_APPLICABLE = "not applicable"
    FAULT = "measurement fault"


DECIDED = frozenset({Outcome.CONFIRMED, Outcome.REFUTED})
JUDGED = DECIDED | {Outcome.UNDECIDED}


@dataclass(frozen=True, slots=True)
class Verdict:
    """One claim judged on one subject ("naive@1"), with everything needed to print the sentence.

    `observation` marks a verdict that never fails a test, such as a timed claim on a CPU; a
    measurement fault fails all the same.
    """

    claim: str
    subject: str
    quantity: str
    outcome: Outcome
    observation: bool
    estimate: Estimate | None
    bound: Bound
    reason: str
    device: str
    p_value: float | None = None
    minimum_detectable_effect: float | None = None
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def timed(self) -> bool:
        """True where a clock was involved: such verdicts fall with a failed A/A control."""
        sampled = self.estimate is not None and not self.estimate.exact
        return sampled and self.claim not in _NEVER_TIMED

    def sentence(self) -> str:
        """`naive@1: measured 31.2 tok/s [30.8, 31.7] (5 runs), claimed < 266: confirmed`."""
        return (
            f"{self.subject}: {self._measured()}, claimed {self.claimed()}: "
            f"{self.outcome}{self.remark()}"
        )

    def claimed(self) -> str:
        """The bound alone, scaled like the measured value: `< 266`."""
        return self.bound.describe(self._unit())

    def value(self) -> str:
        """The value alone: `31.2 tok/s [30.8, 31.7]`; a dash where nothing was measured."""
        if self.estimate is None:
            return "–"
        unit = self._unit()
        if self.estimate.exact or self.estimate.interval is None:
            return unit.with_label(self.estimate.centre)
        low, high = self.estimate.interval
        return f"{unit.with_label(self.estimate.centre)} [{unit.number(low)}, {unit.number(high)}]"

    def _unit(self) -> PrintedUnit:
        if self.estimate is None:
            return UNSCALED
        if self.estimate.exact:
            return exact_unit(self.estimate.unit)
        return printed_unit(self.estimate.unit, self.estimate.centre)

    def _measured(self) -> str:
        if self.estimate is None:
            return "nothing measured"
        named = "" if self.quantity in ("", self.estimate.unit) else f"{self.quantity} "
        if self.estimate.exact:
            return f"counted {named}{self.value()}"
        plural = (
            "" if self.estimate.n == 1 else "es" if self.estimate.resampled.endswith("s") else "s"
        )
        return (
            f"measured {named}{self.value()} ({self.estimate.n} {self.estimate.resampled}{plural})"
        )

    def remark(self) -> str:
        """What follows the outcome in brackets, or nothing: ` (throttled)`."""
        parts = [self.reason] if self.reason else []
        if self.outcome is Outcome.UNDECIDED and self.minimum_detectable_effect is not None:
            effect = self._unit().with_label(self.minimum_detectable_effect)
            parts.append(f"smallest detectable difference {effect}")
        if self.observation and self.outcome in JUDGED:
            parts.append("observation only")
        return f" ({'; '.join(parts)})" if parts else ""

    def to_json(self) -> dict[str, Any]:
        """Plain types only, as the run file stores them."""
        return {
            "claim": self.claim,
            "subject": self.subject,
            "quantity": self.quantity,
            "outcome": str(self.outcome),
            "observation": self.observation,
            "estimate": None if self.estimate is None else self.estimate.to_json(),
            "bound": self.bound.to_json(),
            "reason": self.reason,
            "device": self.device,
            "p_value": self.p_value,
            "minimum_detectable_effect": self.minimum_detectable_effect,
            "extra": dict(self.extra),
        }

    @classmethod
    def from_json(cls, data: object) -> Verdict:
        """Read what `to_json` wrote; further keys such as nodeid and block are ignored."""
        fields = Fields(data, "verdict")
        estimate = fields.optional_mapping("estimate")
        return cls(
            claim=fields.filled_text("claim"),
            subject=fields.text("subject"),
            quantity=fields.text("quantity"),
            outcome=_outcome(fields.text("outcome")),
            observation=fields.flag("observation"),
            estimate=None if estimate is None else Estimate.from_json(estimate),
            bound=Bound.from_json(fields.mapping("bound")),
            reason=fields.text("reason"),
            device=fields.text("device"),
            p_value=fields.optional_number("p_value"),
            minimum_detectable_effect=fields.optional_number("minimum_detectable_effect"),
            extra=fields.optional_mapping("extra") or {},
        )


def _outcome(text: str) -> Outcome:
    try:
        return Outcome(text)
    except ValueError:
        known = ", ".join(repr(str(outcome)) for outcome in Outcome)
        raise ValueError(f"verdict.outcome must be one of {known}, got {text!r}") from None
