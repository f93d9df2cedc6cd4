"""One quantized linear layer of bitsandbytes: made from a plain one, its scales, its way back.

int8 (LLM.int8()) keeps one signed byte per weight and one fp32 scale per output row; activations
are rounded to int8 as well, and columns in which any activation exceeds the threshold are split off
and multiplied in 16 bits. nf4 keeps four bits per weight, an index into 16 levels, and one fp32
scale per block of 64 weights; activations stay as they are. In both, w ~ scale * level(code).

Scales are not parameters of the module but attributes beside it: counting parameters misses them.
"""

from __future__ import annotations

import copy
import logging
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import nn

if TYPE_CHECKING:
    from collections.abc import Iterator

Method = Literal["int8", "nf4"]
NF4_BLOCK = 64
INT8_THRESHOLD = 6.0
"""Activations beyond it are outliers for LLM.int8(); 0 switches the split off."""


def quantized_layer(plain: nn.Linear, method: Method, threshold: float) -> nn.Module:
    """A layer of bitsandbytes with the weights of a plain one, quantized on their own device."""
    layer: nn.Module = _int8(plain, threshold) if method == "int8" else _nf4(plain)
    layer.bias = plain.bias
    return layer.eval()


def is_quantized_layer(module: nn.Module) -> bool:
    """Whether the module is one of the two kinds made here."""
    return is_int8(module) or is_nf4(module)


def is_int8(module: nn.Module) -> bool:
    """A layer of LLM.int8(), recognised without importing bitsandbytes."""
    return type(module).__name__ == "Linear8bitLt"


def is_nf4(module: nn.Module) -> bool:
    """A 4-bit layer, recognised without importing bitsandbytes."""
    return type(module).__name__ == "Linear4bit"


def quantized_layers(model: nn.Module) -> Iterator[tuple[str, Any]]:
    """Name and module of every quantized layer."""
    return ((name, m) for name, m in model.named_modules() if is_quantized_layer(m))


def scales(layer: Any) -> torch.Tensor:
    """The layer's fp32 scales: [rows] for int8, [weights / 64] for nf4."""
    found: torch.Tensor = layer.state.SCB if is_int8(layer) else layer.weight.quant_state.absmax
    return found


def levels(layer: Any) -> torch.Tensor | None:
    """The table of the 16 levels that nf4 keeps per layer; int8 has none."""
    return None if is_int8(layer) else layer.weight.quant_state.code


def plain_layer(layer: Any, dtype: torch.dtype) -> nn.Linear:
    """An ordinary layer with exactly the weights that the quantized one stands for."""
    plain = nn.Linear(layer.in_features, layer.out_features, bias=False, device="meta")
    plain.weight = nn.Parameter(_dequantized(layer).to(dtype), requires_grad=False)
    plain.bias = layer.bias
    return plain.eval()


def layer_with_scales(layer: Any, new: torch.Tensor) -> Any:
    """The same layer and the same codes under other scales; the given layer is left alone."""
    import bitsandbytes as bnb

    other = copy.copy(layer)
    other._parameters = dict(layer._parameters)  # copy.copy shares the table of parameters
    if is_int8(layer):
        other.state = copy.copy(layer.state)
        other.state.SCB = new
        return other
    state = copy.copy(layer.weight.quant_state)
    state.absmax = new
    other.weight = _params4bit(bnb, layer.weight.data, state)
    other.quant_state = state
    return other


def shared_state(layer: Any) -> list[Any]:
    """What a structural copy of the model has to share instead of duplicating."""
    return [layer.state if is_int8(layer) else layer.weight.quant_state]


def silence() -> None:
    """LLM.int8() logs one line per layer and token when activations are not fp16, as on a CPU."""
    logging.getLogger("bitsandbytes.autograd._functions").setLevel(logging.ERROR)


def _int8(plain: nn.Linear, threshold: float) -> Any:
    import bitsandbytes as bnb

    layer = bnb.nn.Linear8bitLt(
        plain.in_features,
        plain.out_features,
        bias=False,
        has_fp16_weights=False,
        threshold=threshold,
        device="meta",
    )
    codes, row_scales, _ = bnb.functional.int8_vectorwise_quant(plain.weight.data.half())
    layer.weight = bnb.nn.Int8Params(
        codes, requires_grad=False, has_fp16_weights=False, CB=codes, SCB=row_scales
    )
    layer.init_8bit_state()
    return layer


def _nf4(plain: nn.Linear) -> Any:
    import bitsandbytes as bnb

    layer = bnb.nn.Linear4bit(
        plain.in_features,
        plain.out_features,
        bias=False,
        compute_dtype=plain.weight.dtype,
        compress_statistics=False,
        quant_type="nf4",
        device="meta",
    )
    codes, state = bnb.functional.quantize_4bit(
        plain.weight.data, blocksize=NF4_BLOCK, compress_statistics=False, quant_type="nf4"
    )
    layer.weight = _params4bit(bnb, codes, state)
    layer.quant_state = state
    # On some CPUs the first forward would repack the codes and round the scales to bf16: other
    # bytes and other weights than those that were quantized here.
    layer.support_avx512bf16_for_cpu = False
    return layer


def _params4bit(bnb: Any, codes: torch.Tensor, state: Any) -> Any:
    return bnb.nn.Params4bit(
        codes,
        requires_grad=False,
        quant_state=state,
        blocksize=NF4_BLOCK,
        compress_statistics=False,
        quant_type="nf4",
        bnb_quantized=True,
    )


def _dequantized(layer: Any) -> torch.Tensor:
    import bitsandbytes as bnb

    if is_int8(layer):
        weight = bnb.functional.int8_vectorwise_dequant(layer.state.CB, layer.state.SCB)
    else:
        weight = bnb.functional.dequantize_4bit(layer.weight.data, layer.weight.quant_state)
    return torch.as_tensor(weight)
