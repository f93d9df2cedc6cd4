"""Quality on simulated answers and texts whose truth is known, and on small models."""

from __future__ import annotations

import json
import math
import random

import numpy as np
import pytest

from fixtures.choices import ChoiceScores
from fixtures.divergence import ChunkDivergence, chunked, diverge, random_chunks
from fixtures.quality_loss import (
    QualityLoss,
    accuracy_difference,
    compare_answers,
    compare_text,
    item_points,
    not_above_chance,
)
from fixtures.quality_margins import ACCURACY_LOSS, RANDOM_WEIGHTS, quality_cell, verdicts
from fixtures.questions import Question
from fixtures.side_by_side import ORIGINAL, first_difference, side_by_side
from reports.stats import Estimate, estimate_paired_difference
from reports.verdict import Outcome
from tests.meta.small_models import small_model

TEXT = "ทดสอบข้อความภาษาไทยสำหรับวัดความฉงนของแบบจำลองขนาดเล็ก " * 12


def answered(index, *, right, topic="t"):
    question = Question(f"q{index}", topic, "ถาม", ("ก", "ข", "ค", "ง"), 0, "s")
    raw = (-1.0, -2.0, -2.0, -2.0) if right else (-2.0, -1.0, -2.0, -2.0)
    return ChoiceScores(question, raw, (1, 1, 1, 1))


def simulated(n, *, accuracy, lost, gained, seed):
    """Two sides of n answers; `lost` and `gained` are shares of all of them."""
    draw = random.Random(seed)
    before = [draw.random() < accuracy for _ in range(n)]
    after = [
        draw.random() >= lost / accuracy if right else draw.random() < gained / (1 - accuracy)
        for right in before
    ]
    sides = ([answered(i, right=r) for i, r in enumerate(side)] for side in (before, after))
    return compare_answers(*sides)


def read(n_chunks, *, kl, nats, seed=0, tokens=127):
    """Chunks with a mean KL and a loss in nats per token, both varying between chunks."""
    draw = random.Random(seed)
    chunks = []
    for _ in range(n_chunks):
        level, hard = draw.lognormvariate(0, 0.3), draw.gauss(3.0, 0.5)
        values = tuple(kl * level * draw.expovariate(1.0) for _ in range(tokens))
        shift = nats * level
        chunks.append(ChunkDivergence(values, hard, hard + shift, (False,) * tokens))
    return compare_text(chunks)


SMALL_CHANGE = read(30, kl=0.01, nats=0.01)


def judged(change):
    """The outcome of the accuracy claim."""
    return verdicts(QualityLoss("nf4", SMALL_CHANGE, change), device="cpu")[0].outcome


def share(outcome, n, *, lost, gained, runs=400):
    """How often answers of which these shares change lead to this verdict on the margin."""
    draw, limits = np.random.default_rng(5), {"confirmed": "contains", "refuted": "excludes"}
    decide = getattr(ACCURACY_LOSS, limits[outcome])
    found = 0
    for _ in range(runs):
        change = draw.choice((0, -1, 1), size=n, p=(1 - lost - gained, lost, gained))
        found += decide(*accuracy_difference(change < 0, change > 0).interval)
    return found / runs


def test_a_planted_loss_of_ten_points_is_refuted():
    """14 % changed: standard error 1.14 points; refuted in Φ(5/1.14 - 1.645) = 99.7 % of runs."""
    assert share("refuted", 1000, lost=0.12, gained=0.02) >= 0.98
    assert share("confirmed", 1000, lost=0.12, gained=0.02) == 0
    assert judged(simulated(1000, accuracy=0.7, lost=0.12, gained=0.02, seed=2)) is Outcome.REFUTED


def test_equal_quality_is_confirmed_where_the_sample_suffices():
    """Confirmed as often as the normal approximation says.

    20 % changed, no loss: standard error √0.2/√1000 = 1.41 points, so the one-sided 95 % limit
    clears -5 in Φ(5/1.41 - 1.645) = 97 % of runs; at n = 250 in Φ(5/2.83 - 1.645) = 55 %.
    """
    assert share("confirmed", 1000, lost=0.1, gained=0.1) == pytest.approx(0.97, abs=0.03)
    assert share("confirmed", 250, lost=0.1, gained=0.1) == pytest.approx(0.55, abs=0.08)
    assert (
        judged(simulated(1000, accuracy=0.7, lost=0.02, gained=0.02, seed=2)) is Outcome.CONFIRMED
    )


def test_a_two_sided_limit_is_harder_to_meet():
    """The same data judged by the lower end of a 95 % interval: Φ(5/1.41 - 1.96) = 94 %."""
    draw, confirmed = np.random.default_rng(5), 0
    for _ in range(400):
        change = draw.choice((0, -1, 1), size=1000, p=(0.8, 0.1, 0.1))
        confirmed += estimate_paired_difference(change > 0, change < 0).low >= -0.05
    assert confirmed / 400 == pytest.approx(0.94, abs=0.035)


def test_a_loss_at_the_margin_is_confirmed_in_at_most_one_run_of_twenty():
    """The error that the margin is about: a true loss of exactly 5 points called harmless."""
    allowed = 0.05 + 3 * math.sqrt(0.05 * 0.95 / 400)
    assert share("confirmed", 1000, lost=0.10, gained=0.05) <= allowed


def test_fewer_questions_than_needed_are_undecided_not_confirmed():
    """Six lost and six gained of 60: standard error 5.8 points."""
    before = [answered(i, right=i < 40) for i in range(60)]
    after = [answered(i, right=6 <= i < 46) for i in range(60)]
    assert judged(compare_answers(before, after)) is Outcome.UNDECIDED


def test_accuracy_at_chance_is_not_informative_while_kl_and_perplexity_stand():
    change = simulated(200, accuracy=0.25, lost=0.05, gained=0.05, seed=3)
    found = verdicts(QualityLoss("int8", SMALL_CHANGE, change), device="cpu")
    assert [v.outcome for v in found] == [
        Outcome.NOT_APPLICABLE,
        Outcome.CONFIRMED,
        Outcome.CONFIRMED,
    ]
    assert "not informative" in found[0].reason
    cell = quality_cell(QualityLoss("int8", SMALL_CHANGE, change))
    assert "accuracy not informative" in cell.text
    assert cell.kl_mean_nat > 0


def test_chance_follows_from_the_number_of_choices():
    """60 of 200 is above 25 % (p = 0.06 is not below 5 %, 64 is), and far above 20 %."""
    sixty = [answered(i, right=i < 60) for i in range(200)]
    assert "25 %" in not_above_chance(sixty)
    assert not_above_chance([answered(i, right=i < 70) for i in range(200)]) is None


@pytest.mark.parametrize(
    ("kl", "nats", "ratio", "mean_kl"),
    [
        (0.02, 0.02, Outcome.CONFIRMED, Outcome.CONFIRMED),
        (0.30, 0.02, Outcome.CONFIRMED, Outcome.REFUTED),
        (0.02, 0.40, Outcome.REFUTED, Outcome.CONFIRMED),
    ],
    ids=["small", "kl-large", "perplexity-large"],
)
def test_each_margin_on_text_turns_on_its_own(kl, nats, ratio, mean_kl):
    found = verdicts(QualityLoss("nf4", read(30, kl=kl, nats=nats)), device="cpu")
    assert [v.outcome for v in found] == [ratio, mean_kl]
    assert all(v.claim == "C24" and v.subject == "nf4@1" for v in found)


def test_intervals_on_text_count_chunks_and_cover_the_truth():
    """Tokens of a chunk share its level; intervals over 24 chunks must still cover in 9 of 10."""
    found = [read(24, kl=0.05, nats=0.05, seed=seed) for seed in range(60)]
    true_kl = 0.05 * math.exp(0.3**2 / 2)
    assert all(f.mean_kl_nat.n == 24 and f.mean_kl_nat.resampled == "chunk" for f in found)
    covered = [f.mean_kl_nat.low <= true_kl <= f.mean_kl_nat.high for f in found]
    assert sum(covered) / 60 >= 0.88
    true_ratio = math.exp(0.05 * math.exp(0.3**2 / 2))
    covered = [f.perplexity_ratio.low <= true_ratio <= f.perplexity_ratio.high for f in found]
    assert sum(covered) / 60 >= 0.88


def test_random_weights_keep_their_kl_and_lose_the_rest():
    loss = QualityLoss("int8", SMALL_CHANGE)
    cell = quality_cell(loss, applies=RANDOM_WEIGHTS)
    assert cell.kind == "not applicable"
    assert "random weights" in cell.text
    assert cell.kl_mean_nat == SMALL_CHANGE.mean_kl_nat.centre
    found = verdicts(loss, device="cpu", applies=RANDOM_WEIGHTS)
    assert {v.outcome for v in found} == {Outcome.NOT_APPLICABLE}


def test_mcnemar_and_counts_stand_beside_the_difference():
    """8 lost, 2 gained: P(X <= 2) for Binomial(10, 1/2), doubled, is 112/1024."""
    before = [answered(i, right=i < 50) for i in range(100)]
    after = [answered(i, right=8 <= i < 52) for i in range(100)]
    change = compare_answers(before, after)
    assert (change.lost, change.gained) == (8, 2)
    assert change.difference.centre == pytest.approx(-0.06)
    assert change.mcnemar_p == pytest.approx(112 / 1024)
    points = item_points(change, "naive", "nf4")
    assert len(points) == 200
    assert {"engine": "nf4", "item": "q0", "correct": False} in points


def test_two_sides_with_other_questions_are_refused():
    with pytest.raises(ValueError, match="same questions"):
        compare_answers([answered(1, right=True)], [answered(2, right=True)])


def test_a_loss_is_strict_json_and_its_estimates_read_back():
    change = simulated(50, accuracy=0.6, lost=0.1, gained=0.1, seed=1)
    row = json.loads(
        json.dumps(QualityLoss("nf4", SMALL_CHANGE, change).to_json(), allow_nan=False)
    )
    assert Estimate.from_json(row["text"]["mean_kl_nat"]) == SMALL_CHANGE.mean_kl_nat
    assert Estimate.from_json(row["answers"]["difference"]) == change.difference


def test_kl_is_zero_to_itself_and_equals_its_definition():
    torch = pytest.importorskip("torch")
    from fixtures.divergence import kl_divergence

    p, q = torch.tensor([0.5, 0.25, 0.25]), torch.tensor([0.25, 0.25, 0.5])
    assert float(kl_divergence(p.log(), p.log())) == 0
    assert float(kl_divergence(p.log(), q.log())) == pytest.approx(0.25 * math.log(2))


@pytest.mark.parametrize("family", ["qwen3", "gpt2"])
def test_divergence_on_models_is_that_of_one_chunk_at_a_time(family):
    pytest.importorskip("torch")
    ours, theirs = small_model(family, seed=0), small_model(family, seed=1)
    chunks = chunked(ours, TEXT, chunk_tokens=64)
    together = diverge(ours, theirs, chunks, batch_size=4)
    assert len(together) == len(chunks) == len(TEXT.encode()) // 64
    for chunk, found in zip(chunks, together, strict=True):
        (alone,) = diverge(ours, theirs, [chunk])
        assert len(found.kl_nat) == len(found.changed) == 63
        assert found.kl_nat == pytest.approx(alone.kl_nat, rel=1e-3, abs=1e-5)
        assert found.reference_nat == pytest.approx(alone.reference_nat, rel=1e-5)


def test_a_model_does_not_diverge_from_itself():
    pytest.importorskip("torch")
    model = small_model()
    found = compare_text(diverge(model, model, chunked(model, TEXT, chunk_tokens=64)))
    assert found.mean_kl_nat.centre == pytest.approx(0, abs=1e-6)
    assert found.perplexity_ratio.centre == 1
    assert found.changed_tokens.centre == 0


def test_a_text_too_short_for_a_sample_is_refused_in_one_line():
    pytest.importorskip("torch")
    with pytest.raises(ValueError, match="held-out text has 6 tokens, expected at least 384"):
        chunked(small_model(), "สั")


def test_a_limited_number_of_chunks_is_spread_over_the_text():
    pytest.importorskip("torch")
    model = small_model()
    every = chunked(model, TEXT, chunk_tokens=64)
    few = chunked(model, TEXT, chunk_tokens=64, most=7)
    assert len(few) == 7
    assert few[0] == every[0]
    assert every.index(few[-1]) > 0.7 * len(every)


def test_random_chunks_are_fixed_by_their_seed():
    assert random_chunks(100, seed=1) == random_chunks(100, seed=1)
    assert random_chunks(100, seed=1) != random_chunks(100, seed=2)


@pytest.mark.parametrize(
    ("left", "right", "index"),
    [([1, 2], [1, 2], None), ([1, 2], [1, 3], 1), ([1], [1, 2], 1), ([], [], None)],
    ids=["equal", "second", "shorter", "empty"],
)
def test_the_first_difference_is_found(left, right, index):
    assert first_difference(left, right) == index


def test_answers_stand_side_by_side_with_their_first_difference():
    pytest.importorskip("torch")
    variants = {
        ORIGINAL: small_model(seed=0),
        "same": small_model(seed=0),
        "nf4": small_model(seed=1),
    }
    first, second = side_by_side(variants, ["สวัสดี", "ลาก่อน"], max_new_tokens=6)
    assert first.answers["same"] == first.answers[ORIGINAL]
    assert first.to_json()["prompt"] == "สวัสดี"
    assert second.first_difference is not None
    only = side_by_side({ORIGINAL: variants[ORIGINAL]}, ["สวัสดี"], max_new_tokens=4)
    assert only[0].first_difference is None
    with pytest.raises(ValueError, match="lack 'fp16'"):
        side_by_side({"nf4": variants["nf4"]}, ["ก"], max_new_tokens=1)
