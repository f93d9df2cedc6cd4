"""The calculator in the page and `engines.cost` are one arithmetic, shown in a browser."""

from __future__ import annotations

import dataclasses
import itertools
from types import SimpleNamespace

import pytest

from engines import cost
from engines.gpus import GPUS
from engines.shape import ModelShape
from reports.budget import KV_VALUES, WEIGHTS, Question, budget
from reports.catalogue import known_shapes
from reports.page.budget_data import budget_data, shape_data
from reports.page.render import TEMPLATES, render, script_json
from reports.page.view import BUDGET_FIGURES
from tests.meta.browser import OpenPage, chromium
from tests.meta.sample_pages import page_of

pytestmark = pytest.mark.thorough

CONTEXTS_AND_BATCHES = ((1, 1), (511, 3), (8069, 16), (131_072, 257))
CARDS = ("T4", "H200")

READ_GRID = """(points) => points.map((point) => {
  for (const [id, value] of Object.entries(point)) {
    document.getElementById("in-" + id).value = value;
  }
  document.getElementById("budget-form").dispatchEvent(new Event("input"));
  const outputs = document.querySelectorAll("#budget output");
  return Object.fromEntries(Array.from(outputs, (one) => [one.id.slice(4), one.dataset.value]));
})"""


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "run.html"
    path.write_text(page_of("gpu"), encoding="utf-8")
    with chromium() as browser:
        yield OpenPage(browser, path)


def grid():
    shapes = [name for name in known_shapes() if not name.endswith("-shape")]
    for model, gpu, weights, kv in itertools.product(shapes, CARDS, WEIGHTS, ("fp16", "fp8")):
        for context, batch in CONTEXTS_AND_BATCHES:
            yield {"model": model, "gpu": gpu, "weights": weights, "kv": kv,
                   "context": context, "batch": batch}  # fmt: skip


def asked(point):
    gpu = GPUS[point["gpu"]]
    return Question(known_shapes()[point["model"]], gpu.memory_bytes, gpu.bandwidth_bytes_per_s,
                    point["context"], point["batch"], point["weights"], point["kv"])  # fmt: skip


def test_the_page_gives_the_numbers_of_engines_cost_over_the_whole_grid(page):
    points = list(grid())
    assert len(points) >= 500
    answers = page.ask(READ_GRID, points)
    for point, answer in zip(points, answers, strict=True):
        expected = dataclasses.asdict(budget(asked(point)))
        got = {key: None if answer[key] == "null" else float(answer[key]) for key in expected}
        assert got == expected, point


def test_the_page_prints_what_the_chapter_prints(page):
    (answer,) = page.ask(READ_GRID, [{"model": "Qwen/Qwen3-0.6B", "gpu": "T4", "weights": "fp16",
                                      "kv": "fp16", "context": 4096, "batch": 16}])  # fmt: skip
    assert answer["weights_bytes"] == "1192099840"
    assert "8,069 tokens" in page.page.locator("#out-fills_at_tokens").text_content()
    assert page.page.locator("#out-headline").text_content() == (
        "16 requests of 4,096 tokens fit, 7.29 GB left."
    )


@pytest.mark.parametrize("value", ["0", "-3", "1.5", "", "1e12"])
def test_the_page_refuses_what_is_no_number_of_tokens(page, value):
    page.page.fill("#in-context", value)
    assert "whole numbers" in page.page.locator("#out-headline").text_content()
    page.page.fill("#in-context", "4096")


def test_every_kv_format_can_be_chosen(page):
    options = page.ask("() => Array.from(document.getElementById('in-kv').options, (o) => o.value)")
    assert options == list(KV_VALUES)


def experts(hidden_size):
    """A mixture of experts so oddly sized that two tokens read half a value on average."""
    return ModelShape.from_config({
        "model_type": "mixtral", "num_hidden_layers": 1, "hidden_size": hidden_size,
        "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 4, "intermediate_size": 3,
        "vocab_size": 64, "num_local_experts": 8, "num_experts_per_tok": 2,
        "tie_word_embeddings": True, "dtype": "float16",
    })  # fmt: skip


def test_halves_of_a_byte_go_to_the_even_neighbour_as_in_python(page, tmp_path):
    """2,218.5 bytes are 2,218 and 1,957.5 bytes are 1,958: neither up nor down does both."""
    shapes = {"down": experts(17), "up": experts(15)}
    data = budget_data() | {"models": {name: shape_data(one) for name, one in shapes.items()}}
    (tmp_path / "halves.html").write_text(calculator(data), encoding="utf-8")
    page.page.goto((tmp_path / "halves.html").as_uri())
    points = [{"model": name, "gpu": "T4", "weights": "fp8", "kv": "fp8", "context": 1, "batch": 2}
              for name in shapes]  # fmt: skip
    weights = [int(answer["step_bytes"]) - int(answer["kv_bytes"])
               for answer in page.ask(READ_GRID, points)]  # fmt: skip
    assert weights == [2218, 1958]
    assert weights == [cost.decode_weight_bytes(one, 1.0, batch_size=2) for one in shapes.values()]


def calculator(data):
    """The calculator alone, with other models than those of the page."""
    section = render("budget.html", page=SimpleNamespace(budget_figures=BUDGET_FIGURES))
    script = (TEMPLATES / "budget.js").read_text(encoding="utf-8")
    return (
        f'{section}<script type="application/json" id="budget-data">{script_json(data)}</script>'
        f"<script>{script}</script>"
    )
