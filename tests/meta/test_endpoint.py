"""Any OpenAI-compatible server as an engine: our own, and scripted ones with other habits."""

import time

import pytest

pytest.importorskip("fastapi", reason="the server needs the package fastapi")

from engines.endpoint import EndpointEngine
from engines.engine import ClientGone
from engines.records import Request
from fixtures.fake_server import Act, FakeServer, answer, text_chunk, usage_chunk
from fixtures.scripted_engine import ByteTokenizer, SteppedEngine
from fixtures.serving import SCRIPTED_MODEL, scripted_app, server_in_a_thread


class HostClock:
    def now_s(self):
        return time.perf_counter()


def engine_at(url, **options):
    return EndpointEngine(url, SCRIPTED_MODEL, clock=HostClock(), **options)


@pytest.fixture(scope="module")
def url():
    with server_in_a_thread(scripted_app(SteppedEngine(batch_size=8, step_s=0.001))) as url:
        yield url


def test_requests_come_back_in_order_with_their_tokens(url):
    requests = [Request((65 + i, 66), 5, request_id=str(i)) for i in range(10)]
    done = engine_at(url, batch_size=4).run(requests)
    assert [one.token_ids for one in done] == [(65 + i, 66, 256, 65 + i, 66) for i in range(10)]
    assert all(one.finish_reason == "length" and one.error is None for one in done)
    assert all(one.sent_s <= one.token_s[0] for one in done)


def test_stop_ids_let_the_server_stop(url):
    done = engine_at(url).run([Request((65,), 9, stop_ids=frozenset({256}))])
    assert (done[0].token_ids, done[0].finish_reason) == ((65, 256), "stop")


def test_prompts_can_go_as_text(url):
    assert engine_at(url, tokenizer=ByteTokenizer()).run([Request((72, 105), 2)])[0].token_ids == (
        72,
        105,
    )


def test_tokens_are_told_and_a_listener_may_leave(url):
    heard = []

    def listen(request, token):
        heard.append(token)
        if len(heard) == 2:
            raise ClientGone

    engine_at(url).run([Request((65, 66, 67), 3)], listen)
    assert heard == [65, 66]


def test_a_server_that_cannot_be_reached_is_an_error_in_the_record():
    done = engine_at("http://127.0.0.1:9").run([Request((1,), 3)])[0]
    assert done.finish_reason == "error"
    assert done.error


FINISH = text_chunk("", finish="length")
OTHERS = {
    "merged chunks": (
        answer(Act(0.0, text_chunk("aa")), Act(0.01, text_chunk("aaaa") + FINISH + usage_chunk(6))),
        6,
        True,
        None,
    ),
    "no counts": (answer(Act(0.0, text_chunk("a") + FINISH)), 1, False, "cannot be counted"),
}


@pytest.mark.parametrize("name", OTHERS, ids=lambda name: f"server:{name}")
def test_servers_with_other_habits(name):
    script, tokens, chunked, error = OTHERS[name]

    class Asks(EndpointEngine):
        """Names the script to play in every request."""

        def _call(self, request):
            call = super()._call(request)
            return type(call)(call.request_id, call.body[:-1] + b', "script": "it"}')

    with FakeServer({"it": script}).running() as server:
        done = Asks(server.url, None, clock=HostClock()).run([Request((1,), tokens)])[0]
    assert (len(done.token_ids), done.chunked) == (tokens, chunked)
    assert (error in done.error) if error else done.error is None


def test_what_is_not_known_here_is_said(url):
    with pytest.raises(ValueError, match="not loaded here"):
        engine_at(url).bytes_per_step(10)
    assert engine_at(url).memory().weights_bytes == 0
    assert engine_at(url).warm_up(4, 2).runs == 2
