"""A decode step is counted right: on the CPU for real, on CUDA from events made by hand."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

pytest.importorskip("torch")

STEPS = 4


@pytest.fixture(scope="module")
def built():
    """The engines that a profile has to tell apart."""
    from engines.clock import Clock
    from engines.registry import build_engine
    from tests.meta.small_models import small_model

    loaded, clock = small_model(), Clock("cpu")
    sizes = {"batch_size": 1, "max_tokens": 64, "clock": clock}
    return {name: build_engine(name, loaded, **sizes) for name in ("naive", "static_kv")}


def event(name, start=0, end=0, *, device="CPU", annotation=False, memory=0):
    """What torch's profiler records, times in microseconds."""
    return SimpleNamespace(
        name=name,
        device_type=SimpleNamespace(name=device),
        time_range=SimpleNamespace(start=start, end=end),
        is_user_annotation=annotation,
        self_cpu_memory_usage=0,
        self_device_memory_usage=memory,
    )


def kernel(start, end, **more):
    return event("kernel", start, end, device="CUDA", **more)


def summary(events, *, steps=1, step_s=1e-3, device="cuda"):
    from engines.profile_step import _summary

    return _summary(events, steps, step_s, SimpleNamespace(device=device))


def test_a_growing_cache_concatenates_in_every_layer_and_a_static_one_does_not(built):
    """Rotary embeddings concatenate too: twice a layer for queries and keys, and their table."""
    from engines.profile_step import profile_engine

    naive, static = (
        profile_engine(engine, engine.clock, prompt_tokens=5, steps=STEPS)
        for engine in (built["naive"], built["static_kv"])
    )
    layers = 2
    assert naive.concatenations - static.concatenations >= 2 * layers
    assert min(naive.operators, static.operators) > 100
    assert naive.allocations > 0


def test_a_cpu_has_no_launches_to_count(built):
    from engines.profile_step import profile_calls

    static = built["static_kv"]
    profile = profile_calls(static.step, static.clock, steps=STEPS)
    assert (profile.launches, profile.waits, profile.busy_s, profile.idle_share) == (None,) * 4
    assert profile.step_s > 0


@pytest.mark.thorough
def test_one_operator_more_in_a_step_is_counted(built):
    import torch

    from engines.profile_step import profile_calls

    static, ones = built["static_kv"], torch.ones(3)
    more = profile_calls(lambda: (static.step(), ones.neg_()), static.clock, steps=STEPS)
    assert more.operators == profile_calls(static.step, static.clock, steps=STEPS).operators + 1


def test_launches_and_waits_are_told_apart():
    """An asynchronous copy is launched and not waited for; the stream is waited for."""
    names = ["cudaLaunchKernel", "cudaLaunchKernelExC", "cuLaunchKernelEx", "cudaGraphLaunch"]
    names += ["cudaMemcpyAsync", "cudaStreamSynchronize", "cudaMemcpy", "aten::mm"]
    profile = summary([event(name) for name in names])
    assert (profile.launches, profile.waits, profile.operators) == (5, 2, 1)


def test_idle_share_is_what_the_union_of_kernels_leaves_of_a_plain_step():
    """Kernels 0-200 and 100-300 us overlap, 500-600 is apart: 400 of 1,000 us are busy."""
    profile = summary([kernel(0, 200), kernel(100, 300), kernel(500, 600)])
    assert profile.busy_s == pytest.approx(400e-6)
    assert profile.idle_share == pytest.approx(0.6)


def test_an_annotated_range_on_the_device_is_no_kernel():
    profile = summary([kernel(0, 100), kernel(0, 1000, annotation=True)])
    assert profile.busy_s == pytest.approx(100e-6)


def test_counts_are_averages_over_the_steps():
    events = [event("cudaLaunchKernel"), event("aten::empty", memory=512)] * 6
    profile = summary(events, steps=3)
    assert (profile.launches, profile.allocations) == (2, 2)
