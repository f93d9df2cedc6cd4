"""The geography facts are unambiguous, reproducible and askable."""

from __future__ import annotations

from collections import defaultdict

import pytest

from fixtures import geography
from fixtures.geography import RELATIONS, Fact, distractors, facts, question


def right_answers() -> dict[tuple[str, str], set[str]]:
    answers = defaultdict(set)
    for fact in facts():
        answers[fact.relation, fact.subject].add(fact.answer)
    return answers


def test_there_are_enough_facts_of_every_relation():
    assert len(facts()) >= 2_500
    assert {fact.relation for fact in facts()} == set(RELATIONS)
    assert len({fact.fact_id for fact in facts()}) == len(facts())


def test_every_question_has_one_right_answer():
    assert all(len(answers) == 1 for answers in right_answers().values())


def test_no_question_contains_its_answer():
    given_away = [f.fact_id for f in facts() if f.answer in f.subject]
    assert given_away == []


def test_no_text_is_asked_twice():
    asked = [question(f, i) for f in facts() for i in range(geography.N_TEMPLATES)]
    assert len(set(asked)) == len(asked)


@pytest.mark.thorough
@pytest.mark.parametrize("seed", [0, 1])
def test_distractors_are_wrong_distinct_and_near(seed):
    answers = right_answers()
    for fact in facts()[seed::2]:  # all of them between the two seeds
        wrong = distractors(fact, 3, seed=seed)
        assert len(set(wrong)) == 3
        assert not answers[fact.relation, fact.subject] & set(wrong)
    codes = [(f, distractors(f, 3, seed=seed)) for f in facts("district_postal")[seed::2]]
    near = sum(d[:2] == f.answer[:2] for f, wrong in codes for d in wrong)
    assert near / (3 * len(codes)) > 0.9


def test_distractors_repeat_with_their_seed_and_change_without():
    fact = facts("district_province")[100]
    assert distractors(fact, 3, seed=5) == distractors(fact, 3, seed=5)
    assert len({tuple(distractors(fact, 3, seed=s)) for s in range(8)}) > 1


def test_withheld_districts_are_withheld_in_every_relation():
    """A district whose postal code is withheld must not be learnt from its code's own fact."""
    about = defaultdict(set)
    for f in facts():
        if f.relation != "province_region":
            by_subject = f.relation in ("district_province", "district_postal")
            about[f.subject.removeprefix("อำเภอ") if by_subject else f.answer].add(f.trained)
    assert all(len(splits) == 1 for splits in about.values())
    share = len(facts(trained=False)) / len(facts())
    assert 0.05 < share < 0.15


def test_bad_arguments_say_what_was_expected():
    fact = facts()[0]
    with pytest.raises(ValueError, match="template_index must be 0 to 3, got 4"):
        question(fact, 4)
    region = next(f for f in facts() if f.relation == "province_region")
    with pytest.raises(ValueError, match="province_region has only 5 wrong answers"):
        distractors(region, 6)


def test_the_file_is_what_the_builder_writes():
    pytest.importorskip("geothai", reason="geothai is in the dependency group tests")
    from fixtures.models import build_geography

    built = build_geography.lines(build_geography.Areas())
    assert "\n".join(built) + "\n" == geography.DATA.read_text(encoding="utf-8")


def test_a_wrong_row_would_be_noticed(monkeypatch):
    """Negative control: a second answer to one question breaks the uniqueness check."""
    rows = facts()
    twin = Fact(rows[0].relation, rows[0].subject, "ที่อื่น", "", "", trained=True)
    monkeypatch.setattr(geography, "_read", lambda: (*rows, twin))
    assert any(len(answers) > 1 for answers in right_answers().values())
