"""The scheduler returns what each request gets alone, and its slots are handed on correctly.

The 200 workloads of `--profile full` take minutes; plain runs take a sample of them.
"""

from __future__ import annotations

import itertools
from collections import Counter
from functools import cache

import pytest

from engines.records import Request
from tests.meta import ragged

SAMPLE = {"qwen3": 15, "gpt2": 15, "embedded": 1}
ALL = 200
RANDOM_MODELS = ("qwen3", "gpt2")


class Ticks:
    """A clock that advances by one each time it is read: arrivals can be scheduled in steps."""

    def __init__(self) -> None:
        self.ticks = itertools.count()

    def now_s(self) -> float:
        return float(next(self.ticks))

    stamp = synchronized_s = now_s

    def seconds(self, stamps) -> tuple[float, ...]:
        return tuple(stamps)


def engine_for(model="qwen3", *, slots=2, capacity=ragged.CAPACITY, clock=None, **kwargs):
    from engines.clock import Clock
    from engines.continuous import Continuous

    loaded = ragged.MODELS[model]()
    return Continuous(
        loaded, batch_size=slots, max_tokens=capacity, clock=clock or Clock("cpu"), **kwargs
    )


def served(model: str, seed: int) -> Counter:
    """Serve one workload and check every answer; what was checked."""
    work = ragged.workload(seed, **stops_that_it_says(model))
    done = ragged.serve(engine_for(model, slots=work.slots), work)
    return ragged.check_alone(ragged.MODELS[model]().model, done)


@cache
def stops_that_it_says(model: str) -> dict[str, list[int]]:
    """A trained model says few of the drawn ids: let it stop at those of its own answers."""
    if model in RANDOM_MODELS:
        return {}
    work = ragged.workload(4)
    done = ragged.serve(engine_for(model, slots=work.slots), work)
    return {"stops": sorted({i for completion in done.values() for i in completion.token_ids})}


@pytest.mark.parametrize(
    "model", [*RANDOM_MODELS, pytest.param("embedded", marks=pytest.mark.thorough)]
)
def test_random_ragged_workloads_get_the_tokens_that_each_request_gets_alone(model, pytestconfig):
    full = getattr(pytestconfig.option, "profile", None) == "full"
    seen = sum((served(model, seed) for seed in range(ALL if full else SAMPLE[model])), Counter())
    if full or model in RANDOM_MODELS:
        assert min(seen["length"], seen["stop"], seen["cancelled"]) > 0, seen
    assert seen["ties"] <= seen["tokens"] / 1000, seen


@pytest.mark.parametrize("model", RANDOM_MODELS)
def test_the_tokens_equal_those_of_generate(model):
    import torch

    work = ragged.workload(3)
    done = ragged.serve(engine_for(model, slots=work.slots), work)
    for completion in [c for c in done.values() if c.finish_reason == "length"][:6]:
        alone = ragged.MODELS[model]().model.generate(
            torch.tensor([completion.request.prompt_ids]),
            attention_mask=torch.ones(1, len(completion.request.prompt_ids), dtype=torch.long),
            max_new_tokens=completion.request.max_new_tokens,
            do_sample=False,
            eos_token_id=None,
            pad_token_id=0,
        )
        assert (
            tuple(alone[0, len(completion.request.prompt_ids) :].tolist()) == completion.token_ids
        )


def attend_one_column_too_far(monkeypatch):
    from engines.cache import RaggedCache

    original = RaggedCache.decode_mask

    def wrong(self):
        next_column = self.columns == self.positions[:, None] + 1
        return original(self) | next_column[:, None, None, :]

    monkeypatch.setattr(RaggedCache, "decode_mask", wrong)


def leave_a_gap_after_the_prompt(monkeypatch):
    from engines.cache import RaggedCache

    original = RaggedCache.insert

    def wrong(self, rows, prefilled):
        original(self, rows, prefilled)
        self.positions[list(rows)] += 1

    monkeypatch.setattr(RaggedCache, "insert", wrong)


def keep_the_position_of_the_last_request(monkeypatch):
    from engines.cache import RaggedCache

    original = RaggedCache.insert

    def wrong(self, rows, prefilled):
        old = self.positions[list(rows)].clone()
        original(self, rows, prefilled)
        self.positions[list(rows)] = old.maximum(self.positions[list(rows)])

    monkeypatch.setattr(RaggedCache, "insert", wrong)
    monkeypatch.setattr(RaggedCache, "release", lambda *_: None)


def hand_out_the_tokens_of_the_neighbour(monkeypatch):
    from engines.slots import Slots

    original = Slots.decode
    monkeypatch.setattr(Slots, "decode", lambda self: original(self)[::-1])


@pytest.mark.parametrize("model", ["qwen3", "gpt2"])
@pytest.mark.parametrize(
    "fault",
    [
        attend_one_column_too_far,
        leave_a_gap_after_the_prompt,
        keep_the_position_of_the_last_request,
        hand_out_the_tokens_of_the_neighbour,
    ],
)
def test_a_planted_fault_is_caught(fault, model, monkeypatch):
    seed = 1
    assert served(model, seed)["tokens"] > 0
    fault(monkeypatch)
    with pytest.raises((AssertionError, IndexError), match=r"below the best logit|out of bounds"):
        served(model, seed)


@pytest.mark.parametrize(("model", "caught"), [("gpt2", True), ("qwen3", False)])
def test_only_absolute_positions_show_a_uniform_shift(model, caught, monkeypatch):
    """Why a rotary model alone would not do: it sees distances, and a shift leaves them alone."""
    import torch

    loaded = ragged.MODELS[model]()
    work = ragged.workload(1)
    original = loaded.model.forward

    def shifted(*args, **kwargs):
        ids = kwargs["input_ids"]
        positions = kwargs.pop("position_ids", torch.arange(ids.shape[1])[None])
        return original(*args, position_ids=positions + 1, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(loaded.model, "forward", shifted)
        patch.setattr(type(loaded.model), "forward", original.__func__)
        done = ragged.serve(engine_for(model, slots=work.slots), work)
    if caught:
        with pytest.raises(AssertionError, match="below the best logit"):
            ragged.check_alone(loaded.model, done)
    else:
        assert ragged.check_alone(loaded.model, done)["tokens"] > 0


def test_cancelling_frees_the_slot_in_the_next_step():
    engine = engine_for(slots=1)
    engine.submit(Request((1, 2), 30, request_id="long"))
    engine.submit(Request((3, 4), 30, request_id="waiting"))
    engine.submit(Request((5, 6), 3, request_id="next"))
    engine.step()
    engine.cancel("long")
    engine.cancel("waiting")
    engine.cancel("nobody")
    ended = engine.step()
    assert [(c.request.request_id, c.finish_reason) for c in ended] == [
        ("long", "cancelled"),
        ("waiting", "cancelled"),
    ]
    assert [a.request.request_id for a in engine.running.values()] == ["next"]
    assert engine.step() == []
    assert len(engine.step()) == 1
    assert engine.is_idle


def test_a_client_that_leaves_frees_its_slot_and_nobody_else_notices():
    from engines.engine import ClientGone

    engine = engine_for(slots=2)
    heard = []

    def on_token(request, token):
        heard.append((request.request_id, token))
        if request.request_id == "gone" and len(heard) > 2:
            raise ClientGone

    gone, stays = engine.run(
        [Request((1, 2), 9, request_id="gone"), Request((3,), 9, request_id="stays")], on_token
    )
    assert gone.finish_reason == "cancelled"
    assert len(gone.token_ids) < 9
    assert [t for who, t in heard if who == "stays"] == list(stays.token_ids)
    ragged.check_alone(engine.loaded.model, {"gone": gone, "stays": stays})


def test_one_new_token_needs_no_decode_step():
    engine = engine_for()
    (done,) = engine.run([Request((1, 2, 3), 1)])
    assert len(done.token_ids) == 1
    assert (engine.counters.prefill_forwards, engine.counters.decode_forwards) == (1, 0)


def test_a_stop_token_in_the_prompt_stops_nothing_and_a_generated_one_stops_at_once():
    engine = engine_for()
    (free,) = engine.run([Request((5, 9, 5), 10)])
    stop = free.token_ids[3]
    (stopped,) = engine.run([Request((5, 9, 5), 10, stop_ids=frozenset({stop, 5}))])
    first = next(i for i, t in enumerate(free.token_ids) if t in {stop, 5})
    assert stopped.finish_reason == "stop"
    assert stopped.token_ids == free.token_ids[: first + 1]


def test_an_empty_queue_costs_no_forward():
    engine = engine_for()
    with ragged.forwards(engine.loaded.model) as calls:
        assert engine.step() == []
        assert engine.run([]) == []
    assert calls == []


def test_duplicate_prompts_are_different_requests_with_equal_tokens():
    request = Request((7, 8, 9), 6)
    engine = engine_for(slots=2)
    done = engine.run([request, request, Request((7, 8, 9), 6)])
    assert len({c.token_ids for c in done}) == 1
    assert len(done) == 3


def test_lengths_from_one_to_the_slot_are_served_and_one_more_is_rejected():
    from engines.engine import RequestRejected

    engine = engine_for(slots=3, capacity=16)
    fits = [Request((1,), 15), Request(tuple(range(15)), 1), Request((1,), 1)]
    too_long = Request((1,), 16)
    *done, refused = engine.run([*fits, too_long])
    assert [len(c.token_ids) for c in done] == [15, 1, 1]
    ragged.check_alone(engine.loaded.model, {str(i): c for i, c in enumerate(done)})
    assert refused.finish_reason == "rejected"
    assert "\n" not in refused.error
    with pytest.raises(RequestRejected, match="at most 16"):
        engine.submit(too_long)
    with pytest.raises(RequestRejected, match="at most 16"):
        engine.warm_up(8, 9)


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"slots": 0}, "batch_size must be at least 1, got 0"),
        ({"capacity": 1}, "max_tokens must be at least 2"),
        ({"capacity": 65}, "knows 64 positions"),
        ({"kv_budget_bytes": 100}, "budget is 100 and holds 0 slots"),
        ({"step": "graph"}, "is a CUDA graph, the model is on cpu"),
        ({"step": "fast"}, "unknown decode step 'fast'"),
    ],
)
def test_sizes_that_cannot_work_get_one_line(sizes, message):
    with pytest.raises(ValueError, match=message) as caught:
        engine_for(**sizes).run([Request((1,), 2)])
    assert "\n" not in str(caught.value)


def test_a_budget_that_is_just_enough_is_enough():
    slot = 2 * 2 * 2 * 16 * 4 * ragged.CAPACITY  # K and V, 2 layers, 2 heads, head_dim 16, fp32
    engine = engine_for(slots=2, kv_budget_bytes=2 * slot)
    assert engine.memory().kv_bytes == 2 * slot
    with pytest.raises(ValueError, match="holds 1 slots"):
        engine_for(slots=2, kv_budget_bytes=2 * slot - 1)


def test_arrivals_wait_for_their_time_and_then_for_a_slot():
    engine = engine_for(slots=1, clock=Ticks())
    late, first = engine.run([Request((1,), 4, scheduled_s=300.0), Request((2,), 4)])
    assert late.sent_s >= 300 > first.token_s[-1]
    first, waits = engine.run([Request((1,), 4), Request((2,), 4)])
    assert waits.token_s[0] > first.token_s[-1]


def test_forwards_and_busy_rows_are_counted():
    """Two slots, answers of 3, 5 and 4 tokens: the first of each comes from its prefill.

    Steps 1-2 run rows A and B; A leaves, C enters; steps 3-4 run B and C; B leaves; step 5 runs C
    alone: 9 busy rows of 10.
    """
    engine = engine_for(slots=2)
    engine.run([Request((1,), 3), Request((2,), 5), Request((3,), 4)])
    counters = engine.counters
    assert (counters.prefill_forwards, counters.decode_forwards) == (3, 5)
    assert counters.slot_utilisation == 0.9


def test_the_warm_up_leaves_no_trace_in_the_counters():
    engine = engine_for()
    assert engine.counters.slot_utilisation is None
    warm_up = engine.warm_up(4, 3)
    assert warm_up.total_s > 0
    assert engine.counters.decode_forwards == 0
    assert engine.is_idle


@pytest.mark.thorough
def test_the_decode_step_is_one_graph_that_no_position_recompiles():
    """What CUDA capture needs: no host read and no shape that depends on who sits where."""
    import torch

    engine = engine_for(slots=3)
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    engine.slots._step = torch.compile(
        engine.slots.state.decode_one_token, backend="eager", fullgraph=True, dynamic=False
    )
    done = engine.run(
        [Request((1, 2), 6), Request((3,), 9), Request((4,) * 7, 4), Request((5,), 5)]
    )
    ragged.check_alone(engine.loaded.model, {str(i): c for i, c in enumerate(done)})
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


def test_tokens_carry_times_that_never_go_back():
    done = engine_for(slots=2).run([Request((i,), 5) for i in range(1, 5)])
    for completion in done:
        assert len(completion.token_s) == 5
        assert completion.sent_s <= completion.token_s[0]
