"""Section 5: what the card is decides what runs on it."""

from __future__ import annotations

import pytest

from engines.gpus import GPUS

CARDS = ("T4", "V100", "L4", "A100-SXM4-40GB", "H200")


@pytest.mark.claim("C42")
@pytest.mark.devices("cuda")
def test_native_bf16_follows_the_capability_not_torchs_answer(device, judge):
    """Section 5: native bf16 needs capability 8.0; torch also says yes where it emulates."""
    import torch

    from engines.precision import choose

    capability = torch.cuda.get_device_capability()
    settings = choose(capability, torch.cuda.get_device_properties(0).total_memory)
    judge.exact(
        settings.native_bf16,
        capability >= (8, 0),
        quantity=f"native bf16 at sm_{capability[0]}{capability[1]}",
        unit="1",
        subject=torch.cuda.get_device_name(),
    )
    judge.exact(
        torch.cuda.is_bf16_supported(including_emulation=True),
        1,
        quantity="torch says bf16 is supported",
        unit="1",
        subject=torch.cuda.get_device_name(),
    )


@pytest.mark.claim("C42")
def test_a_t4_has_no_native_bf16(judge):
    """Section 5: capability (7, 5) from the datasheet table, decided without the card."""
    pytest.importorskip("torch", reason="needs torch")
    from engines.precision import choose

    settings = choose(GPUS["T4"].capability, GPUS["T4"].memory_bytes)
    judge.exact(settings.native_bf16, 0, quantity="native bf16", unit="1", subject="T4")


@pytest.mark.claim("C43")
@pytest.mark.parametrize("card", ["T4"], ids="card:{}".format)
def test_the_configuration_for_sm75_is_fp16_with_sdpa_and_half_for_vllm(card, judge):
    """Section 5: chosen from the capability alone, on a device that is not there."""
    pytest.importorskip("torch", reason="needs torch")
    from engines.precision import choose

    settings = choose(GPUS[card].capability, GPUS[card].memory_bytes)
    chosen = {
        "fp16": settings.dtype == "float16",
        "SDPA": settings.attention.startswith("sdpa"),
        "no flash attention": not settings.flash_attention,
        "vLLM half": settings.vllm_dtype == "half",
    }
    for name, as_claimed in chosen.items():
        judge.exact(as_claimed, 1, quantity=name, unit="1", subject=card)
