"""What a negative control is: a sound script, and the planted faults that must turn its verdict."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from reports.verdict import Outcome, Verdict
    from tests.meta.bench import Bench


@dataclass(frozen=True)
class Fault:
    """A planted fault: what is changed in the sound script, and the outcome it must lead to."""

    outcome: Outcome
    changes: Mapping[str, Any]
    quantity: str = ""
    """Pattern found in the quantity of every verdict that has to turn; all where it is empty."""


@dataclass(frozen=True)
class Control:
    """The negative control of one claim: `run(bench)` is sound, each fault turns its verdict."""

    run: Callable[..., None]
    faults: Mapping[str, Fault]

    def verdicts(self, bench: Bench, claim: str, fault: Fault | None = None) -> list[Verdict]:
        """Verdicts on the claim, of the sound script or of one with a fault."""
        self.run(bench, **(fault.changes if fault else {}))
        wanted = fault.quantity if fault else ""
        return [v for v in bench.verdicts if v.claim == claim and re.search(wanted, v.quantity)]
