"""Two sides of runs compared: what is called a change, and what is not."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys

import numpy as np
import pytest

from reports.__main__ import main
from reports.compare import NothingInCommonError, compare
from reports.contrast import Change, RunTiming, contrasts
from reports.diff_render import seen_text
from tests.meta.sample_run import gpu_run, saved

BETWEEN = 0.012  # spread between runs on one host with an idle GPU: about one percent
CHANGED = (Change.FASTER, Change.SLOWER)


def side(folder, name, seeds, **changes):
    folder.mkdir(exist_ok=True)
    return [
        saved(folder / f"{name}{seed}.json", gpu_run(seed, between=BETWEEN, **changes))
        for seed in seeds
    ]


def changed(comparison):
    return {b.label for b in comparison.benchmarks if b.change in CHANGED}


def test_a_run_compared_with_itself_has_not_changed(tmp_path):
    (run,) = side(tmp_path, "a", [1])
    found = compare([run], [run])
    assert changed(found) == set()
    assert all(b.contrast.ratio == 1 for b in found.benchmarks)
    assert {b.change for b in found.benchmarks} == {Change.SAME}
    assert found.verdicts == found.missing == found.new == found.settings == ()
    assert "the same run is on both sides" in found.notes


def test_five_runs_of_the_same_code_on_each_side_show_no_change(tmp_path):
    found = compare(side(tmp_path, "a", range(5)), side(tmp_path, "b", range(5, 10)))
    assert changed(found) == set()


def test_five_pairs_of_single_runs_of_the_same_code_show_no_change(tmp_path):
    before, after = side(tmp_path, "a", range(5)), side(tmp_path, "b", range(5, 10))
    for pair in zip(before, after, strict=True):
        found = compare([pair[0]], [pair[1]])
        assert found.within_run_only
        assert changed(found) == set()


def test_an_engine_slowed_by_5_percent_is_found_with_five_runs_per_side(tmp_path):
    slowed = side(tmp_path, "b", range(5, 10), slowed="compiled", factor=1.05)
    found = compare(side(tmp_path, "a", range(5)), slowed)
    assert "compiled@1 decode" in changed(found)
    assert changed(found) <= {"compiled@1 decode", "compiled@1 ITL", "compiled@1 TTFT"}
    assert {b.change for b in found.regressions()} == {Change.SLOWER}


def simulate(*, rng, sides, slowdown, count=20, spread=BETWEEN):
    """Timings of many benchmarks on two sides; the first one is slower on the second side."""
    shift = np.zeros(count)
    shift[0] = math.log(slowdown)
    spreads = spread * np.exp(rng.normal(0, 0.3, count))
    logs = [rng.normal(0, 1, (count, sides)) * spreads[:, None] + add[:, None]
            for add in (np.zeros(count), shift)]  # fmt: skip
    timed = [[[RunTiming(x, 0.003, 6) for x in row] for row in log] for log in logs]
    found = contrasts(list(zip(*timed, strict=True)), run_spread=0.03)
    return [one.change(0.03) for one in found]


def crying_wolf(words):
    return any(word in CHANGED for word in words)


@pytest.mark.parametrize("spread", [BETWEEN, 0.03])
def test_false_changes_are_rare_among_many_benchmarks(spread):
    """300 comparisons of equal code: at most 5 % may cry wolf, plus 3 standard errors of that."""
    rng = np.random.default_rng(7)
    found = [simulate(rng=rng, sides=5, slowdown=1.0, spread=spread) for _ in range(300)]
    assert sum(map(crying_wolf, found)) / 300 <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 300)


def test_without_the_correction_the_wolf_is_cried_often(monkeypatch):
    """The planted fault: noisy runs, and each p-value read alone."""
    monkeypatch.setattr("reports.contrast.holm_adjusted", list)
    rng = np.random.default_rng(7)
    found = [simulate(rng=rng, sides=5, slowdown=1.0, spread=0.03) for _ in range(100)]
    assert sum(map(crying_wolf, found)) / 100 > 0.3


def test_a_5_percent_slow_down_is_usually_found_with_five_runs_per_side():
    rng = np.random.default_rng(7)
    found = [simulate(rng=rng, sides=5, slowdown=1.05) for _ in range(300)]
    assert sum(words[0] is Change.SLOWER for words in found) / 300 >= 0.90


def test_a_machine_that_was_busy_in_one_of_two_runs_makes_no_engine_slower(tmp_path):
    """Every time doubled, and the bandwidth halved with it: that is the machine, not the code."""
    (quiet,) = side(tmp_path, "a", [1])
    busy = gpu_run(2, between=BETWEEN)
    for entry in busy["benchmarks"]:
        entry["stats"] |= {key: 2 * entry["stats"][key] for key in ("median", "mean", "stddev")}
    told = compare([quiet], [saved(tmp_path / "told.json", busy)])
    assert "naive@1 decode" in changed(told)
    for key in ("read_bytes_per_s", "copy_bytes_per_s"):
        ceiling = busy["experiment"]["ceilings"][key]
        ceiling |= {end: ceiling[end] / 2 for end in ("centre", "low", "high")}
    found = compare([quiet], [saved(tmp_path / "b.json", busy)])
    assert changed(found) == set()
    assert found.run_spread == pytest.approx(math.log(2))
    said = {setting.name: (setting.before, setting.after) for setting in found.settings}
    assert said["bandwidth, measured read"] == ("4,120 GB/s", "2,060 GB/s")


def repeated(seed, times):
    """A run in which other tests measure the same TTFT again, these times as long."""
    run = gpu_run(seed, between=0.0)
    (first,) = [e for e in run["benchmarks"] if e["fullname"].endswith("compiled@1 ttft")]
    for index, factor in enumerate(times):
        again = json.loads(json.dumps(first))
        again["fullname"] = first["fullname"].replace("::", f"::test_again_{index}_", 1)
        again["stats"] |= {key: factor * again["stats"][key] for key in ("median", "mean")}
        run["benchmarks"].append(again)
    return run


def test_a_figure_that_wanders_within_a_run_is_not_trusted_more_between_runs(tmp_path, monkeypatch):
    """A host's moods: one test of five saw a TTFT of 1.7 times the usual, steadily."""
    (before,) = [saved(tmp_path / "a.json", repeated(1, (1.0, 1.2, 0.95, 0.9)))]
    (after,) = [saved(tmp_path / "b.json", repeated(2, (1.7, 1.05, 1.1, 1.0)))]
    assert not any("TTFT" in label for label in changed(compare([before], [after])))
    monkeypatch.setattr("reports.compare.spreads_seen", lambda *_: {})
    assert "compiled@1 TTFT" in {label[:15] for label in changed(compare([before], [after]))}


def test_a_steady_figure_is_still_found_slower_from_one_run_a_side(tmp_path):
    before = saved(tmp_path / "a.json", repeated(1, (1.0, 1.0, 1.01, 0.99)))
    after = repeated(1, (1.0, 1.0, 1.01, 0.99))
    for entry in after["benchmarks"]:
        if "compiled@1" in entry["fullname"]:
            entry["stats"] |= {key: 1.5 * entry["stats"][key] for key in ("median", "mean")}
    after["experiment"]["run_id"] = "another"
    found = changed(compare([before], [saved(tmp_path / "b.json", after)]))
    assert "compiled@1 decode" in found


@pytest.mark.parametrize("runs", [3, 5])
@pytest.mark.thorough
def test_the_change_named_beside_an_undecided_one_is_found_four_times_in_five(runs):
    """Slowed by exactly the share that the diff calls detectable; 3 standard errors of 0.8 in 300.

    The first of 20 benchmarks meets the strictest level of Holm's correction, as computed; power
    varies with the estimated spread, so it may also lie a little above.
    """
    share, times = typical_detectable(runs), 300
    rng = np.random.default_rng(11)
    found = [simulate(rng=rng, sides=runs, slowdown=1 + share) for _ in range(times)]
    power = sum(words[0] is Change.SLOWER for words in found) / times
    assert 0.8 - 3 * math.sqrt(0.8 * 0.2 / times) - 0.05 <= power <= 0.95


def typical_detectable(runs, count=20):
    rng = np.random.default_rng(5)
    seen = []
    for _ in range(60):
        timed = [
            [[RunTiming(x, 0.003, 6) for x in rng.normal(0, BETWEEN, runs)] for _ in range(count)]
            for _ in range(2)
        ]
        found = contrasts(list(zip(*timed, strict=True)), run_spread=0.03)
        seen.append(found[0].detectable(0.03))
    return float(np.mean(seen))


def test_an_undecided_line_says_what_would_have_been_seen(tmp_path, capsys):
    side(tmp_path / "a", "a", range(2))
    side(tmp_path / "b", "b", range(2, 4))
    assert main(["diff", str(tmp_path / "a"), str(tmp_path / "b")]) == 0
    said = capsys.readouterr().out
    assert re.search(r"undecided \(sees \d+(\.\d)? %\)", said)
    assert "found four times in five" in said


@pytest.mark.parametrize(
    ("share", "said"),
    [(0.0523, "sees 5.2 %"), (0.5, "sees 50 %"), (3.0, "sees ×4.0"), (1e4, "too noisy to see ×10")],
)
def test_the_change_that_would_be_seen_is_printed_as_one_reads_it(share, said):
    assert seen_text(share) == said


def test_sides_whose_files_have_one_name_are_called_by_their_folders(tmp_path):
    before, after = side(tmp_path / "old", "a", [1]), side(tmp_path / "new", "a", [1])
    assert compare(before, after).names == ("old/a1.json", "new/a1.json")
    assert compare(before, side(tmp_path, "b", [2])).names == ("a1.json", "b2.json")


def test_one_run_per_side_is_labelled_and_calls_only_large_changes(tmp_path):
    (before,) = side(tmp_path, "a", [1])
    (little,) = side(tmp_path, "b", [2], slowed="compiled", factor=1.05)
    (large,) = side(tmp_path, "c", [2], slowed="compiled", factor=1.5)
    assert changed(compare([before], [little])) == set()
    assert "compiled@1 decode" in changed(compare([before], [large]))


def test_pairs_cancel_what_drifts_between_them():
    drift = np.linspace(0, 0.3, 5)
    before = [RunTiming(x, None, 6) for x in drift]
    after = [RunTiming(x + 0.06 + 0.001 * i, None, 6) for i, x in enumerate(drift)]
    (alone,) = contrasts([(before, after)], run_spread=0.03)
    (paired,) = contrasts([(before, after)], run_spread=0.03, paired=True)
    assert alone.change(0.03) is Change.UNDECIDED
    assert paired.change(0.03) is Change.SLOWER


def test_a_change_within_the_margin_is_the_same_however_sure_it_is():
    before = [RunTiming(x, None, 6) for x in (0.0, 0.0002, -0.0002)]
    after = [RunTiming(x + 0.01, None, 6) for x in (0.0, 0.0002, -0.0002)]
    (found,) = contrasts([(before, after)], run_spread=0.03)
    assert found.adjusted_p < 0.001
    assert found.change(0.03) is Change.SAME


def test_other_machines_are_a_comparison_and_never_a_regression(tmp_path, capsys):
    other = gpu_run(2, slowed="compiled", factor=2.0)
    other["experiment"]["device"]["name"] = "Tesla T4"
    saved(tmp_path / "a.json", gpu_run(1))
    saved(tmp_path / "b.json", other)
    paths = [str(tmp_path / "a.json"), str(tmp_path / "b.json")]
    assert main(["diff", *paths, "--fail-on", "slower"]) == 0
    assert "across machines" in capsys.readouterr().out


def test_missing_new_and_renamed_benchmarks_are_listed(tmp_path):
    later = gpu_run(2)
    entry = later["benchmarks"][0]
    was, entry["fullname"] = entry["fullname"], "tests/test_ใหม่.py::test_ความเร็ว step"
    found = compare([saved(tmp_path / "a.json", gpu_run(1))], [saved(tmp_path / "b.json", later)])
    assert found.missing == (was,)
    assert found.new == ("tests/test_ใหม่.py::test_ความเร็ว step",)


def test_a_test_that_says_nothing_of_itself_is_called_by_its_name_without_its_file(tmp_path):
    document = gpu_run(1)
    names = ["tests/a.py::test_x[cpu]", "tests/a.py::test_y", "tests/b.py::test_y"]
    for entry, name in zip(document["benchmarks"], names, strict=False):
        entry |= {"fullname": name, "extra_info": {}}
    run = saved(tmp_path / "a.json", document)
    labels = [b.label for b in compare([run], [run]).benchmarks]
    assert labels[:3] == ["test_x[cpu]", "tests/a.py::test_y", "tests/b.py::test_y"]


def test_no_overlap_is_an_error_and_not_a_green_nothing(tmp_path):
    later = gpu_run(2)
    for entry in later["benchmarks"]:
        entry["fullname"] += "-renamed"
    sides = [saved(tmp_path / "a.json", gpu_run(1))], [saved(tmp_path / "b.json", later)]
    with pytest.raises(
        NothingInCommonError, match="no benchmark in common: 39 before and 39 after"
    ):
        compare(*sides)


def test_what_else_differed_is_said(tmp_path):
    later = gpu_run(2, torch="2.14.0")
    later["experiment"]["model"]["adapter"] = None
    for series in later["experiment"]["series"]:
        for point in series["points"] if series["name"] == "telemetry" else ():
            point["sm_clock_hz"] *= 0.9
    found = compare([saved(tmp_path / "a.json", gpu_run(1))], [saved(tmp_path / "b.json", later)])
    said = {setting.name: (setting.before, setting.after) for setting in found.settings}
    assert said == {
        "torch": ("2.13.0", "2.14.0"),
        "adapter": ("synthetic r=16 (ef)", "–"),
        "SM clock": ("1980 MHz", "1782 MHz"),
    }


def test_a_lost_verdict_comes_first_and_can_fail_a_pipeline(tmp_path, capsys):
    later = gpu_run(2)
    verdict = next(v for v in later["experiment"]["verdicts"] if v["claim"] == "C10")
    verdict["outcome"] = "refuted"
    saved(tmp_path / "a.json", gpu_run(1))
    saved(tmp_path / "b.json", later)
    paths = [str(tmp_path / "a.json"), str(tmp_path / "b.json")]
    assert main(["diff", *paths, "--fail-on", "verdict"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[2] == "changed verdicts:"
    assert "C10 naive@1 tok/s: confirmed -> refuted" in lines[3]
    assert main(["diff", *paths]) == 0
    assert main(["diff", *reversed(paths), "--fail-on", "verdict"]) == 0


def test_a_slower_engine_can_fail_a_pipeline(tmp_path, capsys):
    side(tmp_path / "before", "a", range(3))
    side(tmp_path / "after", "b", range(3, 6), slowed="naive", factor=1.3)
    (tmp_path / "after" / "results.json").write_text("{}", encoding="utf-8")
    folders = [str(tmp_path / "before"), str(tmp_path / "after")]
    assert main(["diff", *folders, "--fail-on", "slower"]) == 1
    assert "naive@1 decode" in capsys.readouterr().out


def test_quality_is_compared_item_by_item(tmp_path):
    before = saved(tmp_path / "a.json", gpu_run(1, items={"nf4": 0.8}))
    after = saved(tmp_path / "b.json", gpu_run(1, items={"nf4": 0.6}))
    (one,) = [q for q in compare([before], [after]).quality if q.subject == "nf4@1"]
    assert one.items.items == 400
    assert one.items.word == "worse"
    assert one.items.interval[0] < one.items.difference < one.items.interval[1] < -0.1
    (same,) = [q for q in compare([before], [before]).quality if q.subject == "nf4@1"]
    assert (same.items.lost, same.items.gained, same.items.word) == (0, 0, "same")


def test_every_format_is_written_and_escapes_what_it_must(tmp_path):
    hostile = gpu_run(2)
    hostile["benchmarks"][1]["fullname"] = "tests/x.py::<script>alert(1)</script>|a|"
    hostile["benchmarks"][1]["extra_info"] = {}
    saved(tmp_path / "a.json", hostile)
    saved(tmp_path / "b.json", hostile)
    paths = [str(tmp_path / "a.json"), str(tmp_path / "b.json")]
    for kind in ("text", "markdown", "html", "json"):
        output = tmp_path / f"diff.{kind}"
        assert main(["diff", *paths, "--format", kind, "-o", str(output)]) == 0
    content = json.loads((tmp_path / "diff.json").read_text(encoding="utf-8"))
    assert len(content["benchmarks"]) == 39
    for kind in ("html", "markdown"):
        assert "<script>alert" not in (tmp_path / f"diff.{kind}").read_text(encoding="utf-8")
    assert "\\|a\\|" in (tmp_path / "diff.markdown").read_text(encoding="utf-8")


def test_three_files_without_sides_are_refused_with_the_way_out(tmp_path, capsys):
    assert main(["diff", "a", "b", "c"]) == 2
    assert "--against" in capsys.readouterr().err


def test_diff_needs_neither_torch_nor_scipy_stats_nor_matplotlib(tmp_path):
    saved(tmp_path / "a.json", gpu_run(1))
    code = (
        "import sys; from reports.__main__ import main; "
        f"main(['diff', {str(tmp_path / 'a.json')!r}, {str(tmp_path / 'a.json')!r}]); "
        "print(sorted({'torch', 'scipy.stats', 'matplotlib'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_pytest_benchmark_compare_still_reads_the_file(tmp_path):
    saved(tmp_path / "a.json", gpu_run(1))
    command = [sys.executable, "-m", "pytest_benchmark", "compare", str(tmp_path / "a.json")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "naive@1 step" in done.stdout
