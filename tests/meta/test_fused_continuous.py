"""The overlapped scheduler gives each request what it gets alone; its kernels too, interpreted."""

from __future__ import annotations

from collections import Counter

import pytest

from engines.records import Request
from tests.meta import ragged
from tests.meta.batched_interpreted import CASES
from tests.meta.interpreter import interpret

pytest.importorskip("torch")
SAMPLE, ALL = (8, 9, 12), 200


def engine_for(model="qwen3", *, slots=2, capacity=ragged.CAPACITY, monkeypatch, **options):
    """The engine on a CPU, over the plain model instead of its kernels."""
    from engines import fused_continuous
    from engines.clock import Clock
    from tests.meta.reference_step import ReferenceStep

    kind = fused_continuous.FusedContinuous
    monkeypatch.setattr(fused_continuous, "check_triton", lambda _: None)
    monkeypatch.setattr(kind, "_step", lambda self, most: ReferenceStep(self.slots.state, most))
    return kind(
        ragged.MODELS[model](), batch_size=slots, max_tokens=capacity, clock=Clock("cpu"), **options
    )


def served(seed: int, monkeypatch, **options) -> Counter:
    work = ragged.workload(seed)
    engine = engine_for(slots=work.slots, monkeypatch=monkeypatch, **options)
    done = ragged.serve(engine, work, step=lambda engine: engine.step())
    return ragged.check_alone(engine.loaded.model, done)


@pytest.mark.parametrize(
    "rows", [{}, {"rows": 5, "rows_running": 3}], ids=["as built", "prompts in small pieces"]
)
def test_random_ragged_workloads_get_the_tokens_that_each_request_gets_alone(
    rows, monkeypatch, pytestconfig
):
    full = getattr(pytestconfig.option, "profile", None) == "full"
    seeds = range(ALL) if full else SAMPLE
    seen = sum((served(seed, monkeypatch, **rows) for seed in seeds), Counter())
    assert min(seen["length"], seen["stop"], seen["cancelled"]) > 0, seen
    assert seen["ties"] <= seen["tokens"] / 1000, seen


def test_a_row_of_the_neighbour_is_caught(monkeypatch):
    from engines.batched_rows import Flight

    tokens = Flight.tokens
    assert served(1, monkeypatch)["tokens"] > 0
    monkeypatch.setattr(Flight, "tokens", lambda self: tokens(self)[::-1])
    with pytest.raises(AssertionError, match="below the best logit"):
        served(1, monkeypatch)


def test_a_position_too_far_is_caught(monkeypatch):
    from engines.fused_continuous import Seat

    right = Seat.next_token

    def too_far(self):
        piece = right(self)
        return piece._replace(position=piece.position + 1)

    monkeypatch.setattr(Seat, "next_token", too_far)
    with pytest.raises(AssertionError, match="below the best logit"):
        served(1, monkeypatch)


def test_the_next_step_is_launched_before_the_tokens_of_this_one_are_read(monkeypatch):
    from engines.batched_rows import Flight, RowBatches

    seen = []
    launch, tokens = RowBatches.launch, Flight.tokens
    monkeypatch.setattr(
        RowBatches, "launch", lambda self, pieces: seen.append("launch") or launch(self, pieces)
    )
    monkeypatch.setattr(Flight, "tokens", lambda self: seen.append("read") or tokens(self))
    engine_for(monkeypatch=monkeypatch).run([Request((1, 2), 4)])
    assert seen == ["launch", "launch", "read", "launch", "read", "launch", "read", "read"]


def test_cancelling_frees_the_slot_in_the_next_step(monkeypatch):
    engine = engine_for(slots=1, monkeypatch=monkeypatch)
    engine.submit(Request((1, 2), 30, request_id="long"))
    engine.submit(Request((3, 4), 30, request_id="waiting"))
    engine.submit(Request((5, 6), 3, request_id="next"))
    engine.step()
    engine.step()
    for name in ("long", "waiting", "nobody"):
        engine.cancel(name)
    ended = engine.step()
    assert [(c.request.request_id, c.finish_reason) for c in ended] == [
        ("long", "cancelled"),
        ("waiting", "cancelled"),
    ]
    done = None
    while not engine.is_idle:
        done = next(iter(engine.step()), done)
    assert done.request.request_id == "next"
    ragged.check_alone(engine.loaded.model, {"next": done})


def test_a_stop_token_wastes_one_row_and_the_slot_is_used_again(monkeypatch):
    engine = engine_for(slots=1, monkeypatch=monkeypatch)
    (free,) = engine.run([Request((5, 9, 5), 10)])
    stop = free.token_ids[3]
    first = free.token_ids.index(stop)
    engine.counters.busy_rows = 0
    stopped, after = engine.run(
        [Request((5, 9, 5), 10, stop_ids=frozenset({stop})), Request((7,), 5)]
    )
    assert stopped.finish_reason == "stop"
    assert stopped.token_ids == free.token_ids[: first + 1]
    ragged.check_alone(engine.loaded.model, {"a": stopped, "b": after})
    assert engine.counters.busy_rows == 3 + first + 1 + 1 + 4


def test_a_long_prompt_does_not_hold_up_who_is_running(monkeypatch):
    """It is fed in pieces, and every one of those steps decodes the running request too."""
    engine = engine_for(slots=2, rows=8, rows_running=8, monkeypatch=monkeypatch)
    said = []
    engine.on_token = lambda request, _: said.append(request.request_id)
    engine.submit(Request((1, 2), 20, request_id="running"))
    engine.step()
    engine.submit(Request(tuple(range(40)), 3, request_id="long"))
    while "long" not in said:
        engine.step()
    assert said.count("running") >= 40 // 7


def test_one_new_token_takes_one_step(monkeypatch):
    engine = engine_for(monkeypatch=monkeypatch)
    (done,) = engine.run([Request((1, 2, 3), 1)])
    assert len(done.token_ids) == 1
    assert (engine.counters.prefill_forwards, engine.counters.decode_forwards) == (1, 0)


def test_the_warm_up_leaves_no_trace_and_too_long_requests_are_refused(monkeypatch):
    from engines.engine import RequestRejected

    engine = engine_for(monkeypatch=monkeypatch, capacity=16)
    assert engine.warm_up(4, 3).total_s > 0
    assert engine.counters.decode_forwards == 0
    assert engine.is_idle
    assert engine.run([Request((1,), 16)])[0].finish_reason == "rejected"
    with pytest.raises(RequestRejected, match="at most 16"):
        engine.warm_up(8, 9)


def test_the_smallest_bucket_that_has_room_is_taken():
    from engines.batched_rows import bucket_sizes, holding

    assert bucket_sizes(160) == [1, 2, 4, 8, 16, 32, 64, 128, 192]
    for rows in range(1, 193):
        assert holding(rows) == min(size for size in bucket_sizes(160) if size >= rows)


def test_a_gpu_without_fp16_dot_is_refused_in_one_line(monkeypatch):
    from types import SimpleNamespace

    from engines import fused_continuous

    old = SimpleNamespace(triton_fp16_dot=False)
    monkeypatch.setattr(fused_continuous, "settings_here", lambda _: old)
    with pytest.raises(fused_continuous.FusedNotAvailable, match="needs sm_80") as refused:
        fused_continuous._check_dot("cuda")
    assert "\n" not in str(refused.value)


@pytest.fixture(scope="module")
def interpreted():
    """What the kernels computed, by case."""
    return interpret("tests.meta.batched_interpreted")


@pytest.mark.thorough
@pytest.mark.parametrize("case", [name for name, case in CASES.items() if not case.fault])
def test_the_kernels_pick_the_plain_models_tokens(interpreted, case):
    """fp32, teacher-forced; prompts over tile edges, in one piece and in several."""
    assert interpreted[case]["gap"] < 1e-5


@pytest.mark.thorough
def test_a_request_gets_the_same_tokens_whoever_shares_its_steps(interpreted):
    alone, together, *_ = interpreted.values()
    assert together["rows"][0] == alone["rows"][0]


@pytest.mark.thorough
def test_heads_that_are_not_rotated_are_seen(interpreted):
    assert interpreted["no rotation"]["gap"] > 0.1


@pytest.mark.thorough
def test_both_attentions_are_the_plain_one_around_tile_edges():
    errors = interpret("tests.meta.attention_interpreted")
    assert len(errors) == 4
    assert max(errors.values()) < 1e-5, errors
