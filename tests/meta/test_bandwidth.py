"""Measured bandwidth: every byte is read, and seconds are divided as they should be."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

MIB = 1 << 20


def test_reading_and_copying_give_a_plausible_rate_per_round():
    """From 10 MB/s, far below any machine on a busy day, to 100 TB/s, above any memory."""
    from engines.bandwidth import measure_copy, measure_read

    for rates in (measure_read("cpu", 2 * MIB, rounds=3), measure_copy("cpu", 2 * MIB, rounds=3)):
        assert len(rates) == 3
        assert all(1e7 < rate < 1e14 for rate in rates)


@pytest.mark.parametrize("name", ["maximum of int32", "sum of float32", "maximum of float32"])
@pytest.mark.parametrize("place", [0, 123_456, -1], ids="place:{}".format)
def test_each_read_depends_on_every_value(name, place):
    """A reduction that could leave out a part would report too high a rate."""
    import torch

    from engines.bandwidth import READS, _memory, _reader

    memory = _memory("cpu", 2 * MIB)
    read = _reader(memory, *READS[name])
    before = read().clone()
    memory.view(torch.float32)[place] = 1e9
    assert not torch.equal(read(), before)


def test_the_memory_has_the_size_that_was_asked_for_and_is_written():
    from engines.bandwidth import _memory

    memory = _memory("cpu", 3 * MIB)
    assert memory.nbytes == 3 * MIB
    assert memory[-16384:].any(), "pages that were never written are not read from memory"


def test_copying_counts_the_bytes_read_and_the_bytes_written(monkeypatch):
    """1 s per round and two halves of 2 MiB: 4 MiB/s."""
    from engines import bandwidth

    monkeypatch.setattr(bandwidth, "_rounds", lambda _work, _clock, rounds: [1.0] * rounds)
    assert bandwidth.measure_copy("cpu", 4 * MIB, rounds=2) == (4 * MIB, 4 * MIB)
    assert bandwidth.measure_read("cpu", 4 * MIB, rounds=2) == (4 * MIB, 4 * MIB)


def test_the_fastest_read_is_the_devices_read(monkeypatch):
    from engines import bandwidth

    seconds = iter([3.0, 2.0, 5.0, 4.0, 1.5])
    monkeypatch.setattr(
        bandwidth, "_rounds", lambda _work, _clock, rounds: [next(seconds)] * max(rounds, 2)
    )
    timed = []
    monkeypatch.setattr(bandwidth, "_reader", lambda _memory, _dtype, reduce: timed.append(reduce))
    bandwidth.measure_read("cpu", 2 * MIB, rounds=2)
    assert next(seconds, None) is None, "four trials and one measurement"
    assert len(timed) == len(bandwidth.READS)


def test_a_round_is_divided_by_its_repetitions():
    """2 ms a call fill a round of 10 ms with five calls; the first calls are not counted."""
    from engines.bandwidth import _rounds

    class Host:
        now = 0.0

        def synchronized_s(self):
            return self.now

        stamp = synchronized_s

        def seconds(self, stamps):
            return tuple(stamps)

    host, calls = Host(), []

    def work():
        calls.append(host.now)
        host.now += 0.002 if calls[1:] else 1.0

    assert _rounds(work, host, 3) == pytest.approx([0.002] * 3)
    assert len(calls) == 2 + 5 * 4


def test_too_small_a_working_set_is_one_line():
    from engines.bandwidth import measure_read

    with pytest.raises(ValueError, match="1000 bytes is too small a working set"):
        measure_read("cpu", 1000)
