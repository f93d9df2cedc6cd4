"""The sixty prompts are what they say, and a user's prompt file is refused in one line."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from fixtures.jsonl import write_lines
from fixtures.prompts import (
    LENGTHS,
    PROMPTS,
    check_context,
    count_tokens,
    load_prompts,
    with_token_counts,
)

THAI = re.compile(r"[\u0e00-\u0e7f]")
DOUBLED_MARK = re.compile(r"[\u0e31\u0e34-\u0e3a\u0e47-\u0e4e]{3}|([\u0e48-\u0e4b])\1|เเ|ํา")
"""Typing errors that do not show: three marks in a row, a tone twice, เ + เ for แ, ํ + า for ำ."""


def words(text):
    """A tokenizer in miniature."""
    return {"input_ids": text.split()}


def test_there_are_twenty_prompts_of_each_length():
    assert Counter(p.length for p in load_prompts()) == dict.fromkeys(LENGTHS, 20)


def test_no_prompt_occurs_twice_and_registers_and_topics_vary():
    prompts = load_prompts()
    assert len({p.text for p in prompts}) == 60
    assert len({p.register for p in prompts}) >= 6
    assert len({p.topic for p in prompts}) >= 30


def test_prompts_are_thai_and_free_of_invisible_typing_errors():
    for prompt in load_prompts():
        assert len(THAI.findall(prompt.text)) > 0.5 * len(prompt.text), prompt.prompt_id
        assert not DOUBLED_MARK.search(prompt.text), prompt.prompt_id


def test_long_prompts_have_several_paragraphs_and_lengths_do_not_overlap():
    sizes = {name: [len(p.text) for p in load_prompts() if p.length == name] for name in LENGTHS}
    assert max(sizes["short"]) < min(sizes["medium"])
    assert max(sizes["medium"]) < min(sizes["long"])
    assert all(p.text.count("\n\n") >= 3 for p in load_prompts() if p.length == "long")


def test_the_committed_counts_are_those_of_the_embedded_tokenizer():
    transformers = pytest.importorskip("transformers")
    from engines.model_folder import EMBEDDED

    tokenizer = transformers.AutoTokenizer.from_pretrained(EMBEDDED, trust_remote_code=False)
    prompts = load_prompts()
    assert with_token_counts(prompts, "tiny", tokenizer) == prompts
    long = [p.tokens["tiny"] for p in prompts if p.length == "long"]
    assert min(long) >= 300
    assert max(long) <= 800


def test_token_counts_are_kept_per_tokenizer(tmp_path):
    (prompt,) = with_token_counts(load_prompts()[:1], "words", words)
    assert prompt.tokens["words"] == count_tokens(words, prompt.text)
    path = tmp_path / "again.jsonl"
    write_lines(path, [prompt.to_json()])
    assert load_prompts(path) == [prompt]


def test_a_prompt_longer_than_the_context_is_refused_in_one_line():
    prompts = load_prompts()
    longest = max(count_tokens(words, p.text) for p in prompts)
    check_context(prompts, words, longest + 16, max_new_tokens=16)
    with pytest.raises(
        ValueError, match=r"prompt \S+: \d+ tokens \+ 16 new ones.*at most"
    ) as caught:
        check_context(prompts, words, longest + 15, max_new_tokens=16)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([{"id": "a"}], "text is None"),
        ([{"text": "ก"}], "id is None"),
        ([{"id": "a", "text": ""}], "text is ''"),
        ([{"id": "a", "text": "ก"}] * 2, "already used"),
        ([{"id": "a", "text": "ก", "tokens": {"x": "3"}}], "tokens is"),
        ([], "holds no line"),
    ],
    ids=["no-text", "no-id", "empty", "twice", "tokens", "nothing"],
)
def test_a_wrong_prompt_file_is_refused_in_one_line(tmp_path, rows, said):
    path = tmp_path / "prompts.jsonl"
    write_lines(path, rows)
    with pytest.raises(ValueError, match=re.escape(said)) as caught:
        load_prompts(path)
    assert "\n" not in str(caught.value)
    assert path.name in str(caught.value)


def test_a_users_file_needs_only_ids_and_texts(tmp_path):
    path = tmp_path / "prompts.jsonl"
    write_lines(path, [{"id": str(i), "text": "สวัสดี"} for i in range(10_000)])
    assert len(load_prompts(path)) == 10_000
    assert load_prompts(PROMPTS)
