"""Claims of the registry with this run's verdicts: one word per claim, one sentence per verdict."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from reports.claims import CLAIMS, SECTIONS
from reports.verdict import A_A_CONTROL, Outcome

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reports.claims import Claim
    from reports.verdict import Verdict

WORST_FIRST = (
    Outcome.FAULT,
    Outcome.REFUTED,
    Outcome.UNDECIDED,
    Outcome.CONFIRMED,
    Outcome.NOT_APPLICABLE,
)
KINDS = {
    Outcome.CONFIRMED: "confirmed",
    Outcome.REFUTED: "refuted",
    Outcome.UNDECIDED: "undecided",
    Outcome.NOT_APPLICABLE: "not-applicable",
    Outcome.FAULT: "fault",
}
UNTESTED = "not tested in this run"
CONTROL = (
    "One engine timed against itself shows no difference. Where it does, every timed verdict of "
    "the run is a measurement fault."
)


@dataclass(frozen=True)
class Line:
    """The sentence of one verdict in three parts, of which the value is what the eye looks for."""

    start: str
    value: str
    rest: str


@dataclass(frozen=True)
class ClaimView:
    """One claim as the page shows it."""

    id: str
    statement: str
    word: str
    kind: str
    observation: bool
    lines: tuple[Line, ...]


@dataclass(frozen=True)
class SectionView:
    """One section of the chapter with its claims."""

    title: str
    claims: tuple[ClaimView, ...]

    @property
    def tested(self) -> list[ClaimView]:
        """Claims with a verdict."""
        return [claim for claim in self.claims if claim.lines]

    @property
    def untested(self) -> list[ClaimView]:
        """Claims that no test of this run has judged."""
        return [claim for claim in self.claims if not claim.lines]


def sections(verdicts: Sequence[Verdict]) -> list[SectionView]:
    """All sections in order; verdicts on ids that the registry does not know come last."""
    by_claim: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        by_claim.setdefault(verdict.claim, []).append(verdict)
    found = [
        SectionView(
            f"{letter}. {title}",
            tuple(
                _view(claim.id, _statement(claim), by_claim.get(claim.id, []))
                for claim in CLAIMS.values()
                if claim.section == letter
            ),
        )
        for letter, (title, _) in SECTIONS.items()
    ]
    others = tuple(
        _view(claim_id, CONTROL if claim_id == A_A_CONTROL else "", own)
        for claim_id, own in by_claim.items()
        if claim_id not in CLAIMS
    )
    return [*found, SectionView("Controls", others)] if others else found


def tally(views: Sequence[SectionView]) -> list[tuple[str, str, int]]:
    """(word, kind, number of claims), the ones that need a look first."""
    claims = [claim for section in views for claim in section.claims]
    counts = Counter((claim.word, claim.kind) for claim in claims)
    order = [KINDS[outcome] for outcome in WORST_FIRST] + ["untested"]
    listed = [(word, kind, number) for (word, kind), number in counts.items()]
    return sorted(listed, key=lambda entry: order.index(entry[1]))


def _statement(claim: Claim) -> str:
    return f"{claim.statement} {claim.note}".rstrip()


def _view(claim_id: str, statement: str, verdicts: Sequence[Verdict]) -> ClaimView:
    outcomes = {verdict.outcome for verdict in verdicts}
    worst = next((outcome for outcome in WORST_FIRST if outcome in outcomes), None)
    if worst is None:
        return ClaimView(claim_id, statement, UNTESTED, "untested", False, ())
    ordered = sorted(verdicts, key=lambda verdict: WORST_FIRST.index(verdict.outcome))
    judged = [verdict for verdict in verdicts if verdict.outcome is not Outcome.NOT_APPLICABLE]
    return ClaimView(
        id=claim_id,
        statement=statement,
        word=str(worst),
        kind=KINDS[worst],
        observation=bool(judged) and all(verdict.observation for verdict in judged),
        lines=tuple(_sentence(verdict) for verdict in ordered),
    )


def _sentence(verdict: Verdict) -> Line:
    """A claim that was left out has no number to print, only its reason."""
    if verdict.estimate is None:
        where = f"{verdict.subject}: " if verdict.subject else ""
        return Line(f"{where}{verdict.outcome}: {verdict.reason}", "", "")
    value, sentence = verdict.value(), verdict.sentence()
    following = ", claimed" if verdict.estimate.exact else " ("
    start, found, rest = sentence.partition(f" {value}{following}")
    return Line(f"{start} ", value, f"{following}{rest}") if found else Line(sentence, "", "")
