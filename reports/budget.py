"""The memory budget of a model on a card: what it holds, what fits, how fast it can be at best.

All arithmetic is `engines.cost`; here it is put together for one question. The calculator of the
page (`page/templates/budget.js`) answers the same question in the browser and must give the same
numbers to the byte, which a test checks over a grid of inputs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from engines import cost, formats

if TYPE_CHECKING:
    from engines.shape import ModelShape

QUANTIZED = {"int8": formats.INT8, "nf4": formats.NF4}
WEIGHTS: dict[str, tuple[str, float]] = {
    "fp32": ("fp32", 4.0),
    "fp16": ("fp16 or bf16", 2.0),
    "fp8": ("fp8, everything", 1.0),
    "int8": ("int8 as bitsandbytes loads it", 2.0),
    "nf4": ("nf4 as bitsandbytes loads it", 2.0),
}
"""Key to (label, bytes per weight); of the quantized ones, bytes of what stays unquantized."""
KV_VALUES: dict[str, tuple[str, float]] = {
    "fp32": ("fp32", 4.0),
    "fp16": ("fp16 or bf16", 2.0),
    "fp8": ("fp8 or int8", 1.0),
}


@dataclass(frozen=True)
class Question:
    """What is to be held on which card. `weights` and `kv` are keys of WEIGHTS and KV_VALUES."""

    shape: ModelShape
    memory_bytes: float
    bandwidth_bytes_per_s: float
    context_tokens: int
    batch_size: int
    weights: str = "fp16"
    kv: str = "fp16"

    def __post_init__(self) -> None:
        for name, known in (("weights", WEIGHTS), ("kv", KV_VALUES)):
            if getattr(self, name) not in known:
                raise ValueError(
                    f"{name} is {getattr(self, name)!r}, expected one of {', '.join(known)}"
                )
        for name in ("context_tokens", "batch_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}, expected 1 or more")


@dataclass(frozen=True)
class Budget:
    """The answer. `fills_at_tokens` is None where every layer has a window and nothing grows."""

    weights_bytes: int
    kv_bytes: int
    kv_token_bytes: int
    left_bytes: float
    sequences: float
    fills_at_tokens: float | None
    step_bytes: int
    ceiling_tokens_per_s: float

    @property
    def fits(self) -> bool:
        """True when weights and KV of all sequences are within the memory."""
        return self.left_bytes >= 0


def budget(asked: Question) -> Budget:
    """Answer one question with the formulas of `engines.cost`."""
    shape, batch = asked.shape, asked.batch_size
    width, kv_width = WEIGHTS[asked.weights][1], KV_VALUES[asked.kv][1]
    saved = saved_bytes(shape, asked.weights)
    weights = cost.weight_bytes(shape, width) - saved
    kv = cost.kv_cache_bytes(shape, asked.context_tokens, batch, kv_width)
    step = cost.decode_weight_bytes(shape, width, batch) - saved + kv
    # A card that is larger by what quantization saves holds the unquantized weights as well.
    memory = asked.memory_bytes + saved
    return Budget(
        weights_bytes=weights,
        kv_bytes=kv,
        kv_token_bytes=cost.kv_bytes_per_token(shape, kv_width),
        left_bytes=asked.memory_bytes - weights - kv,
        sequences=cost.max_sequences(shape, memory, asked.context_tokens, width, kv_width),
        fills_at_tokens=cost.context_tokens_that_fill(shape, memory, batch, width, kv_width),
        step_bytes=step,
        ceiling_tokens_per_s=cost.ceiling_tokens_per_s(step, asked.bandwidth_bytes_per_s, batch),
    )


def saved_bytes(shape: ModelShape, weights: str) -> int:
    """Bytes that a quantized format saves over fp16; 0 for one width throughout."""
    if weights not in QUANTIZED:
        return 0
    return cost.weight_bytes(shape) - formats.quantized_weight_bytes(shape, QUANTIZED[weights])
