"""The ladder's last rung, measured: a decode step written by hand leaves little but its bytes."""

from __future__ import annotations

import pytest

from engines import cost
from fixtures.hardware import why_not
from reports import stats
from reports.bounds import above, below

pytestmark = pytest.mark.devices("cuda")

MOST_OVERHEAD_S = 15e-6
"""C57's bound [s per layer]: a first fused step of five kernels a layer took 14 µs on an H200."""
EIGHT_BILLION = 7.5e9
"""Parameters from which on weights outweigh everything else, as C56 supposes."""
HALF_THE_BYTES = 1.5


@pytest.fixture(autouse=True)
def _with_the_fused_step(loaded):
    from engines.fused import why_not_available

    if reason := why_not_available(loaded):
        pytest.skip(reason)


@pytest.mark.claim("C12")
def test_the_fused_rung_is_closer_to_its_ceiling_than_the_compiled_one(measure, judge):
    """Section 8: against its own bytes; the fused step reads only the KV that is there."""
    found = measure.compare_engines(("compiled", "fused"))
    own_bytes = found.runs["fused"].bytes_per_step / found.runs["compiled"].bytes_per_step
    judge(
        found.ratio("compiled", "fused").times(own_bytes),
        above(1.0),
        quantity="share of its ceiling, over that of compiled",
        subject="fused@1",
        faults=found.faults,
    )


@pytest.mark.claim("C10")
@pytest.mark.claim("C26")
@pytest.mark.claim("C57")
def test_the_fused_step_takes_little_more_than_its_bytes(measure, judge, ceilings, rows):
    """Ours: seconds per layer beyond bytes over measured read bandwidth: the figure travels."""
    run = measure.decode("fused")
    over = [
        cost.layer_overhead_s(step, run.bytes_per_step, ceilings.read.centre, run.layers)
        for step in run.steps
    ]
    judge(
        stats.estimate_mean(over, unit="s", resampled="round", signed=True),
        below(MOST_OVERHEAD_S),
        quantity="time per layer over the floor",
        subject=run.subject,
        claim="C57",
        faults=run.faults,
    )
    ceilings.judge_decode(run, judge)
    rows.keep(run, claim="C57")


@pytest.mark.claim("C10")
@pytest.mark.claim("C26")
@pytest.mark.claim("C56")
def test_half_the_bytes_decode_faster_when_the_kernel_does_not_eat_the_gain(
    measure, judge, ceilings, device, loaded, rows
):
    """Ours, the counterpart of C21: weight-only int8 in the same kernels; nf4 beside."""
    found = measure.compare_engines(("fused", "fused_int8", "fused_nf4"))
    parameters = loaded.shape.num_parameters
    small = f"claimed on the 8B shape, this one has {parameters / 1e9:.2g} billion parameters"
    beside = why_not("C56", device) or (small if parameters < EIGHT_BILLION else None)
    judge(
        found.speed_ratio("fused_int8", "fused"),
        above(HALF_THE_BYTES),
        quantity="speed over fused fp16",
        subject="fused_int8@1",
        claim="C56",
        applies=beside,
        faults=found.faults,
    )
    judge(
        found.speed_ratio("fused_nf4", "fused"),
        above(HALF_THE_BYTES),
        quantity="speed of a quarter of the bytes over fused fp16",
        subject="fused_nf4@1",
        claim="C56",
        applies=beside or "claimed of int8, recorded beside it",
        faults=found.faults,
    )
    for name in ("fused_int8", "fused_nf4"):
        ceilings.judge_decode(found.runs[name], judge)
        rows.keep(found.runs[name], claim="C56")
