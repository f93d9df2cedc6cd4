"""Numbers to estimates: the one place from which the methods are imported."""

from __future__ import annotations

from reports.estimate import Estimate, Interval, exactly

__all__ = ["Estimate", "Interval", "exactly"]
