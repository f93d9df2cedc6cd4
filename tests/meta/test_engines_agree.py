"""All local engines return the tokens that greedy decoding alone gives each request."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

ENGINES = ("naive", "static_kv", "compiled")
COMPILED_LAST = ("naive", "static_kv", pytest.param("compiled", marks=pytest.mark.thorough))
LENGTHS = ((3, 12), (17, 5), (1, 1), (9, 20), (30, 12))
CAPACITY = 48


@pytest.fixture(scope="module")
def random_model():
    """Three layers of Qwen3 with grouped heads, small enough to be run hundreds of times."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    from engines.models import wrap

    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=211,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=128,
        initializer_range=0.3,
        tie_word_embeddings=True,
    )
    model = Qwen3ForCausalLM(config)
    return wrap("random", "random", model, None, device="cpu", content_hash="")


@pytest.fixture(scope="module")
def requests():
    import random

    from engines.records import Request

    numbers = random.Random(1)
    return [
        Request(tuple(numbers.randrange(211) for _ in range(prompt)), new, request_id=str(i))
        for i, (prompt, new) in enumerate(LENGTHS)
    ]


@pytest.fixture(scope="module")
def expected(random_model, requests):
    """Greedy tokens by one whole forward per token: no cache, no mask, no position ids."""
    import torch

    def alone(request):
        ids = list(request.prompt_ids)
        for _ in range(request.max_new_tokens):
            with torch.no_grad():
                logits = random_model.model(input_ids=torch.tensor([ids]), use_cache=False).logits
            ids.append(int(logits[0, -1].argmax()))
        return tuple(ids[len(request.prompt_ids) :])

    return [alone(request) for request in requests]


def engine(name, random_model, batch_size, **extra):
    from engines.clock import Clock
    from engines.registry import build_engine

    sizes = {"batch_size": batch_size, "max_tokens": CAPACITY, "clock": Clock("cpu")}
    if name == "compiled":  # the compiler's front end is under test here, not its code generation
        extra = {"backend": "eager"} | extra
    return build_engine(name, random_model, **sizes, **extra)


def tokens(completions):
    return [completion.token_ids for completion in completions]


def test_the_random_model_says_different_things(expected):
    assert len({token for answer in expected for token in answer}) > 10


@pytest.mark.parametrize(
    "batch_size", [pytest.param(1, marks=pytest.mark.thorough), 3], ids="batch:{}".format
)
@pytest.mark.parametrize("name", ENGINES)
def test_ragged_requests_get_what_each_gets_alone(
    name, batch_size, random_model, requests, expected
):
    """Two runs and one that streams: nothing of an earlier run may be left in a slot."""
    built = engine(name, random_model, batch_size)
    assert tokens(built.run(requests)) == expected
    assert tokens(built.run(requests[::-1])) == expected[::-1]
    heard = []
    assert tokens(built.run(requests, lambda _, token: heard.append(token))) == expected
    assert sorted(heard) == sorted(token for answer in expected for token in answer)


def test_attention_by_reductions_gives_the_same_tokens(random_model, requests, expected):
    built = engine("compiled", random_model, 3, attention="reductions")
    assert tokens(built.run(requests)) == expected


def test_expanded_attention_gives_the_same_tokens(random_model, requests, expected):
    from engines.attention import using_attention

    with using_attention(random_model.model, "sdpa_expanded"):
        assert tokens(engine("static_kv", random_model, 3).run(requests)) == expected


@pytest.mark.parametrize("name", COMPILED_LAST)
def test_a_stop_token_ends_its_row_only(name, random_model, requests, expected):
    from dataclasses import replace

    stop = expected[3][7]
    stopped = [replace(requests[3], stop_ids=frozenset([stop])), requests[0]]
    first, second = engine(name, random_model, 2).run(stopped)
    assert first.token_ids == expected[3][: expected[3].index(stop) + 1]
    assert (first.finish_reason, second.finish_reason) == ("stop", "length")
    assert second.token_ids == expected[0]


@pytest.mark.parametrize("name", COMPILED_LAST)
def test_a_client_that_leaves_ends_its_row_only(name, random_model, requests, expected):
    from engines.engine import ClientGone

    heard = []

    def listen(request, token):
        heard.append(request.request_id)
        if request.request_id == "3" and heard.count("3") == 4:
            raise ClientGone

    gone, stayed = engine(name, random_model, 2).run([requests[3], requests[0]], listen)
    assert (gone.finish_reason, gone.token_ids) == ("cancelled", expected[3][:4])
    assert (stayed.finish_reason, stayed.token_ids) == ("length", expected[0])


@pytest.mark.thorough
@pytest.mark.parametrize("name", ENGINES)
def test_a_request_that_can_never_fit_is_rejected_and_the_others_are_served(
    name, random_model, requests, expected
):
    from engines.engine import RequestRejected
    from engines.records import Request

    built = engine(name, random_model, 2)
    first, refused, last = built.run([requests[0], Request((1,) * 40, 20), requests[1]])
    assert (first.token_ids, last.token_ids) == (expected[0], expected[1])
    assert refused.finish_reason == "rejected"
    assert "60, expected at most 48" in refused.error
    with pytest.raises(RequestRejected, match="expected at most 48"):
        built.warm_up(40, 20)


@pytest.mark.thorough
@pytest.mark.parametrize("name", ENGINES)
def test_warm_up_leaves_no_trace_and_times_do_not_go_back(name, random_model, requests, expected):
    built = engine(name, random_model, 1)
    warm = built.warm_up(5, 4)
    assert warm.runs == 2
    assert warm.total_s > warm.compile_s >= 0
    done = built.run(requests)
    assert tokens(done) == expected
    for completion in done:
        assert completion.sent_s <= completion.token_s[0]


def test_bytes_and_memory_are_those_of_the_tensors(random_model, requests):
    """4 values of K and V per layer and head: 2 layers, 2 heads, 16 wide, fp32 = 512 B a token."""
    naive, static = (engine(name, random_model, 2) for name in ("naive", "static_kv"))
    per_token = 2 * 2 * 2 * 16 * 4
    weights = naive.bytes_per_step(0)
    assert naive.bytes_per_step(10) == weights + 2 * 10 * per_token
    assert static.bytes_per_step(10) == weights + 2 * CAPACITY * per_token
    naive.run(requests[:1])
    static.run(requests[:1])
    assert naive.memory().kv_bytes == (3 + 12 - 1) * per_token  # the last token is never cached
    assert static.memory().kv_bytes == 2 * CAPACITY * per_token
    assert naive.memory().weights_bytes >= random_model.shape.num_parameters * 4


def test_planted_fault_a_cache_that_is_not_reset_is_seen(random_model, requests, expected):
    """As a static cache that was not reset: the next prompt starts where the last answer ended."""
    built = engine("static_kv", random_model, 1)
    cache, insert = built.state.cache, built.state.cache.insert

    def insert_behind(rows, prefilled):
        stale = cache.positions.clone()
        insert(rows, prefilled)
        cache.positions.add_(stale)

    assert tokens(built.run(requests[:1])) == expected[:1]
    built.state.clear, cache.insert = lambda: None, insert_behind
    assert tokens(built.run(requests[3:4])) != expected[3:4]


def test_planted_fault_a_swallowed_cache_argument_is_an_error(random_model, requests, monkeypatch):
    """The old keyword on a new version, or the reverse, is accepted and stores nothing."""
    from engines import cache

    monkeypatch.setattr(cache, "cache_argument", lambda _: "kv_store")
    with pytest.raises((RuntimeError, TypeError)):
        engine("static_kv", random_model, 1).run(requests)


def test_an_unknown_engine_or_an_absurd_size_is_one_line(random_model):
    from engines.clock import Clock
    from engines.registry import build_engine

    with pytest.raises(ValueError, match="unknown engine 'fast': expected one of naive, static_kv"):
        build_engine("fast", random_model, batch_size=1, max_tokens=8, clock=Clock("cpu"))
    with pytest.raises(ValueError, match="batch_size 0"):
        build_engine("naive", random_model, batch_size=0, max_tokens=8, clock=Clock("cpu"))


def test_an_option_reaches_its_engine_and_an_unknown_one_is_one_line(random_model):
    static = engine("static_kv", random_model, 1, max_cache_len=64)
    assert static.capacity == 64
    with pytest.raises(ValueError, match="engine naive has no option 'backend': it has none"):
        engine("naive", random_model, 1, backend="eager")
    known = "attention, backend, max_cache_len, options"
    with pytest.raises(
        ValueError, match=f"compiled has no option 'speed': expected one of {known}"
    ):
        engine("compiled", random_model, 1, speed=2)
