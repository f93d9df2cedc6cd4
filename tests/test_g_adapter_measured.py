"""Stage 1, on a loaded model: merging changes nothing in the answers and everything in the cost."""

from __future__ import annotations

import pytest

from fixtures.adapter_check import AdapterStates, merging
from fixtures.options import Options
from reports.bounds import above, below, within

AGREE = 1e-2
"""Largest logit difference between merged and unmerged (C39)."""
SAME = 0.03
"""Merged and base count as equally fast within this share (C40)."""


@pytest.fixture(scope="module")
def states(request, device) -> AdapterStates:
    """Base, unmerged and merged model, the unmerged logits taken before merging."""
    return AdapterStates.load(request.config, device)


@pytest.mark.claim("C39")
@pytest.mark.parametrize("dtype", ["float32", "float16"], ids="dtype:{}".format)
def test_merged_and_unmerged_agree_but_are_not_the_same_arithmetic(dtype, device, request, judge):
    """Stage 1: max |Δlogit| below 1e-2, not exactly 0; against the base clearly above 0.

    In fp16 one ulp at the largest logit may exceed the bound; then fp32 carries the verdict.
    """
    found = merging(request.config, device, dtype)
    subject = Options.of(request.config).model_for(device)
    cannot = (
        None
        if found.ulp < AGREE
        else f"one ulp of {dtype} at {found.largest_logit:.3g} is {found.ulp:.3g}"
    )
    judge(
        found.max_abs_delta,
        below(AGREE),
        quantity=f"max |Δlogit|, {dtype}",
        subject=subject,
        applies=cannot,
        timed=False,
        extra={"ulp": found.ulp, "largest_logit": found.largest_logit},
    )
    judge(
        found.max_abs_delta,
        above(0.0),
        quantity=f"max |Δlogit| is not an exact 0, {dtype}",
        subject=subject,
        timed=False,
    )
    judge(
        found.max_abs_delta_to_base,
        above(max(AGREE, 10 * found.max_abs_delta)),
        quantity=f"max |Δlogit| to the base, {dtype}",
        subject=subject,
        timed=False,
    )


@pytest.mark.claim("C40")
def test_merging_removes_the_adapters_cost(states, measure, judge, device):
    """Stage 1: merged within ±3 % of the base, unmerged slower, all three interleaved.

    On CUDA the steps are replayed as graphs: launched one by one they vary by more than the 3 %.
    """
    shape = measure.shape()
    name = "continuous" if device == "cuda" else "naive"
    found = measure.compare_built(states.engines(name, measure.clock, shape.max_tokens), shape)
    judge(
        found.ratio("merged", "base"),
        within(1 - SAME, 1 + SAME),
        quantity="step time, merged over base",
        subject=f"{name}@1",
        faults=found.faults,
    )
    judge(
        found.ratio("unmerged", "base"),
        above(1.0),
        quantity="step time, unmerged over base",
        subject=f"{name}@1",
        faults=found.faults,
    )


@pytest.mark.claim("C55")
def test_the_exported_folder_is_an_ordinary_model(loaded, device, tmp_path, judge):
    """Stage 1: it reloads with identical logits and tokenizer, no adapter keys, the right size."""
    from fixtures.adapter_check import exported

    found = exported(loaded, tmp_path, device)
    judge.exact(
        found.logit_difference,
        0,
        quantity="max |Δlogit| after reload",
        unit="1",
        subject=loaded.name,
    )
    judge.exact(
        found.adapter_keys, 0, quantity="adapter keys in the folder", unit="1", subject=loaded.name
    )
    judge.exact(
        found.tokenizer_differences,
        0,
        quantity="tokenizer differences",
        unit="1",
        subject=loaded.name,
    )
    judge(
        found.weight_file_bytes / found.predicted_bytes,
        within(1.0, 1.01),
        quantity="size over predicted",
        subject=loaded.name,
    )
