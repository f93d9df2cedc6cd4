"""Stage 1, on paper: what merging a low-rank adapter computes, and what the adapter weighs."""

from __future__ import annotations

import numpy as np
import pytest

from engines import cost, formats
from reports.bounds import above
from tests.chapter import QWEN3, WEIGHTS

ROWS, COLUMNS, RANK, ALPHA = 12, 20, 16, 32
SCALES = {"lora": ALPHA / RANK, "rslora": ALPHA / RANK**0.5}  # 2 and 8


def whole_numbers(seed: int, *shape: int) -> np.ndarray:
    """Small integers as float64: their products and sums have no rounding in any order."""
    return np.random.default_rng(seed).integers(-8, 9, shape).astype(np.float64)


W, A, B = (
    whole_numbers(1, ROWS, COLUMNS),
    whole_numbers(2, RANK, COLUMNS),
    whole_numbers(3, ROWS, RANK),
)
X = whole_numbers(4, COLUMNS, 5)


@pytest.mark.claim("C38")
@pytest.mark.parametrize("kind", SCALES, ids="kind:{}".format)
def test_one_merged_matrix_does_what_two_paths_did(kind, judge):
    """Stage 1: (W + s B A) x = W x + s B (A x), s = alpha / r, for rsLoRA alpha / sqrt(r)."""
    scale = SCALES[kind]
    merged = (W + scale * B @ A) @ X
    judge.exact(
        np.abs(merged - (W @ X + scale * (B @ (A @ X)))).max(),
        0.0,
        quantity="difference of merged and separate outputs",
        unit="1",
        subject=f"{kind}, float64",
    )


@pytest.mark.claim("C38")
@pytest.mark.parametrize("kind", SCALES, ids="kind:{}".format)
def test_peft_merges_exactly_that_matrix(kind, judge):
    """Stage 1: W' = W + (alpha / r) B A, to the last bit in float64."""
    judge.exact(
        np.abs(merged_by_peft(kind) - (W + SCALES[kind] * B @ A)).max(),
        0.0,
        quantity="difference of peft's weight from the formula",
        unit="1",
        subject=f"{kind}, float64",
    )


FAULTS = {
    "nothing merged": lambda _: W,
    "scale alpha": lambda _: W + ALPHA * B @ A,
    "scale of the other kind": lambda scale: W + (10 - scale) * B @ A,
    "merged twice": lambda scale: W + 2 * scale * B @ A,
    "another adapter": lambda scale: W + scale * B @ whole_numbers(9, RANK, COLUMNS),
}


@pytest.mark.claim("C38")
@pytest.mark.parametrize("kind", SCALES, ids="kind:{}".format)
@pytest.mark.parametrize("fault", FAULTS, ids="fault:{}".format)
def test_a_wrong_merge_is_seen(fault, kind, judge):
    """The smallest possible difference of two such matrices is 1."""
    wrong = FAULTS[fault](SCALES[kind])
    judge(
        float(np.abs(wrong - (W + SCALES[kind] * B @ A)).max()),
        above(0.5),
        quantity="difference from the formula",
        subject=f"planted fault: {fault}, {kind}",
    )


@pytest.mark.claim("C41")
def test_an_adapter_of_rank_16_has_ten_million_parameters(judge):
    """Stage 1: 28 layers x 16 x (inputs + outputs) of q, k, v, o, gate, up and down.

    3,072 + 2,048 + 2,048 + 3,072 + 4,096 + 4,096 + 4,096 = 22,528 a layer; 10,092,544 in all.
    """
    judge.exact(
        formats.lora_parameters(QWEN3, 16),
        28 * 16 * 22_528,
        quantity="adapter parameters at r = 16",
        unit="1",
        subject="Qwen3-0.6B",
    )


@pytest.mark.claim("C41")
def test_merging_costs_sixty_times_the_adapter(judge):
    """Stage 1: 20,185,088 B of adapter become 1,192,099,840 B of merged model, 59.06 x."""
    adapter_bytes = 2 * formats.lora_parameters(QWEN3, 16)
    assert round(adapter_bytes / 1e6, 2) == 20.19
    judge.exact(
        cost.weight_bytes(QWEN3) / adapter_bytes,
        WEIGHTS / 20_185_088,
        quantity="merged model over adapter",
        unit="1",
        subject="Qwen3-0.6B",
        rel=1e-12,
    )


def merged_by_peft(kind: str) -> np.ndarray:
    """The weight that peft leaves behind when it merges A and B into W."""
    torch = pytest.importorskip("torch", reason="needs torch")
    peft = pytest.importorskip("peft", reason="needs peft")
    base = torch.nn.Sequential(torch.nn.Linear(COLUMNS, ROWS, bias=False)).double()
    config = peft.LoraConfig(
        r=RANK, lora_alpha=ALPHA, use_rslora=kind == "rslora", target_modules=["0"]
    )
    adapted = peft.get_peft_model(base, config).double()
    layer = adapted.base_model.model[0]
    with torch.no_grad():
        layer.base_layer.weight.copy_(torch.from_numpy(W))
        layer.lora_A["default"].weight.copy_(torch.from_numpy(A))
        layer.lora_B["default"].weight.copy_(torch.from_numpy(B))
    return adapted.merge_and_unload()[0].weight.detach().numpy()
