"""All figures of a run, or of the chapter's own model and card where there is no run.

A figure that a run cannot feed is left out, never drawn empty.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from reports.catalogue import find_shape
from reports.figures import batching, itl, memory, roofline, telemetry, utilisation
from reports.figures import ladder as ladder_figure
from reports.figures.machine import Machine
from reports.ladder import bandwidths, rungs
from reports.load_sweep import load_points
from reports.stored_shape import run_shape

if TYPE_CHECKING:
    from engines.shape import ModelShape
    from reports.figures.style import Drawing
    from reports.rows import EngineRow
    from reports.runfile import RunFile

CHAPTER_MODEL, CHAPTER_GPU = "Qwen/Qwen3-0.6B", "T4"
CARD = memory.Card("16 GB", 16e9)
SMALLEST_TO_FILL_A_CARD = 100_000_000
"""Parameters below which a model never fills 16 GB, so that the chapter's is drawn instead."""


def chapter_machine() -> Machine:
    """The card that the chapter computes with."""
    return machine_named(CHAPTER_GPU)


def machine_named(name: str) -> Machine:
    """A GPU of the datasheet table."""
    from engines.gpus import GPUS

    gpu = GPUS[name]
    return Machine(name, gpu.memory_bytes, gpu.bandwidth_bytes_per_s, gpu.fp16_flops_per_s)


def run_machine(run: RunFile) -> Machine | None:
    """The device of a run: its datasheet, else its measured bandwidth, else None."""
    from engines.gpus import GPUS

    device = run.experiment["device"]
    if device.get("gpu") in GPUS:
        return machine_named(device["gpu"])
    known = bandwidths(run)
    if not known:
        return None
    bandwidth = known.get("measured read") or next(iter(known.values()))
    return Machine(str(device["name"]), float(device.get("memory_bytes") or 0), bandwidth, None)


def theory_figures() -> list[Drawing]:
    """The chapter's figures: arithmetic alone."""
    shape, machine = find_shape(CHAPTER_MODEL), chapter_machine()
    return [
        memory.draw(shape, CARD),
        batching.draw(shape, machine),
        utilisation.draw(),
        roofline.draw(shape, machine),
    ]


def run_figures(run: RunFile) -> list[Drawing]:
    """Theory for the run's own model and device, with its points; then what only a run has."""
    shape, machine = run_shape(run), run_machine(run)
    rows = [row for row in run.rows if row.phase == "decode"]
    found = [_memory(shape, machine, rows)]
    if shape is not None and machine is not None:
        found.append(batching.draw(shape, machine, rows, _usual_context(rows)))
    else:
        found.append(batching.draw(find_shape(CHAPTER_MODEL), chapter_machine()))
    found.append(utilisation.draw(load_points(run)))
    if shape is not None and machine is not None and machine.flops_per_s is not None:
        found.append(roofline.draw(shape, machine, rows))
    else:
        found.append(roofline.draw(find_shape(CHAPTER_MODEL), chapter_machine()))
    if gaps := itl.gaps(run):
        found.append(itl.draw(gaps))
    if samples := telemetry.samples(run):
        found.append(telemetry.draw(samples))
    return found


def ladder_figures(run: RunFile) -> list[Drawing]:
    """The ladder in two widths, or nothing where no rung was measured."""
    climbed = rungs(run)
    if not climbed:
        return []
    return [ladder_figure.draw(climbed), ladder_figure.draw(climbed, narrow=True)]


def _memory(shape: ModelShape | None, machine: Machine | None, rows: list[EngineRow]) -> Drawing:
    if shape is None or shape.num_parameters < SMALLEST_TO_FILL_A_CARD:
        return memory.draw(find_shape(CHAPTER_MODEL), CARD)
    return memory.draw(shape, _card(shape, machine), rows)


def _card(shape: ModelShape, machine: Machine | None) -> memory.Card:
    """The chapter's 16 GB, or the run's own card where the weights alone are more than that."""
    from engines import cost

    weights = cost.weight_bytes(shape)
    if machine is None or not CARD.memory_bytes <= weights < machine.memory_bytes:
        return CARD
    return memory.Card(f"{machine.name}, {machine.memory_bytes / 1e9:.0f} GB", machine.memory_bytes)


def _usual_context(rows: list[EngineRow]) -> int:
    """Half-way through the output of the rows: the context that their steps had on average."""
    contexts = sorted(row.prompt_tokens + row.new_tokens // 2 for row in rows)
    return contexts[len(contexts) // 2] if contexts else 512
