"""TH-KNOW is what its card says, and a user's question file is refused in one line."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from fixtures import geography
from fixtures.jsonl import write_lines
from fixtures.questions import (
    GENERAL,
    GEOGRAPHY,
    TH_KNOW,
    by_topic,
    load_questions,
    sample_questions,
)
from fixtures.th_know import COUNTS, geography_questions

GOOD = {
    "id": "a",
    "topic": "t",
    "question": "ถาม",
    "choices": ["ก", "ข", "ค", "ง"],
    "answer": 2,
    "source": "s",
}


def written(tmp_path, *rows):
    path = tmp_path / "questions.jsonl"
    write_lines(path, list(rows))
    return path


def refused(path):
    """The message, which has to fit on one line and to name the file."""
    with pytest.raises(ValueError) as caught:
        load_questions(path)
    message = str(caught.value)
    assert "\n" not in message
    assert path.name in message
    return message


def test_the_general_part_has_at_least_150_sourced_questions_in_8_topics():
    questions = load_questions(GENERAL)
    topics = by_topic(questions)
    assert len(questions) >= 150
    assert len(topics) >= 8
    assert min(map(len, topics.values())) >= 10
    assert all(len(q.choices) == 4 for q in questions)
    assert all(q.source.strip() for q in questions)


def test_the_geography_part_has_at_least_1000_questions_of_every_relation():
    questions = load_questions(GEOGRAPHY)
    assert len(questions) >= 1000
    assert Counter(q.topic for q in questions) == {
        f"geography_{relation}": count for relation, count in COUNTS.items()
    }


@pytest.mark.parametrize("path", [GENERAL, GEOGRAPHY], ids=lambda path: path.stem)
def test_right_answers_stand_in_each_place_equally_often(path):
    counts = Counter(q.answer for q in load_questions(path))
    assert max(counts.values()) - min(counts.values()) <= 1


def test_no_question_occurs_twice():
    texts = [q.text for q in load_questions()]
    assert len(texts) == len(set(texts))


def test_the_committed_geography_file_is_what_the_seed_makes(tmp_path):
    again = written(tmp_path, *(q.to_json() for q in geography_questions()))
    assert again.read_bytes() == GEOGRAPHY.read_bytes()
    assert geography_questions(seed=1) != load_questions(GEOGRAPHY)


def test_every_geography_answer_is_the_fact_and_no_distractor_is():
    known = {fact.fact_id: fact for fact in geography.facts()}
    for question in load_questions(GEOGRAPHY):
        fact = known[question.question_id]
        assert question.choices.count(fact.answer) == 1
        assert question.choices[question.answer] == fact.answer
        assert fact.subject in question.text
        assert question.withheld is not fact.trained


def test_geography_distractors_are_near_where_the_relation_allows():
    """A district's wrong provinces lie in its own region in at least nine of ten questions."""
    region = {fact.answer: fact.region for fact in geography.facts("district_province")}
    questions = [q for q in load_questions(GEOGRAPHY) if q.topic == "geography_district_province"]
    near = sum(len({region[choice] for choice in q.choices}) == 1 for q in questions)
    assert near >= 0.9 * len(questions)


def test_the_card_gives_the_counts_and_says_what_the_set_cannot_measure():
    card = (TH_KNOW / "README.md").read_text(encoding="utf-8")
    assert f"| {len(load_questions(GENERAL))} |" in card
    assert f"| {len(load_questions(GEOGRAPHY)):,} |" in card
    assert "written for this project" in card
    assert "What it cannot measure" in card


def test_a_good_file_is_read_as_it_was_written(tmp_path):
    (question,) = load_questions(written(tmp_path, GOOD))
    assert question.to_json() == GOOD


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"question": None}, "question is None"),
        ({"topic": "  "}, "topic is"),
        ({"id": 7}, "id is 7"),
        ({"choices": []}, "0 choices, expected at least 2"),
        ({"choices": ["ก"], "answer": 0}, "1 choices, expected at least 2"),
        ({"choices": "กขคง"}, "choices must be a list"),
        ({"choices": ["ก", ""]}, "choices must be a list of non-empty"),
        ({"choices": ["ก", "ก "], "answer": 0}, "two choices are the same"),
        ({"answer": 4}, "answer is 4, expected an index from 0 to 3"),
        ({"answer": -1}, "answer is -1"),
        ({"answer": True}, "answer is True"),
        ({"answer": "ค"}, "answer is 'ค'"),
    ],
    ids=[
        "no-question",
        "blank-topic",
        "number-id",
        "no-choice",
        "one-choice",
        "text-choices",
        "empty-choice",
        "same-choices",
        "answer-beyond",
        "answer-negative",
        "answer-bool",
        "answer-text",
    ],
)
def test_a_wrong_field_is_refused_in_one_line(tmp_path, change, said):
    message = refused(written(tmp_path, GOOD, {**GOOD, "id": "b", **change}))
    assert said in message
    assert "line 2" in message


@pytest.mark.parametrize("field", ["id", "topic", "question", "choices", "answer", "source"])
def test_a_missing_field_is_named(tmp_path, field):
    row = {key: value for key, value in GOOD.items() if key != field}
    assert f"{field} " in refused(written(tmp_path, row))


def test_an_id_used_twice_names_both_lines(tmp_path):
    message = refused(written(tmp_path, GOOD, GOOD))
    assert "line 2" in message
    assert "line 1" in message


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "holds no line"),
        (b"\n \n", "holds no line"),
        ("ถาม".encode("cp874"), "not UTF-8"),
        (b"{", "not JSON"),
        (b"[1]", "a list, expected an object"),
    ],
    ids=["empty", "blank", "cp874", "half", "list"],
)
def test_bytes_that_are_no_question_file_are_refused_in_one_line(tmp_path, content, said):
    path = tmp_path / "questions.jsonl"
    path.write_bytes(content)
    assert said in refused(path)


def test_a_missing_file_is_refused_in_one_line(tmp_path):
    assert "cannot be read" in refused(tmp_path / "none.jsonl")
    assert "cannot be read" in refused(tmp_path)


def test_ten_thousand_questions_with_windows_line_ends_are_read(tmp_path):
    path = tmp_path / "questions.jsonl"
    rows = (json.dumps({**GOOD, "id": str(i)}) for i in range(10_000))
    path.write_bytes(b"\xef\xbb\xbf" + "\r\n".join(rows).encode())
    assert len(load_questions(path)) == 10_000


@pytest.mark.parametrize("n", [1, 19, 200, 1000])
def test_a_sample_keeps_every_topics_share_within_one(n):
    questions = load_questions()
    drawn = sample_questions(questions, n, seed=3)
    assert len(drawn) == n == len(set(drawn))
    counts = Counter(q.topic for q in drawn)
    for topic, group in by_topic(questions).items():
        assert abs(counts[topic] - n * len(group) / len(questions)) < 1


def test_a_sample_is_fixed_by_its_seed():
    questions = load_questions()
    assert sample_questions(questions, 50, 1) == sample_questions(questions, 50, 1)
    assert sample_questions(questions, 50, 1) != sample_questions(questions, 50, 2)
    assert sample_questions(questions, 10**6, 1) == questions
    with pytest.raises(ValueError, match="at least 1"):
        sample_questions(questions, 0, 1)
