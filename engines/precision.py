"""Every choice that depends on the device, made in one place from capability and memory alone.

The chapter's card is a T4 (sm_75): no native bfloat16, although torch answers that it is supported
because it can emulate it; no flash attention, and grouped-query SDPA falls back to the slow MATH
kernel there, so keys and values are expanded first; Triton has no fp16 `tl.dot`; autotuned GEMM
templates want 68 multiprocessors and a T4 has 40. Compiled decode steps attend by plain reductions,
which any of them can do. `choose` is pure: tests call it with devices that are not there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

Capability = tuple[int, int]

FLASH_NEEDS: Capability = (8, 0)
BF16_NEEDS: Capability = (8, 0)
TRITON_FP16_DOT_NEEDS: Capability = (8, 0)
AUTOTUNED_GEMM_MULTIPROCESSORS = 68
CPU_OPTIONS = (("cpp.vec_isa_ok", True),)
"""The vector instructions that the CPU reports are taken as usable: without this the compiler
builds and loads a program of its own for each, 8 to 15 s of a first compilation on two cores. The
environment variable TORCHINDUCTOR_VEC_ISA_OK=1 is the same switch."""
WEIGHT_SHARE = 0.85
"""Share of the device's memory that weights may take."""
KEPT_ENGINES_SHARE = 0.05
"""Share of the device's memory that engines waiting for their next test may hold."""
VLLM_NEEDS: Capability = (7, 5)
"""Wheels for CUDA 13 carry no code for anything older."""
VLLM_FREE_SHARE = 0.9
"""Share of what is free beside our engines that vLLM may take."""
VLLM_WORKSPACE_SHARE = 0.08
VLLM_MOST_WORKSPACE_BYTES = 2_000_000_000


@dataclass(frozen=True, slots=True)
class Settings:
    """What to run with on one device. `compile_options` are those of `torch.compile`."""

    dtype: Literal["float32", "float16"]
    native_bf16: bool
    attention: Literal["sdpa", "sdpa_expanded"]
    flash_attention: bool
    triton_fp16_dot: bool
    decode_attention: Literal["sdpa", "sdpa_expanded", "reductions"]
    compile_options: tuple[tuple[str, bool], ...]
    batched_compile_options: tuple[tuple[str, bool], ...]
    """The same for a step of several rows, whose products are no longer matrix times vector."""
    vllm_dtype: Literal["half"] | None
    vllm_backend: Literal["FLASH_ATTN", "TRITON_ATTN"] | None
    memory_bytes: int

    @property
    def untuned_options(self) -> tuple[tuple[str, bool], ...]:
        """Compile options that try nothing out: what both lists have and a GPU has not."""
        return CPU_OPTIONS if self.dtype == "float32" else ()

    @property
    def weight_budget_bytes(self) -> int:
        """What weights may take; the rest is for KV, workspace and context."""
        return int(self.memory_bytes * WEIGHT_SHARE)

    @property
    def kept_engine_bytes(self) -> int:
        """KV stores and weights of their own that engines may keep between tests: 0.8 GB of 16."""
        return int(self.memory_bytes * KEPT_ENGINES_SHARE)

    @property
    def vllm_workspace_bytes(self) -> int:
        """Activations, CUDA graphs and libraries of vLLM, beside its weights and KV."""
        return min(int(self.memory_bytes * VLLM_WORKSPACE_SHARE), VLLM_MOST_WORKSPACE_BYTES)


def choose(
    capability: Capability | None, memory_bytes: int, multiprocessors: int | None = None
) -> Settings:
    """Settings for a device; capability None is a CPU. Unknown multiprocessors count as enough."""
    if capability is None:
        return _on_cpu(memory_bytes)
    flash = capability >= FLASH_NEEDS
    many = multiprocessors is None or multiprocessors >= AUTOTUNED_GEMM_MULTIPROCESSORS
    autotune = many and capability >= TRITON_FP16_DOT_NEEDS  # its templates are `tl.dot` in fp16
    return Settings(
        dtype="float16",
        native_bf16=capability >= BF16_NEEDS,
        attention="sdpa" if flash else "sdpa_expanded",
        flash_attention=flash,
        triton_fp16_dot=capability >= TRITON_FP16_DOT_NEEDS,
        decode_attention="reductions",
        compile_options=_compile_options(autotune),
        batched_compile_options=(("max_autotune", True),) if autotune else (),
        vllm_dtype="half" if capability >= VLLM_NEEDS else None,
        vllm_backend=_vllm_backend(capability),
        memory_bytes=memory_bytes,
    )


def _vllm_backend(capability: Capability) -> Literal["FLASH_ATTN", "TRITON_ATTN"] | None:
    """Flash attention needs sm_80, and so does FlashInfer in vLLM 0.25; Triton's is left."""
    if capability < VLLM_NEEDS:
        return None
    return "FLASH_ATTN" if capability >= FLASH_NEEDS else "TRITON_ATTN"


def _on_cpu(memory_bytes: int) -> Settings:
    """float32: half precision is slower there and not better."""
    return Settings(
        dtype="float32",
        native_bf16=False,
        attention="sdpa",
        flash_attention=False,
        triton_fp16_dot=False,
        decode_attention="sdpa",
        compile_options=CPU_OPTIONS,
        batched_compile_options=CPU_OPTIONS,
        vllm_dtype=None,
        vllm_backend=None,
        memory_bytes=memory_bytes,
    )


def _compile_options(autotuned_gemm: bool) -> tuple[tuple[str, bool], ...]:
    """For one row: without one of these its products are left to a general GEMM kernel.

    With several rows the products are templates that `max_autotune` picks, and coordinate descent
    would only try, one compilation after the other, what the other kernels hardly gain from.
    """
    tuned = (("coordinate_descent_tuning", True),)
    return (("max_autotune", True), *tuned) if autotuned_gemm else tuned


def settings_here(device: str) -> Settings:
    """`choose` for the device of this process."""
    if device == "cuda":
        properties = torch.cuda.get_device_properties(torch.cuda.current_device())
        return choose(
            (properties.major, properties.minor),
            properties.total_memory,
            properties.multi_processor_count,
        )
    import psutil

    return choose(None, psutil.virtual_memory().total)


def has_native_bf16(capability: Capability) -> bool:
    """Whether the hardware computes in bfloat16; `is_bf16_supported` of torch counts emulation."""
    return capability >= BF16_NEEDS
