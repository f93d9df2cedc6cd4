"""A `vllm` package without vLLM: the calls of version 0.25.1 that the engine makes, scripted.

Its tokens are those of the model it is given, one forward a step, so that everything around it can
run on a CPU. As the real one with asynchronous scheduling does, a step may return nothing at first.
"""

from __future__ import annotations

import importlib
import sys
from dataclasses import dataclass, field
from enum import Enum
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

T4 = ((7, 5), 16 * 10**9, 40)
ATTENTION = "vllm.v1.attention.backends.registry"


class RequestOutputKind(Enum):
    """How outputs are told."""

    CUMULATIVE = 0
    DELTA = 1


@dataclass
class SamplingParams:
    """The keywords that the engine gives."""

    temperature: float
    max_tokens: int
    ignore_eos: bool
    stop_token_ids: list[int]
    detokenize: bool
    output_kind: RequestOutputKind


@dataclass
class Row:
    """A request inside."""

    prompt_ids: list[int]
    params: SamplingParams
    given: list[int] = field(default_factory=list)


class LLMEngine:
    """`step` gives one token to every row that is running."""

    def __init__(self, arguments: dict[str, Any], next_token: Callable[[list[int]], int], model):
        self.arguments = arguments
        self.rows: dict[str, Row] = {}
        self.most_rows = 0
        self.steps = 0
        self.closed = False
        self.engine_core = SimpleNamespace(shutdown=self._shutdown)
        self._next_token = next_token
        self._model = model

    def add_request(self, request_id: str, prompt: dict[str, Any], params: SamplingParams) -> str:
        assert prompt["type"] == "token"
        assert params.ignore_eos
        assert not params.detokenize
        assert params.output_kind is RequestOutputKind.DELTA
        ids = prompt["prompt_token_ids"]
        assert len(ids) + params.max_tokens <= self.arguments["max_model_len"]
        self.rows[request_id] = Row(ids, params)
        self.most_rows = max(self.most_rows, len(self.rows))
        return f"{request_id}-internal"

    def step(self) -> list[SimpleNamespace]:
        self.steps += 1
        if self.steps == 1:
            return []
        return [self._advance(request_id) for request_id in list(self.rows)]

    def abort_request(self, request_ids: list[str]) -> None:
        for request_id in request_ids:
            del self.rows[request_id]

    def apply_model(self, count: Callable[[Any], int]) -> list[int]:
        return [count(self._model)] * self.arguments["tensor_parallel_size"]

    def _advance(self, request_id: str) -> SimpleNamespace:
        row = self.rows[request_id]
        token = self._next_token([*row.prompt_ids, *row.given])
        row.given.append(token)
        finished = len(row.given) == row.params.max_tokens or token in row.params.stop_token_ids
        if finished:
            del self.rows[request_id]
        outputs = [SimpleNamespace(token_ids=[token])]
        return SimpleNamespace(request_id=request_id, outputs=outputs, finished=finished)

    def _shutdown(self) -> None:
        self.closed = True


def plant(
    monkeypatch: pytest.MonkeyPatch,
    loaded: Any,
    *,
    failure: Exception | None = None,
    next_token: Callable[[list[int]], int] | None = None,
    free_bytes: int = 12 * 10**9,
) -> list[LLMEngine]:
    """Put the package in place, on a T4 that is not there; the engines that were started."""
    started: list[LLMEngine] = []

    class Engine(LLMEngine):
        @classmethod
        def from_engine_args(cls, arguments: dict[str, Any]) -> LLMEngine:
            if failure is not None:
                raise failure
            started.append(cls(arguments, next_token or argmax_of(loaded.model), loaded.model))
            return started[-1]

    backends = {name: name for name in ("FLASH_ATTN", "TRITON_ATTN")}
    package = ModuleType("vllm")
    package.__spec__ = ModuleSpec("vllm", None)
    package.LLMEngine, package.EngineArgs = Engine, dict
    sampling = ModuleType("vllm.sampling_params")
    sampling.SamplingParams, sampling.RequestOutputKind = SamplingParams, RequestOutputKind
    registry = ModuleType(ATTENTION)
    registry.AttentionBackendEnum = backends
    for module in (package, sampling, registry):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    on_a_t4(monkeypatch, free_bytes)
    return started


def on_a_t4(monkeypatch: pytest.MonkeyPatch, free_bytes: int = 12 * 10**9) -> None:
    """Let vLLM be started as on a T4, whatever is here."""
    from engines.precision import choose

    settings = choose(*T4)
    free = (free_bytes, settings.memory_bytes)
    # By sys.modules, not by the package's attribute: an inner pytest run leaves old modules there.
    module = importlib.import_module("engines.vllm_start")
    monkeypatch.setattr(module, "settings_here", lambda _: settings)
    monkeypatch.setattr(module, "free_memory", lambda _: free)


def argmax_of(model: Any) -> Callable[[list[int]], int]:
    """The greedy token after these ids, by one plain forward."""
    import torch

    def next_token(ids: list[int]) -> int:
        with torch.inference_mode():
            logits = model(input_ids=torch.tensor([ids]), use_cache=False).logits
        return int(logits[0, -1].argmax())

    return next_token
