"""The clock waits for the device where it says so, shown on a device whose queue is simulated."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

pytest.importorskip("torch")

LAUNCH_S = 1e-5


class FakeDevice:
    """Work is queued in an instant and takes its time later; only waiting moves the host on."""

    def __init__(self, start_s=1000.0):
        self.host_s = self.idle_from_s = start_s

    def launch(self, seconds):
        self.host_s += LAUNCH_S
        self.idle_from_s = max(self.idle_from_s, self.host_s) + seconds

    def synchronize(self):
        self.host_s = max(self.host_s, self.idle_from_s)

    def event(self, *, enable_timing):
        assert enable_timing, "an event without timing has no elapsed_time"
        return FakeEvent(self)


class FakeEvent:
    def __init__(self, device):
        self.device = device

    def record(self):
        self.at_s = max(self.device.host_s, self.device.idle_from_s)

    def synchronize(self):
        self.device.host_s = max(self.device.host_s, self.at_s)

    def elapsed_time(self, later):
        import numpy as np

        return float(np.float32((later.at_s - self.at_s) * 1e3))  # as CUDA: 32 bits, milliseconds


@pytest.fixture
def fake(monkeypatch):
    import torch

    from engines import clock

    device = FakeDevice()
    monkeypatch.setattr(clock, "time", SimpleNamespace(perf_counter=lambda: device.host_s))
    monkeypatch.setattr(torch.cuda, "Event", device.event)
    monkeypatch.setattr(torch.cuda, "synchronize", device.synchronize)
    return device


@pytest.fixture
def cuda_clock(fake):
    from engines.clock import Clock

    return Clock("cuda")


def timed(clock, device, work_s):
    start = clock.synchronized_s()
    device.launch(work_s)
    return clock.synchronized_s() - start


def test_synchronized_time_contains_the_queued_work(cuda_clock, fake):
    assert timed(cuda_clock, fake, 2.0) == pytest.approx(2.0 + LAUNCH_S)


def test_planted_fault_a_clock_that_does_not_wait_measures_the_launch(cuda_clock, fake):
    cuda_clock.synchronized_s = cuda_clock.now_s
    assert timed(cuda_clock, fake, 2.0) == pytest.approx(LAUNCH_S)


def test_stamps_do_not_wait_and_are_placed_where_the_work_ended(cuda_clock, fake):
    stamps = []
    for _ in range(3):
        fake.launch(0.5)
        stamps.append(cuda_clock.stamp())
    assert cuda_clock.now_s() == pytest.approx(3 * LAUNCH_S), "stamping waited for the device"
    first, second, third = cuda_clock.seconds(stamps)
    assert first == pytest.approx(0.5 + LAUNCH_S)
    assert second - first == pytest.approx(0.5)
    assert third - second == pytest.approx(0.5)


def test_stamps_from_before_a_synchronization_keep_their_place(cuda_clock, fake):
    fake.launch(0.5)
    early = cuda_clock.stamp()
    cuda_clock.synchronized_s()
    fake.launch(0.25)
    late = cuda_clock.stamp()
    first, second = cuda_clock.seconds([early, late])
    assert first == pytest.approx(0.5 + LAUNCH_S)
    assert second - first == pytest.approx(0.25 + LAUNCH_S)


def test_microseconds_survive_an_hour(cuda_clock, fake):
    """32-bit milliseconds resolve a quarter of one after an hour; the renewed anchor is near."""
    fake.launch(3600.0)
    cuda_clock.synchronized_s()
    before = cuda_clock.stamp()
    fake.launch(20e-6)
    first, last = cuda_clock.seconds([before, cuda_clock.stamp()])
    assert last - first == pytest.approx(20e-6 + LAUNCH_S, rel=0.01)


def test_planted_fault_an_anchor_that_is_not_renewed_loses_them(cuda_clock, fake):
    anchor = cuda_clock._anchor
    fake.launch(3600.0)
    cuda_clock.synchronized_s()
    cuda_clock._anchor = anchor
    before = cuda_clock.stamp()
    fake.launch(20e-6)
    first, last = cuda_clock.seconds([before, cuda_clock.stamp()])
    assert last - first != pytest.approx(20e-6 + LAUNCH_S, rel=0.5)


def test_host_times_and_events_share_one_clock(cuda_clock, fake):
    fake.launch(0.5)
    cuda_clock.synchronized_s()
    host = cuda_clock.now_s()
    fake.launch(0.25)
    assert cuda_clock.seconds([host, cuda_clock.stamp()]) == pytest.approx(
        (host, host + 0.25 + LAUNCH_S)
    )


def test_a_clock_starts_at_zero_and_never_goes_back():
    from engines.clock import Clock

    clock = Clock("cpu")
    times = [clock.now_s(), clock.synchronized_s(), *clock.seconds([clock.stamp(), clock.stamp()])]
    assert 0 <= times[0] < 1
    assert times == sorted(times)
    assert clock.seconds([]) == ()


def test_an_unknown_device_is_one_line():
    from engines.clock import Clock

    with pytest.raises(ValueError, match="unknown device 'tpu': expected cpu or cuda"):
        Clock("tpu")
