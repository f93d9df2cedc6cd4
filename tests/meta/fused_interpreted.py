"""Run the Triton kernels in Triton's interpreter and print what came out, as JSON.

A process of its own: the interpreter is chosen by a variable that Triton reads when it is imported.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass

from tests.meta.fused_models import fused_model, prompt, worst_gap

SMALL = {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 2}
SMALL |= {"num_key_value_heads": 1, "head_dim": 64}
NEW_TOKENS = 3


@dataclass(frozen=True)
class Case:
    """One engine over prompts of these lengths, which share its batch."""

    family: str
    engine: str
    prompts: tuple[int, ...]
    fault: str = ""


CASES = {
    "qwen3 before and over a tile": Case("qwen3", "Fused", (63,)),
    "qwen3 over two tiles": Case("qwen3", "Fused", (127,)),
    "qwen3 both in one batch": Case("qwen3", "Fused", (63, 127)),
    "qwen3 from one token": Case("qwen3", "Fused", (1,)),
    "llama": Case("llama", "Fused", (20,)),
    "int8": Case("qwen3", "FusedInt8", (20,)),
    "nf4": Case("qwen3", "FusedNF4", (20,)),
    "a rotation of the wrong position": Case("qwen3", "Fused", (20,), "rotation"),
}


def run(case: Case) -> dict[str, object]:
    """Tokens of each row, and how far the worst is from the plain model's choice."""
    import engines.fused
    from engines.clock import Clock
    from engines.records import Request

    loaded = fused_model(case.family, **SMALL)
    engine = getattr(engines.fused, case.engine)(
        loaded, batch_size=len(case.prompts), max_tokens=140, clock=Clock("cpu")
    )
    if case.fault:
        plant_rotation_of_the_next_position()
    requests = [Request(tuple(prompt(length)), NEW_TOKENS) for length in case.prompts]
    rows = [list(done.token_ids) for done in engine.run(requests)]
    pairs = zip(requests, rows, strict=True)
    gaps = [worst_gap(engine.loaded, list(request.prompt_ids), row) for request, row in pairs]
    return {"rows": rows, "gap": max(gaps)}


def plant_rotation_of_the_next_position() -> None:
    """A fault: every head is turned as if it stood one position further."""
    from engines import fused_weights

    right = fused_weights._rotation
    fused_weights._rotation = lambda model, capacity, width: tuple(
        table[1:].contiguous() for table in right(model, capacity + 1, width)
    )


def main() -> None:
    """Every case, the one with a fault last."""
    import torch

    torch.set_num_threads(1)
    json.dump({name: run(case) for name, case in CASES.items()}, sys.stdout)


if __name__ == "__main__":
    main()
