"""A synthetic run file, as a whole measured session would write it, for tests of the reports.

Two engines on one device, made-up but plausible times with a seeded noise, the true shape of
Qwen3-0.6B. `speed` slows or speeds up one engine; everything else of two runs is then equal.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from reports.rows import EngineRow, Quality, WarmUpRecord
from reports.runfile import SCHEMA_VERSION
from reports.stats import estimate_mean, estimate_quantile, estimate_ratio
from reports.verdict import A_A_CONTROL, Bound, Verdict, above, below, judge, within

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from reports.estimate import Estimate

SHAPE = {
    "num_layers": 28, "hidden_size": 1024, "num_heads": 16, "num_kv_heads": 8, "head_dim": 128,
    "intermediate_size": 3072, "vocab_size": 151_936, "tied_embeddings": True,
}  # fmt: skip
WEIGHTS_BYTES = 1_192_099_840
KV_BYTES_PER_TOKEN = 114_688
PROMPT_TOKENS, NEW_TOKENS, ROUNDS = 128, 64, 8
BYTES_PER_STEP = WEIGHTS_BYTES + KV_BYTES_PER_TOKEN * (PROMPT_TOKENS + NEW_TOKENS // 2)
DEVICES: dict[str, dict[str, Any]] = {
    "cuda": {
        "kind": "cuda", "name": "Tesla T4", "gpu": "T4", "driver": "550.54", "capability": [7, 5],
        "memory_bytes": 15_835_660_288, "cpu": "Intel(R) Xeon(R) CPU @ 2.00GHz", "threads": 2,
    },
    "cpu": {
        "kind": "cpu", "name": "AMD EPYC 7B13", "gpu": None, "driver": None, "capability": None,
        "memory_bytes": None, "cpu": "AMD EPYC 7B13", "threads": 2,
    },
}  # fmt: skip
STEP_S = {"cuda": {"naive": 0.0320, "compiled": 0.0062}, "cpu": {"naive": 0.42, "compiled": 0.19}}
READ_BYTES_PER_S = {"cuda": 245e9, "cpu": 21e9}


def make_run(
    *,
    device: str = "cuda",
    seed: int = 0,
    speed: Mapping[str, float] | None = None,
    run_id: str = "synthetic",
    weights_kind: str = "trained",
    profile: str = "quick",
) -> dict[str, Any]:
    """A run file as a dict; `speed` is a factor on an engine's tokens per second."""
    rng = np.random.default_rng(seed)
    steps = {
        name: step / (speed or {}).get(name, 1.0) * rng.lognormal(0, 0.01, ROUNDS)
        for name, step in STEP_S[device].items()
    }
    read = estimate_mean(
        READ_BYTES_PER_S[device] * rng.lognormal(0, 0.005, ROUNDS),
        unit="bytes/s",
        resampled="round",
    )
    tests = {name: nodeid(name, device) for name in steps}
    return {
        "machine_info": {"node": "synthetic", "machine": "x86_64", "cpu": {"brand_raw": "cpu"}},
        "commit_info": {"id": "0" * 40, "dirty": False, "branch": "main"},
        "benchmarks": [
            entry for name in steps for entry in _entries(name, tests[name], steps[name], rng)
        ],
        "datetime": "2026-01-01T00:00:00+00:00",
        "version": "5.3.1",
        "experiment": {
            "schema_version": SCHEMA_VERSION,
            "run_id": run_id,
            "started": "2026-01-01T00:00:00+00:00",
            "profile": profile,
            "claims_mode": "report",
            "device": DEVICES[device],
            "versions": {
                "python": "3.12.4", "torch": "2.13.0", "transformers": "5.24.0", "peft": "0.21.2",
                "bitsandbytes": "0.50.2", "numpy": "2.4.0", "scipy": "1.17.1", "triton": None,
                "vllm": None,
            },
            "model": {
                "name": "Qwen/Qwen3-0.6B", "weights_kind": weights_kind, "dtype": "float16",
                "content_hash": "sha256:1111", "shape": SHAPE,
                "adapter": {"name": "synthetic r=16", "synthetic": True, "content_hash": "2222"},
            },
            "ceilings": {
                "datasheet_bytes_per_s": 320e9 if device == "cuda" else None,
                "read_bytes_per_s": read.to_json(),
                "copy_bytes_per_s": read.times(0.97).to_json(),
            },
            "blocks": [{"block": 0, "host": "host-1", "started": "2026-01-01T00:00:00+00:00"}],
            "tests": _tests(tests),
            "verdicts": _verdicts(steps, tests, device, read, rng),
            "rows": [
                {**_row(name, step, device, read, weights_kind).to_json(), "nodeid": tests[name]}
                for name, step in steps.items()
            ],
            "series": _series(steps, tests, rng),
        },
    }  # fmt: skip


def write_run(path: Path, **options: Any) -> Path:
    """Write `make_run(**options)` to `path` and return the path."""
    path.write_text(json.dumps(make_run(**options), allow_nan=False), encoding="utf-8")
    return path


def journal_lines(run: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The journal that a session writing this run would have left: header first, then its tests."""
    parts = ("tests", "verdicts", "rows", "series")
    experiment = run["experiment"]
    header = {key: value for key, value in experiment.items() if key not in parts}
    lines = [{"kind": "header", **header}]
    for test in experiment["tests"]:
        mine = {
            part: [item for item in experiment[part] if item["nodeid"] == test["nodeid"]]
            for part in parts[1:]
        }
        entries = [e for e in run["benchmarks"] if e["fullname"].startswith(test["nodeid"])]
        lines.append({"kind": "test", **test, **mine, "benchmarks": entries})
    return lines


def nodeid(engine: str, device: str) -> str:
    """Node id of the synthetic test that measured an engine."""
    return f"tests/test_b_ceiling_measured.py::test_batch_1_decode[{device}-engine:{engine}]"


def _tests(nodeids: Mapping[str, str]) -> list[dict[str, Any]]:
    found = [
        {"nodeid": name, "outcome": "passed", "duration_s": 4.2, "block": 0, "reason": None}
        for name in nodeids.values()
    ]
    other = {"nodeid": "tests/test_h_device.py::test_bf16", "duration_s": 0.0, "block": 0}
    return [*found, {**other, "outcome": "skipped", "reason": "bitsandbytes is not installed"}]


def _verdicts(
    steps: Mapping[str, Any],
    tests: Mapping[str, str],
    device: str,
    read: Estimate,
    rng: np.random.Generator,
) -> list[dict[str, Any]]:
    observed = device == "cpu"
    about: dict[str, Any] = {"device": device, "observation": observed}
    ceiling = 320e9 / BYTES_PER_STEP if device == "cuda" else read.centre / BYTES_PER_STEP
    slowdown = estimate_ratio(steps["naive"], steps["compiled"], resampled="round")
    same = estimate_ratio(
        steps["naive"], steps["naive"] * rng.lognormal(0, 0.004, ROUNDS), resampled="round"
    )
    few = estimate_quantile(steps["naive"], 0.99, unit="s", resampled="request")
    elsewhere = "claimed for sm_75 (T4), this is sm_90"
    found: list[tuple[str, Verdict]] = [
        ("naive", judge(same, within(0.97, 1.03), claim=A_A_CONTROL, subject="naive@1",
                        quantity="ratio to itself", **about)),
        *((name, judge(_rate(step), below(ceiling), claim="C10", subject=f"{name}@1",
                       quantity="decode", **about)) for name, step in steps.items()),
        ("naive", judge(_rate(steps["naive"]), within(ceiling / 20, ceiling / 5), claim="C11",
                        subject="naive@1", quantity="decode", applies=elsewhere, **about)),
        ("compiled", judge(slowdown, above(1.0), claim="C12", subject="compiled@1 over naive@1",
                           quantity="speed-up", **about)),
        ("compiled", judge(slowdown.times(1 / slowdown.centre), above(1.0), claim="C47",
                           subject="compiled", quantity="speed-up @1 over @16", **about)),
        ("naive", judge(few, Bound(high=1.0), claim="C37", subject="naive@1", quantity="ITL p99",
                        **about)),
        ("naive", judge(KV_BYTES_PER_TOKEN, within(114_688, 114_688), claim="C01", unit="bytes",
                        subject="Qwen3-0.6B", quantity="KV per token", device=device)),
        ("naive", judge(_rate(steps["naive"]), below(ceiling), claim="C48", subject="naive@1",
                        quantity="decode", faults=("throttled: thermal slow-down",), **about)),
    ]  # fmt: skip
    return [{**verdict.to_json(), "nodeid": tests[name], "block": 0} for name, verdict in found]


def _rate(step: Any) -> Estimate:
    return estimate_mean(1 / step, unit="tok/s", resampled="round")


def _row(name: str, step: Any, device: str, read: Estimate, weights_kind: str) -> EngineRow:
    overhead = np.asarray(step) - BYTES_PER_STEP / read.centre
    quality = Quality("tokens equal", "tokens equal fp16", kl_mean_nat=0.0)
    if weights_kind != "trained":
        quality = Quality("not applicable", f"not applicable: {weights_kind} weights")
    return EngineRow(
        engine=name, batch_size=1, prompt_tokens=PROMPT_TOKENS, new_tokens=NEW_TOKENS,
        device=device, dtype="float16", model="Qwen/Qwen3-0.6B", weights_kind=weights_kind,
        phase="decode", claim="C10", tokens_per_s=_rate(step),
        step_s=estimate_mean(step, unit="s", resampled="round"),
        itl_p50_s=estimate_quantile(step, 0.5, unit="s", resampled="round"), itl_p99_s=None,
        ttft_s=estimate_mean(step * 1.4, unit="s", resampled="round"),
        weights_bytes=WEIGHTS_BYTES, kv_bytes=KV_BYTES_PER_TOKEN * (PROMPT_TOKENS + NEW_TOKENS),
        peak_bytes=1_300_000_000 if device == "cuda" else None, bytes_per_step=BYTES_PER_STEP,
        quality=quality,
        layer_overhead_s=estimate_mean(overhead / 28, unit="s", resampled="round"),
        output_hash="abcd1234", warm_up=WarmUpRecord(2, 0.0 if name == "naive" else 21.5, 24.0),
    )  # fmt: skip


def _entries(name: str, test: str, step: Any, rng: np.random.Generator) -> list[dict[str, Any]]:
    gaps = np.repeat(step, 16) * rng.lognormal(0, 0.02, 16 * ROUNDS)
    series = {"step": step, "ttft": step * 1.4, "itl": gaps}
    return [_entry(name, test, suffix, values) for suffix, values in series.items()]


def _entry(name: str, test: str, suffix: str, values: Any) -> dict[str, Any]:
    q1, median, q3 = (float(q) for q in np.quantile(values, (0.25, 0.5, 0.75)))
    estimate = estimate_mean(values, unit="s", resampled="round").to_json()
    return {
        "group": f"cuda @1 {suffix}",
        "name": f"{test.rsplit('::', 1)[-1]}::{suffix}",
        "fullname": f"{test}::{suffix}",
        "params": None,
        "param": None,
        "extra_info": {"engine": name, "batch_size": 1, "phase": "decode", "estimate": estimate},
        "options": {"rounds": len(values), "warmup": True},
        "stats": {
            "min": float(values.min()), "max": float(values.max()), "mean": float(values.mean()),
            "stddev": float(values.std(ddof=1)), "rounds": len(values), "median": median,
            "iqr": q3 - q1, "q1": q1, "q3": q3, "iqr_outliers": 0, "stddev_outliers": 0,
            "outliers": "0;0", "ld15iqr": float(values.min()), "hd15iqr": float(values.max()),
            "ops": 1 / float(values.mean()), "total": float(values.sum()), "iterations": 1,
            "data": values.tolist(),
        },
    }  # fmt: skip


def _series(
    steps: Mapping[str, Any], tests: Mapping[str, str], rng: np.random.Generator
) -> list[dict[str, Any]]:
    owner = tests["naive"]
    telemetry = [
        {
            "time_s": 0.5 * i,
            "power_w": 60.0 + float(rng.normal()),
            "sm_clock_hz": 1.59e9,
            "reasons": 0,
        }
        for i in range(40)
    ]
    itl = estimate_mean(steps["naive"], unit="s", resampled="round").to_json()
    batches = [
        {
            "engine": "continuous",
            "batch_size": batch,
            "tokens_per_s": _rate(steps["naive"] / batch).to_json(),
            "itl_s": itl,
        }
        for batch in (1, 4, 16)
    ]
    answers = {"naive": {"tokens": ["กรุงเทพ", "มหานคร"]}, "nf4": {"tokens": ["กรุงเทพ", "ฯ"]}}
    sweep = [
        {"server": "naive", "utilisation": load, "offered_per_s": 10 * load,
         "e2e_p99_s": estimate_mean(2.3 / (1 - load) * rng.lognormal(0, 0.05, 5), unit="s",
                                    resampled="run").to_json()}
        for load in (0.1, 0.5, 0.8)
    ]  # fmt: skip
    points = {
        "telemetry": telemetry,
        "batch_sweep": batches,
        "side_by_side": [{"prompt": "เมืองหลวงของไทยคือ", "answers": answers}],
        "load_sweep": sweep,
    }
    return [{"name": name, "nodeid": owner, "points": found} for name, found in points.items()]
