"""The comparison behind `python -m fixtures.fused_error`, with a step that is a plain model."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")


@pytest.fixture(scope="module")
def compared():
    """Compare a step whose residual stream is the plain fp16 model's, changed by `fault`."""
    from fixtures.fused_error import Models
    from tests.meta.fused_models import fused_model, prompt

    models, ids, positions = Models(fused_model("qwen3", dtype="float16")), prompt(20), [3, 9, 19]
    given = []
    hook = models.plain.model.norm.register_forward_hook(
        lambda _module, inputs, _out: given.append(inputs[0][0])
    )
    with torch.inference_mode():
        logits = models.plain(torch.tensor([ids])).logits[0, positions]
        hook.remove()

        def compare(fault=lambda hidden: hidden, shift=0):
            tokens = [(int(row.argmax()) + shift) % len(row) for row in logits]
            return models.compare(ids, positions, fault(given[0][positions].clone()), tokens)

        yield compare


def test_the_plain_models_own_stream_is_as_exact_as_the_plain_model(compared):
    found = compared()
    assert 0.3 < found.worst < 1.5
    assert torch.equal(found.step_gaps, found.plain_gaps)


def test_a_stream_that_is_two_per_cent_off_at_one_position_is_seen(compared):
    from fixtures.fused_error import MOST

    def off(hidden):
        hidden[1] += 0.02 * hidden[1].abs().mean() * torch.ones_like(hidden[1])
        return hidden

    found = compared(off)
    assert found.worst > MOST
    assert "at 9;" in found.text()


def test_tokens_of_a_wrong_head_are_seen(compared):
    found = compared(shift=1)
    assert found.step_gaps.max() > 10 * found.plain_gaps.max()
    assert "3 differ from fp32's" in found.text()


def test_contexts_go_around_every_edge_and_end_where_they_are_told():
    from fixtures.fused_error import contexts_up_to

    few = contexts_up_to(130)
    assert few[:8] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert {126, 127, 128, 129, 130} <= set(few)
    assert max(few) == 130
