"""A growing cache makes the compiler work again, a preallocated one does not (claim C54)."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

TOKENS = 5


@pytest.fixture(scope="module")
def model():
    from tests.meta.small_models import small_model

    return small_model().model


@pytest.fixture(scope="module")
def static(model):
    from engines.recompiles import count_static

    return count_static(model, TOKENS)


def test_a_static_cache_is_compiled_once(static):
    assert (static.graphs, static.after_first_step, static.dynamic) == (1, 0, False)


@pytest.mark.thorough
def test_a_growing_cache_is_compiled_again_or_for_any_length(model):
    from engines.recompiles import count_growing

    count = count_growing(model, TOKENS)
    assert count.graphs >= 1
    assert count.after_first_step > 0 or count.dynamic


@pytest.mark.thorough
def test_what_was_compiled_before_does_not_answer_for_a_later_count(model, static):
    """The compiler remembers per function what it has seen; counts must not depend on order."""
    from engines.recompiles import count_static

    assert count_static(model, 2).graphs == static.graphs == 1


def test_planted_fault_a_static_step_whose_shapes_move_is_counted():
    import torch

    from engines.recompiles import _count

    held = [torch.zeros(1)]

    def step():
        held[0] = torch.cat([held[0], held[0][-1:] + 1])

    count = _count(step, TOKENS)
    assert count.after_first_step > 0
