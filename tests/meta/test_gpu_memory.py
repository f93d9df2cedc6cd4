"""What a run needs of a 16 GB card and of its host, computed: nothing here needs a GPU."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

pytest.importorskip("torch")

from engines import cost, formats
from fixtures.models_at_hand import EngineShelf
from fixtures.profiles import PROFILES
from tests.chapter import KV_TOKEN, QWEN3, WEIGHTS

MOST_BYTES = 6_000_000_000
"""What the default run may take of a GPU's memory."""
QUANTIZED = (formats.INT8, formats.NF4)
PAGE_TOKENS = 256
T4 = ((7, 5), 16 * 10**9, 40)


def t4():
    from engines.precision import choose

    return choose(*T4)


def kv(rows, tokens):
    return rows * tokens * KV_TOKEN


def fp32_copy():
    """A licence in fp16 may need the model in fp32: embedding last, in both widths at once."""
    return cost.weight_bytes(QWEN3, 4) + QWEN3.vocab_size * QWEN3.hidden_size * 2


def live_sets(sizes):
    """KV [bytes] that one test holds at once, and what else it needs for a moment."""
    row = sizes.prompt_tokens + sizes.new_tokens
    peers = max(sizes.peer_batch_sizes)
    pages = kv(peers * (-(-row // PAGE_TOKENS) + 1), PAGE_TOKENS)
    return {
        "batch sweep": kv(sum(sizes.batch_sizes), row) + fp32_copy(),
        "peers": 2 * kv(peers, row) + max(pages, fp32_copy()),
        "wasted slots": 2 * kv(sizes.batch, row) + fp32_copy(),
        "long cache": int(0.15 * t4().memory_bytes),
        "long prompt": kv(1, sizes.long_prompt_tokens + 2) + fp32_copy(),
        "quantized": sum(formats.quantized_weight_bytes(QWEN3, kind) for kind in QUANTIZED),
    }  # fmt: skip


@pytest.mark.parametrize("profile", ["quick", "full"])
def test_the_default_run_needs_less_than_6_gb_of_a_t4(profile):
    """Weights, what waits for its next test, and the largest test on top of both."""
    sets = live_sets(PROFILES[profile].cuda)
    most = max(sets, key=sets.__getitem__)
    needed = WEIGHTS + t4().kept_engine_bytes + sets[most]
    assert needed < MOST_BYTES, f"{most}: {needed / 1e9:.2f} GB"


def test_keeping_every_engine_would_need_more():
    """Planted fault: without a limit all KV stores of a run are held at once."""
    sizes = PROFILES["full"].cuda
    row = sizes.prompt_tokens + sizes.new_tokens
    stores = kv(sum(sizes.batch_sizes) + sum(sizes.peer_batch_sizes) + 3 * sizes.batch, row)
    sets = live_sets(sizes)
    assert WEIGHTS + stores + sets["long cache"] + sets["quantized"] + fp32_copy() > MOST_BYTES


class Held:
    """An engine that holds so many bytes."""

    def __init__(self, name, loaded, kv_bytes, weights_bytes=0):
        self.name, self.loaded, self.batch_size = name, loaded, 1
        self._memory = SimpleNamespace(kv_bytes=kv_bytes, weights_bytes=weights_bytes)

    def memory(self):
        return self._memory


def test_the_largest_engines_are_forgotten_first_and_the_one_in_hand_never(monkeypatch):
    model = SimpleNamespace(device="cpu")
    sizes = {"compiled": 20, "continuous": 500, "static_batch": 400, "naive": 0, "int8": 0}
    built = []

    def build_engine(name, loaded, **_):
        own = SimpleNamespace(device="cpu") if name == "int8" else loaded
        built.append(name)
        return Held(name, own, sizes[name] * 10**6, 700 * 10**6)

    monkeypatch.setattr("engines.registry.build_engine", build_engine)
    monkeypatch.setattr("engines.precision.settings_here", lambda _: t4())
    shelf = EngineShelf(model, None)
    for name in ("compiled", "continuous", "static_batch"):
        shelf.get(name, max_tokens=8)
    shelf.get("naive", max_tokens=8)  # 920 MB are held, 800 are allowed: the largest goes
    for name in ("compiled", "static_batch", "naive"):
        shelf.get(name, max_tokens=8)
    assert built == ["compiled", "continuous", "static_batch", "naive"]
    shelf.get("int8", max_tokens=8)  # holds weights of its own
    shelf.get("continuous", max_tokens=8)
    shelf.get("static_batch", max_tokens=8)
    assert built[4:] == ["int8", "continuous"]


def test_a_t4_has_room_for_vllm_beside_the_largest_comparison():
    from engines.vllm_plan import Plan, check_room

    settings, loaded = t4(), SimpleNamespace(shape=QWEN3)
    plan = Plan(batch_size=64, max_tokens=128 + 64)
    ours = WEIGHTS + settings.kept_engine_bytes + 2 * kv(64, 192)
    check_room(loaded, plan, settings, 15 * 10**9 - ours)


def test_weights_come_to_the_host_in_half_precision(monkeypatch, tmp_path):
    """Colab's host has 12.7 GB: 1.2 GB in fp16 and never an fp32 copy of twice that."""
    import torch

    from engines import weights

    asked = {}
    monkeypatch.setattr(
        weights.AutoModelForCausalLM, "from_pretrained", lambda _, **options: asked.update(options)
    )
    (tmp_path / "model.safetensors").touch()
    weights.pretrained_model(tmp_path, dtype=torch.float16)
    assert asked["dtype"] is torch.float16
    assert t4().dtype == "float16"
    assert cost.weight_bytes(QWEN3, 2) < 0.1 * 12.7e9
