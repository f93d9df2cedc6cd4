"""Starting vLLM inside this process, beside a model that is already on the GPU.

vLLM is optional: whatever goes wrong between `import vllm` and a running engine becomes one
`VLLMNotAvailable` with its reason, and the memory that the attempt had taken is given back.

Our own weights are handed over through a temporary folder, so that vLLM's tokens can be compared
with ours; a plan with `dummy` hands over the config alone.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import importlib.metadata
import importlib.util
import os
import tempfile
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from engines.adapter import export
from engines.footprint import weight_bytes
from engines.models import first_line
from engines.precision import Settings, settings_here
from engines.vllm_plan import Plan, VLLMNotAvailable, arguments, check_room

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engines.models import LoadedModel

TESTED = "0.25.1"
VERSIONS = ">=0.25,<0.26"
"""Versions whose interface this was written for; another one is tried and named where it fails."""
ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # the engine's loop in this process: no hop per token
    "VLLM_WORKER_MULTIPROC_METHOD": "spawn",  # a fork of a process that uses CUDA cannot use it
    "VLLM_USE_FLASHINFER_SAMPLER": "0",  # compiles itself at start; greedy has nothing to sample
    "VLLM_ALLREDUCE_USE_SYMM_MEM": "0",  # NVLink multicast, which shared hosts forbid
    "VLLM_NO_USAGE_STATS": "1",
}


@dataclass(frozen=True)
class Started:
    """A running engine of vLLM and what is known about it."""

    engine: Any
    sampling: Any
    """The module `vllm.sampling_params`."""
    plan: Plan
    stream: Any
    start_s: float
    weights_bytes: int
    kv_bytes: int


def require_installed() -> None:
    """Raise VLLMNotAvailable where there is no vLLM, without importing it where there is."""
    if importlib.util.find_spec("vllm") is None:
        how = f'python -m pip install "vllm{VERSIONS}"'
        raise VLLMNotAvailable(f"vLLM is not installed: {how}")


def start(loaded: LoadedModel, plan: Plan) -> Started:
    """Start vLLM for this model; VLLMNotAvailable in one line where that cannot be."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    require_installed()
    module = _import()
    settings = settings_here(loaded.device)
    free, total = free_memory(plan.gpus)
    check_room(loaded, plan, settings, free)
    try:
        return _start(module, loaded, plan, settings, free / total)
    except Exception as error:  # vLLM raises whatever its many parts raise
        problem = f"{type(error).__name__}: {first_line(error)}"
    _give_memory_back()  # outside of the handler: its traceback would hold the memory
    raise VLLMNotAvailable(f"vLLM {_version()} (tested: {TESTED}) failed at start: {problem}")


def free_memory(gpus: int) -> tuple[int, int]:
    """Free and total bytes of the GPU that has least free, of the first `gpus`; 1, 1 on a CPU."""
    if not torch.cuda.is_available():
        return 1, 1
    if gpus > torch.cuda.device_count():
        raise VLLMNotAvailable(
            f"tensor parallel over {gpus} GPUs: torch sees {torch.cuda.device_count()} here"
        )
    torch.cuda.empty_cache()
    return min(torch.cuda.mem_get_info(index) for index in range(gpus))


def _start(
    module: Any, loaded: LoadedModel, plan: Plan, settings: Settings, free_share: float
) -> Started:
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="vllm-") as name, _restored_stream():
        folder = _model_folder(loaded, Path(name), dummy=plan.dummy)
        engine = _engine(
            module, arguments(loaded, plan, settings, folder, free_share=free_share), settings
        )
        return Started(
            engine=engine,
            sampling=importlib.import_module("vllm.sampling_params"),
            plan=plan,
            stream=torch.cuda.current_stream() if torch.cuda.is_available() else None,
            start_s=time.perf_counter() - began,
            weights_bytes=sum(engine.apply_model(weight_bytes)),
            kv_bytes=plan.kv_bytes(loaded),
        )


def _model_folder(loaded: LoadedModel, folder: Path, *, dummy: bool) -> Path:
    """Write what vLLM loads: our own weights as they are, or the config alone."""
    if not dummy:
        return export(loaded, folder)
    loaded.model.config.save_pretrained(folder)
    return folder


def _engine(module: Any, chosen: dict[str, Any], settings: Settings) -> Any:
    registry = importlib.import_module("vllm.v1.attention.backends.registry")
    backend = registry.AttentionBackendEnum[settings.vllm_backend]
    with _warnings_ignored():
        return module.LLMEngine.from_engine_args(
            module.EngineArgs(**chosen, attention_backend=backend)
        )


def _import() -> Any:
    try:
        with _warnings_ignored():
            return importlib.import_module("vllm")
    except Exception as error:  # a build for another CUDA fails in many ways
        raise VLLMNotAvailable(f"vLLM cannot be imported: {first_line(error)}") from None


@contextlib.contextmanager
def _warnings_ignored() -> Iterator[None]:
    """Somebody else's deprecations are no failure of a run in which warnings are errors."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextlib.contextmanager
def _restored_stream() -> Iterator[None]:
    """The engine makes a stream of its own the current one; our engines go on in theirs."""
    if not torch.cuda.is_available():
        yield
        return
    with torch.cuda.stream(torch.cuda.current_stream()):
        yield


def _version() -> str:
    try:
        return importlib.metadata.version("vllm")
    except importlib.metadata.PackageNotFoundError:
        return "of unknown version"


def _give_memory_back() -> None:
    gc.unfreeze()  # a starting engine hides all objects from the collector
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
