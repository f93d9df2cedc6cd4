"""Answers of two or more engines to one prompt, with what was added and what is missing marked.

Series `side_by_side`, one point per prompt: {"prompt": text, "answers": {variant: text}}; an answer
may be {"tokens": [text, …]} instead. The first variant is the reference of the others. A plain text
is compared by words, and where there are no spaces, as in Thai, by characters with their marks.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from reports.runfile import RunFile

SERIES = "side_by_side"
LONGEST = 2_000
"""Tokens per answer that are compared and shown."""
LONGEST_MISSING = 60
"""Characters of a missing passage that are shown: the reference stands beside it in full."""


class Mark(StrEnum):
    """What a piece of an answer is beside the reference."""

    EQUAL = "equal"
    ADDED = "added"
    MISSING = "missing"


@dataclass(frozen=True)
class Answer:
    """One engine's answer in pieces; a missing piece is one that only the reference has."""

    engine: str
    pieces: tuple[tuple[str, Mark], ...]

    @property
    def as_reference(self) -> bool:
        """True where nothing was added and nothing is missing."""
        return all(mark is Mark.EQUAL for _, mark in self.pieces)

    @property
    def text(self) -> str:
        """What the engine answered."""
        return "".join(text for text, mark in self.pieces if mark is not Mark.MISSING)


@dataclass(frozen=True)
class Group:
    """One prompt and its answers."""

    prompt: str
    answers: tuple[Answer, ...]


def groups(run: RunFile) -> list[Group]:
    """All prompts that were answered by at least two engines."""
    points = (point for series in run.series(SERIES) for point in series.get("points") or ())
    found = [
        _group(point)
        for point in points
        if isinstance(point, Mapping) and isinstance(point.get("answers"), Mapping)
    ]
    return [group for group in found if len(group.answers) >= 2]


def _group(point: Mapping[str, Any]) -> Group:
    tokens = {str(engine): _tokens(answer) for engine, answer in point["answers"].items()}
    reference = next(iter(tokens.values()), [])
    answers = [Answer(engine, tuple(_pieces(reference, own))) for engine, own in tokens.items()]
    return Group(str(point.get("prompt", "")), tuple(answers))


def _tokens(answer: object) -> list[str]:
    listed = answer.get("tokens") if isinstance(answer, Mapping) else None
    if isinstance(listed, Sequence) and not isinstance(listed, str):
        return [str(token) for token in listed][:LONGEST]
    text = answer.get("text", "") if isinstance(answer, Mapping) else answer
    return written_units(str(text))[:LONGEST]


def written_units(text: str) -> list[str]:
    """Words of Latin script and digits, else single characters, each with its marks."""
    units: list[str] = []
    for character in text:
        joins = bool(units) and (
            unicodedata.category(character).startswith("M")
            or (_in_word(character) and _in_word(units[-1][-1]))
        )
        if joins:
            units[-1] += character
        else:
            units.append(character)
    return units


def _in_word(character: str) -> bool:
    return character.isascii() and character.isalnum()


def _pieces(reference: Sequence[str], own: Sequence[str]) -> Iterator[tuple[str, Mark]]:
    """Runs of equal, missing and added tokens, in order; what replaces a passage follows it."""
    matcher = SequenceMatcher(None, reference, own, autojunk=False)
    for kind, start, end, own_start, own_end in matcher.get_opcodes():
        if kind == "equal":
            yield "".join(own[own_start:own_end]), Mark.EQUAL
            continue
        if end > start:
            yield _shortened("".join(reference[start:end])), Mark.MISSING
        if own_end > own_start:
            yield "".join(own[own_start:own_end]), Mark.ADDED


def _shortened(text: str) -> str:
    return text if len(text) <= LONGEST_MISSING else f"{text[: LONGEST_MISSING - 1]}…"
