"""The web application over any engine: the chapter's `/generate` and OpenAI's completions.

Greedy decoding only. Each endpoint does three things: make a job of the body, hand it to the
driver of the engine, tell the pieces that come back. See `drivers.py` for how an engine that
blocks and one that batches are fed.
"""

import contextlib
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response

from engines.serving.answering import Service
from engines.serving.drivers import Driver
from engines.serving.jobs import Job, JobReader, ServedModel
from engines.serving.limits import BodyLimit, Limits, Refusal
from engines.serving.metrics import ServerMetrics
from engines.serving.protocol import ChatBody, CompletionBody, GenerateBody
from engines.serving.replies import Replies
from engines.serving.responses import StreamedAnswer, WholeAnswer

ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"description": what}
    for status, what in {
        400: "the request cannot be served; the message says why",
        404: "no such model or path",
        408: "the body did not arrive in time",
        413: "the body is too large",
        422: "never sent: malformed bodies get 400",
        503: "the queue is full; see Retry-After",
    }.items()
}


def create_app(
    make_driver: Callable[[], Driver],
    model: ServedModel,
    *,
    limits: Limits | None = None,
    now_s: Callable[[], float] = time.monotonic,
) -> FastAPI:
    """The application; `make_driver` is called on its event loop when it starts."""
    limits = limits or Limits()
    metrics = ServerMetrics(now_s)
    reader = JobReader(model, limits)

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        driver = make_driver()
        app.state.service = Service(driver, metrics, limits, model.tokenizer)
        yield
        driver.close()

    app = FastAPI(title="serving-ladder", lifespan=lifespan)
    app.add_middleware(BodyLimit, limits=limits)
    _tell_errors(app, metrics)
    _add_status_pages(app, model, metrics)

    def service() -> Service:
        return app.state.service  # type: ignore[no-any-return]  # starlette's state is untyped

    def told(job: Job) -> Response:
        replies = Replies(job, model.name)
        if job.stream:
            return StreamedAnswer(job, service(), replies)
        return WholeAnswer(job, service(), replies.whole)

    @app.post("/v1/completions", responses=ERRORS)
    async def completions(body: CompletionBody) -> Response:
        return told(await reader.completion(body))

    @app.post("/v1/chat/completions", responses=ERRORS)
    async def chat_completions(body: ChatBody) -> Response:
        return told(await reader.chat(body))

    @app.post("/generate", responses=ERRORS)
    async def generate(body: GenerateBody) -> Response:
        job = await reader.generate(body)
        return WholeAnswer(
            job, service(), lambda pieces: {"text": "".join(piece.text for piece in pieces)}
        )

    return app


def _add_status_pages(app: FastAPI, model: ServedModel, metrics: ServerMetrics) -> None:
    started = int(time.time())

    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        entry = {"id": model.name, "object": "model", "created": started, "owned_by": "local"}
        return {"object": "list", "data": [entry]}

    @app.get("/health")
    async def health() -> Response:
        failed = app.state.service.driver.failed
        return JSONResponse({"status": failed or "ok"}, 503 if failed else 200)

    @app.get("/metrics")
    async def metrics_page() -> Response:
        return Response(metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")


def _tell_errors(app: FastAPI, metrics: ServerMetrics) -> None:
    """Every error in OpenAI's shape, and counted."""

    def answer(refusal: Refusal) -> Response:
        metrics.refused[str(refusal.status)] += 1
        return refusal.response()

    @app.exception_handler(Refusal)
    async def refused(_: HttpRequest, refusal: Refusal) -> Response:
        return answer(refusal)

    @app.exception_handler(RequestValidationError)
    async def malformed(_: HttpRequest, problem: RequestValidationError) -> Response:
        first = problem.errors()[0]
        where = ".".join(str(part) for part in first["loc"] if part != "body") or "body"
        return answer(Refusal(400, f"{where}: {first['msg']}", param=where))

    @app.exception_handler(HTTPException)
    async def http_error(request: HttpRequest, problem: HTTPException) -> Response:
        what = f"{request.method} {request.url.path[:80]}: {problem.detail}"
        return answer(Refusal(problem.status_code, what, headers=dict(problem.headers or {})))
