"""The server over engines without a model: protocol, limits, faults, and clients that leave."""

import http.client
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from urllib.parse import urlsplit

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("fastapi", reason="the server needs the package fastapi")

from engines.serving.limits import Limits
from fixtures.scripted_engine import BlockingEngine, SteppedEngine, answer_with, echo
from fixtures.serving import scrape, scripted_app, server_in_a_thread

JSON_HEADERS = {"Content-Type": "application/json"}
THAI = "สวัสดีครับ เชียงใหม่อยู่ที่ไหน"


def ask(url, path, body=None, *, raw=None, headers=None):
    """(status, headers, parsed body) of one request; GET without a body."""
    data = raw if raw is not None else None if body is None else json.dumps(body).encode()
    where = urlsplit(url)
    with closing(http.client.HTTPConnection(where.hostname, where.port, timeout=20)) as connection:
        wanted = {"Content-Type": "application/json", **(headers or {})}
        connection.request("GET" if data is None else "POST", path, body=data, headers=wanted)
        reply = connection.getresponse()
        content = reply.read()
    is_json = "json" in reply.headers.get("content-type", "")
    return reply.status, reply.headers, json.loads(content) if is_json else content.decode()


def events(text):
    """The events of a stream, without the end mark, which has to be there."""
    *told, last = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
    assert last == "[DONE]"
    return [json.loads(event) for event in told]


def wait_for(condition, timeout_s=5.0):
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.002)


BODY_LIMIT = 20_000


@pytest.fixture(scope="module", params=["stepped", "blocking"], ids=lambda p: f"driver:{p}")
def echo_url(request):
    """A server that answers each prompt with itself."""
    engine = SteppedEngine() if request.param == "stepped" else BlockingEngine()
    limits = Limits(BODY_LIMIT, discarded_bytes=0, max_context_tokens=300, max_new_tokens=150)
    with server_in_a_thread(scripted_app(engine, limits=limits)) as url:
        yield url


def test_the_chapters_generate_answers_with_text(echo_url):
    status, _, reply = ask(echo_url, "/generate", {"prompt": "hello", "max_new_tokens": 20})
    assert (status, reply) == (200, {"text": "hello"})


def test_a_completion_has_text_finish_reason_and_usage(echo_url):
    body = {"model": "scripted", "prompt": THAI[:5], "max_tokens": 100, "return_token_ids": True}
    status, _, reply = ask(echo_url, "/v1/completions", body)
    choice = reply["choices"][0]
    assert status == 200
    assert (choice["text"], choice["finish_reason"]) == (THAI[:5], "stop")
    assert choice["token_ids"] == [*THAI[:5].encode(), 256]
    assert reply["usage"] == {"prompt_tokens": 15, "completion_tokens": 16, "total_tokens": 31}


def test_token_id_prompts_and_forced_length(echo_url):
    body = {"prompt": [72, 105], "max_tokens": 7, "ignore_eos": True, "return_token_ids": True}
    choice = ask(echo_url, "/v1/completions", body)[2]["choices"][0]
    assert choice["finish_reason"] == "length"
    assert choice["token_ids"] == [72, 105, 256, 72, 105, 256, 72]


def test_a_stream_never_breaks_a_thai_character(echo_url):
    options = {"include_usage": True, "continuous_usage_stats": True}
    body = {"prompt": THAI, "max_tokens": 120, "stream": True, "stream_options": options}
    *chunks, last = events(ask(echo_url, "/v1/completions", body)[2])
    pieces = [chunk["choices"][0]["text"] for chunk in chunks]
    assert "".join(pieces) == THAI
    assert not any("\ufffd" in piece for piece in pieces)
    counts = [chunk["usage"]["completion_tokens"] for chunk in chunks]
    assert counts == [*range(1, len(THAI.encode()) + 2), len(THAI.encode()) + 1]
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == len(THAI.encode()) + 1


def test_a_chat_stream_opens_with_a_role_and_ends_with_a_reason(echo_url):
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    messages = [{"role": "system", "content": "s"}, {"role": "user", "content": parts}]
    body = {"messages": messages, "max_completion_tokens": 10, "stream": True}
    first, *_, last = chunks = events(ask(echo_url, "/v1/chat/completions", body)[2])
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert last["choices"][0]["finish_reason"] == "stop"
    told = [chunk["choices"][0]["delta"].get("content", "") for chunk in chunks]
    assert "".join(told) == "s\nab\n"


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_a_stop_string_that_spans_tokens_is_never_shown(echo_url, stream):
    body = {"prompt": "one two three", "max_tokens": 50, "stop": ["two t", "zz"], "stream": stream}
    reply = ask(echo_url, "/v1/completions", body)[2]
    choices = [event["choices"][0] for event in events(reply)] if stream else reply["choices"]
    assert "".join(choice["text"] for choice in choices) == "one "
    assert choices[-1]["finish_reason"] == "stop"


BAD = {
    "no prompt": {"max_tokens": 3},
    "prompt of the wrong type": {"prompt": 5},
    "empty prompt": {"prompt": ""},
    "empty list": {"prompt": []},
    "booleans as tokens": {"prompt": [True, False]},
    "negative token": {"prompt": [-1]},
    "token outside the vocabulary": {"prompt": [257]},
    "two prompts": {"prompt": ["a", "b"]},
    "half a surrogate pair": {"prompt": "\ud800"},
    "max_tokens 0": {"prompt": "a", "max_tokens": 0},
    "max_tokens as text": {"prompt": "a", "max_tokens": "5"},
    "absurd max_tokens": {"prompt": "a", "max_tokens": 10**30},
    "prompt over the context": {"prompt": "a" * 299, "max_tokens": 2},
    "sampling": {"prompt": "a", "temperature": 0.7},
    "two answers": {"prompt": "a", "n": 2},
    "log probabilities": {"prompt": "a", "logprobs": 5},
    "empty stop": {"prompt": "a", "stop": ""},
    "too many stops": {"prompt": "a", "stop": ["x"] * 17},
    "stream as text": {"prompt": "a", "stream": "yes"},
    "no object": ["a"],
    "null": None,
}


@pytest.mark.parametrize("body", BAD.values(), ids=[f"body:{name}" for name in BAD])
def test_a_malformed_body_gets_a_400_with_one_line(echo_url, body):
    status, _, reply = ask(echo_url, "/v1/completions", raw=json.dumps(body).encode())
    assert status == 400
    assert set(reply["error"]) == {"message", "type", "param", "code"}
    assert reply["error"]["message"]
    assert "\n" not in reply["error"]["message"]


@pytest.mark.parametrize(
    ("raw", "path", "wanted"),
    [
        (b'{"prompt": "\xff\xfe"}', "/v1/completions", 400),
        (b'{"prompt": "a"', "/v1/completions", 400),
        (b"[" * 10_000, "/v1/completions", 400),
        (b'{"prompt": "a", "temperature": NaN}', "/v1/completions", 400),
        (b'{"prompt": "' + b"a" * 30_000 + b'"}', "/v1/completions", 413),
        (b'{"prompt": "a", "model": "gpt"}', "/v1/completions", 404),
        (b'{"prompt": "a"}', "/v1/nothing", 404),
        (b'{"messages": []}', "/v1/chat/completions", 400),
        (b'{"messages": [{"role": "pirate", "content": "a"}]}', "/v1/chat/completions", 400),
        (b'{"prompt": "a", "temperature": 1}', "/generate", 400),
    ],
    ids=["not utf-8", "cut", "deep", "nan", "large", "model", "path", "no turns", "role", "extra"],
)
def test_the_server_refuses_and_goes_on(echo_url, raw, path, wanted):
    status, _, reply = ask(echo_url, path, raw=raw)
    assert status == wanted
    assert reply["error"]["message"]
    assert ask(echo_url, "/health")[0] == 200


def test_an_upload_without_a_length_is_cut_at_the_limit(echo_url):
    where = urlsplit(echo_url)
    chunk = b"3e8\r\n" + b"[" * 1_000 + b"\r\n"
    with closing(http.client.HTTPConnection(where.hostname, where.port, timeout=20)) as connection:
        connection.putrequest("POST", "/generate")
        connection.putheader("Transfer-Encoding", "chunked")
        connection.endheaders()
        for _ in range(BODY_LIMIT // 1_000 + 1):  # no more: what it does not read resets the line
            connection.send(chunk)
        assert connection.getresponse().status == 413


def test_who_sends_a_body_that_is_too_large_gets_to_read_why():
    """A server that closes while it is being sent to resets the line, and the answer with it."""
    with server_in_a_thread(scripted_app(SteppedEngine())) as url:
        raw = b'{"prompt": "' + b"a" * (4 << 20) + b'"}'
        replies = [ask(url, "/v1/completions", raw=raw) for _ in range(20)]
    assert {status for status, _, _ in replies} == {413}
    assert all("expected at most" in reply["error"]["message"] for _, _, reply in replies)


def test_an_upload_that_never_ends_is_given_up():
    app = scripted_app(SteppedEngine(), limits=Limits(body_timeout_s=0.1))
    with server_in_a_thread(app) as url:
        where = urlsplit(url)
        with closing(
            http.client.HTTPConnection(where.hostname, where.port, timeout=5)
        ) as connection:
            connection.putrequest("POST", "/generate")
            connection.putheader("Content-Length", "100")
            connection.endheaders(b"{")
            assert connection.getresponse().status == 408


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=5,
)
FIELDS = ["prompt", "messages", "max_tokens", "stop", "stream", "stream_options", "temperature"]


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    body=st.dictionaries(st.sampled_from([*FIELDS, "n", "model", "logit_bias"]), json_values),
    path=st.sampled_from(["/v1/completions", "/v1/chat/completions", "/generate"]),
)
def test_no_body_makes_the_server_fail(echo_url, body, path):
    assert ask(echo_url, path, raw=json.dumps(body).encode())[0] in (200, 400, 404)


def test_a_full_queue_answers_503_with_retry_after():
    engine = SteppedEngine(batch_size=1, step_s=0.01)
    with server_in_a_thread(scripted_app(engine, limits=Limits(max_in_flight=2))) as url:
        body = {"prompt": "a", "max_tokens": 30, "ignore_eos": True}
        with ThreadPoolExecutor(2) as pool:
            slow = [pool.submit(ask, url, "/v1/completions", body) for _ in range(2)]
            wait_for(lambda: scrape(url)["serving_requests_in_flight"] == 2)
            status, headers, reply = ask(url, "/v1/completions", body)
            assert (status, headers["Retry-After"]) == (503, "1")
            assert reply["error"]["code"] == "queue_full"
            assert [done.result()[0] for done in slow] == [200, 200]
        counted = scrape(url)
    assert counted["serving_requests_in_flight"] == 0
    assert counted["serving_kv_tokens"] == 0
    assert counted["serving_tokens_generated_total"] == 60
    assert counted['serving_requests_refused_total{status="503"}'] == 1
    assert counted["serving_in_flight_seconds_total"] > 0.6


@pytest.mark.parametrize(("locked", "most"), [(False, 40), (True, 1)], ids=["printed", "locked"])
def test_the_printed_handler_admits_forty_calls_at_once(locked, most):
    """The chapter says "one at a time"; FastAPI's thread pool says 40. Locked, it is one."""

    def answer_when_full(request):
        deadline = time.monotonic() + 10
        while engine.most_calls < most and time.monotonic() < deadline:
            time.sleep(0.005)
        return echo(request)

    engine = BlockingEngine(answer_when_full, step_s=0.001)
    with server_in_a_thread(scripted_app(engine, locked=locked)) as url:
        body = {"prompt": "a", "max_tokens": 10, "ignore_eos": True}
        with ThreadPoolExecutor(60) as pool:
            replies = list(pool.map(lambda _: ask(url, "/v1/completions", body)[0], range(60)))
    assert replies == [200] * 60
    assert engine.most_calls == most


def leave_after_the_first_token(url, body):
    where = urlsplit(url)
    with closing(http.client.HTTPConnection(where.hostname, where.port, timeout=5)) as connection:
        connection.request(
            "POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"}
        )
        connection.getresponse().readline()


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_a_client_that_leaves_frees_its_slot_within_a_step(stream):
    engine = SteppedEngine(batch_size=1, step_s=0.05)
    with server_in_a_thread(scripted_app(engine)) as url:
        body = {"prompt": "a", "max_tokens": 1000, "ignore_eos": True, "stream": stream}
        if stream:
            leave_after_the_first_token(url, body)
        else:
            where = urlsplit(url)
            connection = http.client.HTTPConnection(where.hostname, where.port)
            connection.request(
                "POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"}
            )
            wait_for(lambda: engine.running)
            connection.close()
        left_at_step = engine.steps
        wait_for(lambda: engine.is_idle)
        assert (
            engine.steps - left_at_step <= 2
        )  # the step under way, and one that had begun to wait
        wait_for(lambda: scrape(url)["serving_requests_in_flight"] == 0)
        assert scrape(url)['serving_requests_finished_total{reason="cancelled"}'] == 1


@pytest.mark.thorough
def test_a_client_that_leaves_the_queue_is_taken_out_of_it():
    engine = SteppedEngine(batch_size=1, step_s=0.02)
    body = {"prompt": "a", "max_tokens": 100, "ignore_eos": True}
    with server_in_a_thread(scripted_app(engine)) as url, ThreadPoolExecutor(1) as pool:
        first = pool.submit(ask, url, "/v1/completions", body)
        wait_for(lambda: engine.running)
        where = urlsplit(url)
        waiting = http.client.HTTPConnection(where.hostname, where.port)
        waiting.request("POST", "/v1/completions", json.dumps(body), JSON_HEADERS)
        wait_for(lambda: engine.waiting)
        waiting.close()
        wait_for(lambda: not engine.waiting)
        assert engine.steps < 90  # the first one needs 100: nobody's turn came
        assert first.result()[0] == 200


def test_a_client_that_leaves_ends_its_blocking_call():
    engine = BlockingEngine(step_s=0.02)
    with server_in_a_thread(scripted_app(engine)) as url:
        leave_after_the_first_token(
            url, {"prompt": "a", "max_tokens": 1000, "ignore_eos": True, "stream": True}
        )
        wait_for(lambda: engine.calls == 0)
    assert engine.tokens < 20


def test_a_request_that_can_never_fit_is_refused_also_as_a_stream():
    with server_in_a_thread(scripted_app(SteppedEngine(longest_prompt=3))) as url:
        status, _, reply = ask(url, "/v1/completions", {"prompt": "long", "stream": True})
    assert status == 400
    assert "can never fit" in reply["error"]["message"]


def test_an_engine_that_breaks_fails_its_requests_and_the_health_check():
    engine = SteppedEngine(answer_with("abc"), step_s=0.001)
    engine.break_at_step = 3
    with server_in_a_thread(scripted_app(engine)) as url:
        told = ask(url, "/v1/completions", {"prompt": "a", "max_tokens": 9, "stream": True})[2]
        assert "planted fault" in events(told)[-1]["error"]["message"]
        assert ask(url, "/v1/completions", {"prompt": "a"})[0] == 503
        assert ask(url, "/health")[0] == 503


def test_streams_run_beside_each_other():
    engine = SteppedEngine(batch_size=8, step_s=0.005)
    with server_in_a_thread(scripted_app(engine)) as url, ThreadPoolExecutor(8) as pool:
        body = {"prompt": "abc", "max_tokens": 40, "ignore_eos": True}
        assert set(pool.map(lambda _: ask(url, "/v1/completions", body)[0], range(8))) == {200}
    assert engine.steps < 8 * 40 / 2
    assert threading.active_count() < 40
