"""The static engine with one compiled decode step, captured in one CUDA graph where there is CUDA.

Two costs hide behind a slow token. The host needs longer to launch hundreds of kernels than the
device needs to run them: one graph replay launches them all. And each kernel writes its result to
memory for the next one to read: the compiler fuses them, and with `coordinate_descent_tuning` or
`max_autotune` it also writes the matrix-vector products itself, for which the library's kernels,
made for many rows, are slow. The default compile settings do neither.

Whoever runs this engine without warming it up pays for compilation inside the first request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from engines.attention import using_attention
from engines.captured_step import captured
from engines.precision import settings_here
from engines.static_kv import StaticKV

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

RECOMPILE_LIMIT = 256
"""Each engine compiles the same code for its own shape; the default allows eight of them."""


class Compiled(StaticKV):
    """`backend` and `options` go to `torch.compile`; the defaults are the device's best known."""

    name = "compiled"

    def __init__(
        self,
        *args: Any,
        backend: str = "inductor",
        options: Mapping[str, Any] | None = None,
        attention: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        settings = settings_here(self.loaded.device)
        self.backend = backend
        self.options = dict(settings.compile_options if options is None else options)
        self.attention = attention or settings.decode_attention

    def _build_step(self) -> Callable[[], None]:
        compiled = torch.compile(
            self.state.decode_one_token,
            backend=self.backend,
            fullgraph=True,
            dynamic=False,
            options=self.options if self.backend == "inductor" else None,
        )

        def step() -> None:
            with using_attention(self.loaded.model, self.attention):
                compiled()

        with torch._dynamo.config.patch(recompile_limit=RECOMPILE_LIMIT):
            step()
            return captured(step) if self.loaded.device == "cuda" else step
