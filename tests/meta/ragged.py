"""Random ragged workloads, and the check that each request got what it gets alone.

A workload is data: who arrives before which step, who is cancelled when. It is served through
`submit`, `cancel` and `step`, as a server does, so that arrivals fall between decode steps. The
check needs one forward per workload: the tokens of every answer are fed back ("teacher forcing"),
and each has to be the argmax at its position. That is the same as decoding alone, token by token,
because a greedy answer is determined by its first deviation.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from engines.records import Completion, Request

if TYPE_CHECKING:
    from collections.abc import Sequence

VOCABULARY = 97
CAPACITY = 48
TIE = 1e-3
"""Logits of these models spread by about 3 and carry fp32 errors of about 1e-5: two candidates that
are closer than 1e-3 may swap when a sum is taken in another order. A fault moves logits by 1."""


@dataclass(frozen=True)
class Workload:
    """Requests with the step before which each arrives, and cancellations likewise."""

    seed: int
    slots: int
    arrivals: tuple[tuple[int, Request], ...]
    cancels: tuple[tuple[int, str], ...]


def workload(seed: int, stops: Sequence[int] = range(VOCABULARY)) -> Workload:
    """Draw a workload: 1 to 32 slots, more requests than slots, lengths from 1 to the maximum.

    `stops` are the ids that requests may stop at; a model has to say some of them.
    """
    draw = random.Random(seed)
    slots = draw.choice((1, 2, 3, 4, 8, 16, 32))
    requests = [_request(draw, str(i), stops) for i in range(draw.randint(1, slots + 8))]
    arrivals = [(draw.choice((0, draw.randrange(30))), request) for request in requests]
    repeated = draw.choice(requests)
    arrivals.append((draw.randrange(30), _again(repeated, "again")))
    cancels = [
        (step + draw.randrange(9), r.request_id) for step, r in arrivals if draw.random() < 0.15
    ]
    return Workload(seed, slots, tuple(sorted(arrivals, key=lambda a: a[0])), tuple(cancels))


def serve(engine, work: Workload, step=None) -> dict[str, Completion]:
    """Step the engine until the workload is done; checks one forward per step on the way.

    A captured step runs no forward that could be seen: give `step` there to step without checking.
    """
    step = step or one_step
    arrivals = defaultdict(list)
    for when, request in work.arrivals:
        arrivals[when].append(request)
    done, now, last = {}, 0, work.arrivals[-1][0]
    while now <= last or not engine.is_idle:
        for request in arrivals[now]:
            engine.submit(request)
        for when, request_id in work.cancels:
            if when == now:
                engine.cancel(request_id)
        done |= {c.request.request_id: c for c in step(engine)}
        now += 1
    assert set(done) == {request.request_id for _, request in work.arrivals}, "lost or invented"
    assert len(engine.slots.free) == work.slots, "a slot was not given back"
    return done


def one_step(engine) -> list[Completion]:
    """Step, and count: one forward for all running rows, and one more for each admitted prompt."""
    before = engine.counters.prefill_forwards
    going_on = any(a.request.request_id not in engine.cancelled for a in engine.running.values())
    with forwards(engine.loaded.model) as calls:
        done = engine.step()
    decodes = sum(rows == engine.batch_size and tokens == 1 for rows, tokens in calls)
    prefills = engine.counters.prefill_forwards - before
    assert len(calls) <= prefills + 1, f"{len(calls)} forwards for {prefills} prompts and one step"
    assert decodes >= going_on, "running rows got no forward"
    return done


class forwards:  # noqa: N801  # reads as a statement: with forwards(model) as calls
    """The shapes [rows, tokens] of the model's forwards while the block runs."""

    def __init__(self, model) -> None:
        self.model = model
        self.calls: list[tuple[int, int]] = []

    def __enter__(self) -> list[tuple[int, int]]:
        def note(module, args, kwargs, output) -> None:
            self.calls.append(tuple(kwargs["input_ids"].shape))

        self.hook = self.model.register_forward_hook(note, with_kwargs=True)
        return self.calls

    def __exit__(self, *exc: object) -> None:
        self.hook.remove()


def check_alone(model, done: dict[str, Completion]) -> Counter:
    """Every token of every answer is what the model alone says next; counts of what was checked."""
    import torch

    answered = [c for c in done.values() if c.token_ids]
    rows = [[*c.request.prompt_ids, *c.token_ids] for c in answered]
    if not rows:
        return Counter()
    width = max(map(len, rows))
    # Filled up on the right: a causal model does not look there.
    ids = torch.tensor([row + [0] * (width - len(row)) for row in rows], device=model.device)
    with torch.no_grad():
        logits = model(input_ids=ids, use_cache=False).logits
    seen: Counter = Counter(requests=len(rows))
    for completion, row in zip(answered, logits, strict=True):
        seen += _check_one(completion, row)
    return seen


def _check_one(completion: Completion, logits) -> Counter:
    start = len(completion.request.prompt_ids) - 1
    own = logits[start : start + len(completion.token_ids)]
    chosen = own.gather(1, own.new_tensor(completion.token_ids).long()[:, None])[:, 0]
    gap = own.max(dim=1).values - chosen
    worst = float(gap.max())
    assert worst < TIE, (
        f"request {completion.request.request_id}: token {int(gap.argmax())} is {worst:.3g} "
        "below the best logit of the request alone"
    )
    _check_end(completion)
    ties = int((gap > 0).sum())
    return Counter(tokens=len(completion.token_ids), ties=ties) + Counter(
        [completion.finish_reason]
    )


def _check_end(completion: Completion) -> None:
    request, tokens = completion.request, completion.token_ids
    assert not request.stop_ids.intersection(tokens[:-1]), "went on after a stop token"
    match completion.finish_reason:
        case "length":
            assert len(tokens) == request.max_new_tokens
        case "stop":
            assert tokens[-1] in request.stop_ids
        case reason:
            assert reason == "cancelled"
            assert len(tokens) < request.max_new_tokens


@cache
def qwen3(device: str = "cpu"):
    """Random Qwen3: rotary positions, grouped keys, head_dim that is not hidden / heads."""
    from transformers import Qwen3Config

    return _wrapped(
        Qwen3Config(
            vocab_size=VOCABULARY,
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=16,
            max_position_embeddings=64,
            initializer_range=0.5,  # far above the usual 0.02: answers do not repeat one token
        ),
        device,
    )


@cache
def gpt2(device: str = "cpu"):
    """Random GPT-2: learned absolute positions, where even a uniform shift changes the logits."""
    from transformers import GPT2Config

    return _wrapped(
        GPT2Config(
            vocab_size=VOCABULARY,
            n_embd=32,
            n_layer=2,
            n_head=4,
            n_positions=64,
            initializer_range=0.5,
            bos_token_id=0,
            eos_token_id=0,
        ),
        device,
    )


@cache
def embedded(device: str = "cpu"):
    """The embedded trained model, adapter merged, in fp32."""
    from engines.models import load_model

    return load_model("tiny", device=device, dtype="float32")


MODELS = {"qwen3": qwen3, "gpt2": gpt2, "embedded": embedded}


def _wrapped(config, device):
    import torch

    from engines.models import wrap
    from engines.weights import random_model

    model = random_model(config, device=device, dtype=torch.float32, seed=0)
    return wrap(config.model_type, "random", model, None, device=device, content_hash="seed 0")


def _request(draw: random.Random, request_id: str, among: Sequence[int]) -> Request:
    prompt = draw.choice((1, draw.randint(1, CAPACITY - 1), draw.randint(1, 8)))
    new = draw.choice((1, draw.randint(1, CAPACITY - prompt), min(12, CAPACITY - prompt)))
    ids = tuple(draw.randrange(VOCABULARY) for _ in range(prompt))
    stops = frozenset(draw.sample(among, 4)) if draw.random() < 0.3 else frozenset()
    return Request(ids, new, request_id=request_id, stop_ids=stops)


def _again(request: Request, request_id: str) -> Request:
    return Request(
        request.prompt_ids, request.max_new_tokens, request_id=request_id, stop_ids=request.stop_ids
    )
