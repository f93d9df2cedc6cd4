"""What a run ran on, as a Markdown list."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reports.markdown import cell
from reports.units import printed_unit

if TYPE_CHECKING:
    from reports.runfile import RunFile


def header(run: RunFile) -> str:
    """What the run ran on."""
    found = run.experiment
    lines = [
        f"# Run {cell(found['run_id'])}",
        "",
        f"- device: {_device(found['device'])}",
        f"- model: {_model(found.get('model'))}",
        f"- profile: {cell(found['profile'])}, claims {cell(found.get('claims_mode'))}",
        f"- versions: {_pairs(found['versions'])}",
        f"- ceilings: {_ceilings(found['ceilings'])}",
        f"- blocks: {_blocks(found['blocks'])}",
        *(f"- note: {cell(warning)}" for warning in run.warnings),
    ]
    return "\n".join(lines)


def _device(device: dict[str, Any]) -> str:
    parts = [str(device["name"])]
    if device.get("driver"):
        parts.append(f"driver {device['driver']}")
    if device.get("capability"):
        parts.append("sm_" + "".join(map(str, device["capability"])))
    if device.get("memory_bytes"):
        parts.append(
            printed_unit("bytes", device["memory_bytes"]).with_label(device["memory_bytes"])
        )
    if device["kind"] != "cpu" and device.get("cpu"):
        parts.append(f"beside {device['cpu']}")
    return cell(", ".join(parts))


def _model(model: dict[str, Any] | None) -> str:
    if model is None:
        return "none"
    adapter = model.get("adapter")
    kind = "synthetic" if adapter and adapter.get("synthetic") else "trained"
    named = f", adapter {adapter.get('name')} ({kind})" if adapter else ""
    weights, dtype = model.get("weights_kind"), model.get("dtype")
    return cell(f"{model['name']}, {weights} weights, {dtype}{named}")


def _pairs(versions: dict[str, Any]) -> str:
    return cell(", ".join(f"{name} {value}" for name, value in versions.items() if value))


def _ceilings(ceilings: dict[str, Any]) -> str:
    shown = []
    for name in ("datasheet", "read", "copy"):
        value = ceilings.get(f"{name}_bytes_per_s")
        number = value.get("centre") if isinstance(value, dict) else value
        if number:
            shown.append(f"{name} {printed_unit('bytes/s', number).with_label(number)}")
    return ", ".join(shown) or "none measured"


def _blocks(blocks: list[dict[str, Any]]) -> str:
    return cell(", ".join(f"{b.get('host')} from {b.get('started')}" for b in blocks)) or "none"
