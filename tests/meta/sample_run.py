"""Whole runs without a device: documents as a GPU or a CPU would write them, seeded.

Speeds are near the anchors of an H200 with Qwen3-0.6B's shape; `between` is the spread between runs
and `slowed` multiplies the time of one engine, so that a diff has something to find.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass

import numpy as np

from engines import cost
from engines.gpus import GPUS
from engines.shape import ModelShape
from reports.bounds import Bound, above, below
from reports.catalogue import find_shape
from reports.claims import CLAIMS
from reports.estimate import Estimate
from reports.judged import Outcome, Verdict
from reports.rows import EngineRow, Quality, WarmUpRecord
from reports.runfile import load_run
from reports.verdict import judge

SPEEDS = {
    ("naive", 1): 39.2, ("static_kv", 1): 121.0, ("compiled", 1): 697.0, ("fused", 1): 1487.0,
    ("continuous", 1): 38.0, ("continuous", 4): 148.0, ("continuous", 16): 562.0,
    ("continuous", 32): 1040.0, ("static_batch", 16): 471.0, ("int8", 1): 15.8, ("nf4", 1): 32.8,
    ("int8", 8): 79.0, ("nf4", 8): 255.0,
}  # fmt: skip
TINY = {
    "model_type": "qwen3", "num_hidden_layers": 6, "hidden_size": 256, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 96, "intermediate_size": 768, "vocab_size": 4096,
    "max_position_embeddings": 2048, "tie_word_embeddings": True, "dtype": "float16",
}  # fmt: skip
WEIGHTS = {"int8": 753_100_000, "nf4": 559_000_000}
MATH = ("C01", "C03", "C04", "C08", "C09", "C15", "C27", "C38", "C41")
TEXTS = {
    "int8": Quality(
        "measured", "KL 0.008 nat, perplexity ×1.01, accuracy −0.4 points", 0.008, 1.01
    ),
    "nf4": Quality("measured", "KL 0.061 nat, perplexity ×1.09, accuracy −1.8 points", 0.061, 1.09),
}
EQUAL = Quality("tokens equal", "tokens equal fp16")


def estimate(centre, unit, *, n=6, spread=0.012, resampled="round"):
    """An estimate with a symmetric interval."""
    half = abs(centre) * spread
    return Estimate(centre, centre - half, centre + half, 0.95, n, unit, resampled,
                    "t on logs")  # fmt: skip


def gpu_run(seed=0, **changes):
    """A run on an H200, as the JSON document it would be."""
    device = {
        "kind": "cuda", "name": "NVIDIA H200", "gpu": "H200", "driver": "570.86",
        "capability": [9, 0], "memory_bytes": 150_000_000_000, "cpu": "Xeon 8480", "threads": 16,
    }  # fmt: skip
    model = Model("qwen3-0.6b-shape", find_shape("Qwen/Qwen3-0.6B"), "random", "float16")
    return _document(seed, device, model, SPEEDS, 4.12e12, **changes)


def cpu_run(seed=0, **changes):
    """A run of a trained model on a laptop's CPU."""
    device = {
        "kind": "cpu", "name": "AMD EPYC 7B13", "gpu": None, "driver": None, "capability": None,
        "memory_bytes": 8_000_000_000, "cpu": "AMD EPYC 7B13", "threads": 2,
    }  # fmt: skip
    speeds = {("naive", 1): 210.0, ("static_kv", 1): 260.0, ("compiled", 1): 420.0,
              ("continuous", 1): 205.0, ("continuous", 16): 1900.0}  # fmt: skip
    model = Model("tiny", ModelShape.from_config(TINY), "trained", "float32")
    return _document(seed, device, model, speeds, 2.4e10, telemetry=False, **changes)


@dataclass(frozen=True)
class Model:
    """What was measured."""

    name: str
    shape: ModelShape
    weights_kind: str
    dtype: str


def _document(
    seed, device, model, speeds, read, *, between=0.0, slowed=None, factor=1.05, telemetry=True,
    answers=(), torch="2.13.0", items=None,
):  # fmt: skip
    rng = np.random.default_rng(seed)
    drift = rng.normal(0, between, len(speeds))
    rows, benchmarks = [], []
    for (key, speed), noise in zip(speeds.items(), drift, strict=True):
        engine, batch = key
        speed = speed * math.exp(noise) / (factor if engine == slowed else 1.0)
        row = _row(engine, batch, speed, model, device["kind"], read)
        rows.append(row.to_json() | {"nodeid": f"tests/test_b.py::test_below[engine:{engine}]"})
        benchmarks += _benchmarks(rng, row)
    verdicts = _verdicts(rows, device["kind"], model.weights_kind, read)
    sheet = GPUS[device["gpu"]].bandwidth_bytes_per_s if device["gpu"] else None
    series = [
        *([_telemetry(rng)] if telemetry else []), _load(), _quality_items(rng, items),
        {"name": "side_by_side", "nodeid": "tests/test_d.py::test_eye", "points": list(answers)},
    ]  # fmt: skip
    return {
        "machine_info": {"node": "host"}, "commit_info": {}, "benchmarks": benchmarks,
        "datetime": "2026-11-02T10:11:12", "version": "5.3.1",
        "experiment": {
            "schema_version": 1, "run_id": f"run-{seed}", "started": "2026-11-02T10:03:00+00:00",
            "profile": "quick", "claims_mode": "report", "device": device,
            "versions": {"python": "3.12.4", "torch": torch, "transformers": "5.24.0",
                         "peft": "0.21.2", "bitsandbytes": "0.50.2", "numpy": "2.4.0",
                         "scipy": "1.17.0", "triton": None, "vllm": None},
            "model": {
                "name": model.name, "weights_kind": model.weights_kind, "dtype": model.dtype,
                "content_hash": "ab12cd34", "shape": json.loads(json.dumps(model.shape.to_json())),
                "adapter": {"name": "synthetic r=16", "synthetic": True, "content_hash": "ef"},
            },
            "ceilings": {"datasheet_bytes_per_s": sheet,
                         "read_bytes_per_s": estimate(read, "bytes/s").to_json(),
                         "copy_bytes_per_s": estimate(read * 0.98, "bytes/s").to_json()},
            "blocks": [{"block": 0, "host": "node-7", "started": "2026-11-02T10:03:00+00:00"}],
            "tests": [
                {"nodeid": "tests/test_b.py::test_below", "outcome": "passed", "duration_s": 3.2,
                 "block": 0, "reason": None},
                {"nodeid": "tests/test_i.py::test_vllm", "outcome": "skipped", "duration_s": 0.1,
                 "block": 0, "reason": "vLLM is not installed"},
            ],
            "verdicts": [v.to_json() | {"nodeid": "t", "block": 0} for v in verdicts],
            "rows": rows, "series": series,
        },
    }  # fmt: skip


def _row(engine, batch, speed, model, device, read):
    shape, weights_kind, dtype = model.shape, model.weights_kind, model.dtype
    width = 2 if dtype == "float16" else 4
    step = batch / speed
    bytes_ = cost.decode_step_bytes(shape, 192, batch, width, width)
    if engine in WEIGHTS:
        bytes_ -= cost.weight_bytes(shape) - WEIGHTS[engine]
    kv = cost.kv_cache_bytes(shape, 256, batch, width)
    weights = WEIGHTS.get(engine, cost.weight_bytes(shape, width))
    random = Quality("not applicable", "not applicable: random weights", 0.01)
    quality = TEXTS.get(engine, EQUAL) if weights_kind == "trained" else random
    return EngineRow(
        engine=engine, batch_size=batch, prompt_tokens=128, new_tokens=128, device=device,
        dtype=dtype, model=model.name, weights_kind=weights_kind, phase="decode", claim="C10",
        tokens_per_s=estimate(speed, "tok/s"), step_s=estimate(step, "s"),
        itl_p50_s=estimate(step * 0.98, "s", resampled="round"),
        itl_p99_s=estimate(step * 1.3, "s", spread=0.06) if batch > 1 else None,
        ttft_s=estimate(0.024 * batch**0.4, "s"), weights_bytes=weights, kv_bytes=kv,
        peak_bytes=round((weights + kv) * 1.03) if device == "cuda" else None,
        bytes_per_step=bytes_, quality=quality if engine in WEIGHTS else EQUAL,
        layer_overhead_s=estimate((step - bytes_ / read) / shape.num_layers, "s"),
        output_hash="9f86d081", warm_up=WarmUpRecord(2, 0.0, 1.4),
    )  # fmt: skip


def _benchmarks(rng, row):
    test = f"tests/test_b.py::test_below[engine:{row.engine}]"
    about = {"engine": row.engine, "batch_size": row.batch_size, "new_tokens": row.new_tokens}
    step, ttft = row.step_s.centre, row.ttft_s.centre
    return [
        _entry(f"{test}::{row.subject} step", rng.normal(step, step * 0.004, 6), about),
        _entry(f"{test}::{row.subject} ttft", rng.normal(ttft, ttft * 0.01, 6), about),
        _entry(
            f"{test}::{row.subject} itl",
            step * rng.lognormal(0, 0.06, 6 * 127 * row.batch_size),
            about,
        ),
    ]


def _entry(name, seconds, about):
    values = np.abs(seconds)
    low, high = float(values.min()), float(values.max())
    q1, median, q3 = (float(q) for q in np.quantile(values, [0.25, 0.5, 0.75]))
    mean, stddev = float(np.mean(values)), float(np.std(values, ddof=1))
    return {
        "group": None, "name": name.rpartition("/")[2], "fullname": name, "params": None,
        "param": None, "extra_info": about, "options": {},
        "stats": {
            "min": low, "max": high, "mean": mean, "stddev": stddev, "rounds": len(values),
            "median": median, "iqr": q3 - q1, "q1": q1, "q3": q3, "iqr_outliers": 0,
            "stddev_outliers": 0, "outliers": "0;0", "ld15iqr": low, "hd15iqr": high,
            "ops": 1 / mean, "total": mean * len(values), "iterations": 1,
        },
    }  # fmt: skip


def _verdicts(rows, device, weights_kind, read):
    def told(measured, bound, claim, subject, quantity, **others):
        about = {"claim": claim, "subject": subject, "quantity": quantity, "device": device}
        return judge(measured, bound, **about, **others)

    measured = [EngineRow.from_json(row) for row in rows]
    observed = {"observation": device == "cpu"}
    elsewhere = {"applies": "claimed for sm_75 (T4), this is another device"}
    slow_down = {"faults": ["thermal slow-down in 3 samples"]}
    found = [
        told(r.tokens_per_s, below(r.batch_size * read * 1.16 / r.bytes_per_step), "C10", r.subject,
             "tok/s", **observed)
        for r in measured
    ]  # fmt: skip
    found += [told(1.0, Bound(1.0, 1.0), claim, "Qwen3-0.6B", "ratio") for claim in MATH]
    found += [
        told(estimate(1.08, "1", spread=0.05), above(1.1), "C32", "continuous@32", "gain over @16"),
        told(estimate(1.7, "1"), Bound(high=1.5), "C46", "naive@16", "throughput over 1 client"),
        told(estimate(0.71, "1"), below(1.0), "C21", "int8@1", "int8 over fp16", **elsewhere),
        told(estimate(2.4, "1"), above(1.0), "C22", "nf4@1", "nf4 over int8", **slow_down),
    ]
    if weights_kind != "random":
        return found
    left_out = Verdict("C24", "", CLAIMS["C24"].statement, Outcome.NOT_APPLICABLE, False, None,
                       Bound(low=0.0), "random weights", device)  # fmt: skip
    return [*found, left_out]


def _telemetry(rng):
    busy = [0.35 + 0.55 * (0.5 + 0.5 * math.sin(i / 9)) for i in range(240)]
    return {"name": "telemetry", "nodeid": "tests/test_b.py::test_below", "unit": None, "points": [
        {"time_s": 100 + i * 1.5, "sm_clock_hz": 1.98e9 - (4e8 if 120 <= i < 126 else 0),
         "temperature_c": 41 + 12 * b, "power_w": 700 * b + float(rng.normal(0, 12)),
         "reasons": 0x20 if 120 <= i < 126 else 0, "other_processes": 0}
        for i, b in enumerate(busy)]}  # fmt: skip


def _load():
    points = []
    for server, base in (("naive", 0.21), ("continuous", 0.12)):
        for share in (0.1, 0.5, 0.8, 1.1):
            p99 = base / max(1 - share, 0.05)
            points.append({
                "server": server, "utilisation": share, "offered_per_s": 12 * share,
                "achieved_per_s": 12 * min(share, 1.0), "runs": 5,
                "ttft_p50_s": estimate(p99 / 5, "s", resampled="run").to_json(),
                "e2e_p99_s": estimate(p99, "s", spread=0.15, resampled="run").to_json(),
                "goodput_per_s": 12 * min(share, 0.95), "valid": share <= 1.0,
            })  # fmt: skip
    return {
        "name": "load_sweep",
        "nodeid": "tests/test_c.py::test_p99",
        "unit": "s",
        "points": points,
    }


def _quality_items(rng, items):
    points = [] if items is None else [
        {"engine": engine, "item": f"q{i}", "correct": bool(right)}
        for engine, share in items.items()
        for i, right in enumerate(rng.random(400) < share)
    ]  # fmt: skip
    return {"name": "quality_items", "nodeid": "tests/test_d.py::test_quality", "points": points}


def bare_run():
    """A run on a CPU that measured nothing."""
    document = cpu_run()
    document["benchmarks"] = []
    document["experiment"] |= {"rows": [], "verdicts": [], "series": [], "tests": [], "model": None}
    return document


def saved(path, document):
    """Write a document and load it as a run."""
    path.write_text(json.dumps(document, allow_nan=False), encoding="utf-8")
    return load_run(path)
