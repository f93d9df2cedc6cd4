"""How many tokens each chunk of a stream carried.

Servers differ: some send one token per chunk, some several, some open with a chunk that has only a
role, some end with one that has only the usage, some put reasoning beside the content. The best
source that the stream offers decides: token ids in the chunks; usage that grows with each chunk; or
the total at the end, which is exact per chunk only when there are as many chunks as tokens. Else
the total is spread by the length of the text, and the record says that this was done.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Counting = Literal["token ids", "running usage", "one per chunk", "spread by length", "chunks only"]
TEXT_FIELDS = ("content", "reasoning_content", "reasoning")


@dataclass(frozen=True, slots=True)
class Chunk:
    """What arrived at one moment."""

    at_s: float
    tokens: int
    chars: int


@dataclass(frozen=True, slots=True)
class _Seen:
    at_s: float
    chars: int
    ids: tuple[int, ...] | None
    running: int | None


class TokenCounter:
    """Reads the events of one stream in order."""

    def __init__(self) -> None:
        self._seen: list[_Seen] = []
        self._text: list[str] = []
        self.finish_reason: str | None = None
        self.total: int | None = None
        self.prompt_tokens: int | None = None

    def read(self, event: dict[str, Any], at_s: float) -> None:
        """Take one event that arrived at `at_s`."""
        usage = event.get("usage")
        running = self._usage(usage) if isinstance(usage, dict) else None
        choices = event.get("choices")
        if not isinstance(choices, list) or not choices:
            return
        choice = choices[0]
        text = _text_of(choice)
        ids = choice.get("token_ids")
        self._text.append(text)
        self.finish_reason = choice.get("finish_reason") or self.finish_reason
        self._seen.append(
            _Seen(at_s, len(text), tuple(ids) if isinstance(ids, list) else None, running)
        )

    def _usage(self, usage: dict[str, Any]) -> int | None:
        tokens, prompt = usage.get("completion_tokens"), usage.get("prompt_tokens")
        if isinstance(prompt, int):
            self.prompt_tokens = prompt
        if isinstance(tokens, int):
            self.total = tokens
            return tokens
        return None

    @property
    def text(self) -> str:
        """Everything the stream said."""
        return "".join(self._text)

    @property
    def token_ids(self) -> tuple[int, ...] | None:
        """The ids, if the stream told them all."""
        if not any(seen.ids for seen in self._seen):
            return None
        return tuple(token for seen in self._seen for token in seen.ids or ())

    def chunks(self) -> tuple[tuple[Chunk, ...], Counting]:
        """The chunks that carried tokens, and how the tokens were counted."""
        counts, how = self._counts()
        pairs = zip(self._seen, counts, strict=True)
        return tuple(Chunk(seen.at_s, n, seen.chars) for seen, n in pairs if n), how

    def _counts(self) -> tuple[list[int], Counting]:
        if self.token_ids is not None:
            return [len(seen.ids or ()) for seen in self._seen], "token ids"
        running = [seen.running for seen in self._seen]
        known = [n for n in running if n is not None]
        if known and len(known) == len(running) and known[0] < known[-1]:
            return [
                now - before for before, now in zip([0, *known], known, strict=False)
            ], "running usage"
        chars = [seen.chars for seen in self._seen]
        telling = sum(1 for n in chars if n)
        if self.total is None:
            return [int(n > 0) for n in chars], "chunks only"
        if self.total == telling:
            return [int(n > 0) for n in chars], "one per chunk"
        return spread(self.total, chars), "spread by length"


def spread(total: int, lengths: list[int]) -> list[int]:
    """Whole shares of `total` in proportion to the lengths; they add up to it.

    With nothing to go by, everything is in the last chunk.
    """
    length = sum(lengths)
    if not length:
        return [0] * (len(lengths) - 1) + [total] if lengths else []
    shares, given, passed = [], 0, 0
    for chars in lengths:
        passed += chars
        upto = -(-total * passed // length)  # rounded up: the first chunk with text has a token
        shares.append(upto - given)
        given = upto
    return shares


def _text_of(choice: dict[str, Any]) -> str:
    delta = choice.get("delta")
    if not isinstance(delta, dict):
        return str(choice.get("text") or "")
    return "".join(str(delta.get(field) or "") for field in TEXT_FIELDS)
