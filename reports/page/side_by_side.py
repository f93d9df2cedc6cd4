"""Answers of two or more engines to one prompt, with the tokens that differ marked.

Series `side_by_side`, one point per prompt: {"prompt": text, "answers": {variant: text}}; an answer
may be {"tokens": [text, …]} instead. The first variant is the reference of the others. A plain text
is compared by words, and where there are no spaces, as in Thai, by characters with their marks.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from reports.runfile import RunFile

SERIES = "side_by_side"
LONGEST = 2_000
"""Tokens per answer that are compared and shown."""


@dataclass(frozen=True)
class Answer:
    """One engine's answer in pieces; True marks a piece that differs from the reference."""

    engine: str
    pieces: tuple[tuple[str, bool], ...]


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


def _pieces(reference: Sequence[str], own: Sequence[str]) -> Iterator[tuple[str, bool]]:
    """Runs of equal and of differing tokens, in order."""
    matcher = SequenceMatcher(None, reference, own, autojunk=False)
    for kind, _, _, start, end in matcher.get_opcodes():
        if end > start:
            yield "".join(own[start:end]), kind != "equal"
