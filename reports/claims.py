"""The claims under test: one registry from which markers, README table and reports are made.

The chapter argues that batch-1 decode waits for weights to arrive from memory, not for arithmetic.
Each claim is one sentence of that argument (`reports/claim_list.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from reports.claim import APPLIES_TEXT, Claim
from reports.claim_list import CLAIM_LIST
from reports.markdown import table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from reports.judged import Verdict

__all__ = ["CLAIMS", "SECTIONS", "Claim", "markdown_table"]

SECTIONS: dict[str, tuple[str, str]] = {
    "A": ("Memory", "3.1"),
    "B": ("The decode ceiling", "3.2, 7.2, 8"),
    "C": ("Little's law and queues", "3.3, 4"),
    "D": ("Quantization", "3.4, 7.4"),
    "E": ("Prefill and decode", "3.5"),
    "F": ("Batching", "4, 7.3"),
    "G": ("Adapter", "stage 1"),
    "H": ("Device", "5"),
    "I": ("Serving and load", "6, 7.1, 8"),
}
"""Letter to title and the chapter's sections."""

CLAIMS: dict[str, Claim] = {claim.id: claim for claim in CLAIM_LIST}

_GRAVEST_FIRST = (
    "measurement fault",
    "refuted",
    "undecided",
    "confirmed",
    "not applicable",
)


def markdown_table(verdicts_per_device: Mapping[str, Sequence[Verdict]]) -> str:
    """The README's table: a claim per line, and what each device's committed run says about it."""
    head = ["id", "claim", "kind", "applies to", "bound", *verdicts_per_device]
    lines = [
        [
            claim.id,
            claim.statement,
            claim.kind,
            APPLIES_TEXT[claim.applies],
            claim.bound,
            *(_standing(claim.id, verdicts) for verdicts in verdicts_per_device.values()),
        ]
        for claim in CLAIMS.values()
    ]
    return table(head, lines)


def _standing(claim: str, verdicts: Sequence[Verdict]) -> str:
    """The gravest outcome among a claim's verdicts, and how many share it where not all do."""
    mine = [verdict for verdict in verdicts if verdict.claim == claim]
    if not mine:
        return "–"
    outcomes = [str(verdict.outcome) for verdict in mine]
    gravest = min(outcomes, key=_GRAVEST_FIRST.index)
    share = outcomes.count(gravest)
    counted = f" ({share} of {len(mine)})" if share < len(mine) else ""
    observed = " as observation" if any(v.observation for v in mine) else ""
    return f"{gravest}{counted}{observed if gravest in _GRAVEST_FIRST[1:4] else ''}"
