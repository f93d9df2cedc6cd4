"""The page of a run as a file: complete, self-contained, escaped, accessible in its structure."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from reports.__main__ import main
from reports.page.render import script_json
from reports.page.side_by_side import groups, written_units
from tests.meta.sample_pages import ATTACK, THAI, page_of
from tests.meta.sample_run import bare_run, gpu_run, saved

LOADING = ("src", "href", "xlink:href", "action", "data", "poster", "srcset")


class Structure(HTMLParser):
    """Collects what the tests ask about."""

    def __init__(self, text):
        super().__init__()
        self.headings, self.ids, self.addresses, self.pictures, self.scripts = [], [], [], [], 0
        self.handlers, self.labelled = [], set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        if re.fullmatch("h[1-6]", tag):
            self.headings.append(int(tag[1]))
        self.scripts += tag == "script"
        self.ids += [found["id"]] if "id" in found else []
        self.addresses += [value for name, value in attrs if name in LOADING]
        self.handlers += [name for name, _ in attrs if name.startswith("on")]
        if found.get("role") == "img":
            self.pictures.append(found.get("aria-label"))
        if tag == "label":
            self.labelled.add(found.get("for"))


@pytest.fixture(params=["gpu", "hostile"])
def structure(request):
    return Structure(page_of(request.param))


def test_nothing_is_loaded_from_anywhere(structure):
    assert all(address.startswith("#") for address in structure.addresses)


def test_no_text_of_a_run_becomes_a_script_or_a_handler(structure):
    assert structure.scripts == 2
    assert structure.handlers == []


def test_headings_go_down_one_level_at_a_time(structure):
    assert structure.headings[0] == 1
    assert structure.headings.count(1) == 1
    steps = zip(structure.headings, structure.headings[1:], strict=False)
    assert all(later - earlier <= 1 for earlier, later in steps)


def test_ids_are_unique_and_every_picture_says_what_it_shows(structure):
    assert len(structure.ids) == len(set(structure.ids))
    assert len(structure.pictures) >= 6
    assert all(structure.pictures)


def test_every_input_has_a_label(structure):
    inputs = {one for one in structure.ids if one.startswith("in-")}
    assert inputs == structure.labelled
    assert len(inputs) == 6


def test_the_attack_is_there_as_text_only():
    page = page_of("hostile")
    assert ATTACK not in page
    assert "<img" not in page
    assert "&lt;img src=x onerror=alert(2)&gt;" in page


def test_data_of_the_script_cannot_end_its_element():
    assert "<" not in script_json({"name": "</script><!--", "and": "&"})


@pytest.mark.parametrize("kind", ["gpu", "cpu"])
def test_no_raw_number_leaks(kind):
    visible = re.sub(r"<(script|style)[^>]*>.*?</\1>", "", page_of(kind), flags=re.DOTALL)
    text = re.sub(r"<[^>]+>", " ", visible)
    assert not re.search(r"\b(nan|NaN|inf|Infinity|None|undefined)\b", text)
    assert not re.search(r"\d\.\d{7,}", text)


def test_the_page_says_the_verdicts_and_the_measured_values():
    page = page_of("gpu")
    for text in ("NVIDIA H200", "570.86", "2.13.0", "random, float16", "1 refuted",
                 "naive@1: measured 39.2 tok/s [38.7, 39.7] (6 rounds), claimed &lt;",
                 "thermal slow-down in 3 samples", "vLLM is not installed"):  # fmt: skip
        assert text in page, text


def test_light_and_dark_and_print_are_styled():
    page = page_of("gpu")
    assert "prefers-color-scheme: dark" in page
    assert "@media print" in page
    assert "var(--accent)" in page[page.index("<svg") :]
    assert "#0f6e68" not in page[page.index("<svg") :]


def test_thai_answers_are_compared_by_letters_with_their_marks(tmp_path):
    (first, second) = groups(saved(tmp_path / "a.json", gpu_run(answers=THAI)))
    assert [piece for piece in first.answers[0].pieces if piece[1]] == []
    assert any(differs for _, differs in first.answers[1].pieces)
    assert second.answers[1].pieces == (("จังหวัดเชียงราย", False),)
    assert "".join(text for text, _ in second.answers[2].pieces) == "จังหวัดเชียงใหม่"
    assert written_units("ที่ GPU 16") == ["ที่", " ", "GPU", " ", "16"]


def test_token_lists_are_compared_by_token(tmp_path):
    answers = {"fp16": {"tokens": ["กรุงเทพ", "มหานคร"]}, "nf4": {"tokens": ["กรุงเทพ", "ฯ"]}}
    (group,) = groups(
        saved(tmp_path / "a.json", gpu_run(answers=[{"prompt": "", "answers": answers}]))
    )
    assert group.answers[1].pieces == (("กรุงเทพ", False), ("ฯ", True))


def test_a_run_that_measured_nothing_still_gets_a_page_beside_it(tmp_path, capsys):
    saved(tmp_path / "out.json", bare_run())
    assert main(["html", str(tmp_path / "out.json")]) == 0
    page = (tmp_path / "out.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert "This run measured no rung at batch 1." in page
    assert "This run measured no engine." in page
    assert capsys.readouterr().out == f"written: {tmp_path / 'out.html'}\n"
