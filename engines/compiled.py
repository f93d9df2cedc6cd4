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

from engines.captured_step import build_step
from engines.static_kv import StaticKV

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from engines.captured_step import CompiledUnit, StepKind


class Compiled(StaticKV):
    """`backend` to `tuned_batches` are those of `captured_step.compiled`.

    A backend such as `aot_eager` generates no code: slower steps, but ready in a tenth of the time.
    """

    name = "compiled"

    def __init__(
        self,
        *args: Any,
        backend: str = "inductor",
        options: Mapping[str, Any] | None = None,
        attention: str | None = None,
        unit: CompiledUnit = "layer",
        tuned_batches: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self._compiler: dict[str, Any] = {
            "backend": backend,
            "options": options,
            "attention": attention,
            "unit": unit,
            "tuned_batches": tuned_batches,
        }

    def _build_step(self) -> Callable[[], None]:
        kind: StepKind = "compiled_graph" if self.loaded.device == "cuda" else "compiled"
        return build_step(kind, self.state, self.loaded, **self._compiler)
