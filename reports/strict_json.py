"""JSON that every reader accepts: no NaN, no Infinity, no leftovers of numpy.

pytest-benchmark turns a `float32` into the string `UNSERIALIZABLE[…]`, writes NaN bare, and leaves
an empty file when it meets a key that is not a string. So everything goes through `purify` first.
"""

from __future__ import annotations

import dataclasses
import json
import math
import numbers
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from datetime import date
from enum import Enum
from pathlib import PurePath
from typing import Any


def purify(value: object) -> Any:
    """The same value made of dict, list, str, int, float, bool and None only.

    NaN and infinities become None, keys become strings, sets become sorted lists. An object of an
    unknown type becomes its `repr`: losing its meaning is better than losing the run's file.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, Enum):
        return purify(value.value)
    if isinstance(value, str):
        return _encodable(value)
    if isinstance(value, numbers.Number):
        return _number(value)
    if isinstance(value, Mapping):
        return {_key(key): purify(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [purify(item) for item in value]
    if isinstance(value, AbstractSet):
        return sorted((purify(item) for item in value), key=str)
    return _object(value)


def dumps(value: object, *, indent: int | None = None) -> str:
    """Strict JSON text of any value; Thai stays readable, line breaks are escaped."""
    return json.dumps(purify(value), allow_nan=False, ensure_ascii=False, indent=indent)


def _key(key: object) -> str:
    pure = purify(key)
    return pure if isinstance(pure, str) else json.dumps(pure)


def _encodable(text: str) -> str:
    """Replace lone surrogates, which paths of the system may hold and UTF-8 cannot."""
    return str(text).encode("utf-8", "replace").decode("utf-8")


def _number(value: Any) -> int | float | None:
    if isinstance(value, numbers.Integral):
        return int(value)
    try:
        real = float(value)
    except (TypeError, OverflowError):
        return None
    return real if math.isfinite(real) else None


def _object(value: object) -> Any:
    if isinstance(value, PurePath):
        return _encodable(str(value))
    if isinstance(value, date):
        return value.isoformat()
    if hasattr(value, "to_json"):
        return purify(value.to_json())
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {item.name: purify(getattr(value, item.name)) for item in dataclasses.fields(value)}
    if hasattr(
        value, "tolist"
    ):  # numpy scalars and arrays, torch tensors; neither is imported here
        return purify(value.tolist())
    return _encodable(repr(value))
