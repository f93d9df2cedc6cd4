"""The model shape that a run stored, as far as this version can read it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engines.shape import ModelShape

if TYPE_CHECKING:
    from reports.runfile import RunFile


def run_shape(run: RunFile) -> ModelShape | None:
    """The shape of a run's model; None where none is stored or it is another version's."""
    stored = (run.experiment.get("model") or {}).get("shape")
    try:
        return ModelShape.from_json(stored) if isinstance(stored, dict) else None
    except (TypeError, KeyError, ValueError, AttributeError):
        return None
