"""What datasheets promise: bandwidth, dense fp16 rate, memory and capability of each GPU.

The ceiling of a decode step is bandwidth over bytes, so everything here starts from one number per
GPU, taken from its vendor (`gpus.toml`). A name is matched whole: an H20 is not an H200 and an RTX
4090 D or a laptop part is not an RTX 4090. What is not in the table is unknown, never a guess.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

GEFORCE_FLOP_PER_CLOCK_AND_SM = 512
"""Dense fp16 with fp32 accumulation; the same from Ampere to Blackwell."""

SERIES_SOURCE = {
    "geforce": "NVIDIA GeForce comparison tables and architecture whitepapers",
    "geforce_laptop": "NVIDIA GeForce laptop comparison tables, highest clocks sold",
}

_MIG = re.compile(
    r"^(?P<name>.+?) mig (?P<compute>\d)g\.(?P<memory>\d+)gb(?:\+[\w.]+)*$", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Gpu:
    """One row of the table; a MIG slice is a row of its own, scaled from the whole GPU."""

    name: str
    """The key in `GPUS`; for a slice with its profile behind it."""
    torch_names: tuple[str, ...]
    bandwidth_bytes_per_s: float
    fp16_flops_per_s: float
    """Dense, fp32 accumulation, matrix units where the GPU has them."""
    memory_bytes: int
    capability: tuple[int, int]
    source: str
    laptop: bool = False
    mig_slices: int = 0
    """Compute slices that MIG divides the GPU into; 0 where it cannot."""

    @property
    def ridge_point(self) -> float:
        """Arithmetic intensity from which on arithmetic is the limit [FLOP/byte]."""
        return self.fp16_flops_per_s / self.bandwidth_bytes_per_s


def _gpu(series: str, name: str, row: dict[str, Any]) -> Gpu:
    flops = (
        row["tflops"] * 1e12
        if "tflops" in row
        else row["sms"] * row["boost_ghz"] * 1e9 * GEFORCE_FLOP_PER_CLOCK_AND_SM
    )
    major, minor = row["capability"]
    return Gpu(
        name=name,
        torch_names=tuple(row["names"]),
        bandwidth_bytes_per_s=row["gb_per_s"] * 1e9,
        fp16_flops_per_s=flops,
        memory_bytes=round(row["gb"] * 1e9),
        capability=(major, minor),
        source=row.get("source") or SERIES_SOURCE[series],
        laptop=series == "geforce_laptop",
        mig_slices=row.get("mig", 0),
    )


def _read_table() -> dict[str, Gpu]:
    table = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    return {
        name: _gpu(series, name, row)
        for series, rows in table.items()
        for name, row in rows.items()
    }


GPUS: dict[str, Gpu] = _read_table()


def find_gpu(torch_name: str, memory_bytes: int | None = None) -> Gpu | None:
    """The GPU that torch calls so (or a key of `GPUS`), None where the table does not know it.

    A few cards were sold under one name with different memories: `memory_bytes`, as torch reports
    it, decides between them; without it the one sold first is meant. A MIG slice gets its share of
    compute and, by its gigabytes, of memory and bandwidth.
    """
    slice_ = _MIG.match(torch_name.strip())
    if slice_:
        whole = find_gpu(slice_["name"])
        return whole and _slice(whole, int(slice_["compute"]), int(slice_["memory"]))
    wanted = _plain(torch_name)
    found = [gpu for gpu in GPUS.values() if wanted in map(_plain, (gpu.name, *gpu.torch_names))]
    if memory_bytes is not None:
        found = [gpu for gpu in found if _same_memory(gpu, memory_bytes)]
    return found[0] if found else None


def gpu_named(name: str) -> Gpu:
    """The GPU of that name; ValueError, one line with near names, where there is none."""
    found = find_gpu(name)
    if found is None:
        near = [known for known in GPUS if name and name.lower() in known.lower()]
        near = near or get_close_matches(name, GPUS, n=4, cutoff=0.4) or list(GPUS)[:4]
        raise ValueError(f"unknown GPU {name!r:.60}, expected a name such as {', '.join(near)}")
    return found


def _plain(name: str) -> str:
    return " ".join(name.lower().removeprefix("nvidia ").split())


def _same_memory(gpu: Gpu, memory_bytes: int) -> bool:
    """Torch reports binary gigabytes less what the driver keeps: within 12 % of the label."""
    return abs(memory_bytes / gpu.memory_bytes - 1) < 0.12


def _slice(whole: Gpu, compute: int, memory_gb: int) -> Gpu | None:
    """A MIG instance: `compute` of its compute slices, and memory slices by its gigabytes."""
    slices = whole.mig_slices
    memory_slices = slices + slices % 2
    held = round(memory_gb * 1e9 / whole.memory_bytes * memory_slices)
    if not 1 <= compute <= slices or not 1 <= held <= memory_slices:
        return None
    return replace(
        whole,
        name=f"{whole.name} MIG {compute}g.{memory_gb}gb",
        bandwidth_bytes_per_s=whole.bandwidth_bytes_per_s * held / memory_slices,
        fp16_flops_per_s=whole.fp16_flops_per_s * compute / slices,
        memory_bytes=round(memory_gb * 1e9),
        mig_slices=0,
    )
