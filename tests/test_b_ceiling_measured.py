"""Sections 3.2, 7.2 and 8, measured: no engine passes its ceiling, and every rung comes closer."""

from __future__ import annotations

import itertools

import pytest

from engines import flops
from fixtures.hardware import gpu_here, skip_unless_available, why_not
from reports import stats
from reports.bounds import above, below, within
from reports.verdict import A_A_CONTROL

ENGINES = ("naive", "static_kv", "compiled", "continuous", "continuous_graph")
"""int8 and nf4 are judged where they are timed beside fp16 (test_d_quantization_measured.py)."""
LADDER = ("naive", "compiled")
"""The chapter's rungs; a static cache without the compiler is measured (C10) and is none."""
SAME = 0.03
"""Margin within which two speeds count as the same, here and in C40."""


@pytest.mark.control
def test_one_engine_against_itself_shows_no_difference(measure, judge, sizes):
    """A/A control: if the instrument sees a difference here, no timed verdict can be trusted.

    Twice the rounds of other comparisons, because it should not be this one that stays undecided.
    """
    naive = measure.engine("naive", measure.shape())
    found = measure.compare_built(
        {"A": naive, "A again": naive}, measure.shape(), rounds=2 * sizes.rounds
    )
    judge(
        found.ratio("A", "A again"),
        within(1 - SAME, 1 + SAME),
        quantity="step time, A over A again",
        subject="naive@1",
        claim=A_A_CONTROL,
        faults=found.faults,
    )


@pytest.mark.claim("C10")
@pytest.mark.claim("C26")
@pytest.mark.parametrize("engine_name", ENGINES, ids="engine:{}".format)
def test_batch_1_decode_stays_below_the_ceiling(
    engine_name, measure, judge, ceilings, rows, device
):
    """Section 3.2: no code decodes faster than the bytes of its own step arrive.

    A rate above the datasheet ceiling is a fault of the measurement, not a refutation. The row that
    is kept carries the quality beside the speed.
    """
    skip_unless_available(engine_name, device)
    run = measure.decode(engine_name)
    ceilings.judge_decode(run, judge)
    rows.keep(run, claim="C10")


@pytest.mark.claim("C10")
@pytest.mark.devices("cuda")
def test_batched_decode_stays_below_the_ceiling_of_its_batch(measure, judge, ceilings, rows, sizes):
    """Section 7.3: the aggregate of the captured scheduler against the bytes of its own step."""
    run = measure.decode("continuous_graph", batch_size=sizes.batch)
    ceilings.judge_decode(run, judge, quantity="aggregate decode rate")
    rows.keep(run, claim="C10")


@pytest.mark.claim("C09")
def test_at_batch_1_the_arithmetic_units_idle(measure, judge, device, loaded):
    """Sections 3.2 and 8: at the ceiling a T4 uses 0.488 % of its arithmetic rate, MFU less.

    The bound is the MFU at the device's own ceiling: FLOPs over bytes, over the ridge point.
    """
    run = measure.decode("compiled")
    gpu = gpu_here(device)
    context = run.shape.mean_context_tokens
    per_step = flops.decode_flops(loaded.shape, context)
    rate = stats.estimate_mean(
        [per_step / step for step in run.steps], unit="FLOP/s", resampled="round"
    )
    if gpu is None:
        judge(
            rate,
            above(0.0),
            quantity="arithmetic",
            subject=run.subject,
            applies="no datasheet rate for this device",
        )
        return
    mfu = rate.times(1 / gpu.fp16_flops_per_s, unit="1")
    at_ceiling = per_step / run.bytes_per_step * gpu.bandwidth_bytes_per_s / gpu.fp16_flops_per_s
    judge(mfu, below(at_ceiling), quantity="MFU", subject=run.subject, faults=run.faults)


@pytest.mark.claim("C11")
def test_the_naive_engine_is_about_ten_times_under_its_ceiling(measure, judge, ceilings, device):
    """Section 7.2: on a T4 between 5 and 20 times; elsewhere the number is an observation."""
    run = measure.decode("naive")
    ceiling = ceilings.hard_bytes_per_s / run.bytes_per_step
    gap = stats.estimate_mean(
        [ceiling * step / run.shape.batch_size for step in run.steps], unit="1", resampled="round"
    )
    judge(
        gap,
        within(5, 20),
        quantity="ceiling over measured",
        subject=run.subject,
        applies=why_not("C11", device),
        faults=run.faults,
    )


@pytest.mark.claim("C12")
def test_every_rung_is_closer_to_its_ceiling_than_the_one_before(measure, judge):
    """Sections 7.2 and 8: naive, then a compiled static cache, each against its own bytes."""
    found = measure.compare_engines(LADDER)
    for slow, fast in itertools.pairwise(LADDER):
        own_bytes = found.runs[fast].bytes_per_step / found.runs[slow].bytes_per_step
        judge(
            found.ratio(slow, fast).times(own_bytes),
            above(1.0),
            quantity=f"share of its ceiling, over that of {slow}",
            subject=f"{fast}@1",
            faults=found.faults,
        )


@pytest.mark.claim("C13")
def test_a_step_takes_as_long_as_its_bytes(measure, judge, ceilings, device, profile):
    """Section 3.2: with a longer cache to read a step gets longer, as far as its bytes say.

    The compiled rung reads its whole preallocated cache. Slope over predicted slope within [1, 3];
    not applicable where the longer cache adds less than half a step. Both caches are compiled in
    the same way: without trying out kernels in a profile that has no time for it.
    """
    from fixtures.long_cache import longest_cache_tokens

    short = measure.shape()
    long_tokens = longest_cache_tokens(measure.shelf.loaded, device, short.max_tokens)
    tuned = device == "cpu" or profile.tuned_beside
    engines = {
        f"cache {tokens}": compiled_over(measure, tokens, tuned=tuned)
        for tokens in (short.max_tokens, long_tokens)
    }
    found = measure.compare_built(engines, short)
    (near, near_run), (far, far_run) = found.runs.items()
    more_bytes = far_run.bytes_per_step - near_run.bytes_per_step
    predicted = more_bytes / ceilings.read.centre
    slopes = [
        (b - a) / predicted for a, b in zip(found.samples[near], found.samples[far], strict=True)
    ]
    too_short = predicted < 0.5 * near_run.step_s.centre
    judge(
        stats.estimate_mean(slopes, unit="1", resampled="round", signed=True),
        within(1, 3),
        quantity=f"slope over predicted, cache {short.max_tokens} to {long_tokens} tokens",
        subject="compiled@1",
        applies=f"{more_bytes / 1e6:.3g} MB more add less than half a step" if too_short else None,
        faults=found.faults,
        extra={"kernels_tried_out": tuned},
    )


def compiled_over(measure, tokens, *, tuned):
    if tuned:
        return measure.shelf.get("compiled", max_tokens=tokens)
    from engines.compiled import Compiled
    from engines.precision import settings_here

    loaded = measure.shelf.loaded
    options = dict(settings_here(loaded.device).untuned_options)
    return Compiled(loaded, batch_size=1, max_tokens=tokens, clock=measure.clock, options=options)
