"""Reading fields of untrusted JSON, with errors that say which field, what was got, what fits.

JSON knows no schema, and a run file may come from another tool or from an older version. A reader
asks for each field by its type; the first that does not fit ends in one line.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any


class Fields:
    """A JSON object and the name under which errors speak of it."""

    def __init__(self, data: object, what: str) -> None:
        if not isinstance(data, Mapping):
            raise ValueError(f"{what} must be a JSON object, got {_shown(data)}")
        self._data: Mapping[str, Any] = data
        self._what = what

    def _fail(self, key: str, expected: str) -> ValueError:
        got = _shown(self._data[key]) if key in self._data else "nothing"
        return ValueError(f"{self._what}.{key} must be {expected}, got {got}")

    def text(self, key: str) -> str:
        """A string, possibly empty."""
        value = self._data.get(key)
        if not isinstance(value, str):
            raise self._fail(key, "a string")
        return value

    def filled_text(self, key: str) -> str:
        """A string that says something."""
        value = self.text(key)
        if not value.strip():
            raise self._fail(key, "a non-empty string")
        return value

    def optional_text(self, key: str) -> str | None:
        """A string, or None where the key is absent or null."""
        return None if self._data.get(key) is None else self.text(key)

    def number(self, key: str) -> float:
        """A finite number; true and false are not numbers."""
        value = self._data.get(key)
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not math.isfinite(value)
        ):
            raise self._fail(key, "a finite number")
        return value

    def optional_number(self, key: str) -> float | None:
        """A finite number, or None where the key is absent or null."""
        return None if self._data.get(key) is None else self.number(key)

    def integer(self, key: str) -> int:
        """A whole number; 3.0 is not one."""
        value = self._data.get(key)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self._fail(key, "a whole number")
        return value

    def optional_integer(self, key: str) -> int | None:
        """A whole number, or None where the key is absent or null."""
        return None if self._data.get(key) is None else self.integer(key)

    def flag(self, key: str) -> bool:
        """True or false."""
        value = self._data.get(key)
        if not isinstance(value, bool):
            raise self._fail(key, "true or false")
        return value

    def mapping(self, key: str) -> dict[str, Any]:
        """An object."""
        value = self._data.get(key)
        if not isinstance(value, Mapping):
            raise self._fail(key, "an object")
        return dict(value)

    def optional_mapping(self, key: str) -> dict[str, Any] | None:
        """An object, or None where the key is absent or null."""
        return None if self._data.get(key) is None else self.mapping(key)

    def sequence(self, key: str) -> list[Any]:
        """A list; an absent or null one is empty."""
        value = self._data.get(key)
        if value is None:
            return []
        if isinstance(value, str) or not isinstance(value, Sequence):
            raise self._fail(key, "a list")
        return list(value)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
