"""What a captured step keeps: a CUDA graph knows addresses and does not own what lies there."""

from __future__ import annotations

import contextlib
import gc
import weakref

import pytest

torch = pytest.importorskip("torch")


class Graph:
    """A CUDA graph that replays what was called while it was recorded."""

    def __init__(self):
        self.replays = 0

    def replay(self):
        self.replays += 1


class Stream:
    """A stream that waits for no other."""

    def wait_stream(self, other):
        """Nothing to wait for."""


@pytest.fixture
def graphs(monkeypatch):
    """torch.cuda without a GPU; the graphs that were recorded."""
    recorded = []

    def graph(one):
        recorded.append(one)
        return contextlib.nullcontext()

    for name, fake in {
        "Stream": Stream,
        "current_stream": Stream,
        "stream": lambda _: contextlib.nullcontext(),
        "CUDAGraph": Graph,
        "graph": graph,
    }.items():
        monkeypatch.setattr(torch.cuda, name, fake)
    return recorded


class Step:
    """A step with buffers of its own."""

    def __init__(self):
        self.calls = 0

    def __call__(self):
        self.calls += 1


def test_the_replay_keeps_the_step_and_so_its_buffers(graphs):
    """Freed, they would be given to the next prefill, and the graph would read what that left."""
    from engines.captured_step import WARM_UP_STEPS, captured

    step = Step()
    alive, replay = weakref.ref(step), captured(step)
    assert step.calls == WARM_UP_STEPS + 1
    del step
    gc.collect()
    assert alive() is not None
    replay()
    assert graphs[0].replays == 1
    del replay
    gc.collect()
    assert alive() is None
