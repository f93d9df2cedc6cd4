"""The static engine with its decode step written by hand: what remains is little but the bytes.

The compiled rung still spends most of a small model's step between kernels. There are two ways to
do better here, which give the same tokens. `triton`: five kernels a layer in one CUDA graph, for
any batch size and any GPU. `persistent`: one kernel for the whole step, in which the memory never
waits, for batch 1 in fp16 on sm_90 and newer. The host is asked nothing: it reads the tokens at the
end.

`fused_int8` and `fused_nf4` are the same kernels over weights that are decoded in registers. They
exist to show that fewer bytes are faster when the kernel does not eat the gain.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Literal, get_args

import torch

from engines.captured_step import captured
from engines.engine import Memory
from engines.footprint import decode_step_bytes, weight_bytes
from engines.fused_formats import bytes_saved, with_weight_only
from engines.fused_persistent import CAPABILITY_NEEDED, PersistentStep, blocks_for, refusal
from engines.fused_weights import FusedNotAvailable, FusedWeights
from engines.static_kv import StaticKV

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from engines.engine import OnToken
    from engines.fused_formats import Format
    from engines.models import LoadedModel
    from engines.records import Completion, Request

Kernels = Literal["triton", "persistent"]


class Fused(StaticKV):
    """Qwen3 and Llama. `kernels` chooses the way; None takes the persistent one where it can run.

    `dependent_launch` is of the Triton kernels on sm_90 and newer: each loads its first weights
    while the one before it still runs.
    """

    name = "fused"
    method: Format | None = None

    def __init__(
        self,
        loaded: LoadedModel,
        *,
        kernels: Kernels | None = None,
        dependent_launch: bool = False,
        **shared: Any,
    ) -> None:
        if kernels not in (None, *get_args(Kernels)):
            expected = " or ".join(get_args(Kernels))
            raise ValueError(f"unknown kernels {kernels!r}: expected {expected}")
        if self.method is not None:
            loaded = with_weight_only(loaded, self.method)
        weights = FusedWeights.of(loaded.model, 1)
        super().__init__(loaded, **shared)
        self.kernels = self._chosen(kernels, weights)
        self.dependent_launch = dependent_launch
        self._persistent: PersistentStep | None = None

    def run(self, requests: Sequence[Request], on_token: OnToken | None = None) -> list[Completion]:
        """As every static engine; RuntimeError if the blocks of a step lost each other."""
        done = super().run(requests, on_token)
        if self._persistent is not None and self._persistent.gave_up():
            raise RuntimeError(
                "a block of the persistent step waited in vain: is another process on this GPU? "
                'Try kernels="triton"'
            )
        return done

    def bytes_per_step(self, context_tokens: int) -> int:
        """Weights once, and of every row the keys and values that there are, not the rest."""
        read = decode_step_bytes(self.loaded, context_tokens, self.batch_size)
        return read - bytes_saved(self.loaded)

    def memory(self) -> Memory:
        """Codes and scales are the model's buffers, so its tensors are all there is."""
        return Memory(weight_bytes(self.loaded.model), self.state.cache.allocated_bytes())

    def _chosen(self, kernels: Kernels | None, weights: FusedWeights) -> Kernels:
        reason = _not_persistent(self.loaded.device, weights, self.batch_size)
        if kernels == "persistent" and reason:
            raise FusedNotAvailable(
                f'the persistent step does not do {reason}: use kernels="triton"'
            )
        if kernels == "persistent" or (kernels is None and not reason):
            return "persistent"
        check_triton(self.loaded.device)
        return "triton"

    def _build_step(self) -> Callable[[], None]:
        if self.kernels == "persistent":
            self._persistent = PersistentStep(self.state, multiprocessors())
            return captured(self._persistent)
        from engines.fused_step import FusedStep

        step = FusedStep(self.state, dependent_launch=self.dependent_launch)
        return captured(step) if self.loaded.device == "cuda" else step


class FusedInt8(Fused):
    """One byte per weight and one scale per row."""

    name = "fused_int8"
    method = "int8"


class FusedNF4(Fused):
    """Four bits per weight and one scale per 64 of them."""

    name = "fused_nf4"
    method = "nf4"


def why_not_available(loaded: LoadedModel) -> str | None:
    """Why this model cannot be run by any of these engines here, in one line; None if it can."""
    try:
        FusedWeights.of(loaded.model, 1)
        check_triton(loaded.device)
    except FusedNotAvailable as missing:
        return str(missing)
    return None


def check_triton(device: str) -> None:
    """FusedNotAvailable, in one line, without Triton or without something to run it on."""
    try:
        import triton  # noqa: F401  # only to see whether it is there
    except ImportError as error:
        raise FusedNotAvailable(
            f"the fused step needs the package triton, which cannot be imported ({error}): "
            "use the engine compiled"
        ) from error
    if device != "cuda" and os.environ.get("TRITON_INTERPRET") != "1":
        raise FusedNotAvailable(
            f"the fused step runs on CUDA, the model is on {device}: use the engine compiled, or "
            "set TRITON_INTERPRET=1 to run its kernels in Triton's interpreter"
        )


def _not_persistent(device: str, weights: FusedWeights, batch_size: int) -> str | None:
    """Why the persistent kernel cannot run here, in a few words; None if it can."""
    if device != "cuda":
        return f"device {device}"
    capability = torch.cuda.get_device_capability()
    if capability < CAPABILITY_NEEDED:
        return f"sm_{capability[0]}{capability[1]}"
    blocks = blocks_for(weights, multiprocessors())
    if 2 * blocks < multiprocessors():
        return f"rows that only {blocks} blocks can share evenly"
    return refusal(weights, batch_size, blocks)


def multiprocessors() -> int:
    """Of the current GPU."""
    return torch.cuda.get_device_properties(torch.cuda.current_device()).multi_processor_count
