"""Weight-only int8 and nf4: how a matrix is stored for kernels that decode it in registers.

int8 keeps one signed byte per weight and one fp32 scale per row. nf4 keeps four bits per weight, an
index into 16 levels, and one fp32 scale per block of 64 columns; byte i of a row holds column 2 i
in its low half and column 2 i + 1 in its high half.

Unlike LLM.int8() nothing is done to the activations: no outliers to find, no rounding, no second
product. That is why these formats can be as fast as their bytes.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Literal

import torch
from torch import nn

if TYPE_CHECKING:
    from engines.models import LoadedModel

Format = Literal["int8", "nf4"]
FORMATS: tuple[Format, ...] = ("int8", "nf4")
BLOCK = 64
# Quantiles of a normal distribution, scaled to [-1, 1] (Dettmers et al. 2023, appendix E).
NF4_LEVELS = (
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635,
    -0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725,
    0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941,
    0.7229568362236023, 1.0,
)  # fmt: skip


class WeightOnlyLinear(nn.Module):
    """A linear layer that stores codes and scales, and multiplies with what they stand for."""

    codes: torch.Tensor
    scales: torch.Tensor

    def __init__(self, plain: nn.Linear, method: Format) -> None:
        super().__init__()
        encode = encode_int8 if method == "int8" else encode_nf4
        codes, scales = encode(plain.weight.data)
        self.method: Format = method
        self.in_features, self.out_features = plain.in_features, plain.out_features
        self.register_buffer("codes", codes)
        self.register_buffer("scales", scales)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Rows of any number, as a prefill has them: the weights are made anew in each call."""
        return nn.functional.linear(x, self.dequantized().to(x.dtype))

    def dequantized(self) -> torch.Tensor:
        """The weights [rows, columns] that the codes stand for, in fp32."""
        decode = decode_int8 if self.method == "int8" else decode_nf4
        return decode(self.codes, self.scales)


def encode_int8(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Codes [rows, columns] int8, scales [rows] fp32: the largest weight of a row becomes 127."""
    values = weight.float()
    scales = values.abs().amax(dim=1).clamp_min(1e-30) / 127
    return (values / scales[:, None]).round().to(torch.int8), scales


def decode_int8(codes: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """Inverse of `encode_int8`, up to half a scale."""
    return codes.float() * scales[:, None]


def encode_nf4(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Codes [rows, columns / 2] uint8, scales [rows, columns / 64] fp32."""
    rows, columns = weight.shape
    if columns % BLOCK:
        raise ValueError(f"nf4 needs whole blocks of {BLOCK} columns, got {columns} columns")
    blocks = weight.float().view(rows, columns // BLOCK, BLOCK)
    scales = blocks.abs().amax(dim=2).clamp_min(1e-30)
    levels = torch.tensor(NF4_LEVELS, device=weight.device)
    borders = (levels[1:] + levels[:-1]) / 2
    codes = torch.bucketize(blocks / scales[:, :, None], borders).to(torch.uint8)
    pairs = codes.view(rows, columns // 2, 2)
    return pairs[:, :, 0] | (pairs[:, :, 1] << 4), scales.contiguous()


def decode_nf4(codes: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """The weights that nf4 codes stand for, [rows, columns] fp32."""
    levels = torch.tensor(NF4_LEVELS, device=codes.device)
    rows, blocks = scales.shape
    pairs = torch.stack([codes & 15, codes >> 4], dim=2)
    values = levels[pairs.long()].view(rows, blocks, BLOCK)
    return (values * scales[:, :, None]).view(rows, blocks * BLOCK)


def with_weight_only(loaded: LoadedModel, method: Format) -> LoadedModel:
    """The same model with every linear layer inside its blocks in this format; the head stays."""
    shared = list(chain(loaded.model.parameters(), loaded.model.buffers()))
    model = copy.deepcopy(loaded.model, {id(tensor): tensor for tensor in shared})
    head = model.get_output_embeddings()
    plain = [(n, m) for n, m in model.named_modules() if type(m) is nn.Linear and m is not head]
    for name, module in plain:
        model.set_submodule(name, WeightOnlyLinear(module, method))
    return replace(loaded, model=model)


def bytes_saved(loaded: LoadedModel) -> int:
    """Bytes that a decode step reads less than with plain weights, scales counted against it."""
    layers = [m for m in loaded.model.modules() if isinstance(m, WeightOnlyLinear)]
    plain = sum(m.in_features * m.out_features for m in layers) * loaded.bytes_per_value
    held = sum(t.numel() * t.element_size() for m in layers for t in (m.codes, m.scales))
    return plain - held
