"""Static batching: wait until B requests are there, run them together to the longest, start over.

Prefill, decode step and KV store are those of `continuous.py`. The only difference is who may enter
and when, so a measured difference between the two is a difference of scheduling and nothing else:
a row that is done keeps its slot idle until the longest row of its batch is done too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engines.continuous import Continuous

if TYPE_CHECKING:
    from engines.answer import Answer


class StaticBatch(Continuous):
    """B rows enter together, and nobody else until all of them are done."""

    name = "static_batch"
    _seats = 0

    def _next(self) -> Answer | None:
        if not self._seats and not self.running and self._is_complete():
            self._seats = min(self.batch_size, len(self.waiting))
        if not self._seats:
            return None
        self._seats -= 1
        return self.waiting.popleft()

    def _is_complete(self) -> bool:
        """B requests are waiting, or the last ones are and no more will come."""
        return len(self.waiting) >= self.batch_size or not self.due
