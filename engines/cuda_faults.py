"""What a CUDA error means for the tests that come after it.

Out of memory concerns one test: it is noted in its row and the next one goes on. An illegal access,
a failed device-side assertion or a hardware error poisons the context: every later CUDA call of the
process fails with the same message, whatever it does, so those tests are marked and not run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator

OUT_OF_MEMORY_TEXTS = ("out of memory", "can't allocate memory", "not enough memory")
POISON_TEXTS = (
    "illegal memory access",
    "illegal address",
    "illegal instruction",
    "misaligned address",
    "device-side assert",
    "unspecified launch failure",
    "launch timed out",
    "invalid program counter",
    "hardware stack error",
    "uncorrectable ecc",
    "uncorrectable nvlink",
    "device is lost",
    "gpu has fallen off the bus",
)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory, of the device or of the host, ran out; also when wrapped in another error."""
    return any(
        isinstance(cause, torch.cuda.OutOfMemoryError | MemoryError)
        or (isinstance(cause, RuntimeError) and _mentions(cause, OUT_OF_MEMORY_TEXTS))
        for cause in _causes(error)
    )


def is_poisoned(error: BaseException) -> bool:
    """Whether this process can make no CUDA call any more after this error."""
    return any(
        isinstance(cause, RuntimeError) and _mentions(cause, POISON_TEXTS)
        for cause in _causes(error)
    )


def release_memory() -> None:
    """Give cached blocks back to the device, so that the next test starts with all of it."""
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def _mentions(error: BaseException, texts: tuple[str, ...]) -> bool:
    message = str(error).lower()
    return any(text in message for text in texts)
