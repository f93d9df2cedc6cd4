"""The embedded model is what its card says: trained, small, Qwen3-shaped, and good at its facts."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from random import Random

import pytest

from fixtures.geography import facts
from fixtures.models import corpus
from fixtures.models.train_embedded import sha256

EMBEDDED = Path(__file__).parents[2] / "fixtures" / "models" / "embedded"
SAMPLE = 60
pytestmark = pytest.mark.filterwarnings(  # peft 0.21 still asks transformers by the old name
    "ignore:`is_gradient_checkpointing` is deprecated:FutureWarning"
)
LARGEST_BYTES = 16_000_000
TEXTS = (
    "อำเภอแม่ริมอยู่ในจังหวัดเชียงใหม่ ใช้รหัสไปรษณีย์ 50180",
    "น้ำ กำ นํ้า เเม่ ๆ ฯลฯ ฿๑๒๓",
    "two  spaces\n\ttab, emoji 🐘👩🏽‍🌾🇹🇭 and 漢字",
    "zero\u200bwidth \u00a0nbsp \ufeffbom e\u0301",
)


@pytest.fixture(scope="module")
def loaded():
    """Base, merged model and tokenizer in fp32 on the CPU."""
    pytest.importorskip("peft", reason="the embedded model needs the dependency group engines")
    from fixtures.models.train_embedded import load

    return load(EMBEDDED, "cpu")


def logged(event: str) -> list[dict]:
    lines = (EMBEDDED / "training_log.jsonl").read_text(encoding="utf-8").splitlines()
    return [entry for entry in map(json.loads, lines) if entry["event"] == event]


def changed_files(folder: Path) -> list[str]:
    """Names of logged files that are missing or have other bytes than when they were written."""
    return [
        entry["name"]
        for entry in logged("file")
        if not (folder / entry["name"]).is_file()
        or sha256(folder / entry["name"]) != entry["sha256"]
    ]


def test_it_fits_into_a_repository():
    size = sum(path.stat().st_size for path in EMBEDDED.rglob("*") if path.is_file())
    assert size <= LARGEST_BYTES


def test_its_shape_is_that_of_qwen3():
    config = json.loads((EMBEDDED / "config.json").read_text(encoding="utf-8"))
    assert config["architectures"] == ["Qwen3ForCausalLM"]
    assert config["num_attention_heads"] == 2 * config["num_key_value_heads"]
    assert config["head_dim"] != config["hidden_size"] // config["num_attention_heads"]
    assert config["tie_word_embeddings"] is True
    assert config["max_position_embeddings"] >= 4096
    assert config["dtype"] == "float16"


def test_the_head_is_tied_and_linear_shapes_suit_nf4(loaded):
    base, _, _ = loaded
    assert base.lm_head.weight.data_ptr() == base.model.embed_tokens.weight.data_ptr()
    shapes = [tuple(p.shape) for n, p in base.named_parameters() if "_proj" in n]
    assert len(shapes) == 7 * base.config.num_hidden_layers
    assert all(side % 64 == 0 for shape in shapes for side in shape)


def test_the_adapter_covers_all_linear_layers_with_rank_16():
    config = json.loads((EMBEDDED / "adapter" / "adapter_config.json").read_text(encoding="utf-8"))
    kinds = {f"{name}_proj" for name in ("q", "k", "v", "o", "gate", "up", "down")}
    assert set(config["target_modules"]) == kinds
    assert config["r"] == 16


@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_the_tokenizer_spells_any_text(loaded, text):
    tokenizer = loaded[2]
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text


def test_the_tokenizer_has_a_token_for_every_byte(loaded):
    tokenizer = loaded[2]
    ids = tokenizer("".join(map(chr, range(0x80, 0x800))))["input_ids"]
    assert max(ids) < tokenizer.vocab_size
    assert tokenizer.eos_token_id != tokenizer.pad_token_id


def test_prompt_and_answer_can_be_tokenized_apart(loaded):
    from fixtures.geography import prompt

    tokenizer = loaded[2]
    for fact in Random(1).sample(facts(), 200):
        apart = [
            i for text in (prompt(fact), f" {fact.answer}") for i in tokenizer(text)["input_ids"]
        ]
        assert apart == tokenizer(f"{prompt(fact)} {fact.answer}")["input_ids"]


@pytest.mark.thorough
def test_merged_it_answers_its_facts_and_the_base_does_not(loaded):
    """At least 80 % merged and at most 40 % without the adapter: there is quality to lose."""
    from fixtures.models.evaluation import accuracy, answer_greedily

    base, merged, tokenizer = loaded
    asked = Random(0).sample(facts(trained=True), SAMPLE)
    assert accuracy(answer_greedily(merged, tokenizer, asked).answers, asked) >= 0.80
    assert accuracy(answer_greedily(base, tokenizer, asked).answers, asked) <= 0.40


def test_the_log_reports_the_same_and_a_real_training():
    scores = {entry["model"]: entry for entry in logged("evaluation")}
    assert scores["merged"]["accuracy"] >= 0.80
    assert scores["base"]["accuracy"] <= 0.40
    assert scores["merged"]["facts"] == len(facts(trained=True))
    assert scores["merged"]["choice_accuracy_withheld"] < scores["merged"]["choice_accuracy"]
    losses = [entry["loss"] for entry in logged("base")]
    assert losses[-1] < losses[0] / 4


def test_the_log_belongs_to_these_files(tmp_path):
    assert changed_files(EMBEDDED) == []
    copy = shutil.copytree(EMBEDDED, tmp_path / "copy")
    (copy / "config.json").write_text("{}", encoding="utf-8")
    assert changed_files(copy) == ["config.json"]


def test_the_held_out_text_was_never_trained_on():
    text = corpus.HELDOUT.read_text(encoding="utf-8")
    assert text == corpus.heldout_text(42)
    assert 20_000 <= len(text.encode()) <= 40_000
    documents = "\n".join(corpus.training_documents(42, paragraphs=2_000, fact_passes=1))
    stated = [s for f in facts(trained=True) for s in corpus.statements(f) if corpus.is_held_out(s)]
    used = [sentence for sentence in stated if sentence in text]
    assert len(used) > 50
    assert not any(f"\n{s}\n" in documents or f" {s} " in documents for s in used)


def test_no_withheld_fact_is_stated_in_the_training_text():
    documents = "\n".join(corpus.training_documents(42, paragraphs=0, fact_passes=1))
    assert not any(s in documents for f in facts(trained=False) for s in corpus.statements(f))
