"""From token ids to text that can be shown at once.

A token of a byte-level vocabulary may end inside a character: a Thai letter has three bytes, and
a rare one takes three tokens. Text is handed out only up to the last whole character; the rest
waits for the next token. A combining vowel or tone mark is a character of its own and joins its
consonant on the screen when it comes. In the same way the beginning of a stop string waits until
it is clear whether the whole string follows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

REPLACEMENT = "\ufffd"
LONGEST_PARTIAL = 3
"""A character has at most four bytes, so at most three of them can be waiting for the rest."""


class Tokenizer(Protocol):
    """The part of a Hugging Face tokenizer that serving needs."""

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Token ids of a text."""
        ...

    def decode(self, ids: list[int], *, skip_special_tokens: bool = False) -> str:
        """Text of token ids; bytes that are not UTF-8 become U+FFFD."""
        ...


class IdsAsText:
    """Stands in where a model has no tokenizer: the text of a token is its number."""

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Read numbers; anything else is a ValueError."""
        del add_special_tokens
        try:
            return [int(word) for word in text.split()]
        except ValueError:
            raise ValueError(
                "this model has no tokenizer: send token ids, as a list or as numbers in a text"
            ) from None

    def decode(self, ids: list[int], *, skip_special_tokens: bool = False) -> str:
        """Numbers, each followed by a space."""
        del skip_special_tokens
        return "".join(f"{token} " for token in ids)


class TextStream:
    """Decodes one answer token by token; the pieces joined are the decoding of the whole.

    Only a short window is decoded again per token: the last piece that ended on a whole character,
    as context (some tokenizers drop the space of a first word), and what came after it.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._context: list[int] = []
        self._pending: list[int] = []
        self._given = 0

    def push(self, token_id: int) -> str:
        """Text that this token completes, possibly empty."""
        self._pending.append(token_id)
        text = self._pending_text()
        whole = _whole_chars(text)
        piece = text[self._given : whole]
        self._given = max(self._given, whole)
        if whole == len(text) and piece:
            self._context, self._pending, self._given = self._pending, [], 0
        return piece

    def finish(self) -> str:
        """Whatever is still held back: bytes that never became a character."""
        return self._pending_text()[self._given :]

    def _pending_text(self) -> str:
        before = self._decode(self._context)
        return self._decode(self._context + self._pending)[len(before) :]

    def _decode(self, ids: list[int]) -> str:
        return self._tokenizer.decode(ids, skip_special_tokens=True)


def _whole_chars(text: str) -> int:
    """Length of the text without a trailing character that may still be incomplete."""
    trailing = len(text) - len(text.rstrip(REPLACEMENT))
    return len(text) - min(trailing, LONGEST_PARTIAL)


class StopStrings:
    """Ends a text before the first stop string, also one that spans several pieces."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._held = ""
        self.found = False

    def push(self, piece: str) -> str:
        """Text that is certainly not the beginning of a stop string."""
        text = self._held + piece
        starts = [start for start in (text.find(stop) for stop in self._stops) if start >= 0]
        if starts:
            self.found, self._held = True, ""
            return text[: min(starts)]
        keep = max((_overlap(text, stop) for stop in self._stops), default=0)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def finish(self) -> str:
        """What was held back, now that nothing follows."""
        held, self._held = self._held, ""
        return held


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of `text` that begins `stop`."""
    longest = min(len(text), len(stop) - 1)
    return next((n for n in range(longest, 0, -1) if text.endswith(stop[:n])), 0)
