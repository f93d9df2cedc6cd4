"""Section 3.5, measured: prefill and decode are different worlds, and one average hides both."""

from __future__ import annotations

import pytest

from fixtures.hardware import gpu_here, why_not
from fixtures.rounds import Round, Shape, run_round, why_uncovered
from reports import stats
from reports.bounds import Bound, above, below, within
from reports.claims import CLAIMS

APART = 10
"""Prefill rate over decode rate, at least (C29)."""
KNEE_LENGTHS = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096)


@pytest.mark.claim("C29")
def test_prefill_runs_at_least_ten_times_the_rate_of_decode(measure, judge, sizes, device):
    """Section 3.5: prefill thousands of tok/s, decode tens to hundreds, on one engine."""
    run = measure.decode(
        "naive", prompt_tokens=sizes.long_prompt_tokens, new_tokens=min(32, sizes.new_tokens)
    )
    prefill = [run.shape.prompt_tokens / r.ttft_s for r in run.rounds]
    decode = [1 / r.step_s for r in run.rounds]
    judge(
        stats.estimate_ratio(prefill, decode, resampled="round"),
        Bound(low=APART),
        quantity=f"prefill rate over decode rate, prompt {run.shape.prompt_tokens}",
        subject=run.subject,
        faults=run.faults,
    )
    on_t4 = why_not("C11", device)
    for name, rates, bound in (
        ("prefill rate", prefill, above(1000)),
        ("decode rate", decode, within(10, 999)),
    ):
        judge(
            stats.estimate_mean(rates, unit="tok/s", resampled="round"),
            bound,
            quantity=name,
            subject=run.subject,
            applies=on_t4,
            faults=run.faults,
        )


@pytest.mark.claim("C29")
def test_ttft_follows_the_prompt_length_beyond_the_knee(
    measure, judge, sizes, device, record_series
):
    """Section 3.5: TTFT is flat while the weights are read, and grows once arithmetic binds.

    From a quarter of the longest prompt to the whole of it TTFT has to grow. On a fast GPU with a
    small model launches hide the knee; then the growth is refuted and the reason is recorded.
    """
    lengths = [n for n in KNEE_LENGTHS if n <= sizes.long_prompt_tokens]
    shape = {n: Shape(1, n, 2) for n in lengths}
    engine = measure.engine("static_kv", Shape(1, lengths[-1], 2))
    rounds: list[Round] = []

    def arm(length: int):
        def once(seed: int) -> float:
            rounds.append(run_round(engine, shape[length], measure.clock, seed=seed))
            return rounds[-1].ttft_s

        return once

    found = measure.compare({f"prompt:{n}": arm(n) for n in lengths}, rounds=sizes.costly_rounds)
    ttft = {
        n: stats.estimate_mean(found.samples[f"prompt:{n}"], unit="s", resampled="round")
        for n in lengths
    }
    record_series(
        "ttft_by_prompt", [{"prompt_tokens": n, "ttft_s": ttft[n].to_json()} for n in lengths], "s"
    )
    growth = found.ratio(f"prompt:{lengths[-1]}", f"prompt:{lengths[-3]}")
    hidden = _launches_hide_the_knee(device, ttft[lengths[0]].centre, lengths[-1], measure)
    judge(
        growth,
        above(1.5),
        quantity=f"TTFT at {lengths[-1]} over TTFT at {lengths[-3]} tokens",
        subject="static_kv@1",
        applies=hidden,
        faults=(*found.faults, *why_uncovered(rounds[len(lengths) :])),
    )


@pytest.mark.claim("C30")
def test_one_average_over_both_phases_misleads(measure, judge, sizes):
    """Section 3.5: the same engine with a short and a long prompt.

    The average over both phases moves by more than 2 times, while the inter-token latency moves by
    less than 20 % beyond what the longer cache adds in bytes.
    """
    lengths = (min(32, sizes.long_prompt_tokens // 4), sizes.long_prompt_tokens)
    shapes = {n: Shape(1, n, min(32, sizes.new_tokens)) for n in lengths}
    engine = measure.engine("naive", shapes[lengths[1]])
    rounds: dict[int, list[Round]] = {n: [] for n in lengths}

    def arm(length: int):
        def once(seed: int) -> float:
            rounds[length].append(run_round(engine, shapes[length], measure.clock, seed=seed))
            return rounds[length][-1].step_s

        return once

    found = measure.compare({f"prompt:{n}": arm(n) for n in lengths}, rounds=sizes.costly_rounds)
    faults = (*found.faults, *why_uncovered(r for n in lengths for r in rounds[n][1:]))
    short, long = lengths
    averages = {
        n: [shapes[n].max_tokens / r.wall_s for r in rounds[n]][
            -len(found.samples[f"prompt:{n}"]) :
        ]
        for n in lengths
    }
    judge(
        stats.estimate_ratio(averages[long], averages[short], resampled="round"),
        above(2),
        quantity=f"average tok/s over both phases, prompt {long} over {short}",
        subject="naive@1",
        faults=faults,
    )
    by_bytes = engine.bytes_per_step(shapes[short].mean_context_tokens) / engine.bytes_per_step(
        shapes[long].mean_context_tokens
    )
    judge(
        found.ratio(f"prompt:{long}", f"prompt:{short}").times(by_bytes),
        below(1.2),
        quantity=f"ITL beyond its bytes, prompt {long} over {short}",
        subject="naive@1",
        faults=faults,
    )


def _launches_hide_the_knee(device, shortest_ttft_s, longest, measure) -> str | None:
    """Reason why the knee cannot show: the longest prompt computes for less time than launching."""
    from engines import flops

    gpu = gpu_here(device)
    if gpu is None:
        return None
    arithmetic_s = flops.prefill_flops(measure.shelf.loaded.shape, longest) / gpu.fp16_flops_per_s
    if arithmetic_s > shortest_ttft_s:
        return None
    return (
        f"launching takes {shortest_ttft_s * 1e3:.3g} ms, the arithmetic of {longest} tokens "
        f"{arithmetic_s * 1e3:.3g} ms: {CLAIMS['C29'].note or 'the knee is hidden'}"
    )
