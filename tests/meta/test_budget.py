"""`python -m reports budget`: the chapter's numbers, quantized formats, any config, bad input."""

from __future__ import annotations

import json

import pytest

from engines import cost, formats
from engines.gpus import GPUS
from reports.__main__ import main
from reports.budget import Question, budget
from reports.catalogue import find_shape, known_shapes

QWEN = "Qwen/Qwen3-0.6B"
PUBLISHED = {  # parameters as the model cards or the weight files state them
    "Qwen/Qwen3-0.6B": 596_049_920,
    "Qwen/Qwen3-4B": 4_022_468_096,
    "Qwen/Qwen3-8B": 8_190_735_360,
    "Qwen/Qwen3-30B-A3B": 30_532_122_624,
    "meta-llama/Llama-3.2-1B": 1_235_814_400,
    "meta-llama/Llama-3.1-8B": 8_030_261_248,
    "mistralai/Mistral-7B-v0.1": 7_241_732_096,
    "google/gemma-3-1b-it": 999_885_952,
    "deepseek-ai/DeepSeek-V3": 671_026_404_352,
}


def ask(model=QWEN, gpu="T4", context=4096, batch=16, **formats_):
    card = GPUS[gpu]
    return budget(Question(find_shape(model), card.memory_bytes, card.bandwidth_bytes_per_s,
                           context, batch, **formats_))  # fmt: skip


@pytest.mark.parametrize("model", PUBLISHED)
def test_the_catalogue_has_the_published_parameters(model):
    assert known_shapes()[model].num_parameters == PUBLISHED[model]


def test_batch_16_hits_16_gb_at_8069_tokens(capsys):
    assert main(["budget", "--model", QWEN, "--gpu", "T4", "--batch", "16"]) == 0
    assert "batch 16 hits 16 GB at 8,069 tokens" in capsys.readouterr().out


def test_what_is_held_and_what_is_left_add_up():
    found = ask()
    assert found.weights_bytes == 1_192_099_840
    assert found.kv_bytes == 16 * 4096 * 114_688
    assert found.left_bytes == 16e9 - found.weights_bytes - found.kv_bytes
    assert found.fits
    assert not ask(context=8070).fits
    assert ask(context=8069).fits


@pytest.mark.parametrize("name", ["int8", "nf4"])
def test_quantized_weights_are_those_that_bitsandbytes_loads(name):
    shape, kind = find_shape(QWEN), {"int8": formats.INT8, "nf4": formats.NF4}[name]
    found = ask(weights=name, batch=1)
    assert found.weights_bytes == formats.quantized_weight_bytes(shape, kind)
    read = formats.decode_quantized_weight_bytes(shape, kind)
    assert found.step_bytes == read + cost.kv_cache_bytes(shape, 4096)
    free = 16e9 - found.weights_bytes
    assert found.sequences == free / cost.kv_cache_bytes(shape, 4096)


def test_the_context_that_fills_a_card_does_fill_it():
    found = ask(batch=1)
    held = found.weights_bytes + found.fills_at_tokens * found.kv_token_bytes
    assert held == pytest.approx(16e9, rel=1e-12)


def test_weights_larger_than_the_card_leave_no_sequence(capsys):
    found = ask(model="meta-llama/Llama-3.1-8B", weights="fp32")
    assert found.sequences == 0
    assert not found.fits
    arguments = ["budget", "--model", "meta-llama/Llama-3.1-8B", "--weights", "fp32"]
    assert main(arguments) == 0
    assert "the weights alone are larger than 16 GB" in capsys.readouterr().out


def test_any_config_json_will_do(tmp_path, capsys):
    config = {"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64, "vocab_size": 100,
              "num_attention_heads": 4, "intermediate_size": 128}  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    assert main(["budget", "--model", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["kv_token_bytes"] == 2 * 2 * 64 * 2


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--gpu", "T5"], "unknown GPU 'T5'"),
        (["--model", "no-such-model"], "model 'no-such-model' is not known"),
        (["--model", "/no/such/folder"], "No such file"),
        (["--context", "0"], "context_tokens is 0, expected 1 or more"),
        (["--batch", "-1"], "batch_size is -1, expected 1 or more"),
    ],
)
def test_bad_input_is_one_line(arguments, expected, capsys):
    assert main(["budget", *arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert expected in line
