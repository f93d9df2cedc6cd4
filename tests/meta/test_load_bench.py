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


def test_with_an_endpoint_nothing_is_started(monkeypatch):
    bench, started, _ = bench_on("cuda", monkeypatch, endpoint=Endpoint("http://there", None))
    assert bench.target("endpoint").url == "http://there"
    assert not started
