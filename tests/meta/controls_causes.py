"""Negative controls of the claims about causes, compiling, warm-up and the adapter (C40–C54)."""

from __future__ import annotations

import sys
from types import SimpleNamespace

from fixtures.cold_start import ColdStart
from reports.verdict import Outcome
from tests import test_b_causes as causes
from tests import test_g_adapter_measured as adapter
from tests import test_i_pipeline as pipeline
from tests.chapter import QWEN3
from tests.meta.control import Control, Fault

TWO_A_LAYER = 2 * QWEN3.num_layers


def counted_causes(bench, *, launches=60, naive=(1.0, 0.9), compiled=(0.125, 0.2), cats=(60, 0)):
    """C53: launches, then (host waits, idle share) and concatenations of naive and compiled."""
    steps = [
        SimpleNamespace(launches=launches, waits=waits, idle_share=idle, concatenations=copies)
        for (waits, idle), copies in zip((naive, compiled), cats, strict=True)
    ]
    for test in (
        causes.test_a_naive_step_is_tens_of_kernel_launches,
        causes.test_a_naive_step_waits_for_the_host_and_leaves_the_device_idle,
        causes.test_the_growing_cache_is_copied_at_every_step,
    ):
        bench.call(test, naive_step=steps[0], compiled_step=steps[1])


def recompiles(bench, *, growing=1, dynamic=True, static=0):
    """C54: compilations after the first step, with a cache that grows and with a static one."""

    def count(after, dynamic=False):
        return lambda *_: SimpleNamespace(after_first_step=after, dynamic=dynamic)

    counts = SimpleNamespace(count_growing=count(growing, dynamic), count_static=count(static))
    bench.monkeypatch.setitem(sys.modules, "engines.recompiles", counts)
    bench.loaded = SimpleNamespace(model=None)
    bench.call(causes.test_a_growing_cache_cannot_be_compiled_once_and_a_static_one_can)


def merging(bench, *, base=30e-3, unmerged=40e-3, merged=30.2e-3):
    """C40: step times of the base, with the adapter beside it, and with the adapter merged."""
    bench.steps |= {"base": base, "unmerged": unmerged, "merged": merged}
    states = SimpleNamespace(
        engines=lambda *_: {label: bench.engine(label) for label in bench.steps}
    )
    bench.call(adapter.test_merging_removes_the_adapters_cost, states=states)


def speed_up_by_batch(bench, *, alone=6.0, together=3.0):
    """C47: how many times faster the compiled engine is at batch 1 and at batch 16."""
    bench.steps |= {
        "naive": 30e-3,
        "compiled": lambda rows, _: 30e-3 / (alone if rows == 1 else together),
    }
    bench.call(pipeline.test_static_cache_and_compile_help_batch_1_most)


def cold_start(bench, *, first=41.0, later=0.2):
    """C48: first and later answer [s] of the compiled engine; the naive one takes about one."""
    started = [
        ColdStart(1.1 + drift, 0.9 + drift, first + drift, later + drift)
        for drift in (0.0, 0.01, 0.02)
    ]
    bench.monkeypatch.setattr(pipeline, "cold_starts", lambda *_, **__: started)
    bench.call(pipeline.test_without_warm_up_the_conclusion_is_reversed)


CONTROLS = {
    "C40": Control(
        merging,
        {
            "unmerged as fast as merged": Fault(
                Outcome.REFUTED, {"unmerged": 29.9e-3}, "unmerged over base"
            ),
            "merged still pays for its adapter": Fault(
                Outcome.REFUTED, {"merged": 40e-3}, "time, merged over base"
            ),
        },
    ),
    "C47": Control(
        speed_up_by_batch,
        {
            "the speed-up is larger at batch 16": Fault(
                Outcome.REFUTED, {"alone": 3.0, "together": 6.0}
            )
        },
    ),
    "C48": Control(
        cold_start,
        {
            "compilation outside the timer": Fault(Outcome.REFUTED, {"first": 0.2}, "first"),
            "a compiled engine that never wins": Fault(Outcome.REFUTED, {"later": 1.5}, "later"),
        },
    ),
    "C53": Control(
        counted_causes,
        {
            "hundreds of launches": Fault(Outcome.REFUTED, {"launches": 700}, "launches"),
            "a naive step that never waits": Fault(
                Outcome.REFUTED, {"naive": (0.1, 0.9), "compiled": (0.1, 0.2)}, "host waits"
            ),
            "a compiled step that waits as often": Fault(
                Outcome.REFUTED, {"compiled": (1.0, 0.2)}, "over naive"
            ),
            "compiling leaves the device as idle": Fault(
                Outcome.REFUTED, {"compiled": (0.125, 0.95)}, "idle"
            ),
            "a growing cache that is not copied": Fault(
                Outcome.REFUTED, {"cats": (0, 0)}, "concatenations"
            ),
            "a static cache that is copied": Fault(
                Outcome.REFUTED, {"cats": (TWO_A_LAYER, TWO_A_LAYER)}, "concatenations removed"
            ),
        },
    ),
    "C54": Control(
        recompiles,
        {
            "a growing cache that never changes shape": Fault(
                Outcome.REFUTED, {"growing": 0, "dynamic": False}, "dynamic"
            ),
            "a static cache compiled at every step": Fault(
                Outcome.REFUTED, {"static": 63}, "recompiles in"
            ),
        },
    ),
}
