"""The page of a run as a file: complete, self-contained, escaped, accessible in its structure."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from types import SimpleNamespace

import pytest

from reports.__main__ import main
from reports.page.engine_rows import engine_table
from reports.page.method_view import methods
from reports.page.render import render, script_json
from reports.page.side_by_side import LONGEST_MISSING, groups, written_units
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


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["gpu", "cpu"])
def test_no_raw_number_leaks(kind):
    visible = re.sub(r"<(script|style)[^>]*>.*?</\1>", "", page_of(kind), flags=re.DOTALL)
    text = re.sub(r"<[^>]+>", " ", visible)
    assert not re.search(r"\b(nan|NaN|inf|Infinity|None|undefined)\b", text)
    assert not re.search(r"\d\.\d{7,}", text)


def test_the_page_says_the_verdicts_and_the_measured_values():
    page = re.sub("</?b>", "", page_of("gpu"))
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
    assert first.answers[0].pieces == (("กรุงเทพมหานครเป็นเมืองหลวงของประเทศไทย", "equal"),)
    assert first.answers[1].pieces[:3] == (
        ("กรุงเทพ", "equal"), ("มหานคร", "missing"), ("ฯ ", "added"),
    )  # fmt: skip
    assert second.answers[1].as_reference
    assert second.answers[2].pieces[1:] == (("ราย", "missing"), ("ใหม่", "added"))
    assert second.answers[2].text == "จังหวัดเชียงใหม่"
    assert written_units("ที่ GPU 16") == ["ที่", " ", "GPU", " ", "16"]


def test_token_lists_are_compared_by_token(tmp_path):
    answers = {"fp16": {"tokens": ["กรุงเทพ", "มหานคร"]}, "nf4": {"tokens": ["กรุงเทพ", "ฯ"]}}
    (group,) = groups(
        saved(tmp_path / "a.json", gpu_run(answers=[{"prompt": "", "answers": answers}]))
    )
    assert group.answers[1].pieces == (("กรุงเทพ", "equal"), ("มหานคร", "missing"), ("ฯ", "added"))


def side_by_side(tmp_path, **answers):
    points = [{"prompt": "?", "answers": answers}]
    found = groups(saved(tmp_path / "a.json", gpu_run(answers=points)))
    return render("answers.html", page=SimpleNamespace(answers=found))


@pytest.mark.parametrize(
    ("answer", "marked"),
    [
        ("one two", "one two<del> three</del>"),
        ("two three", "<del>one </del>two three"),
        ("one three", "one <del>two </del>three"),
        ("one two three four", "one two three<ins> four</ins>"),
        ("", "<del>one two three</del><span"),
    ],
)
def test_what_an_answer_lacks_is_marked_wherever_it_is_missing(tmp_path, answer, marked):
    page = side_by_side(tmp_path, fp16="one two three", nf4=answer)
    assert f'dir="auto">{marked}' in page
    assert ("(empty answer)" in page) == (answer == "")


def test_equal_answers_are_called_the_same_and_a_long_lack_is_cut_short(tmp_path):
    page = side_by_side(tmp_path, fp16="a " * 200, int8="a " * 200, nf4="a ")
    assert page.count("same as fp16") == 1
    (missing,) = re.findall("<del>(a[^<]*)</del>", page)
    assert len(missing) == LONGEST_MISSING
    assert missing.endswith("…")


def test_rows_of_one_engine_say_which_claim_they_were_measured_for(tmp_path):
    document = gpu_run()
    rows = document["experiment"]["rows"]
    rows.append(rows[0] | {"claim": "C22"})
    rows.append(rows[0] | {"claim": "C32", "engine": "naive batch 1"})
    table = engine_table(saved(tmp_path / "a.json", document))
    page = render("rows.html", page=SimpleNamespace(engines=table))
    assert page.count("measured for C10") == 1
    assert page.count("measured for C22") == 1
    assert page.count("measured for C32") == 1
    assert "naive batch 1" not in page


def test_a_column_that_no_row_fills_is_left_out():
    assert '<th scope="col" class="n">Peak</th>' in page_of("gpu")
    assert '<th scope="col" class="n">Peak</th>' not in page_of("cpu")


def test_claims_that_were_not_tested_are_folded_away_but_there(structure):
    assert {f"C{number:02d}" for number in range(1, 58)} <= set(structure.ids)


def test_the_sizes_of_one_sample_are_no_interval_method_of_their_own(tmp_path):
    document = gpu_run()
    for index, row in enumerate(document["experiment"]["rows"]):
        method = f"order statistics, 186 values worth {7 + index} independent ones"
        row["itl_p50_s"] |= {"method": method}
        row["ttft_s"] |= {"method": "p50", "low": None, "high": None}
    found = [method.method for method in methods(saved(tmp_path / "a.json", document))]
    assert found.count("order statistics") == 1
    assert "none: too few for an interval of p50" in found


def test_a_run_that_measured_nothing_still_gets_a_page_beside_it(tmp_path, capsys):
    saved(tmp_path / "out.json", bare_run())
    assert main(["html", str(tmp_path / "out.json")]) == 0
    page = (tmp_path / "out.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert "This run measured no rung at batch 1." in page
    assert "This run measured no engine." in page
    assert capsys.readouterr().out == f"written: {tmp_path / 'out.html'}\n"
