"""vLLM in this process as one more engine, the yardstick of the hand-written scheduler.

Decoding is greedy, the prefix cache is off, prompts and answers are token ids. `with_rows` gives
the same running engine a smaller batch: starting one takes half a minute or more, so a run starts
one engine for its largest batch.
"""

from __future__ import annotations

import copy
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import torch

from engines import cost
from engines.answer import warm_up_request
from engines.engine import Memory, OnToken, WarmUp
from engines.vllm_flights import Flights
from engines.vllm_plan import Plan, needs_dummy_weights
from engines.vllm_start import start

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engines.clock import Clock
    from engines.models import LoadedModel
    from engines.records import Completion, Request

OWN_RANDOM = "not applicable: random weights of vLLM's own, tokens cannot be compared"


class VLLM:
    """At most `batch_size` requests in flight; fp16; CUDA graphs unless `eager`."""

    name = "vllm"

    def __init__(
        self,
        loaded: LoadedModel,
        *,
        batch_size: int,
        max_tokens: int,
        clock: Clock,
        eager: bool = False,
        tensor_parallel: int = 1,
        dummy_weights: bool | None = None,
    ) -> None:
        dummy = needs_dummy_weights(loaded) if dummy_weights is None else dummy_weights
        if dummy and loaded.weights_kind == "trained":
            raise ValueError(f"{loaded.name} has trained weights: dummy_weights would replace them")
        parallel = f" tp:{tensor_parallel}" if tensor_parallel > 1 else ""
        self.name = ("vllm_eager" if eager else "vllm") + parallel
        self.loaded = loaded
        self.batch_size = batch_size
        self.max_tokens = max_tokens
        self.incomparable = OWN_RANDOM if dummy else None
        self._clock = clock
        self._started = start(loaded, Plan(batch_size, max_tokens, eager, tensor_parallel, dummy))

    def with_rows(self, batch_size: int) -> VLLM:
        """The same running engine with at most so many requests in flight."""
        most = self._started.plan.batch_size
        if not 1 <= batch_size <= most:
            raise ValueError(f"{batch_size} rows: this engine was started for 1 to {most}")
        view = copy.copy(self)
        view.batch_size = batch_size
        return view

    def warm_up(self, prompt_tokens: int, max_new_tokens: int) -> WarmUp:
        """Two runs of the timed shape; compilation and capture happened at start."""
        request = warm_up_request(self.loaded, prompt_tokens, max_new_tokens)
        began = self._clock.synchronized_s()
        for _ in range(2):
            self.run([request] * self.batch_size)
        total_s = self._started.start_s + self._clock.synchronized_s() - began
        return WarmUp(2, self._started.start_s, total_s, prompt_tokens, max_new_tokens)

    def run(self, requests: Sequence[Request], on_token: OnToken | None = None) -> list[Completion]:
        """Serve the requests in their order, each as soon as a row is free."""
        flights = Flights(self._started, self.batch_size, self.max_tokens, self._clock)
        stream = self._started.stream
        with nullcontext() if stream is None else torch.cuda.stream(stream):
            return flights.serve(requests, on_token)

    def bytes_per_step(self, context_tokens: int) -> int:
        """What each GPU reads in a step: its share of the weights, and of every row's KV."""
        whole = cost.decode_step_bytes(self.loaded.shape, context_tokens, self.batch_size, 2, 2)
        return -(-whole // self._started.plan.gpus)

    def memory(self) -> Memory:
        """Weights as vLLM holds them and its KV cache, over all GPUs."""
        return Memory(self._started.weights_bytes, self._started.kv_bytes)

    def close(self) -> None:
        """End its workers; no engine of vLLM in this process can be used afterwards."""
        self._started.engine.engine_core.shutdown()


class VLLMEager(VLLM):
    """The same without compilation and CUDA graphs: what they are worth."""

    def __init__(self, loaded: LoadedModel, **options: Any) -> None:
        super().__init__(loaded, eager=True, **options)
