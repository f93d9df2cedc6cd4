"""The persistent kernel on a CPU: the same source, its GPU threads played by coroutines.

Words of 64 bits travel whole there, in any order, and two that are stored together may arrive
apart: an H200 was seen to do so. What hardware does beyond that cannot be shown.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess

import pytest

from tests.meta.mini_suite import ROOT

pytest.importorskip("torch")

pytestmark = pytest.mark.thorough
BLOCKS = 4
FEW = {"TILE": 32, "SPLIT_TOKENS": 48, "STAGES": 2, "SPIN_LIMIT": 5_000}
"""So that 118 tokens are three slices of the context, each of two tiles."""


@pytest.fixture(scope="module")
def emulated(tmp_path_factory):
    """Compile the program for these constants and return it as a library."""
    if shutil.which("g++") is None:
        pytest.skip("needs g++ to compile the emulated kernel")

    def build(constants: dict[str, object]) -> ctypes.CDLL:
        library = tmp_path_factory.mktemp("emulated") / "step.so"
        defined = [f"-D{name}={value}" for name, value in constants.items()]
        source = ROOT / "tests/meta/fused_emulated.h"
        command = ["g++", "-O1", "-std=c++17", "-fPIC", "-shared", "-w", "-x", "c++"]
        command += ["-U_FORTIFY_SOURCE"]  # which takes a jump between stacks for a fault
        command += [f"-I{ROOT / 'engines'}", *defined, str(source), "-o", str(library)]
        subprocess.run(command, check=True)
        return ctypes.CDLL(str(library))

    return build


TIE = 2 * 2**-9
"""fp16's error of logits near 2, for two of them: so far from the best one a token may be."""


def fp16_model(family="qwen3", method=None, **sizes):
    """An untrained model in fp16, or with its weights in a fused format."""
    from engines.fused_formats import with_weight_only
    from tests.meta.fused_models import fused_model

    loaded = fused_model(family, dtype="float16", **sizes)
    return with_weight_only(loaded, method) if method else loaded


def gap(emulated, loaded, length=118, **options):
    """How far [logits] the worst token after a prompt is below the plain model's best one."""
    from tests.meta.fused_models import prompt, worst_gap

    return worst_gap(loaded, prompt(length), decoded(emulated, loaded, prompt(length), **options))


def decoded(emulated, loaded, prompt_ids, **options):
    """Tokens after a prompt: one of the prefill and one of each step."""
    return stepped(emulated, loaded, prompt_ids, **options)[0]


def stepped(emulated, loaded, prompt_ids, *, steps, fault=None, blocks=BLOCKS, **constants):
    """The tokens, and the step that decoded all but the first of them."""
    import torch

    from engines.decode_state import DecodeState
    from engines.fused_persistent import PersistentStep

    state = DecodeState(loaded.model, 1, 160)
    with torch.no_grad():
        state.allocate()
        state.prefill(torch.tensor([prompt_ids]), [0])
    step = PersistentStep(state, blocks, **{**FEW, **constants})
    assert step.blocks == blocks
    if fault:
        fault(step)
    library = emulated(step.constants)
    for _ in range(steps):
        assert library.run_step(step.argument) == 0, "somebody waited in vain"
    start = len(prompt_ids)
    assert int(state.cache.positions[0]) == start + steps
    return state.history[0, start : start + steps + 1].tolist(), step


STAGES = {"qwen3": 5, "llama": 3}
WIDE = {"hidden_size": 1280, "num_attention_heads": 8, "num_hidden_layers": 1}
"""Rows of several pieces, and four queries per key."""
THREE = {"hidden_size": 384, "num_attention_heads": 6}
ODD = {"hidden_size": 384, "num_attention_heads": 3, "num_key_value_heads": 3}
FIVE_PAIRS = {"vocab_size": 320, "num_hidden_layers": 1}
"""Of the head's rows, for each warp: it takes two pairs at a time, so the last is left alone."""


@pytest.mark.parametrize(
    ("family", "method", "sizes"),
    [
        ("qwen3", None, {}),
        ("llama", None, {}),
        ("qwen3", "int8", {}),
        ("qwen3", "nf4", {}),
        ("qwen3", None, WIDE),
        ("llama", None, THREE),
        ("llama", None, ODD),
        ("qwen3", None, FIVE_PAIRS),
    ],
    ids=["qwen3", "llama", "int8", "nf4", "wide", "three queries per key", "odd heads", "odd rows"],
)
def test_its_tokens_are_the_plain_models(emulated, family, method, sizes):
    """Each token is the best or, within the format's error, as good."""
    stages = 2 if sizes and sizes is not FIVE_PAIRS else STAGES[family]
    steps = 12 if sizes is FIVE_PAIRS else 2
    loaded = fp16_model(family, method, **sizes)
    assert gap(emulated, loaded, steps=steps, STAGES=stages) <= TIE


@pytest.mark.parametrize("pairs", [160, 161, 191, 31])
def test_each_pair_of_the_heads_rows_is_some_warps(emulated, pairs):
    """Of 32 warps some take a pair more than others, and of 31 pairs one warp takes none."""
    from engines.decode_state import DecodeState
    from engines.fused_persistent import PersistentStep

    loaded = fp16_model(vocab_size=2 * pairs, num_hidden_layers=1)
    state = DecodeState(loaded.model, 1, 160)
    state.allocate()
    found = (ctypes.c_int * pairs)()
    emulated(PersistentStep(state, BLOCKS, **FEW).constants).head_pairs(found)
    assert sorted(found) == list(range(pairs))


def test_the_residual_stream_is_the_plain_models(emulated):
    """Nearer than any token says: within twice the format's error of what the norm is given."""
    import torch

    from tests.meta.fused_models import fused_model, prompt

    tokens, step = stepped(emulated, fp16_model(), prompt(20), steps=2)
    exact = fused_model("qwen3", dtype="float32").model
    given = []
    exact.model.norm.register_forward_hook(lambda _module, inputs, _out: given.append(inputs[0]))
    with torch.no_grad():
        exact(torch.tensor([[*prompt(20), *tokens[:2]]]))
    expected = given[0][0, -1]
    assert (step.last_hidden().float() - expected).abs().max() <= 2**-9 * expected.abs().max()


def test_a_sine_for_a_cosine_is_seen(emulated):
    def swap(step):
        step.argument[4], step.argument[5] = step.argument[5], step.argument[4]

    assert gap(emulated, fp16_model(), 20, steps=2, fault=swap, HINTED=31) > 0.05


def test_a_sender_that_is_never_counted_ends_the_step_and_is_seen(emulated):
    def lose_one(step):
        step.control[32] = -1  # the first to count itself in makes it 0

    with pytest.raises(AssertionError, match="somebody waited in vain"):
        gap(emulated, fp16_model(), 20, steps=1, fault=lose_one, HINTED=31)


def test_what_it_cannot_run_is_named():
    from engines.fused_persistent import refusal
    from engines.fused_weights import FusedWeights
    from tests.meta.fused_models import fused_model

    half = FusedWeights.of(fp16_model().model, 64)
    assert refusal(half, 1, BLOCKS) is None
    assert refusal(half, 2, BLOCKS) == "batch size 2"
    assert refusal(half, 1, 200) == "hidden size 256 for 200 blocks"
    assert "float32" in refusal(FusedWeights.of(fused_model("qwen3").model, 64), 1, BLOCKS)


def test_a_gpu_with_little_shared_memory_is_refused(monkeypatch):
    """Two stages of eight warps take 64 KiB; sm_120 gives a block 99, sm_75 64."""
    from engines import fused_persistent
    from engines.fused_weights import FusedWeights

    weights = FusedWeights.of(fp16_model().model, 64)
    refused = {}
    for kib in (227, 99, 64):
        monkeypatch.setattr(fused_persistent, "shared_bytes", lambda _device, b=kib << 10: b)
        refused[kib] = fused_persistent.refusal(weights, 1, BLOCKS)
    assert refused == {227: None, 99: None, 64: "too large for shared memory"}


def test_it_compiles_for_hopper(tmp_path):
    """With the constants of the 0.6B shape; needs a compiler, not a GPU."""
    if shutil.which("nvcc") is None:
        pytest.skip("needs nvcc")
    constants = {
        "GRID": 128, "LAYERS": 28, "HIDDEN": 1024, "HEADS": 16, "KV_HEADS": 8, "HEAD_DIM": 128,
        "FFN": 3072, "VOCAB": 151936, "CAPACITY": 256, "NORMED": 1, "ENCODING": 0, "STAGES": 5,
        "TILE": 32, "SPLIT_TOKENS": 32, "MOST_SPLITS": 16, "ROWS_HIDDEN": 1, "EPSILON": "1e-6f",
        "SCORE_SCALE": "0.1f", "SPIN_LIMIT": 1000, "TIMED": 0, "HINTED": 28,
        "REFILLS": "0x11111211",
    }  # fmt: skip
    defined = [f"-D{name}={value}" for name, value in constants.items()]
    source = str(ROOT / "engines/fused_persistent.cu")
    command = ["nvcc", "-arch=sm_90", "-std=c++17", "-cubin", "-o", str(tmp_path / "out"), source]
    report = subprocess.run(
        [*command, *defined, "-Xptxas", "-v"], capture_output=True, text=True, check=True
    ).stderr
    assert "0 bytes spill stores" in report


@pytest.mark.parametrize("refills", ["0xf0f0f00f0", "0xf0f0f00f", "0x20101301", "0x1f000000"])
def test_its_tokens_do_not_depend_on_when_weights_are_asked_for(emulated, refills):
    assert gap(emulated, fp16_model(), steps=2, STAGES=5, REFILLS=refills) <= TIE


@pytest.mark.parametrize(("method", "stages"), [(None, 2), ("int8", 4), ("nf4", 2), ("nf4", 4)])
def test_inputs_of_more_packets_than_are_looked_at_together(emulated, method, stages):
    """256 threads look at four each, and 8,192 hidden units take 1,368."""
    sizes = {"hidden_size": 512, "intermediate_size": 8192, "num_attention_heads": 8}
    loaded = fp16_model(method=method, num_hidden_layers=1, **sizes)
    slow = {"STAGES": stages, "HINTED": 31, "TILE": 16, "SPIN_LIMIT": 50_000}
    assert gap(emulated, loaded, steps=2, blocks=8, **slow) <= TIE


@pytest.mark.parametrize(("method", "seed"), [(None, 1), ("nf4", 2)])
def test_its_tokens_do_not_depend_on_who_is_late(emulated, method, seed):
    """Blocks and warps fall asleep, copies arrive late and in any order."""
    late = {"CHAOS": seed, "SPIN_LIMIT": 500_000}
    assert gap(emulated, fp16_model(method=method), steps=2, STAGES=5, **late) <= TIE


def test_packets_of_one_pair(emulated):
    """Two numbers of the hidden state a block: each packet comes from another one."""
    loaded = fp16_model(hidden_size=64, num_hidden_layers=1)
    assert gap(emulated, loaded, 20, steps=2, blocks=32) <= TIE


def test_tags_begin_again_after_65536_layers(emulated):
    """A packet has 16 bits of its tag: the layers of these steps have 65535, 0, 1 and 2."""

    def long_since(step):
        step.control[0] = 32767

    assert gap(emulated, fp16_model(), 20, steps=2, fault=long_since) <= TIE


def test_half_a_packet_that_is_taken_for_a_whole_one_is_seen(emulated):
    """Planted fault: only the tag of a packet's second half is looked at."""
    import torch

    from tests.meta.fused_models import prompt

    loaded = fp16_model()
    _, right = stepped(emulated, loaded, prompt(20), steps=1)
    _, wrong = stepped(emulated, loaded, prompt(20), steps=1, ONE_TAG=1)
    apart = (right.last_hidden().float() - wrong.last_hidden().float()).abs().nan_to_num(torch.inf)
    assert apart.max() > 0.1


def test_threads_of_a_block_that_do_not_wait_for_each_other_are_seen(emulated):
    """Planted fault: barriers of a block let everybody pass."""
    from tests.meta.fused_models import prompt, worst_gap

    loaded = fp16_model()
    try:
        tokens = decoded(emulated, loaded, prompt(118), steps=2, CHAOS=1, SPIN_LIMIT=5_000, UNMET=1)
    except AssertionError:
        return
    known = all(0 <= token < loaded.shape.vocab_size for token in tokens)
    assert not known or worst_gap(loaded, prompt(118), tokens) > 0.05
