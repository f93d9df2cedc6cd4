"""Negative controls of the claims about memory, the ceiling and the rungs toward it (C06–C13)."""

from __future__ import annotations

from fixtures.peak_memory import Peak
from fixtures.profiles import PROFILES
from reports.verdict import Outcome
from tests import test_a_memory_measured as memory
from tests import test_b_ceiling_measured as ceiling
from tests.chapter import KV_TOKEN, QWEN3, WEIGHTS
from tests.meta.bench import COPY_BYTES_PER_S, FLOOR_S
from tests.meta.control import Control, Fault
from tests.meta.scripted import scripted_source

HARDWARE_SLOWDOWN = 0x08
LONG_CACHE = 32_768
ALL_LOGITS = 2048 * QWEN3.vocab_size * 2
"""622 MB: fp16 logits of a prompt of 2,048 tokens."""


def peaks(bench, *, decode=WEIGHTS // 100, prefill_all=ALL_LOGITS, prefill_last=1_000_000):
    """C06: bytes of activations in a decode and in a prefill that keeps all logits or the last."""
    held = WEIGHTS + 160 * KV_TOKEN
    bench.steps |= {"static_kv": 10e-3}
    bench.monkeypatch.setattr(
        memory, "decode_peak_bytes", lambda *_: Peak(held + decode, held, WEIGHTS)
    )
    bench.monkeypatch.setattr(
        memory,
        "prefill_peak_bytes",
        lambda *_, all_logits: Peak(
            WEIGHTS + (prefill_all if all_logits else prefill_last), WEIGHTS, WEIGHTS
        ),
    )
    bench.call(memory.test_activations_are_negligible_in_decode)
    for logits in ("last", "all"):
        bench.call(
            memory.test_prefill_activations_are_negligible_only_without_all_the_logits,
            logits=logits,
        )


def arithmetic(bench, *, step_s=5e-3):
    """C09: arithmetic rate of the compiled engine, over the card's."""
    bench.steps |= {"compiled": step_s}
    bench.call(ceiling.test_at_batch_1_the_arithmetic_units_idle)


def below_ceiling(bench, *, step_s=10 * FLOOR_S, source=None, **options):
    """C10: one engine against the ceiling from its own bytes."""
    bench.steps |= {"naive": step_s}
    bench.engine_options |= options
    bench.telemetry_source = source
    bench.call(ceiling.test_batch_1_decode_stays_below_the_ceiling, engine_name="naive")


def naive_gap(bench, *, times=10.0):
    """C11: the naive engine this many times under its ceiling."""
    bench.steps |= {"naive": times * FLOOR_S}
    bench.call(ceiling.test_the_naive_engine_is_about_ten_times_under_its_ceiling)


def rungs(bench, *, naive=30e-3, compiled=6e-3):
    """C12: step times of the rungs."""
    bench.steps |= {"naive": naive, "compiled": compiled}
    bench.call(ceiling.test_every_rung_is_closer_to_its_ceiling_than_the_one_before)


def follows_bytes(bench, *, slope=1.3, overhead_s=2e-3, cache=LONG_CACHE):
    """C13: a step that takes `slope` times as long as its KV bytes say."""
    bench.monkeypatch.setattr("fixtures.long_cache.longest_cache_tokens", lambda *_: cache)
    bench.steps["compiled"] = lambda _, context: (
        overhead_s + (WEIGHTS + slope * context * KV_TOKEN) / COPY_BYTES_PER_S
    )
    bench.call(ceiling.test_a_step_takes_as_long_as_its_bytes, profile=PROFILES["full"])


CONTROLS = {
    "C06": Control(
        peaks,
        {
            "a decode that keeps a float copy of its weights": Fault(
                Outcome.REFUTED, {"decode": 2 * WEIGHTS}, "decode"
            ),
            "a prefill that was to keep the last logits keeps all": Fault(
                Outcome.REFUTED, {"prefill_last": ALL_LOGITS}, "last logits"
            ),
            "a prefill that was to keep all logits keeps the last": Fault(
                Outcome.REFUTED, {"prefill_all": 1_000_000}, "all logits"
            ),
        },
    ),
    "C09": Control(
        arithmetic,
        {
            "a step shorter than its bytes need": Fault(
                Outcome.REFUTED, {"step_s": FLOOR_S / 2}, "MFU"
            )
        },
    ),
    "C10": Control(
        below_ceiling,
        {
            "a rate above the datasheet": Fault(Outcome.FAULT, {"step_s": FLOOR_S / 2}),
            "the clock is read while work is queued": Fault(Outcome.FAULT, {"hidden_s": 10.0}),
            "a GPU that slowed itself down": Fault(
                Outcome.FAULT, {"source": scripted_source(reasons=HARDWARE_SLOWDOWN)}
            ),
            "another process on the GPU": Fault(
                Outcome.FAULT, {"source": scripted_source(other_processes=1)}
            ),
        },
    ),
    "C11": Control(
        naive_gap,
        {
            "an engine twice under its ceiling": Fault(Outcome.REFUTED, {"times": 2}),
            "an engine forty times under its ceiling": Fault(Outcome.REFUTED, {"times": 40}),
        },
    ),
    "C12": Control(
        rungs,
        {
            "compiling that slows the step down": Fault(
                Outcome.REFUTED, {"compiled": 35e-3}, "over that of naive"
            ),
        },
    ),
    "C13": Control(
        follows_bytes,
        {
            "a step that ignores its bytes": Fault(Outcome.REFUTED, {"slope": 0.0}),
            "a step that reads half of what it says": Fault(Outcome.REFUTED, {"slope": 0.5}),
            "a step that reads its cache five times": Fault(Outcome.REFUTED, {"slope": 5.0}),
        },
    ),
}
