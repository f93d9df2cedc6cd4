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

    def number(self, value: float) -> str:
        """The scaled number alone: three significant digits, whole numbers whole."""
        return significant(value / self.factor)

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


def significant(value: float, digits: int = 3) -> str:
    """`digits` significant digits without an exponent between 1e-4 and 1e15; 1,234 for large."""
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else "–"
    exponent = math.floor(math.log10(abs(value)))
    if exponent < -4 or exponent >= 15:
        return f"{value:.{digits - 1}e}"
    rounded = round(value, digits - 1 - exponent) if exponent < digits else round(value)
    text = f"{rounded:,.{max(digits - 1 - exponent, 0)}f}"
    return text.rstrip("0").rstrip(".") if float(value).is_integer() and "." in text else text
