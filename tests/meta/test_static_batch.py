"""Static batching: the same tokens as alone, and exactly the waste that the scheme implies."""

from __future__ import annotations

from engines.records import Request
from tests.meta import ragged
from tests.meta.test_continuous import Ticks, engine_for


def static_engine(model="qwen3", *, slots=2, clock=None):
    from engines.clock import Clock
    from engines.static_batch import StaticBatch

    loaded = ragged.MODELS[model]()
    return StaticBatch(
        loaded, batch_size=slots, max_tokens=ragged.CAPACITY, clock=clock or Clock("cpu")
    )


MIXED = [Request((i + 1, 7), new) for i, new in enumerate((2, 6, 2, 6))]


def test_each_batch_runs_to_its_longest_answer():
    """Two batches of a 2- and a 6-token answer: 5 decode steps each, 1 + 5 of 10 rows busy."""
    engine = static_engine()
    done = engine.run(MIXED)
    ragged.check_alone(engine.loaded.model, {str(i): c for i, c in enumerate(done)})
    assert engine.counters.decode_forwards == 10
    assert engine.counters.slot_utilisation == 12 / 20


def test_continuous_batching_wastes_fewer_slots_on_the_same_work():
    """The freed slot takes the next answer: 1 + 1 + 5 steps of one slot, 5 of the other, in 7."""
    static, continuous = static_engine(), engine_for(slots=2)
    static.run(MIXED)
    continuous.run(MIXED)
    assert continuous.counters.decode_forwards < static.counters.decode_forwards
    assert continuous.counters.slot_utilisation > static.counters.slot_utilisation


def test_nobody_enters_while_a_batch_runs():
    engine = static_engine()
    for request in MIXED:
        engine.submit(request)
    entered = []
    while not engine.is_idle:
        before = engine.counters.prefill_forwards
        ran = list(engine.running.values())
        engine.step()
        entered.append(engine.counters.prefill_forwards - before)
        goes_on = any(answer in ran for answer in engine.running.values())
        assert not (goes_on and entered[-1]), "a request entered a running batch"
    assert [n for n in entered if n] == [2, 2]


def test_an_incomplete_batch_waits_until_nothing_more_is_due():
    engine = static_engine(clock=Ticks())
    early, late = engine.run([Request((1,), 3), Request((2,), 3, scheduled_s=200.0)])
    assert early.token_s[0] > 200
    assert late.finish_reason == "length"
    (last,) = engine.run([Request((3,), 2)])
    assert len(last.token_ids) == 2


def test_one_token_answers_fill_batch_after_batch():
    engine = static_engine()
    done = engine.run([Request((i,), 1) for i in range(1, 6)])
    assert [len(c.token_ids) for c in done] == [1] * 5
    assert engine.counters.decode_forwards == 0
