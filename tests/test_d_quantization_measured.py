"""Sections 3.4 and 7.4, measured: int8 and nf4 with their speed, memory and quality together."""

from __future__ import annotations

import pytest

from engines import cost
from fixtures.hardware import skip_unless_available, why_not
from fixtures.quality_loss import item_points
from fixtures.quality_margins import verdicts
from reports.bounds import above, below

METHODS = ("int8", "nf4")
ONLY_ONE = "this profile measures quantized engines at batch 1, which the claims are about"


@pytest.fixture(autouse=True)
def _with_bitsandbytes(device):
    for method in METHODS:
        skip_unless_available(method, device)


@pytest.mark.claim("C21")
@pytest.mark.claim("C22")
@pytest.mark.claim("C10")
@pytest.mark.claim("C26")
@pytest.mark.parametrize(
    "batch", [1, pytest.param(8, marks=pytest.mark.thorough)], ids="batch:{}".format
)
def test_int8_and_nf4_decode_beside_fp16(batch, measure, judge, ceilings, device, rows, sizes):
    """Section 7.4, all eager and interleaved: int8 slower than fp16, nf4 faster than int8.

    Threshold 6 is the chapter's LLM.int8(); 0 leaves the outlier split out and so isolates it. The
    claims are about batch 1; batch 8 (less where the profile's batches are smaller) and threshold 0
    are recorded beside them. The same runs at batch 1 stay below the ceilings of their own bytes.
    """
    from engines.quantized import Int8

    if batch > 1 and sizes.quantized_batch == 1:
        for claim, method in (("C21", "int8"), ("C22", "nf4")):
            judge.not_applicable(
                ONLY_ONE, quantity="speed", subject=f"{method}@{batch}", claim=claim
            )
        return
    batch = min(batch, sizes.quantized_batch)
    shape = measure.shape(batch)
    engines = {name: measure.engine(name, shape) for name in ("naive", *METHODS)}
    engines["int8 threshold 0"] = Int8(
        measure.shelf.loaded,
        batch_size=batch,
        max_tokens=shape.max_tokens,
        clock=measure.clock,
        threshold=0.0,
    )
    found = measure.compare_built(engines, shape, rounds=sizes.costly_rounds)
    beside = None if batch == 1 else f"claimed at batch 1, this is batch {batch}"
    judge(
        found.speed_ratio("int8", "naive"),
        below(1.0),
        quantity="speed over fp16",
        subject=f"int8@{batch}",
        claim="C21",
        applies=why_not("C21", device) or beside,
        faults=found.faults,
    )
    judge(
        found.speed_ratio("int8 threshold 0", "int8"),
        above(1.0),
        quantity="speed without the outlier split over with it",
        subject=f"int8@{batch}",
        claim="C21",
        applies=why_not("C21", device) or beside,
        faults=found.faults,
    )
    judge(
        found.speed_ratio("nf4", "int8"),
        above(1.0),
        quantity="speed over int8 (threshold 6)",
        subject=f"nf4@{batch}",
        claim="C22",
        applies=beside,
        faults=found.faults,
    )
    judge(
        found.speed_ratio("nf4", "int8 threshold 0"),
        above(1.0),
        quantity="speed over int8 (threshold 0)",
        subject=f"nf4@{batch}",
        claim="C22",
        applies="the chapter's int8 has threshold 6",
        faults=found.faults,
    )
    if batch == 1:
        for method in METHODS:
            ceilings.judge_decode(found.runs[method], judge)
    for run in found.runs.values():
        rows.keep(run, claim="C21" if run.engine.startswith("int8") else "C22")


@pytest.mark.claim("C23")
def test_memory_orders_nf4_below_int8_below_fp16(engines, measure, judge):
    """Section 7.4: bytes as loaded, scales included."""
    shape = measure.shape()
    held = {
        name: engines.get(name, max_tokens=shape.max_tokens).memory().weights_bytes
        for name in ("naive", *METHODS)
    }
    for small, large in (("nf4", "int8"), ("int8", "naive")):
        judge(
            held[small] / held[large],
            below(1.0),
            quantity=f"bytes over those of {large}",
            subject=small,
            timed=False,
            extra=held,
        )


@pytest.mark.claim("C24")
@pytest.mark.claim("C26")
@pytest.mark.parametrize("method", METHODS, ids="method:{}".format)
def test_quality_stays_within_tolerance_of_fp16(method, qualities, device, test_record):
    """Section 7.4: accuracy loss, perplexity ratio and KL, paired, against margins fixed before."""
    loss = qualities.loss(method)
    test_record.verdicts += verdicts(loss, device=device, applies=qualities.applies)
    if loss.answers is not None:
        test_record.add_series("quality_items", item_points(loss.answers, "fp16", method))


@pytest.mark.claim("C25")
@pytest.mark.parametrize("method", METHODS, ids="method:{}".format)
def test_quantized_weights_leave_the_kv_cache_alone(method, engines, loaded, judge):
    """Section 7.4: the cache of a quantized model has the bytes that the formula gives for fp16."""
    from fixtures.inputs import requests

    prompt_tokens, new_tokens = 16, 8
    engine = engines.get(method, max_tokens=prompt_tokens + new_tokens)
    engine.run(
        requests(
            1,
            prompt_tokens=prompt_tokens,
            new_tokens=new_tokens,
            vocab_size=loaded.shape.vocab_size,
        )
    )
    held = prompt_tokens + new_tokens - 1  # the last token is never fed back
    judge.exact(
        engine.memory().kv_bytes,
        cost.kv_cache_bytes(loaded.shape, held, bytes_per_value=loaded.bytes_per_value),
        quantity=f"KV cache of {held} tokens",
        unit="B",
        subject=f"{method}@1",
    )


@pytest.mark.claim("C52")
def test_the_same_prompts_answered_by_fp16_and_nf4_for_the_eye(
    loaded, qualities, judge, profile, prompts, test_record
):
    """Section 8: greedy answers side by side, kept for the report, with the first difference."""
    from engines.quantized import quantize
    from fixtures.side_by_side import SERIES, side_by_side

    if loaded.tokenizer is None:
        judge.not_applicable("no tokenizer", quantity="answers side by side", subject="nf4")
        return
    variants = {"fp16": loaded} | {m: quantize(loaded, m) for m in METHODS}
    asked = [prompt.text for prompt in prompts[: profile.answers]]
    answers = side_by_side(variants, asked, max_new_tokens=profile.answer_tokens)
    test_record.add_series(SERIES, [answer.to_json() for answer in answers])
    judge.exact(
        sum(len(a.answers) == len(variants) for a in answers),
        len(asked),
        quantity="prompts answered by all variants",
        unit="1",
        subject="fp16, int8, nf4",
    )
