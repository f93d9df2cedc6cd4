"""The official OpenAI client talks to our server: streamed and not, usage right, Thai whole."""

import pytest

pytest.importorskip("fastapi", reason="the server needs the package fastapi")

from fixtures.scripted_engine import BlockingEngine, SteppedEngine, answer_with
from fixtures.serving import SCRIPTED_MODEL, scripted_app, server_in_a_thread

ANSWER = "เชียงใหม่อยู่ทางภาคเหนือ 🙂"
TOKENS = len(ANSWER.encode()) + 1  # one per byte, and the end token


@pytest.fixture(scope="module", params=[SteppedEngine, BlockingEngine], ids=["stepped", "blocking"])
def client(request):
    openai = pytest.importorskip("openai")
    app = scripted_app(request.param(answer_with(ANSWER)))
    with (
        server_in_a_thread(app) as url,
        openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client,
    ):
        yield client


MESSAGES = [{"role": "user", "content": "เชียงใหม่อยู่ที่ไหน"}]


def test_chat(client):
    reply = client.chat.completions.create(model=SCRIPTED_MODEL, messages=MESSAGES, max_tokens=200)
    assert reply.choices[0].message.content == ANSWER
    assert reply.choices[0].finish_reason == "stop"
    assert reply.usage.completion_tokens == TOKENS
    assert reply.usage.total_tokens == reply.usage.prompt_tokens + TOKENS


def test_chat_streamed(client):
    stream = client.chat.completions.create(
        model=SCRIPTED_MODEL,
        messages=MESSAGES,
        max_completion_tokens=200,
        stream=True,
        stream_options={"include_usage": True},
    )
    *chunks, last = list(stream)
    said = [chunk.choices[0].delta.content or "" for chunk in chunks]
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(said) == ANSWER
    assert not any("\ufffd" in piece for piece in said)
    assert last.usage.completion_tokens == TOKENS


def test_completion(client):
    reply = client.completions.create(model=SCRIPTED_MODEL, prompt="x", max_tokens=6, temperature=0)
    assert (reply.choices[0].text, reply.choices[0].finish_reason) == (ANSWER[:2], "length")
    assert reply.usage.completion_tokens == 6


def test_completion_streamed_up_to_a_stop_string(client):
    stream = client.completions.create(
        model=SCRIPTED_MODEL, prompt="x", max_tokens=200, stop=["ทาง"], stream=True
    )
    choices = [chunk.choices[0] for chunk in stream]
    assert "".join(choice.text for choice in choices) == ANSWER.split("ทาง", maxsplit=1)[0]
    assert choices[-1].finish_reason == "stop"


def test_token_id_prompts(client):
    reply = client.completions.create(model=SCRIPTED_MODEL, prompt=[1, 2, 3], max_tokens=1)
    assert reply.usage.prompt_tokens == 3


def test_models(client):
    assert [model.id for model in client.models.list()] == [SCRIPTED_MODEL]


def test_errors_are_the_clients_own_exceptions(client):
    from openai import BadRequestError, NotFoundError

    with pytest.raises(BadRequestError, match="max_tokens"):
        client.completions.create(model=SCRIPTED_MODEL, prompt="x", max_tokens=10**6)
    with pytest.raises(NotFoundError, match="not served here"):
        client.completions.create(model="gpt", prompt="x")
