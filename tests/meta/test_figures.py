"""Figures: theory from the formulas, points on top, text that stays text, nothing drawn empty."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from reports.__main__ import main
from reports.catalogue import find_shape
from reports.figures import gallery, itl, ladder, memory, style, telemetry
from reports.figures.utilisation import LoadPoint
from reports.figures.utilisation import draw as draw_utilisation
from reports.ladder import rungs
from reports.load_sweep import load_points
from tests.meta.sample_run import cpu_run, gpu_run, saved

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def theory():
    return {drawing.name: drawing for drawing in gallery.theory_figures()}


@pytest.fixture(scope="module")
def gpu(tmp_path_factory):
    return saved(tmp_path_factory.mktemp("runs") / "gpu.json", gpu_run(1))


@pytest.fixture(scope="module")
def drawn(gpu):
    return {d.name: d for d in (*gallery.ladder_figures(gpu), *gallery.run_figures(gpu))}


def test_theory_alone_has_the_figures_of_the_chapter(theory):
    assert list(theory) == ["memory", "batching", "utilisation", "roofline"]


def test_the_batch_16_line_crosses_16_gb_at_the_stated_context(theory):
    assert "B = 16 fills it at 8,069 tokens" in theory["memory"].caption


def test_the_stated_figures_of_the_chapter_are_drawn(theory):
    assert "256 to 4,137 tok/s" in theory["batching"].caption  # C31: 256 at B = 1
    assert "11.5 s" in theory["utilisation"].caption  # C16
    assert "203 FLOP per byte" in theory["roofline"].alt  # C27


def test_a_run_adds_what_only_a_run_has(drawn):
    assert list(drawn) == ["ladder", "ladder-narrow", "memory", "batching", "utilisation",
                           "roofline", "itl", "telemetry"]  # fmt: skip
    assert "compiled@1 697 tokens per second" in drawn["ladder"].alt
    assert "6 of 240 samples slowed down" in drawn["telemetry"].caption


def test_a_cpu_run_draws_no_telemetry_and_its_own_bandwidth(tmp_path):
    run = saved(tmp_path / "cpu.json", cpu_run(1))
    drawn = {drawing.name: drawing for drawing in gallery.run_figures(run)}
    assert "telemetry" not in drawn
    assert "AMD EPYC 7B13" in drawn["batching"].caption
    assert telemetry.samples(run) is None


def test_equal_data_gives_equal_files(theory, tmp_path):
    paths = [tmp_path / name for name in ("a.svg", "b.svg", "a.png")]
    for path in paths:
        style.save(theory["memory"], path)
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert paths[2].read_bytes().startswith(b"\x89PNG")


def test_text_stays_text_and_colours_follow_the_theme(drawn):
    inline = style.inline_svg(drawn["ladder"])
    tree = ET.fromstring(inline)
    texts = {"".join(element.itertext()).strip() for element in tree.iter(f"{SVG}text")}
    assert {"naive@1", "compiled@1"} <= texts
    assert "var(--accent)" in inline
    assert not any(colour in inline for colour in style.CSS_VARIABLES)
    ids = [element.get("id") for element in tree.iter() if element.get("id")]
    assert all(one.startswith("ladder-") for one in ids)


@pytest.mark.parametrize("name", ["$x^2$ & <b>", "ภาษาไทย", "a" * 400, "</svg><script>"])
def test_any_name_can_be_drawn(name):
    gaps = [itl.Gaps(name, 0.9, 1.0, 1.1, 1.2, 2.0, None), itl.Gaps("b@1", 1, 1, 1, 1, 1, 1.0)]
    inline = style.inline_svg(itl.draw(gaps))
    ET.fromstring(inline)
    assert "<script>" not in inline


def test_points_without_an_interval_or_with_overload_can_be_drawn():
    points = [LoadPoint("naive", 0.1, 0.2), LoadPoint("naive", 1.1, 4.0, 3.0, 5.0)]
    drawing = draw_utilisation(points)
    assert "naive at 110%: 4 s" in drawing.alt


def test_a_sweep_gives_points_with_their_interval(gpu):
    points = load_points(gpu)
    assert len(points) == 8
    assert all(point.low_s < point.p99_s < point.high_s for point in points)


def test_a_card_that_nothing_fills_says_so():
    drawing = memory.draw(gallery.find_shape("google/gemma-3-1b-it"), memory.Card("640 GB", 640e9))
    assert "no batch fills it" in drawing.caption


def test_plot_writes_svg_and_png_of_the_chosen_figure(tmp_path, capsys):
    assert main(["plot", "-o", str(tmp_path), "--only", "memory"]) == 0
    assert {path.name for path in tmp_path.iterdir()} == {"memory.svg", "memory.png"}
    assert main(["plot", "-o", str(tmp_path), "--only", "nothing"]) == 2
    assert "expected one of memory, batching" in capsys.readouterr().err


def test_an_engine_that_is_no_rung_stands_beside_the_ladder_and_adds_nothing(tmp_path):
    document = gpu_run(1)
    found = rungs(saved(tmp_path / "a.json", document))
    assert [rung.row.engine for rung in found if not rung.beside] == [
        "naive", "static_kv", "compiled", "fused",
    ]  # fmt: skip
    assert [(rung.row.subject, rung.gain) for rung in found if rung.beside] == [
        ("continuous@1", None)
    ]
    drawn = ladder.draw(found)
    assert "Below the rule" in drawn.caption
    assert "Below the rule" not in ladder.draw(found[:4]).caption
    gap = [line for line in drawn.figure.axes[0].lines if line.get_linewidth() == 5]
    assert [list(line.get_ydata()) for line in gap] == [[3, 3]]  # from the last rung, not from it
    rows = document["experiment"]["rows"]
    document["experiment"]["rows"] = [row for row in rows if row["engine"] == "continuous"]
    assert rungs(saved(tmp_path / "b.json", document)) == []


def test_one_rung_is_a_ladder_though_more_engines_have_another_output_length(tmp_path):
    document = gpu_run(1)
    rows = [row for row in document["experiment"]["rows"] if row["batch_size"] == 1]
    one = next(row for row in rows if row["engine"] == "fused")
    peer = next(row for row in rows if row["engine"] == "continuous")
    longer = {"new_tokens": 10 * peer["new_tokens"]}
    peers = [peer | longer, peer | longer | {"engine": "continuous_graph"}]
    document["experiment"]["rows"] = [one, *peers]
    assert [rung.row.engine for rung in rungs(saved(tmp_path / "a.json", document))] == ["fused"]


def test_a_model_larger_than_16_gb_is_drawn_on_its_own_card():
    shape, card = find_shape("qwen3-8b-shape"), gallery.machine_named("H200")
    assert gallery._memory(shape, card, []).caption.startswith(
        "Lines: weights plus KV cache. H200, 141 GB"
    )
    assert "16 GB" in gallery._memory(shape, gallery.machine_named("T4"), []).caption
    assert "16 GB" in gallery._memory(find_shape("Qwen/Qwen3-0.6B"), card, []).caption


def test_arms_of_a_sweep_are_one_engine_and_arms_of_a_control_are_none(tmp_path):
    document = gpu_run(1)
    for part in document["experiment"]["rows"], [b["extra_info"] for b in document["benchmarks"]]:
        for entry in part:
            if entry["engine"] == "continuous":
                entry["engine"] = f"continuous batch {entry['batch_size']}"
            if entry["engine"] == "static_batch" and "phase" not in entry:
                entry["engine"] = "A again"  # an arm of which there is no row
    run = saved(tmp_path / "a.json", document)
    assert "continuous@32 1,040 tok/s" in gallery.run_figures(run)[1].alt
    subjects = [line.subject for line in itl.gaps(run)]
    assert {"continuous@1", "continuous@32"} <= set(subjects)
    assert not any("again" in subject or "batch" in subject for subject in subjects)
