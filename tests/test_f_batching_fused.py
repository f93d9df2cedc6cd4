"""Section 7.3 near the limit: the overlapped scheduler over steps written by hand.

Its figures stand beside those of `continuous` and of vLLM; its answers have to be the same.
"""

from __future__ import annotations

import pytest

from fixtures.licence import judge_ragged

pytestmark = pytest.mark.devices("cuda")

ENGINE = "fused_continuous"
BATCHES = (16, 64)
NEW_TOKENS = 64
"""Long enough for all rows to decode together while the last prompts are still being fed."""


@pytest.fixture(autouse=True)
def _with_its_kernels(loaded):
    from engines.fused_continuous import why_not_available

    if reason := why_not_available(loaded):
        pytest.skip(reason)


@pytest.mark.claim("C10")
@pytest.mark.parametrize("batch", BATCHES, ids="batch:{}".format)
def test_batched_fused_decode_stays_below_the_ceiling_of_its_batch(
    batch, measure, judge, ceilings, rows
):
    """Its step reads the weights once and, of every row, the keys and values that there are."""
    run = measure.decode(ENGINE, batch_size=batch, new_tokens=NEW_TOKENS)
    ceilings.judge_decode(run, judge, quantity="aggregate decode rate")
    rows.keep(run, claim="C10")


@pytest.mark.claim("C34")
def test_the_overlapped_scheduler_returns_what_each_request_gets_alone(
    engines, sizes, judge, profile
):
    """Section 4: ragged prompts and answers, in more requests than slots; fed among running rows.

    Every token has to be the argmax of one ordinary forward over its own request alone; in a 16-bit
    format a mismatch has a top-2 gap within the format's measured error.
    """
    engine = engines.get(
        ENGINE, batch_size=sizes.batch, max_tokens=sizes.prompt_tokens + sizes.new_tokens
    )
    judge_ragged(judge, engine, sizes, workloads=profile.workloads, seed=35)
