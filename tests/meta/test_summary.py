"""The summary says what was stored, at once, without the libraries that estimate."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from reports.__main__ import COMMANDS, main
from reports.runfile import RunFile, load_run
from reports.summary import correction, summary
from tests.meta.make_run import make_run, write_run

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def text(tmp_path_factory) -> str:
    return summary(load_run(write_run(tmp_path_factory.mktemp("run") / "out.json")))


def test_it_begins_with_what_the_run_ran_on(text):
    head = text.split("## Verdicts")[0]
    assert "device: Tesla T4, driver 550.54, sm_75, 15.8 GB" in head
    assert "model: Qwen/Qwen3-0.6B, trained weights, float16, adapter synthetic r=16" in head
    for part in ("profile: quick", "torch 2.13.0", "datasheet 320 GB/s", "host-1"):
        assert part in head


def test_the_control_comes_before_the_verdicts(text):
    assert text.index("A/A control:") < text.index("## Verdicts")
    assert "claimed in [0.97, 1.03]: confirmed" in text


def test_a_session_without_control_says_so():
    document = make_run()
    document["experiment"]["verdicts"] = []
    assert "**A/A control:** not run" in summary(RunFile(Path("x"), document))


def test_every_verdict_has_value_interval_n_bound_and_outcome(text):
    line = next(line for line in text.splitlines() if line.startswith("| C10 "))
    assert re.search(
        r"\| 31\.\d tok/s \[3\d\.\d, 3\d\.\d\] \| 8 × round \| < 264\.4 \| confirmed \|", line
    )


def test_undecided_and_faulty_verdicts_say_why(text):
    assert "undecided (p99 needs about 299 independent samples, got 8 (291 more))" in text
    assert "undecided (the interval contains the bound; smallest detectable difference 0.00" in text
    assert "measurement fault (throttled: thermal slow-down)" in text
    assert "4 confirmed, 2 undecided, 1 not applicable, 1 measurement fault" in text


def test_speed_memory_and_quality_share_a_row(text):
    line = next(line for line in text.splitlines() if line.startswith("| compiled@1 | Qwen"))
    for part in ("tok/s [", " ms [", " % |", "1.19 GB", "22.0 MB", "tokens equal fp16"):
        assert part in line


def test_what_did_not_apply_and_what_did_not_run_are_listed_with_reasons(text):
    assert "- claimed for sm_75 (T4), this is sm_90: C11" in text
    assert "| tests/test_h_device.py::test_bf16 | skipped | bitsandbytes is not installed |" in text


def test_verdicts_that_fall_to_the_number_of_claims_are_named():
    run = RunFile(Path("x"), make_run())
    one = next(v for v in run.verdicts if v.claim == "C10")
    verdicts = tuple(replace(one, p_value=p) for p in (0.03, 0.04, 0.001))
    said = correction(verdicts)
    assert "3 timed verdicts were judged" in said
    assert "1 of them survive" in said
    assert "Decided, but not surviving: C10 naive@1 (p = 0.03), C10 naive@1 (p = 0.04)." in said


def test_on_a_cpu_timed_verdicts_are_marked_as_observations(tmp_path):
    text = summary(load_run(write_run(tmp_path / "out.json", device="cpu")))
    assert "confirmed (observation only)" in text


def test_every_table_is_a_table(text):
    for block in re.findall(r"(?:^\|.*\n?)+", text, flags=re.MULTILINE):
        widths = {len(re.findall(r"(?<!\\)\|", line)) for line in block.strip().splitlines()}
        assert len(widths) == 1


def test_what_a_model_or_a_test_named_cannot_break_the_page(tmp_path):
    document = make_run()
    row = document["experiment"]["rows"][0]
    row["quality"]["text"] = "a | b\n<script>alert(1)</script> `x`"
    text = summary(RunFile(tmp_path, document))
    assert "a \\| b &lt;script>alert(1)&lt;/script> 'x'" in text


def test_it_takes_under_half_a_second_and_imports_neither_numpy_nor_torch(tmp_path):
    path = write_run(tmp_path / "out.json")
    code = (
        "import sys, time\n"
        "from reports.__main__ import main\n"
        "started = time.process_time()\n"
        "assert main(['summary', sys.argv[1]]) == 0\n"
        "heavy = {'numpy', 'scipy', 'torch', 'matplotlib', 'pytest', 'jinja2'} & set(sys.modules)\n"
        "print(heavy or '', time.process_time(), file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=True,
    )
    assert float(done.stderr) < 0.5  # processor time of the whole process, imports included


def test_it_appends_to_a_job_summary(tmp_path):
    run, page = write_run(tmp_path / "out.json"), tmp_path / "summary.md"
    page.write_text("before\n")
    assert main(["summary", str(run), "-o", str(page)]) == 0
    assert page.read_text(encoding="utf-8").startswith("before\n# Run synthetic\n")


def test_help_names_every_command_and_starts_fast():
    started = time.process_time()
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "reports", "--help"],
        capture_output=True, text=True, cwd=ROOT, check=True,
    )  # fmt: skip
    assert time.process_time() - started < 5
    for name, purpose in COMMANDS:
        assert name in done.stdout
        assert purpose in done.stdout
    assert "reports.commands." not in done.stderr


@pytest.mark.parametrize("name", [name for name, _ in COMMANDS])
def test_every_command_explains_itself(name, capsys):
    with pytest.raises(SystemExit) as ended:
        main([name, "--help"])
    assert ended.value.code == 0
    assert f"python -m reports {name}" in capsys.readouterr().out


def test_no_command_and_an_unknown_one_are_errors(capsys):
    assert main([]) == 2
    with pytest.raises(SystemExit) as ended:
        main(["sumary"])
    assert ended.value.code == 2
    assert "invalid choice: 'sumary'" in capsys.readouterr().err
