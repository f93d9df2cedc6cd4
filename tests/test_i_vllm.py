"""Sections 7.2 and 8: vLLM beside the hand-written scheduler, in one process and one run.

vLLM is optional. Where it is missing or fails at start, the reason is the verdict, and everything
else in the run is as complete as it would have been. These tests come last in a run, because
importing vLLM changes settings of torch for the whole process.
"""

from __future__ import annotations

from dataclasses import asdict

import pytest

from fixtures.open_load import capacity_per_s, run_open_loop
from fixtures.vllm_at_hand import VllmShelf
from fixtures.workload import Schedule
from reports import stats
from reports.bounds import above, below
from tests.meta.run_without_vllm import what_is_left

BATCHES = (1, 16, 64)
NEW_TOKENS = 64
"""On CUDA: long enough for a steady decode, short enough for an eager step of 64 rows."""
CHAPTERS = "continuous"
BESIDE = {
    "continuous_graph": "the same scheduler with CUDA graphs, for comparison",
    "fused_continuous": "this project's hand-written kernels, for comparison",
}
"""Schedulers that the claim is not about, and why their ratio is only observed."""
OPEN_SHARES = (0.5, 0.8)
"""Of vLLM's capacity: the loads of section 4 at which a server still answers everything."""
OPEN_RUNS, OPEN_REQUESTS = 5, 300
SMALL = 10_000_000_000
"""Bytes of weights below which splitting them saves less than the exchange between GPUs costs."""


@pytest.fixture(scope="session")
def vllm_engines(loaded, clock):
    """The vLLM engines of this session; none is started before a test asks for one."""
    shelf = VllmShelf(loaded, clock)
    yield shelf
    shelf.close()


@pytest.fixture(scope="session")
def schedulers(device, loaded):
    """The chapter's scheduler, and on CUDA those beside it that can run this model here."""
    if device != "cuda":
        return (CHAPTERS,)
    from engines.fused_continuous import why_not_available

    names = [CHAPTERS, *BESIDE]
    if why_not_available(loaded):
        names.remove("fused_continuous")
    return tuple(names)


def shape_of(measure, device, batch=1):
    """Sizes of one round."""
    return measure.shape(batch, **({"new_tokens": NEW_TOKENS} if device == "cuda" else {}))


def hand_written(measure, shape, names):
    """Arms of a comparison, compiled before vLLM changes how torch compiles."""
    return {name: (measure.engine(name, shape), shape) for name in names}


@pytest.mark.claim("C50")
@pytest.mark.claim("C10")
@pytest.mark.claim("C55")
@pytest.mark.parametrize("engine_name", ["vllm"], ids="engine:{}".format)
def test_vllm_beats_the_hand_written_scheduler_at_high_concurrency(
    engine_name, measure, judge, rows, ceilings, device, sizes, record_series, vllm_engines,
    schedulers,
):  # fmt: skip
    """Section 7.2: batch 1, 16 and 64, interleaved; the claim is about the largest.

    Refuted if the scheduler of this project decodes faster there. The same scheduler with CUDA
    graphs stands beside it: what is then left is kernels, paging and Python. So does the one over
    hand-written kernels.
    """
    from engines.vllm_plan import VLLMNotAvailable

    batches = BATCHES if device == "cuda" else sizes.peer_batch_sizes
    try:
        vllm_engines.require_installed()
        shapes = {batch: shape_of(measure, device, batch) for batch in batches}
        ours = {batch: hand_written(measure, shapes[batch], schedulers) for batch in batches}
        theirs = vllm_engines.get(
            batch_size=max(batches), max_tokens=shape_of(measure, device).max_tokens
        )
    except VLLMNotAvailable as reason:
        judge.not_applicable(str(reason), quantity="decode rate over ours", subject=engine_name)
        return
    points = []
    for batch in batches:
        arms = ours[batch] | {engine_name: (theirs.with_rows(batch), shapes[batch])}
        found = measure.compare_shaped(arms)
        for name in schedulers:
            judge(
                found.speed_ratio(engine_name, name),
                above(1.0),
                quantity=f"decode rate at {batch} over {name}",
                subject=f"{engine_name}@{batch}",
                applies=why_only_observed(name, batch, max(batches)),
                faults=found.faults,
                extra={"cuda_graphs": True},
            )
        for run in found.runs.values():
            rows.keep(run, claim="C50")
            points.append(
                {
                    "engine": run.engine,
                    "batch_size": batch,
                    "tokens_per_s": run.tokens_per_s.to_json(),
                    "itl_s": run.step_s.to_json(),
                }
            )
        if batch == 1:
            stays_below_its_ceiling(judge, found.runs[engine_name], ceilings)
    loads_what_we_export(judge, found.runs[engine_name])
    record_series("vllm_beside_ours", points)


def why_only_observed(name, batch, largest):
    """The claim is about the chapter's scheduler at the highest concurrency."""
    if batch != largest:
        return f"claimed at high concurrency, here {largest}"
    return BESIDE.get(name)


@pytest.mark.claim("C50")
@pytest.mark.devices("cuda")
@pytest.mark.parametrize("engine_name", ["vllm"], ids="engine:{}".format)
def test_gaps_between_tokens_under_an_open_load(
    engine_name, measure, judge, record_series, device, schedulers, vllm_engines
):
    """Section 7.2 under the load of section 4: how long running streams wait for newcomers.

    An observation: the same Poisson schedules, at shares of what vLLM itself can answer, for vLLM
    and for the scheduler over hand-written kernels, in the same process. The run is resampled.
    """
    from engines.vllm_plan import VLLMNotAvailable

    ours = schedulers[-1]
    shape = shape_of(measure, device, max(BATCHES))
    try:
        vllm_engines.require_installed()
        engines = {ours: measure.engine(ours, shape)}
        engines[engine_name] = vllm_engines.get(
            batch_size=shape.batch_size, max_tokens=shape.max_tokens
        )
    except VLLMNotAvailable as reason:
        judge.not_applicable(str(reason), quantity="p99 ITL under load", subject=engine_name)
        return
    for engine in engines.values():
        measure.shelf.warm(engine, shape.prompt_tokens, shape.new_tokens)
    capacity = capacity_per_s(engines[engine_name], measure.clock, shape)
    points = []
    for share in OPEN_SHARES:
        runs = open_runs(measure, engines, shape, share * capacity)
        lost = sum(run.unanswered for of_one in runs.values() for run in of_one)
        judge(
            stats.estimate_ratio(
                [run.itl_p99_s for run in runs[engine_name]],
                [run.itl_p99_s for run in runs[ours]],
                resampled="run",
            ),
            above(1.0),
            quantity=f"p99 ITL at {share:.0%} of its capacity over {ours}",
            subject=f"{engine_name}@{shape.batch_size}",
            applies=BESIDE.get(ours, "an observation of both under one load"),
            faults=[f"{lost} requests were not answered"] if lost else [],
            extra={"offered_per_s": share * capacity},
        )
        points += [
            {"engine": name, "load": share, "offered_per_s": share * capacity, **asdict(run)}
            for name, of_one in runs.items()
            for run in of_one
        ]
    record_series("open_load_beside_vllm", points)


def open_runs(measure, engines, shape, rate_per_s):
    """The runs of each engine, interleaved; one schedule per seed, the same for all."""
    runs = {name: [] for name in engines}
    for seed in range(OPEN_RUNS):
        schedule = Schedule.poisson(rate_per_s, OPEN_REQUESTS, seed=42 + seed)
        for name, engine in sorted(engines.items(), reverse=bool(seed % 2)):
            runs[name].append(run_open_loop(engine, measure.clock, shape, schedule, seed=seed))
    return runs


def loads_what_we_export(judge, run):
    """C55: it was started from the exported folder, so its tokens say whether that is a model."""
    if run.licence.tokens:
        judge.exact(
            run.licence.granted,
            1,
            quantity=f"vLLM loads the exported folder and agrees ({run.licence.text})",
            unit="1",
            subject=run.engine,
            claim="C55",
        )


def stays_below_its_ceiling(judge, run, ceilings):
    """C10 for vLLM: `bytes_per_step` is what one GPU reads, so its bandwidth is the ceiling."""
    judge(
        run.tokens_per_s,
        below(ceilings.hard_bytes_per_s / run.bytes_per_step),
        quantity="decode rate",
        subject=run.subject,
        claim="C10",
        faults=[
            *run.faults,
            *ceilings.above_datasheet(run.tokens_per_s.centre, run.bytes_per_step),
        ],
    )


@pytest.mark.claim("C50")
@pytest.mark.devices("cuda")
@pytest.mark.parametrize("engine_name", ["vllm_eager"], ids="engine:{}".format)
def test_what_cuda_graphs_are_worth_to_vllm(
    engine_name, measure, judge, rows, device, vllm_engines
):
    """Section 7.2: if vLLM loses, is eager mode why? Both modes at the largest batch.

    An observation: eager vLLM pays Python and launches in every step as the eager scheduler does.
    """
    from engines.vllm_plan import VLLMNotAvailable

    shape = shape_of(measure, device, max(BATCHES))
    most = {"batch_size": shape.batch_size, "max_tokens": shape.max_tokens}
    try:
        vllm_engines.require_installed()
        arms = hand_written(measure, shape, ["continuous"])
        arms["vllm"] = vllm_engines.get(**most), shape
        arms[engine_name] = vllm_engines.get(**most, eager=True), shape
    except VLLMNotAvailable as reason:
        judge.not_applicable(str(reason), quantity="graphs over eager", subject=engine_name)
        return
    found = measure.compare_shaped(arms)
    for name in ("vllm", "continuous"):
        judge(
            found.speed_ratio(engine_name, name),
            above(1.0),
            quantity=f"decode rate over {name}",
            subject=f"{engine_name}@{shape.batch_size}",
            applies="eager mode, to see whether it is why vLLM loses",
            faults=found.faults,
            extra={"cuda_graphs": False},
        )
    rows.keep(found.runs[engine_name], claim="C50")


@pytest.mark.claim("C10")
@pytest.mark.claim("C12")
@pytest.mark.devices("cuda")
def test_a_model_split_over_gpus_stays_below_their_ceilings_and_above_one_gpu(
    measure, judge, rows, ceilings, device, experiment_options, loaded, vllm_engines
):
    """Section 8: N GPUs read N shares at once, so the ceiling is N times that of one.

    Each GPU reads its share of the weights in a step. Refuted above N ceilings (C10), or
    if the 8B shape at batch 1 is not faster than on one GPU: then it is no rung at all (C12).
    """
    from engines.vllm_plan import VLLMNotAvailable

    gpus = experiment_options.tensor_parallel
    if gpus == 1:
        pytest.skip("one GPU: give --tensor-parallel N to split the model over N")
    subject, shape = f"vllm tp:{gpus}@1", shape_of(measure, device)
    most = {"batch_size": 1, "max_tokens": shape.max_tokens}
    try:
        arms = {"vllm": (vllm_engines.get(**most), shape)}
        arms[f"vllm tp:{gpus}"] = vllm_engines.get(**most, tensor_parallel=gpus), shape
    except VLLMNotAvailable as reason:
        judge.not_applicable(str(reason), quantity="decode rate", subject=subject)
        return
    found = measure.compare_shaped(arms)
    for run in found.runs.values():
        stays_below_its_ceiling(judge, run, ceilings)
        rows.keep(run, claim="C10")
    small = loaded.shape.num_parameters * 2 < SMALL
    judge(
        found.speed_ratio(f"vllm tp:{gpus}", "vllm"),
        above(1.0),
        quantity=f"decode rate of {gpus} GPUs over one",
        subject=subject,
        claim="C12",
        applies="claimed for the 8B shape: less weight saves less than the exchange costs"
        if small
        else None,
        faults=found.faults,
    )


MISSING = {"missing": "vLLM is not installed"}


def judge_what_is_left(judge, left, reason):
    """C49: the run ends well, nothing but vLLM is missing from it, and it says why."""
    facts = {
        "exit status 0": left["exit"] == 0,
        "all three tests passed": left["passed"] == 3,
        "the reason is recorded": reason in left["reason"],
        "the other engines have their rows": left["engines"] == {"naive"},
    }
    for quantity, holds in facts.items():
        judge.exact(holds, 1, quantity=quantity, unit="1", subject="a run without vLLM")


@pytest.mark.claim("C49")
@pytest.mark.parametrize(
    "fault", ["missing", "no kernel image is available", "CUDA out of memory"],
    ids=["vllm:missing", "vllm:fails", "vllm:memory"],
)  # fmt: skip
def test_without_vllm_every_other_result_is_complete(fault, judge, pytester, monkeypatch):
    """Section 8: an ImportError, a failing start and a full GPU, each in a run of its own."""
    pytest.importorskip("torch", reason="needs torch")
    left = what_is_left(pytester, monkeypatch, fault)
    judge_what_is_left(judge, left, MISSING.get(fault, f"failed at start: RuntimeError: {fault}"))
