"""The head of the page: on what, with what and when this was measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from reports.ladder import bandwidths
from reports.units import printed_unit

if TYPE_CHECKING:
    from reports.figures.telemetry import Samples
    from reports.runfile import RunFile


def title(run: RunFile) -> str:
    """Model and device."""
    model = run.experiment.get("model") or {}
    return f"{model.get('name', 'no model')} on {run.experiment['device']['name']}"


def facts(run: RunFile, telemetry: Samples | None) -> list[tuple[str, str]]:
    """Name and value, absent ones left out."""
    experiment = run.experiment
    device, versions = experiment["device"], experiment["versions"]
    model: Mapping[str, Any] = experiment.get("model") or {}
    listed = [
        ("Device", device["name"]),
        ("CPU", _cpu(device)),
        ("Driver", device.get("driver")),
        ("torch", versions.get("torch")),
        ("transformers", versions.get("transformers")),
        ("Model", model.get("name")),
        ("Weights", _weights(model)),
        ("Adapter", _adapter(model)),
        ("Measured", _started(experiment)),
        ("Profile", experiment.get("profile")),
        ("SM clock", _clock(telemetry)),
        *(
            (f"Bandwidth, {name}", printed_unit("bytes/s", value).with_label(value))
            for name, value in bandwidths(run).items()
        ),
    ]
    return [(name, str(value)) for name, value in listed if value]


def _started(experiment: Mapping[str, Any]) -> str:
    started = str(experiment.get("started") or "")
    zone = " UTC" if started.endswith(("+00:00", "Z")) else ""
    return f"{started[:16].replace('T', ' ')}{zone}"


def _cpu(device: Mapping[str, Any]) -> str | None:
    cpu, threads = device.get("cpu"), device.get("threads")
    if not cpu or cpu == device["name"]:
        return f"{threads} threads" if threads else None
    return f"{cpu}, {threads} threads" if threads else str(cpu)


def _weights(model: Mapping[str, Any]) -> str:
    return ", ".join(str(model[key]) for key in ("weights_kind", "dtype") if model.get(key))


def _adapter(model: Mapping[str, Any]) -> str | None:
    adapter = model.get("adapter")
    if not isinstance(adapter, Mapping):
        return None
    return f"{adapter.get('name')}{' (synthetic)' if adapter.get('synthetic') else ''}"


def _clock(telemetry: Samples | None) -> str | None:
    if telemetry is None:
        return None
    clocks = sorted(telemetry.clock_mhz)
    return f"{clocks[len(clocks) // 2]:.0f} MHz median ({clocks[0]:.0f} – {clocks[-1]:.0f})"
