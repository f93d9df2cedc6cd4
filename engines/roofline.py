"""Where memory stops being the limit: arithmetic intensity, the ridge point, batches.

A device with a peak of F FLOP/s and B bytes/s is kept busy by work of at least F / B FLOP per byte
(Williams, Waterman, Patterson: "Roofline", 2009). A decode step at batch 1 does one FLOP per byte
of fp16 weights, a prefill of s tokens about s: they live on opposite sides of the ridge.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from engines import cost

if TYPE_CHECKING:
    from engines.flops import Logits
    from engines.shape import ModelShape

LONGEST_PROMPT = 1 << 20


def ridge_point(flops_per_s: float, bandwidth_bytes_per_s: float) -> float:
    """Arithmetic intensity from which on arithmetic is the limit [FLOP/byte]."""
    return flops_per_s / bandwidth_bytes_per_s


def decode_intensity(
    shape: ModelShape, context_tokens: int = 0, batch_size: int = 1, bytes_per_weight: float = 2.0
) -> float:
    """Arithmetic intensity of a decode step [FLOP/byte]."""
    flops = cost.decode_flops(shape, context_tokens, batch_size)
    return flops / cost.decode_step_bytes(shape, context_tokens, batch_size, bytes_per_weight)


def prefill_intensity(
    shape: ModelShape,
    prompt_tokens: int,
    batch_size: int = 1,
    logits: Logits = "last",
    bytes_per_weight: float = 2.0,
) -> float:
    """Arithmetic intensity of a prefill, KV and attention counted [FLOP/byte]."""
    flops = cost.prefill_flops(shape, prompt_tokens, batch_size, logits)
    return flops / cost.prefill_bytes(shape, prompt_tokens, batch_size, bytes_per_weight)


def compute_bound_from(shape: ModelShape, ridge: float, logits: Logits = "last") -> int | None:
    """Shortest single prompt whose prefill is compute-bound [tokens]; None if there is none.

    Found by bisection: the intensity grows with the prompt.
    """
    low, high = 0, LONGEST_PROMPT
    if prefill_intensity(shape, high, logits=logits) < ridge:
        return None
    while high - low > 1:
        middle = (low + high) // 2
        enough = prefill_intensity(shape, middle, logits=logits) >= ridge
        low, high = (low, middle) if enough else (middle, high)
    return high


@dataclass(frozen=True, slots=True)
class BatchPoint:
    """What the roofline allows at one batch size, for all users together and for each."""

    batch_size: int
    step_s: float
    tokens_per_s: float
    bound: Literal["memory", "compute"]


def batch_point(
    shape: ModelShape,
    bandwidth_bytes_per_s: float,
    flops_per_s: float,
    batch_size: int,
    context_tokens: int,
    bytes_per_weight: float = 2.0,
) -> BatchPoint:
    """One decode step at this batch size: the longer of moving its bytes and doing its FLOPs."""
    moved = cost.decode_step_bytes(shape, context_tokens, batch_size, bytes_per_weight)
    memory_s = moved / bandwidth_bytes_per_s
    compute_s = cost.decode_flops(shape, context_tokens, batch_size) / flops_per_s
    step_s = max(memory_s, compute_s)
    bound: Literal["memory", "compute"] = "memory" if memory_s >= compute_s else "compute"
    return BatchPoint(batch_size, step_s, batch_size / step_s, bound)
