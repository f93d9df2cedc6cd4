"""The licence to time: what is granted, and which planted faults of an engine lose it."""

from __future__ import annotations

import copy
import random
from types import SimpleNamespace

import pytest

from engines.records import Completion, Request
from fixtures import licence as examined
from fixtures import models_at_hand
from fixtures.licence import NEW_TOKENS, NotLicensed, grant, judge_tokens
from tests.meta import ragged
from tests.meta.small_models import small_model

CAPACITY = 48


@pytest.fixture(scope="module")
def loaded():
    pytest.importorskip("torch")
    return small_model()


class OneRow:
    """Greedy decoding over transformers' own static cache, with room for the usual mistakes."""

    name, batch_size = "one row", 1

    def __init__(self, loaded, *, reset=True, argument=None, change=None):
        from transformers import StaticCache

        from engines.cache import cache_argument

        self.loaded = loaded
        self.seen = 0
        self._reset = reset
        self._argument = argument or cache_argument(loaded.model)
        self._change = change or (lambda tokens: tokens)
        self._cache = StaticCache(config=loaded.model.config, max_cache_len=2 * CAPACITY)

    def run(self, requests):
        import torch

        self.seen = len(requests)
        with torch.inference_mode():
            return [self._serve(request) for request in requests]

    def _serve(self, request):
        if self._reset:
            self._cache.reset()
        tokens = [self._next(request.prompt_ids)]
        while len(tokens) < request.max_new_tokens:
            tokens.append(self._next(tokens[-1:]))
        tokens = self._change(tokens)
        return Completion(request, 0.0, (1.0,) * len(tokens), tuple(tokens), "length")

    def _next(self, ids):
        import torch

        ids = torch.tensor([list(ids)])
        logits = self.loaded.model(input_ids=ids, **{self._argument: self._cache}).logits
        return int(logits[0, -1].argmax())


def test_an_engine_that_decodes_greedily_is_licensed(loaded):
    licence = grant(OneRow(loaded), CAPACITY)
    assert licence.granted
    assert (licence.mismatches, licence.worst_gap, licence.text) == (0, 0.0, "tokens equal")
    assert licence.tokens == 2 * NEW_TOKENS


def test_one_request_more_than_rows_is_served(loaded):
    """Otherwise a cache that keeps what the last request left would never show."""
    engine = OneRow(loaded)
    grant(engine, CAPACITY)
    assert engine.seen == engine.batch_size + 1


@pytest.mark.parametrize(
    "fault",
    [
        {"reset": False},
        {"argument": "cache_that_vanishes_in_kwargs"},
        {"change": lambda tokens: [*tokens[:-1], (tokens[-1] + 1) % 256]},
        {"change": lambda tokens: [tokens[0], *tokens[:-1]]},
    ],
    ids=["cache_not_reset", "cache_argument_swallowed", "one_token_wrong", "one_step_late"],
)
def test_a_planted_fault_is_not_licensed(fault, loaded):
    licence = grant(OneRow(loaded, **fault), CAPACITY)
    assert not licence.granted
    assert licence.mismatches >= 1
    assert licence.worst_gap > 0
    assert f"{licence.mismatches} of {licence.tokens} tokens differ" in licence.text


def test_an_engine_that_drops_tokens_is_refused_with_what_it_did(loaded):
    engine = OneRow(loaded, change=lambda tokens: tokens[:-3])
    with pytest.raises(NotLicensed, match="one row: 2 of 2 requests did not get 16 tokens"):
        grant(engine, CAPACITY)


class Table:
    """A model whose logits are given: once as its format has them, once exactly."""

    device = "cpu"
    config = SimpleNamespace(get_text_config=lambda: SimpleNamespace(vocab_size=3))

    def __init__(self, logits, exact):
        self._logits, self._exact = logits, exact

    def __call__(self, **_):
        import torch

        return SimpleNamespace(logits=torch.tensor([self._logits]))

    def float(self):
        return Table(self._exact, self._exact)

    def __deepcopy__(self, memo):
        return copy.copy(self)


@pytest.mark.parametrize(
    ("dtype", "quantized", "gap", "granted"),
    [
        ("float16", False, 0.006, True),
        ("float16", False, 0.010, False),
        ("float32", False, 0.006, False),
        ("float32", True, 0.006, True),
    ],
    ids=["near_tie", "beyond_the_error", "no_error_in_fp32", "quantized_weights_have_one"],
)
def test_a_near_tie_is_allowed_within_the_measured_error_of_the_format(
    dtype, quantized, gap, granted
):
    """The format moves one logit by 0.004, so that two of them may part by 0.008.

    The engine has taken token 1 where the model's best is token 0, `gap` above it.
    """
    pytest.importorskip("torch")
    model = Table([[8.0 + gap, 8.0, -1.0]], [[8.0 + gap, 8.004, -1.0]])
    model.is_quantized = quantized
    engine = SimpleNamespace(
        name="near", batch_size=1, loaded=SimpleNamespace(dtype=dtype, model=model)
    )
    done = Completion(Request((5,), 1), 0.0, (1.0,), (1,), "length")
    licence = judge_tokens(engine, [done], model)
    assert licence.granted is granted
    assert licence.mismatches == 1
    assert licence.worst_gap == pytest.approx(gap, rel=1e-3)
    error = 0.0 if (dtype, quantized) == ("float32", False) else 0.008
    assert licence.format_error == pytest.approx(error, rel=1e-3)


@pytest.mark.parametrize("budget_bytes", [1, 3 * 9 * 97 * 4, 1 << 30], ids=["one", "three", "all"])
def test_logits_of_ragged_rows_in_one_forward_are_those_of_each_row(monkeypatch, budget_bytes):
    """The rows' own prompts and lengths decide which logits are kept, not their neighbours'."""
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(examined, "LOGITS_BYTES", budget_bytes)
    model = ragged.qwen3().model
    draw = random.Random(5)
    done = [
        Completion(
            Request(tuple(draw.randrange(97) for _ in range(prompt)), new),
            0.0,
            (1.0,) * new,
            tuple(draw.randrange(97) for _ in range(new)),
            "length",
        )
        for prompt, new in ((1, 5), (9, 1), (4, 4), (7, 2), (2, 8))
    ]
    for completion, found in zip(done, examined.generated_logits(model, done), strict=True):
        ids = [*completion.request.prompt_ids, *completion.token_ids]
        with torch.inference_mode():
            alone = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0]
        start = len(completion.request.prompt_ids) - 1
        torch.testing.assert_close(found, alone[start:-1], rtol=0, atol=1e-4)


def test_an_engine_is_examined_once_and_a_new_one_at_its_address_again(monkeypatch):
    """Planted fault: a licence looked up by the engine's address alone outlives the engine."""
    examined = []

    def examine(engine, max_tokens):
        examined.append(engine.name)
        return f"licence of {engine.name}"

    monkeypatch.setattr(models_at_hand, "grant", examine)
    shelf = models_at_hand.EngineShelf(None, None)
    engine = Named("first")
    assert shelf.licence(engine, 8) == shelf.licence(engine, 8) == "licence of first"
    address = id(engine)
    del engine
    others = [Named("second") for _ in range(100)]
    for other in others:
        assert shelf.licence(other, 8) == "licence of second"
    assert address in map(id, others), "CPython gave the address to nobody: nothing was shown"
    assert examined == ["first"] + ["second"] * 100


class Named:
    def __init__(self, name):
        self.name = name
