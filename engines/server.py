"""`python -m engines.server --engine continuous --model tiny`: serve an engine over HTTP.

The server listens on loopback unless told otherwise, and says where on its first line of output;
port 0 takes a free one. `--engine naive` is the chapter's handler, whose calls run in a pool of 40
threads; `--locked` is the same with one call at a time.
"""

from __future__ import annotations

import argparse
import json
import socket
import sys
from typing import TYPE_CHECKING, Any

import uvicorn

from engines.registry import ENGINE_NAMES, build_engine
from engines.serving.app import create_app
from engines.serving.drivers import ThreadPoolDriver
from engines.serving.jobs import ServedModel
from engines.serving.limits import Limits
from engines.serving.stepping import StepDriver
from engines.serving.text import IdsAsText

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fastapi import FastAPI

    from engines.models import LoadedModel
    from engines.serving.drivers import Driver


def serving_app(
    engine: Any, loaded: LoadedModel, *, locked: bool = False, limits: Limits | None = None
) -> FastAPI:
    """The application over an engine; one that can be stepped is stepped."""
    model = ServedModel(
        name=loaded.name,
        tokenizer=loaded.tokenizer or IdsAsText(),
        vocab_size=loaded.model.config.get_text_config().vocab_size,
        stop_ids=loaded.stop_ids,
    )
    return create_app(driver_for(engine, locked=locked), model, limits=limits)


def driver_for(engine: Any, *, locked: bool = False) -> Callable[[], Driver]:
    """What makes the driver that fits the engine, once there is an event loop."""
    if hasattr(engine, "step"):
        return lambda: StepDriver(engine)
    return lambda: ThreadPoolDriver(engine, locked=locked)


def main(arguments: Sequence[str] | None = None) -> int:
    """Load, listen, serve until interrupted; 2 for arguments that cannot be served."""
    options = _parser().parse_args(arguments)
    try:
        app = _load(options)
        listening = _listen(options.host, options.port)
    except (ValueError, ImportError, OSError) as problem:
        sys.stderr.write(f"error: {problem}\n")
        return 2
    host, port = listening.getsockname()[:2]
    ready = {"url": f"http://{host}:{port}", "engine": options.engine, "model": options.model}
    sys.stdout.write(json.dumps(ready) + "\n")
    sys.stdout.flush()
    config = uvicorn.Config(app, log_level="warning", access_log=False, backlog=4096)
    uvicorn.Server(config).run(sockets=[listening])
    return 0


def _load(options: argparse.Namespace) -> FastAPI:
    from engines.clock import Clock
    from engines.models import load_model

    loaded = load_model(
        options.model, device=options.device, dtype=options.dtype, adapter=options.adapter
    )
    engine = build_engine(
        options.engine,
        loaded,
        batch_size=options.batch_size,
        max_tokens=options.max_context_tokens,
        clock=Clock(options.device),
    )
    engine.warm_up(options.warm_up_tokens, options.warm_up_tokens)
    limits = Limits(
        max_context_tokens=options.max_context_tokens,
        max_new_tokens=options.max_new_tokens,
        max_in_flight=options.max_in_flight,
        max_body_bytes=options.max_body_bytes,
    )
    return serving_app(engine, loaded, locked=options.locked, limits=limits)


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
    except OSError as problem:
        listening.close()
        raise OSError(f"cannot listen on {host}:{port}: {problem.strerror}; try --port 0") from None
    return listening


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m engines.server", description=__doc__)
    limits = Limits()
    add = parser.add_argument
    add("--engine", default="continuous", choices=ENGINE_NAMES)
    add("--model", default="tiny", help="a name, a local folder or a hub id")
    add("--adapter", default=None, help="folder of a LoRA adapter to merge")
    add("--device", default="cpu", choices=("cpu", "cuda"))
    add("--dtype", default=None, help="weights' type; by default what the device does best")
    add("--batch-size", type=_count, default=1, help="rows of one step (continuous: slots)")
    add("--locked", action="store_true", help="one call at a time (naive engines)")
    add("--host", default="127.0.0.1", help="other than loopback only if you mean it")
    add("--port", type=int, default=8000)
    add("--max-context-tokens", type=_count, default=limits.max_context_tokens)
    add("--max-new-tokens", type=_count, default=limits.max_new_tokens)
    add("--max-in-flight", type=_count, default=limits.max_in_flight)
    add("--max-body-bytes", type=_count, default=limits.max_body_bytes)
    add("--warm-up-tokens", type=_count, default=8)
    return parser


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"got {value}, expected at least 1")
    return value


if __name__ == "__main__":
    sys.exit(main())
