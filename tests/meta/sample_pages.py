"""Pages of sample runs, rendered once for all tests, and a run in which every text attacks."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path

from reports.page.render import render_page
from tests.meta.sample_run import cpu_run, gpu_run, saved

THAI = (
    {"prompt": "เมืองหลวงของประเทศไทยคือเมืองอะไร",
     "answers": {"fp16": "กรุงเทพมหานครเป็นเมืองหลวงของประเทศไทย",
                 "nf4": "กรุงเทพฯ เป็นเมืองหลวงของไทย"}},
    {"prompt": "จังหวัดที่อยู่เหนือสุดของไทย",
     "answers": {"fp16": "จังหวัดเชียงราย", "int8": "จังหวัดเชียงราย", "nf4": "จังหวัดเชียงใหม่"}},
)  # fmt: skip


@functools.cache
def page_of(kind):
    """The page of a sample run ("gpu", "cpu" or "hostile"), rendered once for all tests."""
    make = {"gpu": gpu_run, "cpu": cpu_run, "hostile": hostile_run}[kind]
    with tempfile.TemporaryDirectory() as folder:
        return render_page(saved(Path(folder) / f"{kind}.json", make(1)))


ATTACK = "</script><script>document.title='owned';alert(1)</script><img src=x onerror=alert(2)>"
"""A text that runs in any page that forgets to escape it."""


def hostile_run(seed=0):
    """A run in which every text that a model, a prompt or an id can bring is an attack."""
    points = [{"prompt": ATTACK, "answers": {"fp16": f"fine {ATTACK}", f"nf4{ATTACK}": ATTACK}}]
    document = gpu_run(seed, answers=points)
    experiment = document["experiment"]
    for entry in document["benchmarks"]:
        entry["fullname"] = entry["fullname"].replace("test_below", ATTACK)
        entry["extra_info"]["engine"] += ATTACK
    for row in experiment["rows"]:
        row["engine"] = row["engine"] if row["batch_size"] == 1 else row["engine"] + ATTACK
        row["quality"]["text"] += ATTACK
    for verdict in experiment["verdicts"]:
        verdict["subject"] += ATTACK
        verdict["reason"] += ATTACK
    experiment["tests"][1] |= {"nodeid": ATTACK, "reason": ATTACK}
    experiment["device"]["name"] = ATTACK
    experiment["model"]["name"] = ATTACK
    experiment["run_id"] = ATTACK
    experiment["versions"]["torch"] = ATTACK
    for series in experiment["series"]:
        if series["name"] == "load_sweep":
            series["points"] = [point | {"server": ATTACK} for point in series["points"]]
    return document
