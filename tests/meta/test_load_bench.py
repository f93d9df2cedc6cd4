"""The servers of the load claims: when they are started, and that each ends."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace

import pytest

pytest.importorskip("aiohttp", reason="load claims need the package aiohttp")
pytest.importorskip("fastapi", reason="load claims need the package fastapi")
pytest.importorskip("uvicorn", reason="load claims need the package uvicorn")

from fixtures.load_bench import CONTINUOUS, LOCKED, NAIVE, Endpoint, LoadBench
from fixtures.profiles import PROFILES


def bench_on(device, monkeypatch, **options):
    """A bench whose servers take 0.2 s to start, and who started when."""
    at_work, most, started = set(), [0], []
    lock = threading.Lock()

    def start(self, name):
        with lock:
            at_work.add(name)
            most[0] = max(most[0], len(at_work))
        time.sleep(0.2)
        with lock:
            at_work.discard(name)
            started.append(name)
        return f"http://{name}"

    monkeypatch.setattr(LoadBench, "_start", start)
    loaded = SimpleNamespace(device=device)
    return LoadBench(loaded, PROFILES["quick"].large_load, **options), started, most


def test_on_cuda_all_servers_start_at_once(monkeypatch):
    bench, started, most = bench_on("cuda", monkeypatch)
    assert bench.target(LOCKED).url == "http://naive_locked"
    assert set(started) == {NAIVE, LOCKED, CONTINUOUS}
    assert most[0] == 3
    assert bench.target(CONTINUOUS).url == "http://continuous"
    assert len(started) == 3, "each once"


def test_on_a_cpu_a_server_starts_when_it_is_asked_for(monkeypatch):
    """Its cores would be shared with who is measured meanwhile."""
    bench, started, _ = bench_on("cpu", monkeypatch)
    bench.target(LOCKED)
    assert started == [LOCKED]


@pytest.mark.parametrize(("sweep_s", "known"), [(5, True), (100, False)])
def test_the_client_of_a_moment_ago_is_the_same_client(sweep_s, known, monkeypatch):
    """The second sweep gets the calibration from before the first, unless that is long past."""
    from fixtures import load_bench

    now, given = [0.0], []

    def run_sweep(target, *, calibration, **_):
        given.append(calibration and calibration.of)
        made = SimpleNamespace(of=f"of {target.name}", measured_s=now[0])
        if target.answer_tokens == bench.load.max_new_tokens:
            now[0] += sweep_s  # the few longer answers take no time
        return SimpleNamespace(calibration=calibration or made)

    monkeypatch.setattr(load_bench, "run_sweep", run_sweep)
    monkeypatch.setattr(load_bench.time, "monotonic", lambda: now[0])
    bench, *_ = bench_on("cuda", monkeypatch)
    bench.sweep(LOCKED)
    bench.long_answers(LOCKED)
    bench.sweep(CONTINUOUS)
    assert given == [None, f"of {LOCKED}", f"of {LOCKED}" if known else None]


@pytest.mark.parametrize(("synthetic", "adapter"), [(True, "none"), (False, "folder")])
def test_servers_leave_out_an_adapter_that_was_made_up(synthetic, adapter, monkeypatch):
    bench, *_ = bench_on("cuda", monkeypatch, adapter="folder")
    bench.loaded.adapter = SimpleNamespace(synthetic=synthetic)
    assert bench._adapter_to_load() == adapter


def test_with_an_endpoint_nothing_is_started(monkeypatch):
    bench, started, _ = bench_on("cuda", monkeypatch, endpoint=Endpoint("http://there", None))
    assert bench.target("endpoint").url == "http://there"
    assert not started
