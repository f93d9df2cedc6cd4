"""The deliberately bad baseline: transformers' own `generate()`, one request at a time.

The chapter starts from what everyone tries first. Per token it runs a Python loop over all
layers, launches hundreds of small kernels, grows the KV cache by copying it, and waits for the
host. Nothing here makes that better or worse: one stopping criterion, which `generate` calls after
every step, is the only thing added, and it reads the new tokens the way a streaming server would.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from transformers import StoppingCriteria

from engines.answer import Answer, serve_in_groups, too_long, warm_up_request
from engines.engine import Memory, OnToken, RequestRejected, WarmUp
from engines.footprint import cache_bytes, decode_step_bytes, weight_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engines.clock import Clock
    from engines.models import LoadedModel
    from engines.records import Completion, Request

PAD_ID = 0
"""What stands left of a shorter prompt; masked, so any id of the vocabulary would do."""


class EveryToken(StoppingCriteria):  # type: ignore[misc]  # transformers is untyped
    """Hands each step's tokens to the answers, and tells `generate` which rows are complete."""

    def __init__(self, answers: Sequence[Answer], clock: Clock, on_token: OnToken | None) -> None:
        self.answers = answers
        self.clock = clock
        self.on_token = on_token

    def __call__(self, input_ids: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
        """Ids so far, [B, S]; which rows are complete, [B]."""
        tokens = input_ids[:, -1].tolist()  # the host waits here: the token is known from now on
        now = self.clock.now_s()
        wanted = [
            answer.accept(token, now, self.on_token)
            for answer, token in zip(self.answers, tokens, strict=True)
        ]
        return torch.tensor([not more for more in wanted], device=input_ids.device)


class Naive:
    """`generate` with greedy decoding; groups of `batch_size` requests are padded on the left."""

    name = "naive"

    def __init__(
        self, loaded: LoadedModel, *, batch_size: int, max_tokens: int, clock: Clock
    ) -> None:
        self.loaded = loaded
        self.batch_size = batch_size
        self.max_tokens = max_tokens
        self.clock = clock
        self._kv_bytes = 0

    def warm_up(self, prompt_tokens: int, max_new_tokens: int) -> WarmUp:
        """Two runs of the timed shape: allocation, kernel selection and lazy loading are over."""
        request = warm_up_request(self.loaded, prompt_tokens, max_new_tokens)
        if reason := too_long(request, self.max_tokens):
            raise RequestRejected(reason)
        start = self.clock.synchronized_s()
        for _ in range(2):
            self.run([request] * self.batch_size)
        total_s = self.clock.synchronized_s() - start
        return WarmUp(2, 0.0, total_s, prompt_tokens, max_new_tokens)

    def run(self, requests: Sequence[Request], on_token: OnToken | None = None) -> list[Completion]:
        """Group after group; `sent_s` is when a request's own group was started."""
        return serve_in_groups(
            requests,
            size=self.batch_size,
            capacity=self.max_tokens,
            clock=self.clock,
            serve=lambda answers: self._generate(answers, on_token),
        )

    def bytes_per_step(self, context_tokens: int) -> int:
        """Weights once, and every row's keys and values so far."""
        return decode_step_bytes(self.loaded, context_tokens, self.batch_size)

    def memory(self) -> Memory:
        """The cache is that of the last group, which `generate` has dropped since."""
        return Memory(weight_bytes(self.loaded.model), self._kv_bytes)

    def _generate(self, answers: list[Answer], on_token: OnToken | None) -> None:
        ids, mask = _padded([a.request.prompt_ids for a in answers], self.loaded.model.device)
        result = self.loaded.model.generate(
            input_ids=ids,
            attention_mask=mask,
            max_new_tokens=max(a.request.max_new_tokens for a in answers),
            stopping_criteria=[EveryToken(answers, self.clock, on_token)],
            return_dict_in_generate=True,
            # Plain greedy decoding of a forced length, whatever the model's own defaults are.
            do_sample=False,
            eos_token_id=None,
            pad_token_id=PAD_ID,
            repetition_penalty=1.0,
            temperature=None,
            top_k=None,
            top_p=None,
        )
        cache = result.get("cache", None) or result.get("past_key_values", None)
        self._kv_bytes = cache_bytes(cache) if cache is not None else 0


def _padded(
    prompts: Sequence[Sequence[int]], device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids and mask [B, S], shorter prompts filled up on the left; positions follow the mask."""
    longest = max(len(prompt) for prompt in prompts)
    fill = [longest - len(prompt) for prompt in prompts]
    ids = [[PAD_ID] * n + list(prompt) for n, prompt in zip(fill, prompts, strict=True)]
    mask = [[0] * n + [1] * (longest - n) for n in fill]
    return torch.tensor(ids, device=device), torch.tensor(mask, device=device)
