"""What a claim is: a sentence of the chapter, put so that a run can contradict it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Sequence

Kind = Literal["math", "model", "timed", "serve", "static"]
Applies = Literal["any", "cuda", "sm_75", "trained"]

APPLIES_TEXT: dict[Applies, str] = {
    "any": "any device",
    "cuda": "CUDA",
    "sm_75": "sm_75 (T4)",
    "trained": "trained weights",
}


@dataclass(frozen=True, slots=True)
class Claim:
    """One claim. `bound` is what is judged, in words; `note` what bites or how it was corrected.

    math: no model, no device. model: any device. timed: judged on an interval. serve: needs a
    server and a load. static: about configuration.
    """

    id: str
    section: str
    kinds: tuple[Kind, ...]
    statement: str
    bound: str
    applies: Applies = "any"
    note: str = ""

    @property
    def kind(self) -> str:
        """The kinds as one word or two: `math + timed`."""
        return " + ".join(self.kinds)

    @property
    def timed(self) -> bool:
        """True where a clock or a load is involved, so that an interval judges."""
        return "timed" in self.kinds or "serve" in self.kinds

    def why_not_applicable(
        self,
        *,
        device_kind: str,
        capability: Sequence[int] | None = None,
        weights_kind: str = "trained",
    ) -> str | None:
        """The reason why this claim is only an observation here, or None where it applies."""
        if self.applies in ("cuda", "sm_75") and device_kind != "cuda":
            return f"needs CUDA, this is a {device_kind}"
        if self.applies == "sm_75" and tuple(capability or ()) != (7, 5):
            got = (
                "an unknown capability" if not capability else "sm_" + "".join(map(str, capability))
            )
            return f"claimed for sm_75 (T4), this is {got}"
        if self.applies == "trained" and weights_kind != "trained":
            return f"{weights_kind} weights"
        return None
