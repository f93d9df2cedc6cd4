"""The requests of one `generate_batch` run: due, in flight, done.

The manager of transformers takes requests at any time and hands results back through a queue. Here
at most `batch_size` of them are in flight, so that the engine is comparable with one of B slots.
"""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Any

from engines.answer import rejected, too_long
from engines.engine import ClientGone, OnToken
from engines.records import Completion, Request

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engines.generate_batch import GenerateBatch

NO_STOP = -1
"""A token id that no model generates."""
WAIT_S = 0.05


class Flights:
    """The requests of one run: due, in flight, done."""

    def __init__(
        self,
        engine: GenerateBatch,
        manager: Any,
        requests: Sequence[Request],
        on_token: OnToken | None,
    ) -> None:
        self.engine = engine
        self.manager = manager
        self.on_token = on_token
        self.due = deque(sorted(enumerate(requests), key=lambda item: item[1].scheduled_s))
        self.aloft: dict[str, tuple[int, Request, float]] = {}
        self.heard: dict[str, int] = {}
        self.done: dict[int, Completion] = {}
        self.host_to_clock_s = engine.clock.now_s() - time.perf_counter()

    def land_all(self) -> None:
        """Until every request has its completion."""
        while self.due or self.aloft:
            self._send_due()
            result = self.manager.get_result(timeout=WAIT_S)
            if result is not None and result.request_id in self.aloft:
                self._hear(result)
            elif result is None and self.aloft and not self.manager.is_running():
                raise RuntimeError(
                    f"generate_batch stopped with {len(self.aloft)} requests in flight: "
                    "leave the engine generate_batch out on this device"
                )

    def _send_due(self) -> None:
        while self.due and len(self.aloft) < self.engine.batch_size:
            index, request = self.due[0]
            now = self.engine.clock.now_s()
            if request.scheduled_s > now:
                return
            self.due.popleft()
            if reason := too_long(request, self.engine.max_tokens):
                self.done[index] = rejected(request, reason, now)
            else:
                self._send(index, request, now)

    def _send(self, index: int, request: Request, now: float) -> None:
        key = str(index)
        self.aloft[key] = (index, request, now)
        self.manager.add_request(
            list(request.prompt_ids),
            request_id=key,
            max_new_tokens=request.max_new_tokens,
            streaming=self.on_token is not None,
            record_timestamps=True,
            eos_token_id=sorted(request.stop_ids) or NO_STOP,
        )

    def _hear(self, result: Any) -> None:
        """Tokens of one request so far; the request is over when it is finished or unwanted."""
        wanted = self._tell(result)
        if not wanted:
            self.manager.cancel_request(result.request_id)
        if result.is_finished() or not wanted:
            index, request, sent_s = self.aloft.pop(result.request_id)
            self.done[index] = self._completion(request, sent_s, result, wanted=wanted)

    def _tell(self, result: Any) -> bool:
        if self.on_token is None:
            return True
        request = self.aloft[result.request_id][1]
        first = self.heard.get(result.request_id, 0)
        self.heard[result.request_id] = len(result.generated_tokens)
        try:
            for token in result.generated_tokens[first:]:
                self.on_token(request, token)
        except ClientGone:
            return False
        return True

    def _completion(
        self, request: Request, sent_s: float, result: Any, *, wanted: bool
    ) -> Completion:
        tokens = tuple(result.generated_tokens)
        stopped = bool(tokens) and tokens[-1] in request.stop_ids
        reason: Any = "error" if result.error else "stop" if stopped else "length"
        return Completion(
            request=request,
            sent_s=sent_s,
            token_s=tuple(self.host_to_clock_s + stamp for stamp in result.timestamps),
            token_ids=tokens,
            finish_reason=reason if wanted else "cancelled",
            error=result.error,
        )
