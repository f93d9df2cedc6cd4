"""Adapters: the only order in which merged and unmerged can be compared, and what must be seen."""

from __future__ import annotations

import json
import shutil

import pytest

pytest.importorskip("torch")

SEEN = 0.05
"""A logit difference that no rounding of a float32 model of this size makes."""


@pytest.fixture
def base():
    from tests.meta.small_models import small_model

    return small_model()


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Two adapters for the small model, saved by peft."""
    from engines.adapter import attach_synthetic
    from tests.meta.small_models import small_model

    where = [tmp_path_factory.mktemp("adapters") / name for name in ("first", "second")]
    for seed, folder in enumerate(where):
        attach_synthetic(small_model(), seed=seed).unmerged.save_pretrained(folder)
    return where


@pytest.fixture(scope="module")
def ids():
    import torch

    return torch.arange(1, 41).reshape(2, 20)


def copy_with(folder, target, **changed):
    """A copy of an adapter whose config says something else."""
    shutil.copytree(folder, target)
    path = target / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changed))
    return target


def refusal(loaded, folder):
    from engines.adapter import attach
    from engines.adapter_files import AdapterMismatch

    with pytest.raises(AdapterMismatch) as refused:
        attach(loaded, folder)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_merged_and_unmerged_agree_but_not_exactly_and_differ_from_the_base(base, folders, ids):
    from engines.adapter import attach, merge_and_compare

    merged, numbers = merge_and_compare(attach(base, folders[0]), ids)
    assert 0 < numbers.max_abs_delta < 1e-4 * numbers.largest_logit
    assert numbers.max_abs_delta_to_base > SEEN
    assert numbers.fault is None
    assert merged.unmerged is None
    assert not [name for name, _ in merged.model.named_parameters() if "lora" in name]


def test_the_step_of_the_format_stands_beside(base, folders, ids):
    """Float32 has 23 bits of fraction: the step in [2^k, 2^(k+1)) is 2^(k-23)."""
    import math

    from engines.adapter import attach, merge_and_compare

    _, numbers = merge_and_compare(attach(base, folders[0]), ids)
    assert numbers.dtype == "float32"
    assert numbers.ulp == 2.0 ** (math.floor(math.log2(numbers.largest_logit)) - 23)


def test_planted_fault_logits_taken_after_merging_are_refused(base, folders, ids):
    """The chapter's order: `merge_and_unload` changes the weights in place."""
    from engines.adapter import AlreadyMerged, attach, compare, logits_of, merge_and_compare, merged

    attached = attach(base, folders[0])
    bare = logits_of(base.model, ids)
    done = merged(attached)
    with pytest.raises(AlreadyMerged, match="merge=False"):
        merge_and_compare(done, ids)
    with pytest.raises(AlreadyMerged, match="no separate adapter"):
        merged(done)
    after = logits_of(done.model, ids)
    assert "both were taken after merging" in compare(bare, logits_of(done.model, ids), after).fault


def test_planted_fault_nothing_merged_is_seen(base, ids):
    from engines.adapter import compare, logits_of

    bare = logits_of(base.model, ids)
    assert "nothing was merged" in compare(bare, bare + 1e-3, bare).fault


def test_planted_fault_another_adapter_is_seen(base, folders, ids):
    from engines.adapter import attach, compare, logits_of, merged
    from tests.meta.small_models import small_model

    bare = logits_of(base.model, ids)
    unmerged = logits_of(attach(base, folders[0]).model, ids)
    other = logits_of(merged(attach(small_model(), folders[1])).model, ids)
    assert compare(bare, unmerged, other).max_abs_delta > SEEN


def test_planted_fault_a_wrong_scale_is_seen(base, folders, ids):
    from engines.adapter import attach, compare, logits_of, merged
    from engines.synthetic_adapter import lora_layers

    bare = logits_of(base.model, ids)
    attached = attach(base, folders[0])
    unmerged = logits_of(attached.model, ids)
    for _, layer in lora_layers(attached.model):
        layer.scaling["default"] *= 2
    assert compare(bare, unmerged, logits_of(merged(attached).model, ids)).max_abs_delta > SEEN


def test_an_adapter_of_another_family_or_width_is_refused(folders):
    from tests.meta.small_models import small_model

    assert "no such layer" in refusal(small_model("gpt2"), folders[0])


def test_an_adapter_of_another_width_is_refused(base, folders, tmp_path):
    from safetensors.torch import load_file, save_file

    wide = copy_with(folders[0], tmp_path / "wide")
    tensors = load_file(wide / "adapter_model.safetensors")
    doubled = {key: value.repeat(2, 2) for key, value in tensors.items()}
    save_file(doubled, wide / "adapter_model.safetensors")
    assert "was made for another base: it adapts model.layers.0" in refusal(base, wide)


@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
def test_a_tied_head_cannot_be_adapted_and_an_untied_one_can(tied, base, ids, tmp_path):
    """Merging would change the embedding as well: a logit difference of 0.27 to 0.42 elsewhere."""
    import torch
    from peft import LoraConfig, get_peft_model

    from engines.adapter import attach, merge_and_compare
    from engines.adapter_files import TiedEmbeddings
    from engines.quiet import peft_notices_ignored
    from tests.meta.small_models import small_model

    head = LoraConfig(target_modules=["lm_head"], init_lora_weights=False)
    with peft_notices_ignored():
        wrapper = get_peft_model(untied(small_model()).model, head)
    wrapper.save_pretrained(tmp_path, save_embedding_layers=False)
    if tied:
        with pytest.raises(TiedEmbeddings, match=r"adapts lm_head, but .* are tied"):
            attach(base, tmp_path)
        return
    torch.manual_seed(0)
    _, numbers = merge_and_compare(attach(untied(base), tmp_path), ids)
    assert numbers.max_abs_delta < 1e-4 * numbers.largest_logit


def untied(loaded):
    """The same model with a head of its own."""
    import torch

    head = loaded.model.lm_head
    head.weight = torch.nn.Parameter(head.weight.detach().clone(), requires_grad=False)
    loaded.model.config.tie_word_embeddings = False
    return loaded


def test_what_is_no_lora_adapter_is_refused(base, folders, tmp_path):
    (tmp_path / "empty").mkdir()
    assert "is not a peft adapter" in refusal(base, tmp_path / "empty")
    other = copy_with(folders[0], tmp_path / "other", peft_type="IA3")
    assert "holds a IA3 adapter: expected LORA" in refusal(base, other)
    bare = copy_with(folders[0], tmp_path / "bare")
    (bare / "adapter_model.safetensors").unlink()
    assert "has no adapter_model.safetensors" in refusal(base, bare)


def test_an_adapter_cut_short_is_refused(base, folders, tmp_path):
    cut = copy_with(folders[0], tmp_path / "cut") / "adapter_model.safetensors"
    cut.write_bytes(cut.read_bytes()[:-100])
    assert "cut short" in refusal(base, cut.parent)


def test_a_pattern_that_matches_nothing_is_refused_and_one_that_does_is_used(
    base, folders, tmp_path
):
    from engines.adapter import attach

    typo = copy_with(folders[0], tmp_path / "typo", alpha_pattern={"q_porj": 8})
    assert "alpha_pattern names 'q_porj', which no adapted layer" in refusal(base, typo)
    meant = copy_with(folders[0], tmp_path / "meant", alpha_pattern={"q_proj": 8})
    layer = attach(base, meant).model.model.layers[0].self_attn
    assert (layer.q_proj.scaling["default"], layer.k_proj.scaling["default"]) == (8 / 16, 32 / 16)


def test_the_exported_folder_is_an_ordinary_model(base, folders, ids, tmp_path):
    """Same logits and tokens, no adapter keys, and 4 bytes a parameter, the head once."""
    import torch
    from safetensors import safe_open

    from engines.adapter import attach, export, logits_of, merged
    from engines.models import load_model

    done = merged(attach(base, folders[0]))
    folder = export(done, tmp_path / "exported")
    again = load_model(str(folder), device="cpu", adapter="none")
    assert torch.equal(logits_of(again.model, ids), logits_of(done.model, ids))
    assert again.tokenizer("ข้าว").input_ids == done.tokenizer("ข้าว").input_ids
    weights = folder / "model.safetensors"
    with safe_open(weights, framework="pt") as file:
        keys = list(file.keys())
    assert not [key for key in keys if "lora" in key or "base_layer" in key]
    header = 200 * len(keys)
    assert 0 <= weights.stat().st_size - 4 * done.shape.num_parameters <= header


def test_exporting_needs_a_merged_model_and_a_new_folder(base, folders, tmp_path):
    from engines.adapter import attach, export, merged

    attached = attach(base, folders[0])
    with pytest.raises(ValueError, match="is not merged"):
        export(attached, tmp_path / "new")
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError, match="is not empty"):
        export(merged(attached), tmp_path)


def test_a_synthetic_adapter_is_seeded_and_each_layer_has_its_share():
    from engines.adapter import attach_synthetic
    from engines.synthetic_adapter import RELATIVE_NORM, _delta_norm, _weight_norm, lora_layers
    from tests.meta.small_models import small_model

    first, same, other = (attach_synthetic(small_model(), seed=seed) for seed in (0, 0, 1))
    assert first.adapter.content_hash == same.adapter.content_hash != other.adapter.content_hash
    layers = list(lora_layers(first.model))
    assert len(layers) == 2 * 7
    for name, layer in layers:
        assert _delta_norm(layer) / _weight_norm(layer) == pytest.approx(RELATIVE_NORM), name
        update = layer.get_delta_weight("default")
        assert float(update.norm()) == pytest.approx(_delta_norm(layer), rel=1e-4), name


def test_the_synthetic_size_is_that_of_the_embedded_trained_adapter():
    from engines.models import load_model
    from engines.synthetic_adapter import RELATIVE_NORM, relative_norm

    tiny = load_model("tiny", device="cpu", merge=False)
    assert relative_norm(tiny.model) == pytest.approx(RELATIVE_NORM, abs=5e-5)
