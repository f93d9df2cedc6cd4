"""vLLM as an engine, over a package that is scripted: how it is asked, and what is made of it."""

from __future__ import annotations

import importlib.abc
import json
import os
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("torch")

from engines.records import Request
from tests.meta.fake_vllm import on_a_t4, plant
from tests.meta.small_models import small_model

WORK = [Request((1, 2, 3), 7), Request((4,), 12), Request((5,) * 30, 9), Request((6, 7), 1)]


@pytest.fixture(scope="module")
def model():
    return small_model()


@pytest.fixture
def random_model(model):
    from dataclasses import replace

    return replace(model, weights_kind="random", name="shape")


def built(loaded, **options):
    from engines.clock import Clock
    from engines.registry import build_engine

    options = {"batch_size": 2, "max_tokens": 48} | options
    return build_engine("vllm", loaded, clock=Clock("cpu"), **options)


def test_every_request_gets_its_own_greedy_tokens_in_its_place(model, monkeypatch):
    started = plant(monkeypatch, model)
    engine = built(model)
    done = engine.run([*WORK, Request((9,) * 47, 5)])
    assert [c.finish_reason for c in done] == ["length"] * 4 + ["rejected"]
    assert [c.request for c in done[:4]] == WORK
    assert all(c.sent_s <= c.token_s[0] and not c.chunked for c in done[:4])
    from fixtures.licence import judge_tokens

    assert judge_tokens(engine, done[:4], model.model).text == "tokens equal"
    assert started[0].most_rows == 2


def test_it_earns_its_licence_as_every_engine_does(model, monkeypatch):
    from fixtures.licence import grant

    plant(monkeypatch, model)
    assert grant(built(model), 48).granted


def test_wrong_tokens_of_it_are_not_licensed(model, monkeypatch):
    """Planted fault: other weights than it was given."""
    from fixtures.licence import grant

    plant(monkeypatch, model, next_token=lambda ids: len(ids) % 100)
    assert not grant(built(model), 48).granted


def test_random_weights_of_its_own_are_timed_and_said_not_to_be_compared(random_model, monkeypatch):
    from fixtures.licence import grant
    from fixtures.qualities import QualityShelf

    started = plant(monkeypatch, random_model, next_token=lambda ids: len(ids) % 100)
    engine = built(random_model, dummy_weights=True)
    assert started[0].arguments["load_format"] == "dummy"
    licence = grant(engine, 48)
    assert licence.granted
    assert licence.tokens == 0
    cell = QualityShelf.of(None, SimpleNamespace(engine="vllm", licence=licence))
    assert cell.kind == "not applicable"
    assert "random weights" in cell.text


def test_trained_weights_are_never_replaced_by_dummy_ones(model, monkeypatch):
    plant(monkeypatch, model)
    with pytest.raises(ValueError, match="trained weights: dummy_weights would replace them"):
        built(model, dummy_weights=True)


def test_it_is_asked_for_no_more_than_the_run_needs(model, monkeypatch):
    """Half precision, the backend of the card, no prefix cache, KV for the rows and no more."""
    started = plant(monkeypatch, model, free_bytes=8 * 10**9)
    built(model, batch_size=4)
    chosen = started[0].arguments
    assert chosen["dtype"] == "half"
    assert chosen["attention_backend"] == "TRITON_ATTN"
    assert chosen["enforce_eager"] is False
    assert chosen["enable_prefix_caching"] is False
    assert chosen["skip_tokenizer_init"] is True
    assert chosen["load_format"] == "safetensors"
    assert (chosen["max_model_len"], chosen["max_num_seqs"]) == (49, 4)
    assert chosen["gpu_memory_utilization"] == pytest.approx(0.9 * 8 / 16)
    per_token = 2 * 2 * 2 * 32 * 2  # K and V, layers, KV heads, head_dim, fp16
    assert chosen["kv_cache_memory_bytes"] == (4 + 4) * 64 * per_token
    assert "compilation_config" not in chosen


def test_it_loads_our_weights_from_a_folder_that_is_gone_afterwards(model, monkeypatch):
    seen = {}

    def look(folder):
        seen["files"] = {path.name for path in Path(folder).iterdir()}
        seen["config"] = json.loads((Path(folder) / "config.json").read_text())

    started = plant(monkeypatch, model)
    package = sys.modules["vllm"]
    monkeypatch.setattr(package, "EngineArgs", lambda **a: look(a["model"]) or a)
    built(model)
    assert "model.safetensors" in seen["files"]
    assert seen["config"]["architectures"] == ["Qwen3ForCausalLM"]
    assert not Path(started[0].arguments["model"]).exists()


def test_a_smaller_batch_on_the_same_engine_has_its_own_rows_and_bytes(model, monkeypatch):
    started = plant(monkeypatch, model)
    most = built(model, batch_size=4)
    alone = most.with_rows(1)
    alone.run(WORK)
    assert started[0].most_rows == 1
    assert (most.batch_size, alone.batch_size, len(started)) == (4, 1, 1)
    kv = 10 * 2 * 2 * 2 * 32 * 2
    assert most.bytes_per_step(10) - alone.bytes_per_step(10) == 3 * kv
    with pytest.raises(ValueError, match="5 rows: this engine was started for 1 to 4"):
        most.with_rows(5)


def test_two_gpus_share_the_bytes_of_a_step(model, monkeypatch):
    started = plant(monkeypatch, model)
    one, two = built(model), built(model, tensor_parallel=2)
    assert (one.name, two.name) == ("vllm", "vllm tp:2")
    assert two.bytes_per_step(10) == -(-one.bytes_per_step(10) // 2)
    assert two.memory().weights_bytes == 2 * one.memory().weights_bytes  # whole copies in the fake
    chosen = started[1].arguments
    assert chosen["tensor_parallel_size"] == 2
    assert chosen["kv_cache_memory_bytes"] == started[0].arguments["kv_cache_memory_bytes"] // 2
    assert chosen["compilation_config"]["pass_config"] == {"fuse_allreduce_rms": False}


def test_its_workers_are_spawned_whatever_ran_before(model, monkeypatch):
    """It keeps the method of its first start, when CUDA may not have been in use yet."""
    monkeypatch.delenv("VLLM_WORKER_MULTIPROC_METHOD", raising=False)
    plant(monkeypatch, model)
    built(model, tensor_parallel=2)
    assert os.environ["VLLM_WORKER_MULTIPROC_METHOD"] == "spawn"


def test_stop_tokens_end_an_answer_and_a_client_that_leaves_frees_its_row(model, monkeypatch):
    from engines.engine import ClientGone

    started = plant(monkeypatch, model)
    engine, heard = built(model), []
    (free,) = engine.run([WORK[0]], lambda _, token: heard.append(token))
    assert tuple(heard) == free.token_ids
    stop = frozenset({free.token_ids[2]})
    (stopped,) = engine.run([Request((1, 2, 3), 7, stop_ids=stop)])
    assert stopped.finish_reason == "stop"
    assert stopped.token_ids == free.token_ids[: free.token_ids.index(*stop) + 1]

    def leave(request, token):
        raise ClientGone

    (gone,) = engine.run([Request((1, 2), 40)], leave)
    assert (gone.finish_reason, len(gone.token_ids)) == ("cancelled", 1)
    assert not started[0].rows


def test_the_eager_engine_is_named_and_asked_so(model, monkeypatch):
    from engines.clock import Clock
    from engines.registry import build_engine

    started = plant(monkeypatch, model)
    engine = build_engine("vllm_eager", model, batch_size=1, max_tokens=48, clock=Clock("cpu"))
    assert engine.name == "vllm_eager"
    assert started[0].arguments["enforce_eager"] is True
    assert engine.warm_up(8, 4).runs == 2
    engine.close()
    assert started[0].closed


@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        (RuntimeError("CUDA out of memory. Tried\nmore lines"), "CUDA out of memory. Tried$"),
        (ValueError("Free memory on device cuda:0"), "ValueError: Free memory on device"),
        (KeyError("no such backend"), "KeyError: 'no such backend'"),
    ],
    ids=["memory", "value", "key"],
)
def test_whatever_fails_at_start_is_one_line_with_the_tested_version(
    failure, reason, model, monkeypatch
):
    from engines.vllm_plan import VLLMNotAvailable

    plant(monkeypatch, model, failure=failure)
    with pytest.raises(VLLMNotAvailable, match=reason) as caught:
        built(model)
    assert "(tested: 0.25.1) failed at start" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.__context__ is None  # a traceback would hold the memory of the attempt


def test_a_missing_package_says_how_to_install_it(model, monkeypatch):
    from engines.vllm_plan import VLLMNotAvailable

    on_a_t4(monkeypatch)
    monkeypatch.setitem(sys.modules, "vllm", None)
    with pytest.raises(VLLMNotAvailable, match=r"not installed: python -m pip install \"vllm>=0"):
        built(model)


def test_a_package_that_cannot_be_imported_says_why(model, monkeypatch):
    from engines.vllm_plan import VLLMNotAvailable

    class Broken(importlib.abc.Loader):
        def exec_module(self, _):
            raise ImportError("libcudart.so.13: cannot open shared object file")

    class Found:
        def find_spec(self, name, *_):
            return ModuleSpec("vllm", Broken()) if name == "vllm" else None

    on_a_t4(monkeypatch)
    monkeypatch.setattr(sys, "meta_path", [Found(), *sys.meta_path])
    with pytest.raises(VLLMNotAvailable, match="cannot be imported: libcudart"):
        built(model)


def test_a_model_that_does_not_fit_beside_ours_is_refused_before_anything_starts(
    model, monkeypatch
):
    from engines.vllm_plan import VLLMNotAvailable

    started = plant(monkeypatch, model, free_bytes=10**9)
    with pytest.raises(VLLMNotAvailable, match=r"vLLM needs 1.3 GB .* 0.9 GB are free"):
        built(model)
    assert not started


def test_on_a_cpu_it_is_not_available(model, monkeypatch):
    from engines.vllm_plan import VLLMNotAvailable

    plant(monkeypatch, model)
    monkeypatch.undo()
    package = SimpleNamespace(__spec__=ModuleSpec("vllm", None))
    monkeypatch.setitem(sys.modules, "vllm", package)
    with pytest.raises(VLLMNotAvailable, match="on CUDA GPUs of capability"):
        built(model)
