"""What every engine offers, so that one measurement can drive them all.

An engine owns a loaded model and turns requests into completions. It stamps each token through
`clock.py`, it never reads the time in another way, and it says how many bytes one of its decode
steps has to read: the ceiling that binds an engine follows from its *own* bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from engines.records import Completion, Request

if TYPE_CHECKING:
    from engines.models import LoadedModel

OnToken = Callable[[Request, int], None]
"""Called on the host for every token the moment it is known; may raise `ClientGone`."""


class ClientGone(Exception):
    """Raised by an `OnToken` callback: nobody waits for this request any more, free its slot."""


class RequestRejected(ValueError):
    """A request that this engine can never serve, for instance longer than its KV store."""


@dataclass(frozen=True, slots=True)
class WarmUp:
    """What was done before timing. `compile_s` is reported and never part of a timed block."""

    runs: int
    compile_s: float
    total_s: float
    prompt_tokens: int
    max_new_tokens: int


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes an engine holds: weights with their scales as loaded, and its KV cache when in use."""

    weights_bytes: int
    kv_bytes: int


class Engine(Protocol):
    """A system under test: `naive`, `static_kv`, `compiled`, `continuous`, `int8`, `nf4`."""

    name: str
    loaded: LoadedModel
    batch_size: int

    def warm_up(self, prompt_tokens: int, max_new_tokens: int) -> WarmUp:
        """Run, compile and capture whatever the timed shape needs."""
        ...

    def run(self, requests: Sequence[Request], on_token: OnToken | None = None) -> list[Completion]:
        """Serve the requests as the engine would, in their order; one completion per request."""
        ...

    def bytes_per_step(self, context_tokens: int) -> int:
        """Bytes that one decode step at this context must read, weights and KV of all rows."""
        ...

    def memory(self) -> Memory:
        """Bytes held now."""
        ...
