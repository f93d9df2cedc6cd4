"""`python -m reports budget --model … --gpu T4`: memory, ceilings and what fits, for any config."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING

from engines.gpus import gpu_named
from reports.budget import KV_VALUES, WEIGHTS, Budget, Question, budget
from reports.catalogue import find_shape
from reports.units import printed_unit, significant

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the inputs of the calculator."""
    parser.add_argument("--model", default="Qwen/Qwen3-0.6B", help="folder, config.json or hub id")
    parser.add_argument("--gpu", default="T4", help="a card of the datasheet table")
    parser.add_argument("--context", type=int, default=4096, help="tokens per sequence")
    parser.add_argument("--batch", type=int, default=1, help="concurrent requests")
    parser.add_argument("--weights", choices=tuple(WEIGHTS), default="fp16")
    parser.add_argument("--kv", choices=tuple(KV_VALUES), default="fp16")
    parser.add_argument("--json", action="store_true", help="every number, unrounded")


def run(args: argparse.Namespace) -> int:
    """Print the budget."""
    question = _question(args)
    answer = budget(question)
    if args.json:
        print(json.dumps(dataclasses.asdict(answer)))
        return 0
    print("\n".join(lines(args.model, args.gpu, question, answer)))
    return 0


def _question(args: argparse.Namespace) -> Question:
    gpu = gpu_named(args.gpu)
    return Question(
        shape=find_shape(args.model),
        memory_bytes=gpu.memory_bytes,
        bandwidth_bytes_per_s=gpu.bandwidth_bytes_per_s,
        context_tokens=args.context,
        batch_size=args.batch,
        weights=args.weights,
        kv=args.kv,
    )


def lines(model: str, gpu: str, asked: Question, answer: Budget) -> Iterator[str]:
    """The budget as printed lines; bytes in full, so that they can be compared."""
    yield f"{model} on {gpu}, {WEIGHTS[asked.weights][0]}, KV cache {KV_VALUES[asked.kv][0]}"
    yield f"batch {asked.batch_size}, {asked.context_tokens:,} tokens of context each"
    yield ""
    yield _bytes("weights", answer.weights_bytes)
    yield _bytes("KV cache", answer.kv_bytes)
    yield _bytes("KV cache per token", answer.kv_token_bytes)
    yield _bytes("left" if answer.fits else "missing", abs(answer.left_bytes))
    yield f"{'sequences that fit':<22}{answer.sequences:,.1f}"
    yield f"{'decode ceiling':<22}{significant(answer.ceiling_tokens_per_s)} tok/s, all rows"
    yield ""
    yield _filled(asked, answer)
    for note in asked.shape.notes:
        yield f"note: {note}"


def _bytes(name: str, value: float) -> str:
    return f"{name:<22}{value:,.0f} B ({printed_unit('bytes', value).with_label(value)})"


def _filled(asked: Question, answer: Budget) -> str:
    memory = f"{asked.memory_bytes / 1e9:g} GB"
    if answer.weights_bytes > asked.memory_bytes:
        return f"the weights alone are larger than {memory}"
    if answer.fills_at_tokens is None:
        return f"batch {asked.batch_size} never hits {memory}: every layer has a window"
    return f"batch {asked.batch_size} hits {memory} at {int(answer.fills_at_tokens):,} tokens"
