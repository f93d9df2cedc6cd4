"""A shape model as a folder that a server can load: what its tokenizer reads and says."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("transformers")

from fixtures.shape_folder import write_shape, write_tokenizer


def test_text_is_spelled_in_bytes_and_every_id_has_text(tmp_path):
    from transformers import AutoTokenizer

    write_tokenizer(1000, tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "qwen3"}')
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    text = "เชียงใหม่ 1"
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert len(ids) == len(text.encode())
    assert tokenizer.decode(ids) == text
    assert tokenizer.decode([999, 257]) == "<999><257>"
    assert len(tokenizer) == 1000


def test_the_folder_has_the_config_of_the_shape_and_no_weights(tmp_path, monkeypatch):
    monkeypatch.setattr("fixtures.shape_folder.write_tokenizer", lambda size, _: sizes.append(size))
    sizes = []
    folder = write_shape("qwen3-0.6b-shape", tmp_path / "served")
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    assert (config["num_hidden_layers"], sizes) == (28, [151_936])
    assert not list(folder.glob("*.safetensors"))


def test_a_name_that_is_no_shape_is_refused_in_one_line(tmp_path):
    with pytest.raises(ValueError, match="no shape 'tiny'"):
        write_shape("tiny", tmp_path)
