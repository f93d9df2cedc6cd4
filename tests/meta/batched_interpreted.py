"""Run the kernels of a step of many rows in Triton's interpreter, and print the tokens as JSON.

A process of its own: the interpreter is chosen by a variable that Triton reads when it is imported.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass

from tests.meta.fused_models import fused_model, prompt, worst_gap

SIZES = {"vocab_size": 70, "hidden_size": 32, "intermediate_size": 48, "head_dim": 16}
SIZES |= {"num_attention_heads": 2, "num_key_value_heads": 1, "num_hidden_layers": 1}
SIZES |= {"initializer_range": 0.5}
CAPACITY = 36
NEW_TOKENS = 3


@dataclass(frozen=True)
class Case:
    """Prompts of these lengths over two slots, fed at most `rows` at a time."""

    family: str
    prompts: tuple[int, ...]
    rows: int = 32
    fault: bool = False


CASES = {
    "qwen3 over two blocks of the cache": Case("qwen3", (15,)),
    "qwen3 in pieces, with others": Case("qwen3", (15, 1, 31), rows=9),
    "llama": Case("llama", (18,)),
    "no rotation": Case("qwen3", (15,), fault=True),
}


def run(case: Case) -> dict[str, object]:
    """Tokens of each request, and how far the worst is from the plain model's choice."""
    from engines.clock import Clock
    from engines.fused_continuous import FusedContinuous
    from engines.records import Request

    loaded = fused_model(case.family, **SIZES)
    if case.fault:
        plant_no_rotation()
    engine = FusedContinuous(
        loaded,
        batch_size=2,
        max_tokens=CAPACITY,
        clock=Clock("cpu"),
        rows=case.rows,
        rows_running=case.rows,
    )
    ids = [tuple(i % SIZES["vocab_size"] for i in prompt(length)) for length in case.prompts]
    done = engine.run([Request(row, NEW_TOKENS) for row in ids])
    rows = [list(completion.token_ids) for completion in done]
    gaps = [worst_gap(loaded, list(row), tokens) for row, tokens in zip(ids, rows, strict=True)]
    return {"rows": rows, "gap": max(gaps)}


def plant_no_rotation() -> None:
    """A fault: nobody is turned. A wrong position for all would not be seen, only distances are."""
    from engines import fused_weights

    right = fused_weights._rotation
    fused_weights._rotation = lambda model, capacity, width: tuple(
        table[:1].expand_as(table).contiguous() for table in right(model, capacity, width)
    )


def main() -> None:
    """Every case, the one with a fault last."""
    import torch

    torch.set_num_threads(1)
    json.dump({name: run(case) for name, case in CASES.items()}, sys.stdout)


if __name__ == "__main__":
    main()
