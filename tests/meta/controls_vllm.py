"""Negative controls of the claims about vLLM (C49, C50), and of its ceilings (C10, C12)."""

from __future__ import annotations

from types import SimpleNamespace

from reports.verdict import Outcome
from tests import test_i_vllm as vllm
from tests.meta.control import Control, Fault

QUEUED = {"hidden_s": 10.0}
REASON = "vLLM is not installed"
LEFT = {"exit": 0, "passed": 3, "reason": f"{REASON}: install it", "engines": {"naive"}}


class ScriptedShelf:
    """vLLM engines that take the time they are told to."""

    def __init__(self, bench):
        self._bench = bench

    def require_installed(self):
        """It always is."""

    def get(self, *, batch_size, max_tokens, eager=False, tensor_parallel=1):
        parallel = f" tp:{tensor_parallel}" if tensor_parallel > 1 else ""
        name = ("vllm_eager" if eager else "vllm") + parallel
        return self._rows(name, batch_size, max_tokens, tensor_parallel)

    def _rows(self, name, batch_size, max_tokens, gpus):
        engine = self._bench.engine(name, batch_size, max_tokens)
        engine.weights_bytes //= gpus
        engine.with_rows = lambda rows: self._rows(name, rows, max_tokens, gpus)
        return engine


def beside_ours(bench, *, vllm_s=5e-3, ours_s=20e-3, **options):
    """C50: a step of vLLM and one of the hand-written scheduler, at any batch size."""
    beside = {"continuous_graph": 6e-3, "fused_continuous": 4.5e-3}
    bench.steps |= {"continuous": ours_s, **beside, "vllm": vllm_s}
    bench.engine_options |= options
    bench.call(
        vllm.test_vllm_beats_the_hand_written_scheduler_at_high_concurrency,
        engine_name="vllm",
        vllm_engines=ScriptedShelf(bench),
        schedulers=("continuous", *beside),
    )


def split(bench, *, one_s=60e-3, two_s=35e-3):
    """C12 of two GPUs over one, for a shape of 8 billion parameters."""
    bench.steps |= {"vllm": one_s, "vllm tp:2": two_s}
    bench.call(
        vllm.test_a_model_split_over_gpus_stays_below_their_ceilings_and_above_one_gpu,
        vllm_engines=ScriptedShelf(bench),
        experiment_options=SimpleNamespace(tensor_parallel=2),
        loaded=SimpleNamespace(shape=SimpleNamespace(num_parameters=8_190_735_360)),
    )


def without_vllm(bench, **changes):
    """C49: what is left of a run."""

    def test(judge):
        vllm.judge_what_is_left(judge, LEFT | changes, REASON)

    test.pytestmark = vllm.test_without_vllm_every_other_result_is_complete.pytestmark
    bench.call(test)


CONTROLS = {
    "C49": Control(
        without_vllm,
        {
            "a failing start ends the run": Fault(Outcome.REFUTED, {"exit": 1}, "exit"),
            "a test is lost": Fault(Outcome.REFUTED, {"passed": 2}, "passed"),
            "nobody says why": Fault(Outcome.REFUTED, {"reason": ""}, "reason"),
            "an engine is lost": Fault(Outcome.REFUTED, {"engines": set()}, "engines"),
        },
    ),
    "C50": Control(
        beside_ours,
        {
            "vLLM slower than the hand-written scheduler": Fault(
                Outcome.REFUTED, {"vllm_s": 30e-3}, "at 64 over continuous$"
            ),
        },
    ),
}
