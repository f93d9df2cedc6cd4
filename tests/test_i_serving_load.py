"""Sections 6, 7.1 and 8: a server under a load that does not wait for it.

The server runs in a process of its own; the load is open-loop, from schedules made before, and the
client is calibrated against a null server first. Each figure is one value per run, and the interval
is over runs with other seeds. On a CPU the verdicts are observations, as everywhere.

Sizes of the quick profile. A run of n requests at load ρ lasts n / ρ answers' times S, which is one
over the capacity: for two tokens of the embedded model on one core 46 ms on the naive server and 32
on the continuous one.

    load      10 %   50 %   80 %   110 %      125 leave the 100 that a p99 needs after ramp-up;
    runs         3      3      5       4      10 % of the capacity makes them the longest part.
    requests   125     40    180     140      More runs stand where a queue makes runs differ; no
    lasts     3750    240   1125     509 S    claim asks for a p99 at 50 %.

That is 5,700 S a server: four minutes for the naive one and three for the continuous one.
What it buys, from 150 simulated experiments on M/D/1 with 15 % jitter: p99 at 80 % over p99 at
10 % is 3.8, its 95 % interval a factor of 1.46 either way; achieved over offered to 1 %; the
backlog's growth at 110 % to 14 points around the expected 11; the open loop's p99 over the closed
one's is 3.4, and always clear of 1.5. Little's law needs no long run, since it is exact from an
empty server to an empty one: 10 requests of 16 tokens.

An endpoint gets these loads too. Every other model and device gets short ones in that profile,
without a p99, and these in `full`.
"""

from __future__ import annotations

import numpy as np
import pytest

for _package in ("aiohttp", "fastapi", "uvicorn", "prometheus_client"):
    pytest.importorskip(_package, reason=f"load claims need the package {_package}")

from engines import cost
from fixtures.arrival_tests import ALPHA, MIN_GAPS
from fixtures.load_bench import CONTINUOUS, ENDPOINT, LOCKED, NAIVE, Endpoint, LoadBench
from fixtures.load_claims import (
    achieved_share,
    backlog_growth,
    little,
    open_over_closed,
    p99_growth,
    request_speed_up,
    scaling,
)
from fixtures.load_points import sent_tests, sent_times, sweep_points
from fixtures.loadgen import run_closed
from fixtures.serving import scrape
from reports.bounds import Bound, above, within
from reports.stats import estimate_mean

LITTLE_TOLERANCE = 0.05
"""Three sources of L = λW agree within this (C17)."""
STEEPER = 3.0
"""p99 at 80 % of capacity over p99 at 10 % (C18)."""
ACHIEVED_TOLERANCE = 0.02
OPEN_OVER_CLOSED = 1.5
"""p99 of an open loop over that of a closed one at the same mean rate (C44)."""
NOT_SCALING = 1.5
"""Throughput of 16 clients over that of one (C46)."""
HARDLY_BETTER = 1.05
"""Rate of one request in a batch over its rate alone (C37)."""
HIGH = 0.8
ALL_AT_ONCE = "the tokens of an answer arrive in one chunk: they have no rate"
TOO_FEW_GAPS = "too few requests to see a distribution"
NO_LOWER = f"the profile measures no load below {HIGH:.0%}"
TOO_FEW = "too few requests per run for a p99"


@pytest.fixture(scope="session")
def load(profile, device, loaded, experiment_options):
    """How much is measured for this model on this device; an endpoint batches, and is quick."""
    if experiment_options.endpoint:
        return profile.small_load
    return profile.load(device, loaded.shape.num_parameters)


@pytest.fixture(scope="session")
def bench(request, loaded, load, profile, experiment_options):
    """The servers and sweeps of this device."""
    options = experiment_options
    endpoint = Endpoint(options.endpoint, options.endpoint_model) if options.endpoint else None
    found = LoadBench(
        loaded,
        load,
        endpoint=endpoint,
        adapter=options.adapter,
        in_process=profile.name == "smoke",
        show=shown_on(request.config),
    )
    yield found
    found.close()


def shown_on(config):
    """What writes a line of progress over the last one, or None where nobody watches."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    capture = config.pluginmanager.get_plugin("capturemanager")
    if reporter is None or not reporter.isatty:
        return None

    def show(line: str) -> None:
        with capture.global_and_fixture_disabled():
            reporter.rewrite(line.ljust(90))

    return show


def faults_of(*groups):
    return tuple(dict.fromkeys(fault for runs in groups for run in runs for fault in run.faults))


def lowest(sweep):
    return sweep.loads[0]


def missing(sweep, *loads):
    """Why a claim about these loads cannot be judged, or None."""
    absent = [f"{load:.0%}" for load in loads if load not in sweep.loads]
    return f"the profile measures no load of {', '.join(absent)}" if absent else None


def judge_growth(judge, sweep, figure, what, bound):
    """How much more a p99 is at HIGH load than at the lowest; why not, where a profile cannot."""
    name, least = sweep.target.name, lowest(sweep)
    if least == HIGH:
        judge.not_applicable(NO_LOWER, quantity=f"{what} at {HIGH:.0%}", subject=name)
        return
    low, high = sweep.at(least), sweep.at(HIGH)
    growth = p99_growth(high, low, figure)
    quantity = f"{what} at {HIGH:.0%} over {what} at {least:.0%}"
    if growth is None:
        judge.not_applicable(TOO_FEW, quantity=quantity, subject=name)
        return
    judge(growth, bound, quantity=quantity, subject=name, faults=faults_of(low, high), timed=True)


@pytest.mark.claim("C17")
def test_littles_law_holds_between_server_schedule_and_client(bench, judge, record_series):
    """Section 3.3: L from the server's gauge, λ from the schedule, W from the client agree.

    Over a run that starts and ends empty the law is exact, so any disagreement means that one of
    the three does not measure what it says. The way to the server and back, 3 to 5 ms on one core,
    is in the client's W and not in the gauge: it is a tenth of an answer of two tokens, so the law
    is judged on longer ones, and the ratios of the sweep stand beside.
    """
    for name in bench.servers:
        sweep = bench.sweep(name)
        record_series("load_sweep", sweep_points(sweep, bench.where))
        long = bench.long_answers(name)
        (load,) = long.loads
        runs = long.at(load)
        subject = f"{name}@{load:.0%}"
        found = little(runs)
        if found is None:
            judge.not_applicable(
                "this server does not integrate its in-flight gauge",
                quantity="L / (λ W)",
                subject=subject,
            )
            continue
        judge(
            found,
            within(1 - LITTLE_TOLERANCE, 1 + LITTLE_TOLERANCE),
            quantity=f"L / (λ W), answers of {long.target.answer_tokens} tokens",
            subject=subject,
            faults=faults_of(runs),
            timed=True,
            extra={"of_the_sweep": {f"{at:.0%}": ratio_of(sweep, at) for at in sweep.loads}},
        )


def ratio_of(sweep, load):
    found = little(sweep.at(load))
    return None if found is None else found.centre


@pytest.mark.claim("C18")
def test_p99_rises_steeply_before_capacity(bench, judge):
    """Section 4: at 80 % of capacity all is answered, and the p99 has left already.

    Refuted if the p99 at 80 % is under three times that at the lowest load. The two conditions that
    make it worth saying are judged beside it: nothing is lost at 80 %, the backlog grows at 110 %.
    """
    for name in bench.servers:
        sweep = bench.sweep(name)
        over = max(sweep.loads)
        if reason := missing(sweep, HIGH) or ("no load above capacity" if over <= 1 else None):
            judge.not_applicable(reason, quantity="p99 over p99", subject=name)
            continue
        high, beyond = sweep.at(HIGH), sweep.at(over)
        judge_growth(judge, sweep, "e2e_p99_s", "p99", Bound(low=STEEPER))
        judge(
            achieved_share(high),
            within(1 - ACHIEVED_TOLERANCE, 1 + ACHIEVED_TOLERANCE),
            quantity=f"achieved over offered at {HIGH:.0%}",
            subject=name,
            faults=faults_of(high),
            timed=True,
        )
        judge(
            backlog_growth(beyond),
            above(ACHIEVED_TOLERANCE),
            quantity=f"growth of the backlog at {over:.0%} over the offered rate",
            subject=name,
            faults=faults_of(beyond),
            timed=True,
        )


@pytest.mark.claim("C44")
def test_an_open_loop_shows_a_p99_that_a_closed_loop_hides(bench, judge, load):
    """Section 8: the same requests at the same times, but each client waits for its answer first.

    It has just as many clients as keep the server busy, so that it carries the same mean rate, but
    it cannot send what it has no client for: the waiting never shows. Latency runs from the moment
    at which each loop would have sent: the schedule's, and the client's own.
    """
    name = bench.servers[0]
    sweep = bench.sweep(name)
    if reason := missing(sweep, HIGH):
        judge.not_applicable(reason, quantity="p99 open over closed", subject=name)
        return
    runs = sweep.at(HIGH)
    clients = sweep.target.busy_clients
    closed = [
        run_closed(
            sweep.target.url,
            sweep.target.make_calls(load.closed_requests, run.seed + 500),
            clients,
            bench.drive(name),
            schedule=run.run.schedule.first(load.closed_requests),
        )
        for run in runs[: load.closed_runs]
    ]
    lost = [f"closed loop: {one.outcomes}" for one in closed if set(one.outcomes) != {"ok"}]
    rates = [len(one.exchanges) / one.wall_s / runs[0].figures.offered_per_s for one in closed]
    judge(
        open_over_closed([run.run for run in runs], closed),
        Bound(low=OPEN_OVER_CLOSED),
        quantity=f"p99 open over closed with {clients} clients at {HIGH:.0%}",
        subject=name,
        faults=(*faults_of(runs), *lost),
        timed=True,
        extra={"closed_over_open_rate": [float(rate) for rate in rates]},
    )


@pytest.mark.claim("C45")
def test_the_requests_that_were_sent_are_a_poisson_stream(bench, judge, record_series):
    """Section 8: gaps are exponential and independent, of the *sent* times, in one family."""
    for name in bench.servers:
        runs = bench.sweep(name).runs
        if sum(len(run.run.exchanges) for run in runs) < MIN_GAPS:
            judge.not_applicable(TOO_FEW_GAPS, quantity="looks at the arrivals", subject=name)
            continue
        found = sent_tests(runs, sent_times)
        record_series(
            "arrivals",
            [
                {
                    "engine": name,
                    "look": test.name,
                    "value": test.value,
                    "expected": test.expected,
                    "adjusted_p": test.adjusted_p,
                    "gaps": found.gaps,
                }
                for test in found.tests
            ],
        )
        judge(
            found.worst.adjusted_p,
            Bound(low=ALPHA),
            quantity=f"smallest adjusted p of {len(found.tests)} looks at the arrivals",
            subject=name,
            timed=True,
        )


@pytest.mark.claim("C37")
def test_batching_hardly_improves_one_request_and_load_makes_its_p99_worse(bench, judge):
    """Section 7.3: what batching gives is given to the aggregate, not to any one request."""
    name = ENDPOINT if ENDPOINT in bench.servers else CONTINUOUS
    sweep = bench.sweep(name)
    if reason := missing(sweep, HIGH):
        judge.not_applicable(reason, quantity="rate of one request over alone", subject=name)
        return
    high = sweep.at(HIGH)
    alone = float(np.median(sweep.unloaded.tokens_per_s))
    if not np.isfinite(alone):
        judge.not_applicable(ALL_AT_ONCE, quantity="rate of one request over alone", subject=name)
        return
    judge(
        request_speed_up(high, alone),
        Bound(high=HARDLY_BETTER),
        quantity=f"rate of one request at {HIGH:.0%} over its rate alone",
        subject=name,
        faults=faults_of(high),
        timed=True,
    )
    judge_growth(judge, sweep, "itl_p99_s", "p99 ITL", above(1.0))


@pytest.mark.claim("C46")
def test_the_naive_server_does_not_scale_with_its_clients(bench, judge, load, record_series):
    """Section 6: sixteen clients get hardly more out of it than one.

    The printed handler is not what the text says of it: FastAPI runs it in a pool of 40 threads, so
    all sixteen calls are inside the model at once. The variant with a lock stands beside it.
    """
    if ENDPOINT in bench.servers:
        judge.not_applicable(
            "the endpoint is not the naive server", quantity="16 clients over 1", subject=ENDPOINT
        )
        return
    for name in (NAIVE, LOCKED):
        target = bench.target(name)
        rates = {1: [], 16: []}
        running = 0.0
        for block in range(load.blocks):
            for clients in (1, 16) if block % 2 == 0 else (16, 1):
                n = max(clients, load.block_requests)
                run = run_closed(target.url, target.make_calls(n, 900 + block), clients)
                rates[clients].append(len(run.answered) / run.wall_s)
            running = max(running, scrape(target.url).get("serving_requests_running_most", 0.0))
        record_series(
            "naive_scaling",
            [
                {
                    "engine": name,
                    "clients": clients,
                    "answers_per_s": estimate_mean(values, unit="1/s", resampled="block").to_json(),
                    "most_at_once": running,
                }
                for clients, values in rates.items()
            ],
        )
        judge(
            scaling(rates[16], rates[1]),
            Bound(high=NOT_SCALING),
            quantity="throughput of 16 clients over that of 1",
            subject=name,
            timed=True,
            extra={"most_calls_at_once": running},
        )


@pytest.mark.claim("C07")
def test_kv_memory_is_not_what_limits_serving(bench, judge, loaded):
    """Section 3.1: where goodput is highest, the KV cache in use is under half of its budget."""
    if ENDPOINT in bench.servers:
        judge.not_applicable("an endpoint's memory is unknown", quantity="KV", subject=ENDPOINT)
        return
    sweep = bench.sweep(CONTINUOUS)
    best = max(sweep.runs, key=lambda run: run.figures.goodput_per_s)
    held = scrape(sweep.target.url)["serving_kv_tokens_most"]
    bytes_in_use = held * cost.kv_bytes_per_token(loaded.shape, loaded.bytes_per_value)
    budget = memory_bytes(loaded.device) - cost.weight_bytes(loaded.shape, loaded.bytes_per_value)
    judge(
        float(bytes_in_use / budget),
        Bound(high=0.5),
        quantity="KV in use, at most in the whole sweep, over its budget",
        subject=f"{CONTINUOUS}, highest goodput at {best.utilisation:.0%}",
        timed=True,
    )


def memory_bytes(device):
    if device == "cuda":
        import torch

        return torch.cuda.get_device_properties(0).total_memory
    import psutil

    return psutil.virtual_memory().total


@pytest.mark.claim("C50")
def test_a_served_vllm_beats_the_hand_written_scheduler_at_high_concurrency(
    bench, judge, load, record_series
):
    """Section 7.2, over HTTP: 64 clients at once on the endpoint and on the continuous server."""
    if ENDPOINT not in bench.servers:
        judge.not_applicable(
            "no --endpoint was given to compare with", quantity="rate over rate", subject=CONTINUOUS
        )
        return
    own = LoadBench(bench.loaded, load)
    try:
        targets = [bench.target(ENDPOINT), own.target(CONTINUOUS)]
        rates = [
            [closed_rate(target, block) for target in targets]
            for block in range(max(3, load.blocks))
        ]
    finally:
        own.close()
    theirs, ours = zip(*rates, strict=True)
    record_series("concurrency_64", [{"endpoint_per_s": theirs, "continuous_per_s": ours}])
    judge(
        scaling(theirs, ours),
        above(1.0),
        quantity="tokens per second of 64 clients, endpoint over continuous",
        subject=ENDPOINT,
        timed=True,
    )


def closed_rate(target, block):
    run = run_closed(target.url, target.make_calls(256, 700 + block), 64)
    return sum(exchange.tokens for exchange in run.answered) / run.wall_s
