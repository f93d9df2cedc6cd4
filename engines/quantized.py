"""int8 and nf4 weights behind the same engines, through bitsandbytes.

Only linear layers inside the blocks are quantized. The output head keeps its 16 bits: with tied
embeddings it *is* the input embedding, and bitsandbytes never converts it, which is why "half the
bytes" is not half (0.6B: 753 of 1,192 MB for int8, 559 for nf4).

Up to rounding, a quantized model computes what an ordinary model with the dequantized weights does.
That comparison, not equality with fp16, says whether the kernels are right; how far the dequantized
weights are from the original ones is the question of quality.
"""

from __future__ import annotations

import copy
import dataclasses
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING

import torch
from torch import nn

from engines.engine import Memory
from engines.held_bytes import held_bytes, step_bytes
from engines.naive import Naive
from engines.quantized_layers import (
    INT8_THRESHOLD,
    Method,
    layer_with_scales,
    plain_layer,
    quantized_layer,
    quantized_layers,
    scales,
    shared_state,
    silence,
)

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from engines.clock import Clock
    from engines.models import LoadedModel


class QuantizationNotAvailable(RuntimeError):  # named as what is the case
    """bitsandbytes is missing or has no kernel for this device; the message is one line."""


def quantize(
    loaded: LoadedModel, method: Method, *, threshold: float = INT8_THRESHOLD
) -> LoadedModel:
    """The same model with int8 or nf4 linear layers; unquantized tensors are shared with it.

    `threshold` is LLM.int8()'s outlier threshold, 0 for none. Raises QuantizationNotAvailable.
    """
    if threshold < 0:
        raise ValueError(f"the int8 outlier threshold must be 0 (off) or positive, got {threshold}")
    if hasattr(loaded.model, "peft_config") or list(quantized_layers(loaded.model)):
        raise ValueError(
            f"{loaded.name} has an unmerged adapter or is quantized already: "
            "load it with merge=True and quantize it once"
        )
    check_available(method, loaded.device)
    model = _shell(loaded.model)
    head = model.get_output_embeddings()
    plain = [(n, m) for n, m in model.named_modules() if type(m) is nn.Linear and m is not head]
    if not plain:
        raise ValueError(f"{loaded.name} has no nn.Linear inside its blocks: nothing to quantize")
    for name, module in plain:
        model.set_submodule(name, quantized_layer(module, method, threshold))
    model.is_quantized = True
    return dataclasses.replace(loaded, model=model)


def dequantized(model: PreTrainedModel) -> PreTrainedModel:
    """An ordinary model, in the same dtype, with the weights that the quantized one stands for."""
    plain = _shell(model)
    for name, layer in list(quantized_layers(plain)):
        plain.set_submodule(name, plain_layer(layer, plain.dtype))
    plain.is_quantized = False
    return plain


def shuffle_scales(model: PreTrainedModel, seed: int) -> PreTrainedModel:
    """A broken copy: right codes, right scales, in the wrong places. The original is left alone."""
    generator = torch.Generator().manual_seed(seed)
    broken = _shell(model)
    for name, layer in list(quantized_layers(broken)):
        right = scales(layer)
        order = torch.randperm(right.numel(), generator=generator).to(right.device)
        broken.set_submodule(name, layer_with_scales(layer, right.flatten()[order].view_as(right)))
    return broken


@lru_cache
def check_available(method: Method, device: str) -> None:
    """Run one small layer on the device; raise QuantizationNotAvailable if it cannot be done."""
    try:
        import bitsandbytes  # noqa: F401  # only to see whether it is there
    except ImportError as error:
        raise QuantizationNotAvailable(
            f"{method} needs the package bitsandbytes, which cannot be imported ({error}): "
            "pip install bitsandbytes, or leave the engines int8 and nf4 out"
        ) from error
    silence()
    try:
        plain = nn.Linear(64, 64, bias=False, device=device, dtype=torch.float16)
        layer = quantized_layer(plain, method, INT8_THRESHOLD)
        layer(torch.ones(1, 64, device=device, dtype=torch.float16)).sum().item()
    except Exception as error:  # a missing kernel shows as any of several exceptions
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise QuantizationNotAvailable(
            f"bitsandbytes has no working {method} kernel on {device} ({first}): "
            "leave the engines int8 and nf4 out"
        ) from error


class Quantized(Naive):
    """`generate` over quantized weights: eager, as the naive engine over fp16 weights is."""

    method: Method

    def __init__(
        self,
        loaded: LoadedModel,
        *,
        batch_size: int,
        max_tokens: int,
        clock: Clock,
        threshold: float = INT8_THRESHOLD,
    ) -> None:
        small = quantize(loaded, self.method, threshold=threshold)
        super().__init__(small, batch_size=batch_size, max_tokens=max_tokens, clock=clock)

    def bytes_per_step(self, context_tokens: int) -> int:
        """Codes, scales and what stayed in 16 bits, once; keys and values as ever."""
        return step_bytes(self.loaded, context_tokens, self.batch_size)

    def memory(self) -> Memory:
        """Weights with their scales as loaded, and the cache of the last group."""
        return Memory(held_bytes(self.loaded.model).total, super().memory().kv_bytes)


class Int8(Quantized):
    """LLM.int8() weights under `generate`."""

    name = "int8"
    method = "int8"


class NF4(Quantized):
    """nf4 weights under `generate`."""

    name = "nf4"
    method = "nf4"


def _shell(model: PreTrainedModel) -> PreTrainedModel:
    """A copy of the modules around the same tensors: layers can be replaced in it without harm."""
    shared = list(chain(model.parameters(), model.buffers()))
    states = [s for _, layer in quantized_layers(model) for s in shared_state(layer)]
    return copy.deepcopy(model, {id(thing): thing for thing in [*shared, *states]})
