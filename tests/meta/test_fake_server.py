"""The load client against scripts: every derived time within 5 ms, every count exact."""

import json
import socket

import pytest

from engines.serving.exchange import CHAT, Call
from engines.serving.sse import EventParser
from fixtures.fake_server import (
    FOREVER_S,
    HEAD,
    Act,
    FakeServer,
    answer,
    delta_chunk,
    event,
    http_chunk,
    text_chunk,
    usage_chunk,
)
from fixtures.loadgen import Drive, run_open
from fixtures.workload import Schedule

PLAYS = 6
TOLERANCE_S = 0.005

FINISH = text_chunk("", finish="length")
COMMENT = http_chunk(b": keep-alive\n\n")


def tokens_at(*times, **extra):
    return [Act(at, text_chunk("x", **extra), tokens=1) for at in times]


GOOD = {
    "one token per chunk": (
        answer(*tokens_at(0.03, 0.06, 0.1), Act(0.1, FINISH + usage_chunk(3))),
        "one per chunk",
    ),
    "several tokens per chunk": (
        answer(
            Act(0.02, text_chunk("a", token_ids=[1]), tokens=1),
            Act(0.05, text_chunk("bcd", token_ids=[2, 3, 4]), tokens=3),
            Act(0.09, text_chunk("", token_ids=[5]), tokens=1),
            Act(0.09, FINISH),
        ),
        "token ids",
    ),
    "usage in every chunk": (
        answer(
            Act(0.02, text_chunk("ab", usage={"completion_tokens": 2}), tokens=2),
            Act(0.05, text_chunk("c", usage={"completion_tokens": 3}), tokens=1),
            Act(0.05, text_chunk("", finish="length", usage={"completion_tokens": 3})),
        ),
        "running usage",
    ),
    "total only": (
        answer(
            Act(0.02, text_chunk("aa"), tokens=1),
            Act(0.05, text_chunk("bbbbbb"), tokens=3),
            Act(0.05, FINISH + usage_chunk(4)),
        ),
        "spread by length",
    ),
    "role, reasoning, usage": (
        answer(
            Act(0.01, delta_chunk({"role": "assistant", "content": ""})),
            Act(0.04, delta_chunk({"reasoning_content": "hm"}), tokens=1),
            Act(0.07, delta_chunk({"content": "yes"}), tokens=1),
            Act(0.08, delta_chunk({}, finish="stop") + usage_chunk(2)),
        ),
        "one per chunk",
    ),
    "keep-alive comments": (
        answer(
            Act(0.01, COMMENT),
            *tokens_at(0.03),
            Act(0.05, COMMENT),
            *tokens_at(0.08),
            Act(0.08, FINISH + usage_chunk(2)),
        ),
        "one per chunk",
    ),
    "one byte per read": (
        answer(
            Act(0.03, text_chunk("ก"), tokens=1, byte_by_byte=True),
            Act(0.08, text_chunk("ข"), tokens=1, byte_by_byte=True),
            Act(0.08, FINISH + usage_chunk(2)),
        ),
        "one per chunk",
    ),
    "one token": (answer(*tokens_at(0.02), Act(0.02, FINISH + usage_chunk(1))), "one per chunk"),
}
BAD = {
    "error event": (
        answer(*tokens_at(0.01), Act(0.02, event({"error": {"message": "x"}}))),
        "error event",
    ),
    "no end mark": (
        answer(*tokens_at(0.01), Act(0.02, FINISH), ending=http_chunk(b"")),
        "truncated",
    ),
    "no finish reason": (answer(*tokens_at(0.01, 0.02)), "truncated"),
    "cut in a chunk": (
        (Act(0, HEAD), *tokens_at(0.01), Act(0.02, b"5\r\nab", hang_up=True)),
        "truncated",
    ),
    "stall": ((Act(0, HEAD), *tokens_at(0.01), Act(FOREVER_S)), "stalled"),
    "slow headers": ((Act(FOREVER_S, HEAD),), "stalled"),
    "not JSON": (answer(Act(0.01, http_chunk(b"data: {oops\n\n"))), "bad reply"),
    "JSON of another kind": (answer(Act(0.01, http_chunk(b"data: [1]\n\n"))), "bad reply"),
    "not HTTP": ((Act(0, b"220 mail.example ESMTP\r\n\r\n", hang_up=True),), "bad reply"),
    "503": (
        (Act(0, b"HTTP/1.1 503 x\r\ncontent-length: 2\r\nretry-after: 1\r\n\r\nno"),),
        "http error",
    ),
}


def call(script, play, path="/v1/completions"):
    return Call(
        f"{script}/{play}", json.dumps({"script": script, "id": f"{script}/{play}"}).encode(), path
    )


@pytest.fixture(scope="module")
def played():
    """All scripts played `PLAYS` times beside each other: (server, exchanges by request id)."""
    scripts = {name: script for name, (script, _) in {**GOOD, **BAD}.items()}
    calls = [call(name, play) for play in range(PLAYS) for name in scripts]
    schedule = Schedule.constant(60.0, len(calls))
    with FakeServer(scripts).running() as server:
        run = run_open(server.url, schedule, calls, Drive(stall_s=0.4, drain_s=5))
    return server, {exchange.request_id: exchange for exchange in run.exchanges}


@pytest.mark.parametrize("name", GOOD, ids=lambda name: f"script:{name}")
def test_counts_are_exact_and_times_within_5_ms_of_the_script(played, name):
    server, exchanges = played
    script, counting = GOOD[name]
    errors = []
    for record in (one for one in server.played if one.script == name):
        got = exchanges[record.request_id]
        assert got.outcome == "ok"
        assert got.counting == counting
        told = [(act, at) for act, at in zip(script, record.written_s, strict=True) if act.tokens]
        assert [chunk.tokens for chunk in got.chunks] == [act.tokens for act, _ in told]
        wanted = [at for act, at in told for _ in range(act.tokens)]
        late_s = max(at - act.at_s for act, at in zip(script, record.written_s, strict=True))
        apart = [abs(a - got.sent_s - b) for a, b in zip(got.token_s, wanted, strict=True)]
        errors.append([error - late_s for error in apart])
        assert got.chunked == (len(wanted) > len(told))
    assert len(errors) == PLAYS
    # A busy machine wakes either side late. So the server's own lateness is taken off, and of each
    # token's plays the least disturbed counts: what the client does wrong, it does in all of them.
    assert max(min(plays) for plays in zip(*errors, strict=True)) <= TOLERANCE_S


@pytest.mark.parametrize("name", BAD, ids=lambda name: f"script:{name}")
def test_whatever_is_not_a_complete_answer_is_a_failure(played, name):
    _, exchanges = played
    for play in range(PLAYS):
        got = exchanges[f"{name}/{play}"]
        assert (got.outcome, got.ok) == (BAD[name][1], False)
        assert got.error
        assert "\n" not in got.error


def test_sent_is_never_before_scheduled_and_often_hardly_after(played):
    _, exchanges = played
    lag = sorted(exchange.sent_s - exchange.scheduled_s for exchange in exchanges.values())
    assert lag[0] >= 0
    assert lag[len(lag) // 10] < TOLERANCE_S


def test_a_refused_connection_is_a_failure():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        run = run_open(url, Schedule.constant(100.0, 3), [call("x", i) for i in range(3)])
    assert run.outcomes == {"refused connection": 3}


def test_an_answer_that_outlasts_the_drain_is_kept_as_unfinished():
    scripts = {"slow": (Act(0, HEAD), *tokens_at(0.01), Act(FOREVER_S))}
    with FakeServer(scripts).running() as server:
        run = run_open(
            server.url,
            Schedule.constant(100.0, 2),
            [call("slow", i) for i in range(2)],
            Drive(drain_s=0.1),
        )
    assert run.outcomes == {"unfinished": 2}
    assert [exchange.tokens for exchange in run.exchanges] == [1, 1]


def test_a_client_that_leaves_has_what_it_read():
    scripts = {"long": answer(*tokens_at(*(i / 100 for i in range(100))), Act(1, FINISH))}
    leaving = [Call("a", b'{"script": "long"}', CHAT, leave_after_tokens=3)]
    with FakeServer(scripts).running() as server:
        run = run_open(server.url, Schedule.constant(100.0, 1), leaving)
    assert run.outcomes == {"left": 1}
    assert 3 <= run.exchanges[0].tokens < 50


@pytest.mark.thorough
def test_a_thousand_connections_at_once_are_not_throttled():
    """All are in flight together: the server saw every one before it answered the first."""
    scripts = {"hold": answer(Act(1.5, text_chunk("x")), Act(1.5, FINISH))}
    calls = [call("hold", i) for i in range(1000)]
    with FakeServer(scripts).running() as server:
        run = run_open(server.url, Schedule.constant(10_000.0, 1000), calls)
        assert server.most_at_once == 1000
    assert run.outcomes == {"ok": 1000}
    assert run.most_in_flight == 1000


@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"], ids=["lf", "crlf", "cr"])
@pytest.mark.parametrize("step", [1, 2, 3, 1000], ids=lambda n: f"bytes:{n}")
def test_events_survive_any_cut(ending, step):
    lines = [": hello", "data: สวัสดี", "", "event: x", "data:one", "data: two", "", "data: half"]
    sent = ending.join(lines).encode()
    parser = EventParser()
    got = [e for i in range(0, len(sent), step) for e in parser.feed(sent[i : i + step])]
    assert got == ["สวัสดี", "one\ntwo"]
    assert not parser.is_between_events
