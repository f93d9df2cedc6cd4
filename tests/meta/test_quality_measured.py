"""The whole way from two sets of weights to verdicts, on models small enough for every run."""

from __future__ import annotations

import json

import pytest

from fixtures import quality
from fixtures.quality import Yardstick, measure_loss
from fixtures.quality_margins import MEAN_KL_NAT, verdicts
from fixtures.questions import GEOGRAPHY, load_questions, sample_questions
from reports.verdict import Outcome
from tests.meta.small_models import small_model

TEXT = "ทดสอบข้อความภาษาไทยสำหรับวัดความฉงนของแบบจำลองขนาดเล็ก " * 12


@pytest.fixture(scope="module")
def yardstick():
    pytest.importorskip("torch")
    questions = sample_questions(load_questions(), 4, seed=1)
    return Yardstick.of(small_model(spread=0.1), questions, text=TEXT)


def test_a_model_loses_nothing_against_itself(yardstick):
    loss = measure_loss(yardstick, yardstick.loaded, "same")
    assert (loss.answers.lost, loss.answers.gained) == (0, 0)
    assert loss.answers.difference.centre == 0
    assert loss.text.mean_kl_nat.centre == pytest.approx(0, abs=1e-6)
    assert loss.text.perplexity_ratio.centre == 1


def test_shuffled_scales_cost_many_times_what_quantization_costs(yardstick):
    """Planted fault: the right codes and scales in the wrong places."""
    pytest.importorskip("bitsandbytes")
    from dataclasses import replace

    from engines.quantized import quantize, shuffle_scales

    small = quantize(yardstick.loaded, "nf4")
    broken = replace(small, model=shuffle_scales(small.model, seed=0))
    costs = [measure_loss(yardstick, other, "nf4").text.mean_kl_nat for other in (small, broken)]
    assert 0 < costs[0].centre < costs[1].low
    assert costs[1].centre > 3 * costs[0].centre


def sound_and_broken(method, questions):
    """Verdicts on the embedded model's quantization and on one with its scales shuffled."""
    pytest.importorskip("bitsandbytes")
    from dataclasses import replace

    from engines.models import load_model
    from engines.quantized import quantize, shuffle_scales

    yardstick = Yardstick.of(load_model("tiny", device="cpu"), questions, most_chunks=8)
    sound = quantize(yardstick.loaded, method)
    broken = replace(sound, model=shuffle_scales(sound.model, seed=0))
    return (
        {
            v.quantity: v.outcome
            for v in verdicts(measure_loss(yardstick, other, method), device="cpu")
        }
        for other in (sound, broken)
    )


@pytest.mark.thorough
def test_nf4_meets_every_margin_and_with_shuffled_scales_none():
    """Planted fault on trained weights: facts are lost, so accuracy falls by some 20 points."""
    questions = sample_questions(load_questions(GEOGRAPHY), 100, seed=0)
    sound, broken = sound_and_broken("nf4", questions)
    assert set(sound.values()) == {Outcome.CONFIRMED}
    assert set(broken.values()) == {Outcome.REFUTED}


@pytest.mark.thorough
def test_int8_with_shuffled_scales_is_refuted_by_its_kl_at_least():
    """One scale per row: rows are more alike than blocks of 64, so the same fault costs less."""
    sound, broken = sound_and_broken("int8", [])
    assert set(sound.values()) == {Outcome.CONFIRMED}
    assert broken["mean KL per token"] is Outcome.REFUTED
    assert broken["perplexity ratio"] is not Outcome.CONFIRMED


def test_another_models_weights_are_refuted(yardstick):
    """Planted fault: what is compared is no quantization of the original at all."""
    loss = measure_loss(yardstick, small_model(seed=1, spread=0.3), "nf4")
    found = {v.quantity: v.outcome for v in verdicts(loss, device="cpu")}
    assert found["mean KL per token"] is Outcome.REFUTED
    assert loss.text.mean_kl_nat.low > MEAN_KL_NAT.high


def test_random_weights_without_tokenizer_still_get_their_kl():
    pytest.importorskip("torch")
    from dataclasses import replace

    bare = replace(small_model(), tokenizer=None)
    loss = measure_loss(Yardstick.of(bare, []), replace(small_model(seed=1), tokenizer=None), "x")
    assert loss.answers is None
    assert loss.text.mean_kl_nat.centre > 0


def test_the_command_writes_strict_json_rows(tmp_path, monkeypatch):
    pytest.importorskip("bitsandbytes")
    import engines.models

    monkeypatch.setattr(engines.models, "load_model", lambda *_, **__: small_model())
    out = tmp_path / "rows.jsonl"
    quality.main(["--questions", "4", "--chunks", "6", "--answers", "1", "--out", str(out)])
    rows = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    assert [row["kind"] for row in rows] == ["header", "quality", "quality", "side_by_side"]
    assert rows[0]["questions"] == 4
    assert [row["variant"] for row in rows[1:3]] == ["int8", "nf4"]
    assert {v["claim"] for row in rows[1:3] for v in row["verdicts"]} == {"C24"}
    assert set(rows[3]["points"][0]["answers"]) == {"fp16", "int8", "nf4"}


def test_rows_already_measured_survive_a_failure_of_the_next(tmp_path, monkeypatch):
    pytest.importorskip("bitsandbytes")
    import engines.models

    def fail(*_):
        raise RuntimeError("out of memory")

    monkeypatch.setattr(engines.models, "load_model", lambda *_, **__: small_model())
    monkeypatch.setattr(quality, "measure_loss", fail)
    out = tmp_path / "rows.jsonl"
    with pytest.raises(RuntimeError, match="out of memory"):
        quality.main(["--questions", "1", "--chunks", "6", "--out", str(out)])
    assert json.loads(out.read_text(encoding="utf-8"))["kind"] == "header"


def test_an_output_folder_that_does_not_exist_is_said_before_measuring(tmp_path):
    with pytest.raises(SystemExit) as caught:
        quality.main(["--out", str(tmp_path / "none" / "rows.jsonl")])
    assert caught.value.code == 2
