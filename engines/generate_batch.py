"""transformers' own continuous batching (`generate_batch`) as a peer of the hand-written scheduler.

It pages its KV cache, packs prefill and decode into one ragged forward, and runs in a thread of its
own; tokens carry the host time at which that thread had them. Without flash attention it uses SDPA
and no CUDA graphs. Its cache cannot be updated inside `torch.inference_mode()`, so that is left.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from transformers import ContinuousBatchingConfig, GenerationConfig

from engines.answer import too_long, warm_up_request
from engines.engine import Memory, OnToken, RequestRejected, WarmUp
from engines.flights import NO_STOP, Flights
from engines.held_bytes import held_bytes, step_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engines.clock import Clock
    from engines.models import LoadedModel
    from engines.records import Completion, Request

PAGE_TOKENS = 256
PACKED_TOKENS = 1024


class GenerateBatch:
    """At most `batch_size` requests in flight; a new one is handed in when one has finished."""

    name = "generate_batch"

    def __init__(
        self, loaded: LoadedModel, *, batch_size: int, max_tokens: int, clock: Clock
    ) -> None:
        self.loaded = loaded
        self.batch_size = batch_size
        self.max_tokens = max_tokens
        self.clock = clock
        self._kv_bytes = 0

    def warm_up(self, prompt_tokens: int, max_new_tokens: int) -> WarmUp:
        """One run of the timed shape on all rows."""
        request = warm_up_request(self.loaded, prompt_tokens, max_new_tokens)
        if reason := too_long(request, self.max_tokens):
            raise RequestRejected(reason)
        start = self.clock.synchronized_s()
        self.run([request] * self.batch_size)
        total_s = self.clock.synchronized_s() - start
        return WarmUp(1, 0.0, total_s, prompt_tokens, max_new_tokens)

    def run(self, requests: Sequence[Request], on_token: OnToken | None = None) -> list[Completion]:
        """Serve the requests; the manager and its cache are made before the first one is sent."""
        if not requests:
            return []
        with torch.inference_mode(False), torch.no_grad(), self._manager() as manager:
            flights = Flights(self, manager, requests, on_token)
            flights.land_all()
            self._kv_bytes = _cache_bytes(manager)
        return [flights.done[index] for index in range(len(requests))]

    def bytes_per_step(self, context_tokens: int) -> int:
        """Weights once for all rows, and every row's keys and values so far."""
        return step_bytes(self.loaded, context_tokens, self.batch_size)

    def memory(self) -> Memory:
        """Weights as loaded, and the paged cache of the last run."""
        return Memory(held_bytes(self.loaded.model).total, self._kv_bytes)

    def _manager(self) -> Any:
        pages = -(-self.max_tokens // PAGE_TOKENS)
        return self.loaded.model.continuous_batching_context_manager(
            generation_config=GenerationConfig(
                do_sample=False, eos_token_id=NO_STOP, pad_token_id=0, max_new_tokens=1
            ),
            continuous_batching_config=ContinuousBatchingConfig(
                # One page more per row than its longest request, so that nobody is evicted.
                num_blocks=self.batch_size * (pages + 1),
                # Several prompts share a forward, which eagerly takes as long as one of them.
                max_batch_tokens=max(self.max_tokens, PACKED_TOKENS) + self.batch_size,
                allow_block_sharing=False,
            ),
            block=True,
            timeout=5,
        )


def _cache_bytes(manager: Any) -> int:
    """Bytes of the paged keys and values; 0 where this version of transformers hides them."""
    cache: Any = getattr(manager.batch_processor, "cache", None)
    tensors = [*getattr(cache, "key_cache", []), *getattr(cache, "value_cache", [])]
    if hasattr(cache, "cache_tensor"):  # newer versions keep all layers in one allocation
        tensors.append(cache.cache_tensor)
    return sum(t.numel() * t.element_size() for t in tensors)
