"""What vLLM is started for, and with which arguments: arithmetic and choices, no vLLM.

It shares the GPU with the engines that it is compared with, so its KV cache is sized to what is
asked of it. Left alone it would take nine tenths of the whole memory.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from engines import cost
from engines.precision import VLLM_FREE_SHARE, Settings

if TYPE_CHECKING:
    from pathlib import Path

    from engines.models import LoadedModel

BLOCK_TOKENS = 64
"""vLLM pages its KV cache in blocks of 16 to 64 tokens; a row needs whole ones."""
SPARE_BLOCKS = 4
MOST_BATCHED_TOKENS = 8192
SAME_WEIGHTS_BYTES = 4_000_000_000
"""A larger random model is not handed over through the disk: vLLM makes dummy weights instead."""


class VLLMNotAvailable(RuntimeError):
    """vLLM is missing, does not fit or failed at start; the rest of a run goes on without it."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What an engine is started for."""

    batch_size: int
    max_tokens: int
    eager: bool = False
    gpus: int = 1
    dummy: bool = False

    def kv_bytes(self, loaded: LoadedModel) -> int:
        """KV cache of all rows in whole blocks, over all GPUs [bytes]."""
        blocks = self.batch_size * -(-(self.max_tokens + 1) // BLOCK_TOKENS) + SPARE_BLOCKS
        return blocks * BLOCK_TOKENS * cost.kv_bytes_per_token(loaded.shape, 2)


def needs_dummy_weights(loaded: LoadedModel) -> bool:
    """Whether this model is random anyway, and too large to be handed over."""
    held = cost.weight_bytes(loaded.shape, 2)
    return loaded.weights_kind == "random" and held > SAME_WEIGHTS_BYTES


def check_room(loaded: LoadedModel, plan: Plan, settings: Settings, free_bytes: int) -> None:
    """Refuse a model whose share does not fit into what is free on each GPU."""
    if settings.vllm_dtype is None:
        raise VLLMNotAvailable("vLLM runs here on CUDA GPUs of capability 7.5 and up only")
    weights = cost.weight_bytes(loaded.shape, 2)
    needed = (weights + plan.kv_bytes(loaded)) // plan.gpus + settings.vllm_workspace_bytes
    room = int(VLLM_FREE_SHARE * free_bytes)
    if needed > room:
        raise VLLMNotAvailable(
            f"vLLM needs {needed / 1e9:.1f} GB on each of {plan.gpus} GPU(s) beside our engines, "
            f"{room / 1e9:.1f} GB are free: take a smaller model or fewer engines"
        )


def arguments(
    loaded: LoadedModel, plan: Plan, settings: Settings, folder: Path, *, free_share: float
) -> dict[str, Any]:
    """Keywords of vLLM's `EngineArgs`, attention backend left out.

    Given the bytes of the KV cache vLLM does not size it itself; the share of memory is then only
    what it checks at start against what is free.
    """
    longest = min(plan.max_tokens + 1, _positions(loaded))
    chosen: dict[str, Any] = {
        "model": str(folder),
        "skip_tokenizer_init": True,
        "generation_config": "vllm",
        "load_format": "dummy" if plan.dummy else "safetensors",
        "dtype": settings.vllm_dtype,
        "enforce_eager": plan.eager,
        "tensor_parallel_size": plan.gpus,
        "max_model_len": longest,
        "max_num_seqs": plan.batch_size,
        "max_num_batched_tokens": max(
            plan.batch_size, min(MOST_BATCHED_TOKENS, plan.batch_size * longest)
        ),
        "enable_prefix_caching": False,
        "kv_cache_memory_bytes": -(-plan.kv_bytes(loaded) // plan.gpus),
        "gpu_memory_utilization": int(1000 * VLLM_FREE_SHARE * free_share) / 1000,
        "disable_log_stats": True,
        "seed": 0,
    }
    if plan.gpus > 1:  # fused with flashinfer's all-reduce it would use NVLink multicast
        chosen["compilation_config"] = {"pass_config": {"fuse_allreduce_rms": False}}
    return chosen


def _positions(loaded: LoadedModel) -> int:
    config = loaded.model.config.get_text_config()
    return int(getattr(config, "max_position_embeddings", sys.maxsize))
