"""The device that the theory lines are drawn for: the datasheet's where there is one."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Machine:
    """Name, memory [bytes], bandwidth [bytes/s]; FLOP/s is None where no datasheet names it."""

    name: str
    memory_bytes: float
    bandwidth_bytes_per_s: float
    flops_per_s: float | None
