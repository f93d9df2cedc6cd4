"""Sections 7.1 and 8: what compilation buys, what skipping the warm-up costs."""

from __future__ import annotations

import pytest

from fixtures.cold_start import Setting, cold_starts, room_here
from reports import stats
from reports.bounds import above, below


@pytest.mark.claim("C47")
def test_static_cache_and_compile_help_batch_1_most(measure, judge, sizes, rows):
    """Section 8: the speed-up over naive is larger at batch 1 than at the chapter's 16."""
    alone = measure.compare_engines(["naive", "compiled"])
    together = measure.compare_engines(["naive", "compiled"], batch_size=sizes.batch)
    speed_up = {
        batch: [
            slow / fast
            for slow, fast in zip(found.samples["naive"], found.samples["compiled"], strict=True)
        ]
        for batch, found in ((1, alone), (sizes.batch, together))
    }
    judge(
        stats.estimate_ratio(speed_up[1], speed_up[sizes.batch], resampled="round"),
        above(1.0),
        quantity=f"speed-up by compiling, batch 1 over batch {sizes.batch}",
        subject="compiled@1",
        faults=(*alone.faults, *together.faults),
    )
    for run in (*alone.runs.values(), *together.runs.values()):
        rows.keep(run, claim="C47")


@pytest.mark.claim("C48")
def test_without_warm_up_the_conclusion_is_reversed(
    measure, judge, experiment_options, device, profile
):
    """Section 7.1: with compilation inside the timer the compiled engine loses to the naive one.

    Fresh processes with an empty compile cache; the process is the resampling unit. Warm, in the
    same processes, the compiled engine wins: that is the reversal.
    """
    setting = Setting(
        experiment_options.model_for(device),
        device,
        measure.shape(),
        backend=profile.compile_backend(device),
    )
    room = room_here(profile.cold_processes)
    found = cold_starts(setting, processes=profile.cold_processes, side_by_side=room)
    beside = {"processes": len(found), "side_by_side": room}
    first = stats.estimate_ratio(
        [cold.compiled_first_s for cold in found],
        [cold.naive_first_s for cold in found],
        resampled="process",
    )
    later = stats.estimate_ratio(
        [cold.compiled_later_s for cold in found],
        [cold.naive_later_s for cold in found],
        resampled="process",
    )
    judge(
        first,
        above(1.0),
        quantity="first answer, compiled over naive",
        subject="compiled@1",
        extra=beside,
    )
    judge(
        later,
        below(1.0),
        quantity="later answer, compiled over naive",
        subject="compiled@1",
        extra=beside,
    )
