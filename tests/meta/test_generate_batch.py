"""transformers' own continuous batching, driven as an engine."""

from __future__ import annotations

import pytest

from engines.records import Request
from tests.meta import ragged


def peer(model="qwen3"):
    from engines.clock import Clock
    from engines.registry import build_engine

    loaded = ragged.MODELS[model]()
    return build_engine("generate_batch", loaded, batch_size=2, max_tokens=48, clock=Clock("cpu"))


WORK = [Request((1, 2, 3), 7), Request((4,), 20), Request((5,) * 30, 12), Request((6, 7), 1)]


@pytest.mark.thorough
@pytest.mark.parametrize("model", ["qwen3", "gpt2"])
def test_the_peer_returns_what_each_request_gets_alone_with_a_time_per_token(model):
    engine = peer(model)
    done = engine.run([*WORK, Request((9,) * 47, 5)])
    assert [c.finish_reason for c in done] == ["length"] * 4 + ["rejected"]
    ragged.check_alone(engine.loaded.model, {str(i): c for i, c in enumerate(done[:-1])})
    assert all(c.sent_s <= c.token_s[0] for c in done[:-1])
    assert max(c.token_s[-1] for c in done[:-1]) <= engine.clock.now_s()
    assert engine.memory().kv_bytes > 0
    assert engine.loaded.model.config._attn_implementation == "sdpa"


@pytest.mark.thorough
def test_the_peer_stops_at_stop_tokens_and_tells_each_token_once():
    engine, heard = peer(), []
    (free,) = engine.run([Request((1, 2, 3), 9)], lambda _, token: heard.append(token))
    assert tuple(heard) == free.token_ids
    stop = free.token_ids[1]
    (stopped,) = engine.run([Request((1, 2, 3), 9, stop_ids=frozenset({stop}))])
    assert stopped.finish_reason == "stop"
    assert stopped.token_ids == free.token_ids[: free.token_ids.index(stop) + 1]


@pytest.mark.thorough
def test_a_client_of_the_peer_that_leaves_ends_its_request():
    from engines.engine import ClientGone

    def leave(request, token):
        raise ClientGone

    (gone,) = peer().run([Request((1, 2), 40)], leave)
    assert gone.finish_reason == "cancelled"
    assert len(gone.token_ids) < 40


@pytest.mark.thorough
def test_the_peer_works_inside_inference_mode_which_it_has_to_leave():
    import torch

    with torch.inference_mode():
        (done,) = peer().run([Request((1, 2), 4)])
    assert len(done.token_ids) == 4
