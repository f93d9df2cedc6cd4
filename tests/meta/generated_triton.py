"""Triton code that torch's compiler generates for a decoder layer on a GPU that is not there.

`python -m tests.meta.generated_triton 7 5 40` takes the GPU's capability and multiprocessors.
Everything that would ask a driver is answered here, and the compiler is stopped before it would
load a kernel. The compiler keeps what it has asked, hence a process of its own.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from types import SimpleNamespace
from unittest import mock

HIDDEN, HEADS, HEAD_DIM, FFN, CONTEXT = 256, 4, 64, 768, 128


class Stop(BaseException):
    """The source is there: nothing more is wanted."""


def layer(x, k, v, allowed, norm, wq, wo, gate, up, down):
    """One row through a decoder layer, attention by plain reductions as compiled steps do."""
    import torch

    h = normed(x, norm)
    q = (h @ wq).view(HEADS, 1, HEAD_DIM)
    scores = (q.float() * k.float()).sum(-1) / HEAD_DIM**0.5
    shares = torch.softmax(scores + allowed, dim=-1)
    mixed = (shares.unsqueeze(-1) * v.float()).sum(1).half().view(1, HEADS * HEAD_DIM)
    x = x + mixed @ wo
    h = normed(x, norm)
    return (x + (torch.nn.functional.silu(h @ gate) * (h @ up)) @ down,)


def normed(x, norm):
    """RMSNorm in fp32."""
    import torch

    h = x.float()
    return (h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6)).half() * norm


def pretend(stack: ExitStack, capability: tuple[int, int], multiprocessors: int) -> None:
    """Answer as a driver of such a GPU would."""
    import torch
    import triton
    from triton.backends.compiler import GPUTarget

    card = SimpleNamespace(
        name="not there",
        major=capability[0],
        minor=capability[1],
        multi_processor_count=multiprocessors,
        total_memory=16 * 10**9,
        warp_size=32,
        regs_per_multiprocessor=65_536,
        max_threads_per_multi_processor=1024,
        max_threads_per_block=1024,
        shared_memory_per_block=49_152,
        shared_memory_per_block_optin=65_536,
        L2_cache_size=4_194_304,
        uuid="none",
    )
    answers = {
        "is_available": True,
        "get_device_properties": card,
        "get_device_capability": capability,
        "current_device": 0,
        "device_count": 1,
        "get_rng_state": torch.empty(16, dtype=torch.uint8),
        "set_rng_state": None,
        "synchronize": None,
        "_lazy_init": None,
        "_exchange_device": 0,
        "_maybe_exchange_device": 0,
    }
    for name, answer in answers.items():
        stack.enter_context(mock.patch(f"torch.cuda.{name}", lambda *_, _a=answer: _a))
    stack.enter_context(mock.patch("torch.version.cuda", "13.0"))
    stack.enter_context(mock.patch("torch.utils._triton.has_triton", return_value=True))
    raw_stream = "torch._C._cuda_getCurrentRawStream"
    stack.enter_context(mock.patch(raw_stream, return_value=0, create=True))
    target = GPUTarget("cuda", 10 * capability[0] + capability[1], 32)
    driver = SimpleNamespace(
        get_current_target=lambda: target,
        get_current_device=lambda: 0,
        get_current_stream=lambda _device: 0,
    )
    triton.runtime.driver.set_active(driver)


def generated(capability: tuple[int, int], multiprocessors: int) -> str:
    """Source of the compiled layer with the options that are chosen for this GPU."""
    import torch

    from engines.precision import choose

    chosen = dict(choose(capability, 16 * 10**9, multiprocessors).compile_options)
    with ExitStack() as stack:
        pretend(stack, capability, multiprocessors)
        import torch._inductor.config
        from torch._inductor.compile_fx import compile_fx_inner
        from torch._inductor.decomposition import select_decomp_table
        from torch._inductor.graph import GraphLowering
        from torch._subclasses import FakeTensorMode
        from torch.fx.experimental.proxy_tensor import make_fx

        found: list[str] = []
        generate = GraphLowering.codegen

        def codegen(self):
            found.append(str(getattr(generate(self)[0], "value", "")))
            raise Stop

        stack.enter_context(mock.patch.object(GraphLowering, "codegen", codegen))
        stack.enter_context(torch._inductor.config.patch(chosen))
        stack.enter_context(FakeTensorMode())
        operands = _operands()
        graph = make_fx(layer, decomposition_table=select_decomp_table())(*operands)
        try:
            compile_fx_inner(graph, operands)
        except Stop:
            return found[0]
    raise RuntimeError("the compiler ended before it had generated anything")


def _operands():
    import torch

    def half(*size):
        return torch.empty(*size, device="cuda", dtype=torch.float16)

    cache = (HEADS, CONTEXT, HEAD_DIM)
    inner = HEADS * HEAD_DIM
    allowed = torch.empty(1, CONTEXT, device="cuda")
    weights = [(HIDDEN, inner), (inner, HIDDEN), (HIDDEN, FFN), (HIDDEN, FFN), (FFN, HIDDEN)]
    row, keys, values = half(1, HIDDEN), half(*cache), half(*cache)
    return [row, keys, values, allowed, half(HIDDEN), *(half(*w) for w in weights)]


if __name__ == "__main__":
    major, minor, count = map(int, sys.argv[1:])
    print(generated((major, minor), count))  # noqa: T201 - a command prints
