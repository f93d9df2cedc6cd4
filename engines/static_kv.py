"""A preallocated KV cache: the same step on the same addresses, token after token.

`prefill` runs the prompts once; `decode_one_token` then does everything a token needs on the
device, embedding to argmax, and writes the result where the next step reads it. The host launches
a step, marks its end on the clock and launches the next; it reads the tokens once, at the end. Only
a caller who wants every token at once (`on_token`, `stop_ids`) makes it wait in each step.

Attention reads the whole preallocated length, so `max_cache_len` is part of a step's bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from engines.answer import serve_in_groups, too_long, warm_up_request
from engines.decode_state import DecodeState
from engines.engine import Memory, OnToken, RequestRejected, WarmUp
from engines.footprint import decode_step_bytes, weight_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from engines.answer import Answer
    from engines.clock import Clock, Stamp
    from engines.models import LoadedModel
    from engines.records import Completion, Request


class StaticKV:
    """Static batches of `batch_size` requests over a preallocated cache, every step eager."""

    name = "static_kv"

    def __init__(
        self,
        loaded: LoadedModel,
        *,
        batch_size: int,
        max_tokens: int,
        clock: Clock,
        max_cache_len: int | None = None,
    ) -> None:
        self.loaded = loaded
        self.batch_size = batch_size
        self.capacity = max_cache_len or max_tokens
        self.clock = clock
        self.state = DecodeState(loaded.model, batch_size, self.capacity)
        self._step: Callable[[], None] | None = None
        self._built_in_s = 0.0

    def warm_up(self, prompt_tokens: int, max_new_tokens: int) -> WarmUp:
        """Build the step, then run the timed shape twice.

        What building took is reported also where the step had been built by an earlier request.
        """
        request = warm_up_request(self.loaded, prompt_tokens, max_new_tokens)
        if reason := too_long(request, self.capacity):
            raise RequestRejected(reason)
        with torch.no_grad():
            self._make_ready()
        start = self.clock.synchronized_s()
        for _ in range(2):
            self.run([request] * self.batch_size)
        total_s = self._built_in_s + self.clock.synchronized_s() - start
        return WarmUp(2, self._built_in_s, total_s, prompt_tokens, max_new_tokens)

    def run(self, requests: Sequence[Request], on_token: OnToken | None = None) -> list[Completion]:
        """Group after group; `sent_s` is when a request's own group was started.

        Token times are those at which the device had the token, or, where `on_token` or `stop_ids`
        make the host read every one, those at which the host knew it.
        """

        def serve(answers: list[Answer]) -> None:
            with torch.no_grad():
                self._make_ready()
                watched = on_token is not None or any(a.request.stop_ids for a in answers)
                first = self._prefill(answers)
                if watched:
                    self._decode_watched(answers, on_token)
                else:
                    self._decode(answers, first)

        return serve_in_groups(
            requests, size=self.batch_size, capacity=self.capacity, clock=self.clock, serve=serve
        )

    def bytes_per_step(self, context_tokens: int) -> int:
        """Weights once, and the whole preallocated KV of every row, however full it is."""
        length = max(context_tokens, self.capacity)
        return decode_step_bytes(self.loaded, length, self.batch_size)

    def memory(self) -> Memory:
        """The cache is allocated by the first run and kept."""
        return Memory(weight_bytes(self.loaded.model), self.state.cache.allocated_bytes())

    def step(self) -> None:
        """One decode step of all rows, as this engine runs it; idle rows are left alone."""
        self._make_ready()
        assert self._step is not None
        self._step()

    def _make_ready(self) -> None:
        """Allocate and build once, on idle rows so that nothing moves."""
        if self._step is not None:
            return
        self.state.allocate()
        start = self.clock.synchronized_s()
        self._step = self._build_step()
        self._built_in_s = self.clock.synchronized_s() - start

    def _build_step(self) -> Callable[[], None]:
        return self.state.decode_one_token

    def _prefill(self, answers: list[Answer]) -> list[Stamp]:
        """Prompts of one length share a forward; the stamp of each row's first token."""
        self.state.clear()
        rows_by_length: dict[int, list[int]] = {}
        for row, answer in enumerate(answers):
            rows_by_length.setdefault(len(answer.request.prompt_ids), []).append(row)
        stamps: dict[int, Stamp] = {}
        for rows in rows_by_length.values():
            prompts = [answers[row].request.prompt_ids for row in rows]
            self.state.prefill(torch.tensor(prompts, device=self.loaded.model.device), rows)
            stamps.update(dict.fromkeys(rows, self.clock.stamp()))
        return [stamps[row] for row in range(len(answers))]

    def _decode(self, answers: list[Answer], first: list[Stamp]) -> None:
        """Forced lengths: queue all steps, read all tokens at the end."""
        wanted = [answer.request.max_new_tokens for answer in answers]
        stamps: list[Stamp] = []
        for known in range(1, max(wanted)):
            self.state.retire([row for row, n in enumerate(wanted) if n == known])
            self.step()
            stamps.append(self.clock.stamp())
        history = self.state.history.tolist()
        for row, answer in enumerate(answers):
            start = len(answer.request.prompt_ids)
            tokens = history[row][start : start + wanted[row]]
            for token, stamp in zip(tokens, [first[row], *stamps], strict=False):
                answer.accept(token, stamp)

    def _decode_watched(self, answers: list[Answer], on_token: OnToken | None) -> None:
        """The host reads every token, and may end a row at any of them."""
        running = list(range(len(answers)))
        while True:
            tokens, now = self.state.tokens.tolist(), self.clock.now_s()
            going = [row for row in running if answers[row].accept(tokens[row], now, on_token)]
            self.state.retire([row for row in running if row not in going])
            running = going
            if not running:
                return
            self.step()
