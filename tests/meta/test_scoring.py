"""Scores made the fast way are those of one plain forward per choice.

Derivation of the tolerance: a choice sums at most 40 log-probabilities of magnitude up to 20 in
fp32, so rounding is below 40 · 20 · 2^-23 · (a few sums of 64 terms) ~ 1e-3 nat; faults move scores
by whole nats.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from fixtures.choices import ChoiceScores, batches, tokenized
from fixtures.questions import Question, load_questions, sample_questions
from fixtures.scoring import score, score_alone
from tests.meta.small_models import small_model

TOLERANCE_NAT = 2e-3
FAMILIES = ("qwen3", "gpt2")


def question(name="q", text="ถาม", choices=("ก", "ข", "ค", "ง"), answer=0):
    return Question(name, "t", text, tuple(choices), answer, "s")


def ragged_questions():
    """Prompts of two lengths, choices from one byte to forty, two to five of them."""
    return [
        question("a", "ถาม", ("x", "yy", "ก", "กขคงจ")),
        question("b", "ถาม", ("ลพบุรี", "z", "นครศรีธรรมราช"[:13], "q")),
        question("c", "ถามยาวขึ้น", ("ก", "ข")),
        question("d", "ถาม", ("1", "2", "3", "4")),
        question("e", "ถามยาวขึ้น", ("a", "ab", "abc", "abcd", "abcde")),
        question("f", "ถาม", ("10110", "1011", "101", "10")),
    ]


@pytest.mark.parametrize("family", FAMILIES)
def test_batched_and_branched_scores_equal_one_forward_per_choice(family):
    pytest.importorskip("torch")
    loaded = small_model(family)
    questions = ragged_questions() + sample_questions(load_questions(), 4, seed=1)
    together = score(loaded, questions)
    assert [s.question for s in together] == questions
    for fast in together:
        alone = score_alone(loaded, fast.question)
        assert fast.tokens == alone.tokens
        assert fast.raw == pytest.approx(alone.raw, abs=TOLERANCE_NAT)


def test_each_question_scores_the_same_in_any_company():
    pytest.importorskip("torch")
    loaded = small_model()
    questions = ragged_questions()
    forwards = [score(loaded, [one])[0] for one in questions]
    backwards = reversed(score(loaded, questions[::-1]))
    for one, other in zip(forwards, backwards, strict=True):
        assert one.raw == pytest.approx(other.raw, abs=TOLERANCE_NAT)


def test_the_prompt_is_prefilled_once_for_all_its_choices(monkeypatch):
    """Two forwards per batch: [Q, prompt] and [Q * K, choice - 1]; never Q * K prompts."""
    pytest.importorskip("torch")
    loaded = small_model()
    shapes = []
    loaded.model.register_forward_pre_hook(
        lambda _model, _args, kwargs: shapes.append(tuple(kwargs["input_ids"].shape)),
        with_kwargs=True,
    )
    items = [question(str(i), "ถาม", ("aaa", "bbb", "ccc", "ddd")) for i in range(3)]
    score(loaded, items)
    prompt_tokens = len(tokenized(loaded, items)[0].prompt)
    assert shapes == [(3, prompt_tokens), (12, 3)]  # " aaa" is four bytes, the last is not fed


@pytest.mark.parametrize("family", FAMILIES)
def test_a_cache_that_is_not_branched_is_seen(family, monkeypatch):
    """Planted fault: the choices continue an empty cache, as when the cache argument vanishes."""
    pytest.importorskip("torch")
    from transformers import DynamicCache

    loaded = small_model(family)
    (right,) = score(loaded, [question(choices=("aaa", "bbb", "ccc", "ddd"))])
    monkeypatch.setattr(
        DynamicCache, "batch_repeat_interleave", lambda self, _count: self.layers.clear()
    )
    (wrong,) = score(loaded, [question(choices=("aaa", "bbb", "ccc", "ddd"))])
    assert wrong.raw != pytest.approx(right.raw, abs=100 * TOLERANCE_NAT)


def test_every_item_is_in_one_batch_and_no_batch_mixes_lengths():
    pytest.importorskip("torch")
    items = tokenized(small_model(), ragged_questions() * 20)
    made = list(batches(items, vocabulary=257))
    assert sorted(item.index for batch in made for item in batch) == list(range(120))
    for batch in made:
        assert len({(len(item.prompt), len(item.choices)) for item in batch}) == 1


def test_a_large_vocabulary_makes_small_batches():
    pytest.importorskip("torch")
    items = tokenized(small_model(), [ragged_questions()[1]] * 40)
    assert max(map(len, batches(items, vocabulary=257))) == 32
    assert max(map(len, batches(items, vocabulary=2**20))) == 1


def test_a_question_longer_than_the_context_is_refused_in_one_line():
    pytest.importorskip("torch")
    loaded = small_model(context=64)
    with pytest.raises(ValueError, match=r"question q: \d+ tokens, expected at most 64") as caught:
        score(loaded, [question(text="ถาม" * 20)])
    assert "\n" not in str(caught.value)


def test_a_model_without_tokenizer_is_refused():
    pytest.importorskip("torch")
    with pytest.raises(ValueError, match="no tokenizer"):
        score(replace(small_model(), tokenizer=None), [question()])


def test_progress_is_told_until_all_are_scored():
    pytest.importorskip("torch")
    told = []
    score(small_model(), ragged_questions(), on_scored=told.append)
    assert told == sorted(told)
    assert told[-1] == 6


def test_the_longer_choice_is_not_at_a_loss_in_the_normalised_score():
    found = ChoiceScores(question(), raw=(-4.0, -3.0, -9.0, -9.0), tokens=(4, 1, 3, 3))
    assert found.normalised == (-1.0, -3.0, -3.0, -3.0)
    assert found.correct
    assert not found.correct_raw


def test_a_tie_is_a_wrong_answer():
    found = ChoiceScores(question(), raw=(-1.0, -1.0, -2.0, -2.0), tokens=(1, 1, 1, 1))
    assert not found.correct
    assert not found.correct_raw
