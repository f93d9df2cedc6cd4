"""A step compiled layer by layer computes what the whole step does, from three programs."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
pytestmark = pytest.mark.thorough

CAPACITY = 24


@pytest.fixture(scope="module")
def loaded():
    from tests.meta.small_models import small_model

    return small_model()


@pytest.fixture(scope="module")
def requests():
    from engines.records import Request

    return [Request(tuple(range(1, 1 + n)), 7) for n in (3, 6, 4)]


def tokens(loaded, requests, **compiler):
    from engines.clock import Clock
    from engines.compiled import Compiled

    sizes = {"batch_size": 2, "max_tokens": CAPACITY, "clock": Clock("cpu")}
    return [c.token_ids for c in Compiled(loaded, **sizes, **compiler).run(requests)]


def eager_tokens(loaded, requests):
    from engines.clock import Clock
    from engines.static_kv import StaticKV

    engine = StaticKV(loaded, batch_size=2, max_tokens=CAPACITY, clock=Clock("cpu"))
    return [c.token_ids for c in engine.run(requests)]


@pytest.mark.parametrize("family", ["qwen3", "gpt2"])
def test_three_programs_give_the_tokens_of_the_eager_step_and_serve_a_second_engine(
    family, requests
):
    """The second engine has tensors of its own and the same shapes: nothing is compiled again."""
    from engines.layerwise import decoder_layers
    from engines.recompiles import CompileCount
    from tests.meta.small_models import small_model

    count, loaded = CompileCount(), small_model(family)
    backend = count.backend  # one object: each access to a method makes another
    expected, layers = eager_tokens(loaded, requests), list(decoder_layers(loaded.model))
    for _ in range(2):
        assert tokens(loaded, requests, backend=backend) == expected
        assert count.graphs == 3
    assert all(a is b for a, b in zip(layers, decoder_layers(loaded.model), strict=True))


def test_planted_fault_one_layer_called_for_all_is_seen(loaded, requests, monkeypatch):
    """As if the first layer's weights had been compiled in instead of being an input."""
    from engines import layerwise

    right, first = layerwise.run_layer, []

    def always_first(layer, *rest):
        first.append(layer)
        return right(first[0], *rest)

    monkeypatch.setattr(layerwise, "run_layer", always_first)
    step = layerwise.LayerwiseStep
    monkeypatch.setattr(
        "engines.captured_step.LayerwiseStep",
        lambda state, _: step(state, lambda function: function),
    )
    assert tokens(loaded, requests, backend="eager") != eager_tokens(loaded, requests)


def test_a_model_whose_layers_are_not_found_is_compiled_whole(loaded, requests, monkeypatch):
    from engines.recompiles import CompileCount

    monkeypatch.setattr("engines.captured_step.decoder_layers", lambda _: None)
    count = CompileCount()
    assert tokens(loaded, requests, backend=count.backend) == eager_tokens(loaded, requests)
    assert count.graphs == 1


def test_what_building_took_is_reported_after_an_earlier_request(loaded, requests):
    """The licence to time is a request: it must not hide what compilation costs."""
    from engines.clock import Clock
    from engines.compiled import Compiled
    from engines.continuous import Continuous

    sizes = {"batch_size": 2, "max_tokens": CAPACITY, "clock": Clock("cpu")}
    for engine in (Compiled(loaded, **sizes, backend="eager"), Continuous(loaded, **sizes)):
        engine.run(requests)
        warm = engine.warm_up(4, 4)
        assert warm.total_s > warm.compile_s > 0


def test_an_uncompiled_step_is_a_graph_where_it_can_be_one():
    from types import SimpleNamespace

    from engines.captured_step import uncompiled_step

    plain, quantized = (SimpleNamespace(is_quantized=q) for q in (False, True))
    here = {"cpu": "eager", "cuda": "graph"}
    for device, kind in here.items():
        assert uncompiled_step(SimpleNamespace(model=plain, device=device)) == kind
        assert uncompiled_step(SimpleNamespace(model=quantized, device=device)) == "eager"
