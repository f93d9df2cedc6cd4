"""Every choice that depends on the device, for devices that are not there (claims C42, C43)."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

T4 = ((7, 5), 16 * 10**9, 40)
CAPABILITIES = ((7, 0), (7, 5), (8, 0), (8, 6), (8, 9), (9, 0), (10, 0))
SM = "sm:{0[0]}{0[1]}".format


def test_a_t4_gets_fp16_and_expanded_sdpa_and_half_in_vllm():
    from engines.precision import choose

    settings = choose(*T4)
    assert settings.dtype == "float16"
    assert settings.attention == "sdpa_expanded"
    assert settings.decode_attention == "reductions"
    assert settings.vllm_dtype == "half"
    assert settings.vllm_backend != "FLASH_ATTN"
    assert not settings.native_bf16
    assert not settings.flash_attention
    assert not settings.triton_fp16_dot


@pytest.mark.parametrize("capability", CAPABILITIES, ids=SM)
def test_what_needs_sm_80_is_used_from_sm_80_on(capability):
    from engines.precision import choose, has_native_bf16

    settings, new = choose(capability, 80 * 10**9, 132), capability >= (8, 0)
    assert settings.dtype == "float16"
    assert settings.attention == ("sdpa" if new else "sdpa_expanded")
    assert settings.native_bf16 == has_native_bf16(capability) == new
    assert settings.flash_attention == settings.triton_fp16_dot == new


def test_every_chosen_attention_is_one_that_transformers_knows():
    from transformers import AttentionInterface

    import engines.attention  # noqa: F401  # registers ours
    from engines.precision import choose

    known = set(AttentionInterface().valid_keys())
    for capability in (*CAPABILITIES, None):
        settings = choose(capability, 16 * 10**9)
        assert {settings.attention, settings.decode_attention} <= known


@pytest.mark.parametrize("capability", CAPABILITIES, ids=SM)
def test_a_single_row_is_always_fused_and_gemms_are_tuned_where_torch_can(capability):
    """Tuned products are templates of `tl.dot`: they want 68 multiprocessors, and sm_80 in fp16."""
    from engines.precision import choose

    small, large = (choose(capability, 16 * 10**9, n) for n in (40, 68))
    tuned = {"max_autotune": True} if capability >= (8, 0) else {}
    assert dict(small.compile_options) == {"coordinate_descent_tuning": True}
    assert dict(large.compile_options) == {"coordinate_descent_tuning": True} | tuned
    assert dict(small.batched_compile_options) == {}
    assert dict(large.batched_compile_options) == tuned


@pytest.mark.parametrize("capability", CAPABILITIES, ids=SM)
def test_vllm_gets_half_and_a_backend_that_the_card_has(capability):
    """Its wheels know nothing older than sm_75; flash attention starts at sm_80."""
    from engines.precision import choose

    settings = choose(capability, 16 * 10**9)
    known = capability >= (7, 5)
    backend = "FLASH_ATTN" if capability >= (8, 0) else "TRITON_ATTN"
    assert settings.vllm_dtype == ("half" if known else None)
    assert settings.vllm_backend == (backend if known else None)
    assert settings.vllm_workspace_bytes == 1_280_000_000
    assert choose(capability, 141 * 10**9).vllm_workspace_bytes == 2_000_000_000


def test_a_cpu_computes_in_float32_and_skips_the_compilers_trial_builds():
    from engines.precision import choose

    settings = choose(None, 12 * 10**9)
    assert (settings.dtype, settings.attention) == ("float32", "sdpa")
    assert dict(settings.compile_options) == {"cpp.vec_isa_ok": True}
    assert (settings.vllm_dtype, settings.vllm_backend) == (None, None)


def test_every_compile_option_is_one_that_the_compiler_has():
    import torch

    from engines.precision import choose

    for capability in (*CAPABILITIES, None):
        settings = choose(capability, 16 * 10**9)
        options = dict(settings.compile_options + settings.batched_compile_options)
        assert options.keys() <= set(torch._inductor.list_options())


def test_weights_may_take_85_percent_of_the_memory():
    from engines.precision import choose

    assert choose(*T4).weight_budget_bytes == 13_600_000_000


def test_the_settings_of_this_host_name_its_memory():
    import psutil

    from engines.precision import settings_here

    assert settings_here("cpu").memory_bytes == psutil.virtual_memory().total
