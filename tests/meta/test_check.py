"""`python -m reports check`: what a contributed run must have, one line per problem."""

from __future__ import annotations

import pytest

from reports.__main__ import main
from reports.contribution import problems_of
from tests.meta.sample_run import cpu_run, saved


def fit_run():
    document = cpu_run(1)
    experiment = document["experiment"]
    experiment["verdicts"] = [v for v in experiment["verdicts"] if "fault" not in v["outcome"]]
    return document


def without(part, key):
    def change(document):
        document["experiment"][part][key] = None

    return change


def set_to(key, value):
    def change(document):
        document["experiment"][key] = value

    return change


def leak(document):
    document["experiment"]["tests"][0]["reason"] = "/home/somchai/models/x is missing"


def unknown_claim(document):
    document["experiment"]["verdicts"][0]["claim"] = "C99"


def thin_row(document):
    document["experiment"]["rows"][0]["tokens_per_s"] |= {"low": None, "high": None}


def errored(document):
    document["experiment"]["tests"][0]["outcome"] = "error"


def pad(document):
    document["padding"] = "x" * 2_100_000


def test_a_good_run_is_fit(tmp_path, capsys):
    saved(tmp_path / "a.json", fit_run())
    assert main(["check", str(tmp_path / "a.json")]) == 0
    assert "fit to contribute" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (without("device", "cpu"), "device does not say cpu"),
        (without("versions", "torch"), "versions does not say torch"),
        (without("model", "content_hash"), "model does not say content_hash"),
        (set_to("profile", "smoke"), "profile is 'smoke', expected quick or full"),
        (set_to("ceilings", {}), "no bandwidth"),
        (set_to("verdicts", []), "no verdict"),
        (set_to("rows", []), "no engine row"),
        (leak, "looks private: /home/somchai"),
        (unknown_claim, "claims that the registry does not have: C99"),
        (thin_row, "no interval for the speed of naive@1"),
        (errored, "1 tests ended in an error"),
        (pad, "MB, expected at most 2"),
    ],
)
def test_each_problem_is_named(tmp_path, change, expected):
    document = fit_run()
    change(document)
    problems = problems_of(saved(tmp_path / "a.json", document))
    assert len(problems) == 1
    assert expected in problems[0]


def test_a_fault_is_a_problem_and_other_files_are_still_checked(tmp_path, capsys):
    saved(tmp_path / "faulty.json", cpu_run(1))
    saved(tmp_path / "good.json", fit_run())
    assert main(["check", str(tmp_path / "faulty.json"), str(tmp_path / "good.json")]) == 1
    out = capsys.readouterr().out
    assert "1 measurement faults" in out
    assert "good.json: fit to contribute" in out
