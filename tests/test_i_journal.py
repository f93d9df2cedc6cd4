"""Section 8: a measurement is on disk the moment it ends."""

from __future__ import annotations

import json
import time

import pytest

from tests.meta.mini_suite import MiniSuite

DEADLINE_S = 60


@pytest.mark.claim("C51")
@pytest.mark.parametrize("after", [1, 3], ids="finished:{}".format)
def test_kill_9_loses_at_most_the_test_in_flight(after, tmp_path, judge):
    """Section 8: killed when this many tests are in the journal, the run loses none of them."""
    suite = MiniSuite(tmp_path, count=40, sleep_s=0.05)
    process = suite.start()
    try:
        _wait_for_tests(suite, after)
    finally:
        process.kill()
        process.wait()
    lines = suite.journal.read_bytes().split(b"\n")
    whole = [json.loads(line) for line in lines if line.strip().endswith(b"}")]
    finished = [line["nodeid"] for line in whole if line["kind"] == "test"]
    judge.exact(
        len(finished) >= after, 1, quantity="finished tests kept", unit="1", subject="journal"
    )
    expected = [f"test_mini.py::test_number[n:{i}]" for i in range(len(finished))]
    judge.exact(
        finished == expected,
        1,
        quantity="tests in order, none missing",
        unit="1",
        subject="journal",
    )
    judge.exact(
        suite.json.exists(), 0, quantity="JSON written by a killed run", unit="1", subject="journal"
    )


def _wait_for_tests(suite: MiniSuite, count: int) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        if suite.journal.exists() and suite.journal.read_text().count('"kind": "test"') >= count:
            return
        time.sleep(0.02)
    raise AssertionError(f"no {count} finished tests in the journal after {DEADLINE_S} s")
