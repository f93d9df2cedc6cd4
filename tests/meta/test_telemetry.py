"""A GPU that slowed down, shared its time or ran its arms at other clocks is called a fault."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from fixtures.telemetry import PERIOD_S, POWER_CAP, Sample, Telemetry, foreign, gate, nvml_source
from reports.verdict import Outcome
from tests.meta.bench import Bench
from tests.meta.controls import CONTROLS
from tests.meta.scripted import ScriptedEngine, scripted_measure, scripted_source

FAST, SLOW = 1_590e6, 1_500e6


def samples(count=4, *, sm_clock_hz=FAST, reasons=0, other_processes=0):
    return [Sample(0.0, sm_clock_hz, 60.0, 69.0, reasons, other_processes)] * count


def constant(seconds):
    return lambda *_: seconds


@pytest.mark.parametrize(
    ("reason", "name"),
    [
        (0x08, "hardware slow-down"),
        (0x20, "software thermal slow-down"),
        (0x40, "hardware thermal slow-down"),
        (0x80, "hardware power brake"),
    ],
)
def test_each_slow_down_is_a_fault(reason, name):
    found = gate({"a": samples(3), "b": [*samples(2), *samples(1, reasons=reason | POWER_CAP)]})
    assert found == [f"{name} in 1 of 6 samples"]


def test_a_software_power_cap_is_no_fault():
    """The normal state of a 70 W card; idle and clock settings say nothing either."""
    assert gate({"a": samples(reasons=POWER_CAP), "b": samples(reasons=POWER_CAP | 0x01)}) == []


def test_another_process_on_the_gpu_is_a_fault():
    assert gate({"a": samples(other_processes=2)}) == ["2 other process(es) on the GPU"]


@pytest.mark.parametrize(
    ("clock_hz", "apart"), [(FAST * 0.98, False), (FAST / 1.029, False), (FAST / 1.031, True)]
)
def test_clocks_of_the_arms_may_be_three_percent_apart(clock_hz, apart):
    found = gate({"a": samples(), "b": samples(sm_clock_hz=clock_hz)})
    assert bool(found) == apart


def test_the_arms_with_other_clocks_are_named():
    (fault,) = gate({"naive": samples(), "compiled": samples(sm_clock_hz=SLOW), "none": []})
    assert (
        fault == "SM clocks of the arms 6.0% apart: naive 1590 MHz, compiled 1500 MHz (at most 3%)"
    )


def test_one_arm_whose_clock_moves_is_no_fault():
    """Only a comparison is spoiled by other clocks; within one arm they are part of the spread."""
    assert gate({"a": [*samples(), *samples(sm_clock_hz=SLOW)]}) == []


def test_without_a_source_there_is_nothing_to_say():
    telemetry = Telemetry(None)
    telemetry.start()
    telemetry.block("a", 0.0, 1.0)
    telemetry.stop()
    assert telemetry.faults() == ()
    assert telemetry.points() == []


def test_samples_belong_to_the_block_in_which_they_were_taken():
    """What the GPU did before, between and after the timed blocks is nobody's."""
    times = iter([0.1, 0.7, 1.5, 2.1])
    telemetry = Telemetry(lambda: Sample(next(times), FAST, 60.0, 69.0, 0, 0))
    telemetry.block("a", 0.0, 0.09)
    telemetry._samples += [telemetry._source(), telemetry._source()]  # what the thread does
    telemetry.block("b", 1.0, 2.0)
    arms = {arm: [s.time_s for s in found] for arm, found in telemetry.by_arm().items()}
    assert arms == {"a": [0.1], "b": [1.5, 2.1]}


def test_a_block_shorter_than_the_period_has_a_sample():
    telemetry = Telemetry(scripted_source(reasons=0x40))
    started = time.perf_counter()
    telemetry.block("short", started, started + 1e-6)
    assert telemetry.faults() == ("hardware thermal slow-down in 1 of 1 samples",)


def test_the_thread_samples_and_ends():
    telemetry = Telemetry(scripted_source())
    telemetry.start()
    deadline = time.monotonic() + 10
    while len(telemetry.points()) < 2 and time.monotonic() < deadline:
        time.sleep(PERIOD_S / 5)
    telemetry.stop()
    count = len(telemetry.points())
    assert count >= 2
    time.sleep(1.5 * PERIOD_S)
    assert len(telemetry.points()) == count
    assert set(telemetry.points()[0]) >= {"time_s", "sm_clock_hz", "temperature_c", "power_w"}


def test_a_slow_down_reaches_what_was_measured():
    sound = scripted_measure({"e": constant(1e-3)}, telemetry=Telemetry(scripted_source()))
    assert sound.decode("e").faults == ()
    hot = Telemetry(scripted_source(reasons=0x40))
    (fault,) = scripted_measure({"e": constant(1e-3)}, telemetry=hot).decode("e").faults
    assert "hardware thermal slow-down" in fault


def test_arms_at_other_clocks_spoil_a_comparison():
    """Planted fault: the second arm always runs at a lower clock."""
    clock = {"hz": FAST}
    telemetry = Telemetry(lambda: scripted_source(sm_clock_hz=clock["hz"])())

    def arm(hz):
        def once(seed):
            clock["hz"] = hz
            return 1.0 + seed * 1e-3

        return once

    measure = scripted_measure({}, telemetry=telemetry)
    (fault,) = measure.compare({"a": arm(FAST), "b": arm(SLOW)}).faults
    assert "6.0% apart" in fault
    assert (
        scripted_measure({}, telemetry=Telemetry(scripted_source()))
        .compare({"a": arm(FAST), "b": arm(SLOW)})
        .faults
        == ()
    )


def test_nvml_is_read_and_its_absence_is_no_error(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert nvml_source() is None
    monkeypatch.setitem(sys.modules, "pynvml", FAKE_NVML)
    assert nvml_source() is None, "without CUDA nobody knows which of NVML's GPUs is meant"
    in_use = SimpleNamespace(uuid="0dd1")
    monkeypatch.setattr("torch.cuda.get_device_properties", lambda _: in_use)
    sample = nvml_source()()
    assert (sample.sm_clock_hz, sample.power_w, sample.reasons) == (1_590e6, 69.5, 0x04)
    assert sample.other_processes == 1  # of the two one is this, whatever id a container gives it


def test_processes_of_this_run_are_not_foreign():
    """Its own id, and those of what it started: the workers of tensor parallelism."""
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        assert foreign([os.getpid(), child.pid]) == 0
        assert foreign([os.getpid(), child.pid, os.getppid()]) == 1
    finally:
        child.communicate(b"\n")


def test_ids_of_a_host_that_this_process_does_not_know_are_counted(monkeypatch):
    """As in a container: one is this process, one each is for its workers, the rest are foreign."""
    strangers = [2**22 + i for i in range(1, 5)]
    assert foreign(strangers[:1]) == 0
    assert foreign(strangers) == 3
    monkeypatch.setattr("fixtures.telemetry.multiprocessing.active_children", lambda: [1, 2])
    assert foreign(strangers) == 1


def gated(monkeypatch, source, claim="C12", engine=ScriptedEngine):
    """Outcomes of a sound script of this claim on a GPU that reads so."""
    bench = Bench(monkeypatch, telemetry_source=source)
    bench.engine_types["compiled"] = engine
    return {verdict.outcome for verdict in CONTROLS[claim].verdicts(bench, claim)}


@pytest.mark.parametrize("claim", ["C12", "C32"])
@pytest.mark.parametrize(
    "spoiled",
    [{"reasons": 0x20}, {"reasons": 0x80}, {"other_processes": 1}],
    ids=["thermal", "power_brake", "another_process"],
)
def test_a_spoiled_gpu_makes_every_timed_verdict_a_fault(claim, spoiled, monkeypatch):
    """The same script is confirmed on a GPU that nothing disturbs."""
    spoiled_outcomes = gated(monkeypatch, scripted_source(**spoiled), claim)
    assert spoiled_outcomes == {Outcome.FAULT}
    assert Outcome.CONFIRMED in gated(monkeypatch, scripted_source(), claim)


def test_clocks_that_drift_between_the_arms_make_the_comparison_a_fault(monkeypatch):
    """Planted fault: the GPU clocks up whenever the compiled engine has run."""
    hz = {"now": SLOW}

    class ClocksUp(ScriptedEngine):
        def run(self, requests, on_token=None):
            hz["now"] = FAST
            return super().run(requests, on_token)

    def source():
        seen, hz["now"] = hz["now"], SLOW
        return scripted_source(sm_clock_hz=seen)()

    assert gated(monkeypatch, source, engine=ClocksUp) == {Outcome.FAULT}
    assert gated(monkeypatch, source) == {Outcome.CONFIRMED}


FAKE_NVML = SimpleNamespace(
    NVML_CLOCK_SM=1,
    NVML_TEMPERATURE_GPU=0,
    NVMLError=RuntimeError,
    nvmlInit=lambda: None,
    nvmlDeviceGetHandleByUUID=lambda uuid: uuid,
    nvmlDeviceGetClockInfo=lambda gpu, _: 1590 if gpu == "GPU-0dd1" else 300,
    nvmlDeviceGetTemperature=lambda *_: 60,
    nvmlDeviceGetPowerUsage=lambda _: 69_500,
    nvmlDeviceGetCurrentClocksThrottleReasons=lambda _: 0x04,
    nvmlDeviceGetComputeRunningProcesses=lambda _: [
        SimpleNamespace(pid=2**22 + 1),
        SimpleNamespace(pid=2**22 + 2),
    ],
)
