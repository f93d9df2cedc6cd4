"""The Triton kernels of the fused steps, compiled to machine code for a GPU that is not there.

`python -m tests.meta.kernels_compiled 7 5` prints for each kernel that a step launches on a GPU of
that capability how much shared memory [bytes] a program of it takes. The types, the alignment and
the constants are those of the steps, with Qwen3-0.6B's rows; nothing is launched. A third argument
of 1 asks for dependent launch.
"""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack
from typing import Any
from unittest import mock

from tests.meta.generated_triton import pretend

GPUS = {(7, 5): (40, 64 << 10), (8, 0): (108, 163 << 10), (9, 0): (132, 227 << 10)}
"""T4, A100, H200: multiprocessors, and shared memory [bytes] that a program may have there."""
QWEN = {
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "num_hidden_layers": 1,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
}
CAPACITY = 1024
BATCHED_FROM = (8, 0)


def main() -> None:
    """Compile everything for the capability of the command line."""
    major, minor, dependent_launch = (int(number) for number in sys.argv[1:])
    capability = (major, minor)
    multiprocessors, shared_bytes = GPUS[capability]
    found: dict[str, int] = {}
    with ExitStack() as stack:
        pretend(stack, capability, multiprocessors)
        _compile_only(stack, found)
        _single_row(dependent_launch=bool(dependent_launch))
        if capability >= BATCHED_FROM:
            _many_rows(stack, shared_bytes)
    sys.stdout.write(json.dumps(found))


def _compile_only(stack: ExitStack, found: dict[str, int]) -> None:
    """From now on a launch compiles, and is noted under its kernel's name."""
    from triton.runtime.jit import JITFunction

    run = JITFunction.run

    def compiled(self: Any, *args: Any, warmup: bool, **options: Any) -> None:
        kernel = run(self, *args, warmup=True, **options)
        if not kernel.asm["cubin"]:
            raise RuntimeError(f"no machine code of {self.__name__}")
        part = self.__module__.removeprefix("engines.")
        name = f"{part}.{self.__name__} {options.get('ENCODING', '')}".strip()
        found[name] = max(found.get(name, 0), kernel.metadata.shared)

    stack.enter_context(mock.patch.object(JITFunction, "run", compiled))


def _state(loaded: Any, rows: int) -> Any:
    import torch

    from engines.decode_state import DecodeState

    state = DecodeState(loaded.model, rows, CAPACITY)
    with torch.no_grad():
        state.allocate()
    return state


def _single_row(*, dependent_launch: bool) -> None:
    """A step of each format, and one of a model whose queries and keys are not normed."""
    from engines import fused_step
    from engines.fused_formats import FORMATS, with_weight_only
    from tests.meta.fused_models import fused_model

    plain = fused_model("qwen3", dtype="float16", **QWEN)
    llama = fused_model("llama", dtype="float16", **QWEN)
    for loaded in (plain, llama, *(with_weight_only(plain, method) for method in FORMATS)):
        step = fused_step.FusedStep(_state(loaded, 1), dependent_launch=dependent_launch)
        step.rows = fused_step.ROWS
        step()


def _many_rows(stack: ExitStack, shared_bytes: int) -> None:
    """A bucket of each way to cut a step, where no two rows share a slot and where some do."""
    from engines import batched_buffers
    from engines.batched_step import BatchedStep, Bucket
    from engines.batched_tiles import ON_A_GPU
    from tests.meta.fused_models import fused_model

    known = mock.patch.object(batched_buffers, "shared_bytes", return_value=shared_bytes)
    stack.enter_context(known)
    state = _state(fused_model("qwen3", dtype="float16", **QWEN), 64)
    step = BatchedStep(state, 512, cuts=ON_A_GPU)
    for rows in (1, 16, 64):
        step(Bucket(rows, rows, apart=True))
        step(Bucket(rows, rows, apart=False))
    step(Bucket(512, 64, apart=False))


if __name__ == "__main__":
    main()
