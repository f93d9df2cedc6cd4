"""Section 8: the gap to the ceiling has named causes, and each can be counted."""

from __future__ import annotations

import pytest

from reports.bounds import above, within

PROFILED_STEPS = 8


@pytest.fixture(scope="module")
def naive_step(engines, clock, sizes):
    """Counts of one decode step of the naive engine."""
    from engines.profile_step import profile_engine

    capacity = sizes.prompt_tokens + PROFILED_STEPS + 8
    engine = engines.get("naive", max_tokens=capacity)
    engine.warm_up(sizes.prompt_tokens, PROFILED_STEPS)
    return profile_engine(engine, clock, prompt_tokens=sizes.prompt_tokens, steps=PROFILED_STEPS)


@pytest.fixture(scope="module")
def compiled_step(engines, clock, sizes):
    """Counts of one step of the compiled engine, replayed as it is when nobody watches."""
    import torch

    from engines.profile_step import profile_calls

    capacity = sizes.prompt_tokens + sizes.new_tokens
    engine = engines.get("compiled", max_tokens=capacity)
    engine.warm_up(sizes.prompt_tokens, sizes.new_tokens)
    engine.state.clear()  # idle rows do not move on, so that the steps stay inside the cache
    with torch.no_grad():
        return profile_calls(engine.step, clock, steps=PROFILED_STEPS)


@pytest.mark.claim("C53")
def test_a_naive_step_is_tens_of_kernel_launches(naive_step, judge, device):
    """Section 8 says tens. A decoder layer alone has more than ten, so many hundreds are expected.

    On a CPU there are no launches; operators are counted and recorded as an observation.
    """
    judge(
        naive_step.operators if naive_step.launches is None else naive_step.launches,
        within(10, 99),
        quantity="operators a step" if naive_step.launches is None else "launches a step",
        subject="naive@1",
        applies=None if device == "cuda" else "launches are counted on CUDA",
        timed=True,
    )


@pytest.mark.claim("C53")
@pytest.mark.devices("cuda")
def test_a_naive_step_waits_for_the_host_and_leaves_the_device_idle(
    naive_step, compiled_step, judge
):
    """Section 8: a host sync per token, a device that idles; the compiled rung removes both."""
    judge(
        naive_step.waits, above(0.5), quantity="host waits a step", subject="naive@1", timed=False
    )
    judge(
        compiled_step.waits / naive_step.waits,
        within(0, 0.5),
        quantity="host waits a step, over naive",
        subject="compiled@1",
        timed=False,
    )
    judge(
        naive_step.idle_share - compiled_step.idle_share,
        above(0.0),
        quantity="idle share removed by compiling",
        subject="compiled@1",
        timed=False,
        extra={"naive": naive_step.idle_share, "compiled": compiled_step.idle_share},
    )


@pytest.mark.claim("C53")
def test_the_growing_cache_is_copied_at_every_step(naive_step, compiled_step, loaded, judge):
    """Section 8: two concatenations a layer and step, for K and for V; a static cache has none."""
    judge(
        naive_step.concatenations / loaded.shape.num_layers,
        above(1.99),
        quantity="concatenations a layer and step",
        subject="naive@1",
        timed=False,
    )
    judge(
        naive_step.concatenations - compiled_step.concatenations,
        above(2 * loaded.shape.num_layers - 0.5),
        quantity="concatenations removed",
        subject="compiled@1",
        timed=False,
    )


@pytest.mark.claim("C54")
def test_a_growing_cache_cannot_be_compiled_once_and_a_static_one_can(loaded, judge, profile):
    """Section 8: over 64 tokens a growing cache is recompiled or dynamic, a static one never."""
    from engines.recompiles import count_growing, count_static

    growing = count_growing(loaded.model, profile.recompile_tokens)
    static = count_static(loaded.model, profile.recompile_tokens)
    judge(
        growing.after_first_step + growing.dynamic,
        above(0),
        quantity=f"recompiles or dynamic shapes in {profile.recompile_tokens} tokens",
        subject="growing cache",
        timed=False,
    )
    judge.exact(
        static.after_first_step,
        0,
        quantity=f"recompiles in {profile.recompile_tokens} tokens",
        unit="1",
        subject="static cache",
    )
