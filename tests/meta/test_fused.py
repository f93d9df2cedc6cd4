"""The fused step without a GPU: its Triton kernels interpreted, its formats, what it refuses."""

from __future__ import annotations

import sys

import pytest

from tests.meta.fused_interpreted import CASES
from tests.meta.interpreter import interpret

pytest.importorskip("torch")
RIGHT = [name for name, case in CASES.items() if not case.fault]
QUANTIZED = ("int8", "nf4")


@pytest.fixture(scope="module")
def interpreted():
    """What the kernels computed, by case."""
    return interpret("tests.meta.fused_interpreted")


@pytest.mark.thorough
@pytest.mark.parametrize("case", RIGHT)
def test_the_kernels_pick_the_plain_models_tokens(interpreted, case):
    """fp32, teacher-forced; quantized engines against their own dequantized weights."""
    assert interpreted[case]["gap"] < (1e-4 if case in QUANTIZED else 1e-5)


@pytest.mark.thorough
def test_a_row_gets_the_same_tokens_whoever_shares_its_batch(interpreted):
    alone = [interpreted[name]["rows"][0] for name in RIGHT[:2]]
    assert interpreted["qwen3 both in one batch"]["rows"] == alone


@pytest.mark.thorough
def test_a_wrong_rotation_is_seen(interpreted):
    assert interpreted["a rotation of the wrong position"]["gap"] > 0.01


def test_int8_errs_by_at_most_half_a_scale_per_weight():
    import torch

    from engines.fused_formats import decode_int8, encode_int8

    weight = torch.randn(8, 128) * torch.logspace(-6, 3, 8)[:, None]
    codes, scales = encode_int8(weight)
    assert codes.dtype == torch.int8
    error = (decode_int8(codes, scales) - weight).abs()
    assert (error <= 0.5001 * scales[:, None]).all()


def test_nf4_takes_the_nearest_level_of_each_block():
    import torch

    from engines.fused_formats import NF4_LEVELS, decode_nf4, encode_nf4

    weight = torch.randn(4, 192)
    codes, scales = encode_nf4(weight)
    assert codes.shape == (4, 96)
    assert scales.shape == (4, 3)
    blocks = weight.view(4, 3, 64)
    near = blocks[..., None] - torch.tensor(NF4_LEVELS) * scales[:, :, None, None]
    error = (decode_nf4(codes, scales).view(4, 3, 64) - blocks).abs()
    torch.testing.assert_close(error, near.abs().min(dim=-1).values)


def test_zeros_stay_zeros():
    import torch

    from engines.fused_formats import decode_int8, decode_nf4, encode_int8, encode_nf4

    zeros = torch.zeros(2, 64)
    assert (decode_int8(*encode_int8(zeros)) == 0).all()
    assert (decode_nf4(*encode_nf4(zeros)) == 0).all()


def test_columns_that_are_no_whole_blocks_are_refused():
    import torch

    from engines.fused_formats import encode_nf4

    with pytest.raises(ValueError, match="blocks of 64 columns, got 100"):
        encode_nf4(torch.zeros(2, 100))


@pytest.mark.parametrize("method", QUANTIZED)
def test_a_weight_only_model_shares_what_it_does_not_quantize_and_counts_what_it_reads(method):
    from engines.footprint import weight_bytes
    from engines.fused_formats import bytes_saved, with_weight_only
    from tests.meta.fused_models import fused_model

    plain = fused_model("qwen3", dtype="float16")
    small = with_weight_only(plain, method)
    head = small.model.get_output_embeddings().weight
    assert head.data_ptr() == plain.model.get_output_embeddings().weight.data_ptr()
    assert weight_bytes(plain.model) - weight_bytes(small.model) == bytes_saved(small) > 0


@pytest.mark.parametrize(
    ("config", "got"),
    [
        ({"attention_bias": True}, "biases"),
        ({"hidden_act": "gelu"}, "hidden_act gelu"),
        ({"head_dim": 24}, "head_dim 24"),
    ],
)
def test_a_model_it_does_not_know_is_refused_in_one_line(config, got):
    from engines.fused_weights import FusedNotAvailable, FusedWeights
    from tests.meta.fused_models import fused_model

    model = fused_model("qwen3", **config).model
    with pytest.raises(FusedNotAvailable, match=got) as refused:
        FusedWeights.of(model, 8)
    assert "\n" not in str(refused.value)


def test_on_a_cpu_or_without_triton_it_is_not_available_by_name(monkeypatch):
    from engines.fused import FusedNotAvailable, check_triton, why_not_available
    from tests.meta.fused_models import fused_model

    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    assert "the model is on cpu" in why_not_available(fused_model("llama"))
    monkeypatch.setitem(sys.modules, "triton", None)
    with pytest.raises(FusedNotAvailable, match="package triton"):
        check_triton("cuda")
