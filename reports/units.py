"""Base units inside, scaled units only where something is printed.

Records hold seconds, bytes and bytes per second. A sentence reads better in ms, GB and GB/s
(decimal), and the bound beside a value must be scaled like the value itself.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

_STEPS = {
    "s": ((1e-6, "µs"), (1e-3, "ms"), (1.0, "s")),
    "bytes": ((1.0, "B"), (1e3, "kB"), (1e6, "MB"), (1e9, "GB")),
    "bytes/s": ((1.0, "B/s"), (1e3, "kB/s"), (1e6, "MB/s"), (1e9, "GB/s")),
    "FLOP/s": ((1.0, "FLOP/s"), (1e9, "GFLOP/s"), (1e12, "TFLOP/s")),
}


@dataclass(frozen=True, slots=True)
class PrintedUnit:
    """How values of one magnitude are printed: divide by `factor`, then write `label`."""

    factor: float
    label: str
    exact: bool = False

    def number(self, value: float) -> str:
        """The scaled number alone: three significant digits, or all that an exact number has."""
        return self.declared(value) if self.exact else significant(value / self.factor)

    def declared(self, value: float) -> str:
        """A number that was written down and not measured: `1`, `0.97`, `114,688`."""
        text = significant(value / self.factor, digits=6 if self.exact else 4)
        return text.rstrip("0").rstrip(".") if "." in text and "e" not in text else text

    def with_label(self, value: float) -> str:
        """The scaled number and its unit."""
        return f"{self.number(value)} {self.label}".rstrip()


def printed_unit(unit: str, magnitude: float) -> PrintedUnit:
    """The unit in which a value of this magnitude is best read; "1" prints no unit at all."""
    steps = _STEPS.get(unit)
    if steps is None:
        return PrintedUnit(1.0, "" if unit == "1" else unit)
    fitting = [step for step in steps if abs(magnitude) >= step[0]]
    return PrintedUnit(*(fitting[-1] if fitting else steps[0]))


def exact_unit(unit: str) -> PrintedUnit:
    """Print an exact number unscaled, in its base unit."""
    base = {"1": "", "bytes": "B", "bytes/s": "B/s"}.get(unit, unit)
    return PrintedUnit(1.0, base, exact=True)


def significant(value: float, digits: int = 3) -> str:
    """`digits` significant digits without an exponent between 1e-4 and 1e15; 1,234 for large."""
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else "–"
    exponent = math.floor(math.log10(abs(value)))
    if exponent < -4 or exponent >= 15:  # 1e-5 is read faster than 0.0000100
        return f"{value:.{digits - 1}e}"
    return f"{value:,.{max(digits - 1 - exponent, 0)}f}"
