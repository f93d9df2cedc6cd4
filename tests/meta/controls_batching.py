"""Negative controls of the claims about quantization, phases and batching (C21–C36)."""

from __future__ import annotations

import sys
from types import SimpleNamespace

from reports.verdict import Outcome
from tests import test_d_quantization_measured as quantization
from tests import test_e_prefill_measured as phases
from tests import test_f_batching_measured as batching
from tests.meta.control import Control, Fault
from tests.meta.scripted import RefillingEngine, ScriptedEngine

QUEUED = {"hidden_s": 10.0}


def quantized(bench, *, int8=80e-3, nf4=35e-3, whole=60e-3):
    """C21, C22: step times of int8, of nf4 and of int8 without the outlier split; fp16 30 ms."""
    bench.steps |= {"naive": 30e-3, "int8": int8, "nf4": nf4, "int8 threshold 0": whole}

    def built(loaded, *, batch_size, max_tokens, clock, threshold):
        return bench.engine("int8 threshold 0", batch_size, max_tokens)

    bench.monkeypatch.setitem(sys.modules, "engines.quantized", SimpleNamespace(Int8=built))
    bench.call(quantization.test_int8_and_nf4_decode_beside_fp16, batch=1)


def two_phases(bench, *, prefill_per_s=5_000, knee_s=0.02, flat=False, **options):
    """C29: prefill rate beside 30 tok/s of decode; TTFT that grows from the knee on, or stays."""
    bench.steps |= {"naive": 1 / 30, "static_kv": 1 / 30}
    bench.engine_options |= options
    bench.prefill_s = lambda tokens: knee_s if flat else max(knee_s, tokens / prefill_per_s)
    bench.call(phases.test_prefill_runs_at_least_ten_times_the_rate_of_decode)
    bench.call(phases.test_ttft_follows_the_prompt_length_beyond_the_knee)


def one_average(bench, *, prefill_per_s=5_000, per_context_token_s=0.0, **options):
    """C30: a naive engine of 30 tok/s whose step grows with its context by so much a token."""
    bench.engine_options |= options
    bench.steps["naive"] = lambda _, context: 1 / 30 + context * per_context_token_s
    bench.prefill_s = lambda tokens: tokens / prefill_per_s
    bench.call(phases.test_one_average_over_both_phases_misleads)


def batch_sweep(bench, *, once_s=20e-3, per_row_s=0.5e-3):
    """C32, C33: a step that costs `once_s`, and `per_row_s` more for every row."""
    bench.steps["continuous"] = lambda rows, _: once_s + rows * per_row_s
    bench.call(batching.test_batching_raises_throughput_and_each_users_latency)


def aggregate(bench, *, per_row_s=0.5e-3, forwards_per_step=1):
    """C35: the same at batch 16, with the forwards of a step counted."""
    bench.steps["continuous"] = lambda rows, _: 20e-3 + rows * per_row_s
    bench.engine_options |= {"forwards_per_step": forwards_per_step}
    bench.call(batching.test_it_multiplies_aggregate_throughput)


def wasted_slots(bench, *, refills=True, step_s=10e-3):
    """C36: continuous gives a slot on when it is free, or waits for its whole batch."""
    bench.steps |= {"continuous": step_s, "static_batch": 10e-3}
    bench.engine_types["continuous"] = RefillingEngine if refills else ScriptedEngine
    bench.prefill_s = lambda _: 1e-4
    bench.call(batching.test_it_wastes_fewer_slots_than_static_batching)


CONTROLS = {
    "C21": Control(
        quantized,
        {
            "int8 faster than fp16": Fault(Outcome.REFUTED, {"int8": 20e-3}, "over fp16"),
            "the outlier split costs nothing": Fault(
                Outcome.REFUTED, {"whole": 80.1e-3}, "outlier split"
            ),
        },
    ),
    "C22": Control(
        quantized,
        {"nf4 slower than int8": Fault(Outcome.REFUTED, {"nf4": 90e-3}, "threshold 6")},
    ),
    "C29": Control(
        two_phases,
        {
            "prefill at five times the rate of decode": Fault(
                Outcome.REFUTED, {"prefill_per_s": 150}, "prefill rate over decode rate"
            ),
            "a prefill of hundreds a second": Fault(
                Outcome.REFUTED, {"prefill_per_s": 900}, "^prefill rate$"
            ),
            "the clock is read while work is queued": Fault(Outcome.FAULT, QUEUED),
            "a TTFT that ignores its prompt": Fault(Outcome.REFUTED, {"flat": True}, "TTFT"),
        },
    ),
    "C30": Control(
        one_average,
        {
            "prefill no faster than decode": Fault(
                Outcome.REFUTED, {"prefill_per_s": 30}, "average"
            ),
            "the clock is read while work is queued": Fault(Outcome.FAULT, QUEUED),
            "a step that grows beyond its bytes": Fault(
                Outcome.REFUTED, {"per_context_token_s": 20e-6}, "ITL"
            ),
        },
    ),
    "C32": Control(
        batch_sweep,
        {
            "rows served one after the other": Fault(
                Outcome.REFUTED, {"once_s": 0.0, "per_row_s": 20e-3}, "aggregate"
            ),
            "an ITL that falls as rows are added": Fault(
                Outcome.REFUTED, {"once_s": 40e-3, "per_row_s": -1e-3}, "^ITL .* batch 4$"
            ),
        },
    ),
    "C35": Control(
        aggregate,
        {
            "rows served one after the other": Fault(
                Outcome.REFUTED, {"per_row_s": 20e-3}, "aggregate"
            ),
            "a forward for every row": Fault(
                Outcome.REFUTED, {"forwards_per_step": 16}, "forwards"
            ),
        },
    ),
    "C36": Control(
        wasted_slots,
        {
            "a scheduler that waits for its whole batch": Fault(
                Outcome.REFUTED, {"refills": False}, "utilisation"
            ),
            "slots saved and time lost": Fault(Outcome.REFUTED, {"step_s": 40e-3}, "makespan"),
        },
    ),
}
