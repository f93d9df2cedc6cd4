"""The direction of dependencies, and that nothing needs torch before something is measured.

base <- engines <- fixtures <- tests; base <- reports <- fixtures, conftest, tests. Collecting tests
and comparing runs has to work on a laptop that has no torch.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.meta.layers import imports, modules, paths_to, violations
from tests.meta.mini_suite import ROOT, outside

BASE = [
    f"engines.{name}"
    for name in (
        "records", "shape", "cost", "gpus", "configs", "families", "windows", "linear", "experts",
        "layers", "flops", "roofline", "formats", "rounding",
    )
]  # fmt: skip
HEAVY = ("torch", "transformers", "peft", "bitsandbytes", "safetensors", "vllm", "triton")
SOURCES = modules(ROOT)
WITHOUT_TORCH = """
import sys

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {hidden}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Hidden())
import pytest, reports.__main__
status = pytest.main(["--collect-only", "-q", "-q", "-p", "no:cacheprovider", *sys.argv[1:]])
assert status == 0, status
sys.argv = ["reports", "--help"]
reports.__main__.main()
"""


def test_the_base_stands_below_everything():
    assert all(module in SOURCES for module in BASE)
    above = ("engines", "reports", "fixtures", "tests", "pytest", *HEAVY)
    assert violations(SOURCES, BASE, never=above, but=BASE, lazy=True) == []


def test_engines_know_nothing_of_tests_fixtures_and_reports():
    upward = ("reports", "fixtures", "tests", "conftest", "pytest", "pytest_benchmark")
    assert violations(SOURCES, ["engines"], never=upward, lazy=True) == []


def test_reports_know_only_the_base_of_the_engines():
    upward = ("engines", "fixtures", "tests", "conftest", "pytest", *HEAVY)
    assert violations(SOURCES, ["reports"], never=upward, but=BASE, lazy=True) == []


def test_fixtures_know_nothing_of_tests():
    assert violations(SOURCES, ["fixtures"], never=["tests", "conftest"], lazy=True) == []


def test_a_claims_test_knows_nothing_of_the_tests_of_the_suite():
    """But for the small suites that are killed and resumed, or run without vLLM."""
    claims = [module for module in SOURCES if module.startswith("tests.test_")]
    suite = ["tests.meta.mini_suite", "tests.meta.run_without_vllm"]
    assert violations(SOURCES, claims, never=["tests.meta"], but=suite, lazy=True) == []


def test_importing_fixtures_reports_tests_and_conftest_imports_nothing_heavy():
    """Also not by way of an engine that has torch at its top."""
    light = [module for module in SOURCES if not module.startswith("engines.")]
    assert [path for module in light for path in paths_to(SOURCES, module, HEAVY)] == []


def test_package_files_are_empty():
    packages = [module for module in SOURCES if module.endswith("__init__")]
    assert len(packages) >= 5
    assert {SOURCES[module] for module in packages} == {""}


@pytest.mark.thorough
def test_collecting_and_reporting_work_where_torch_is_not_installed():
    code = WITHOUT_TORCH.format(hidden=set(HEAVY))
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, sorted((ROOT / "tests").glob("test_*.py")))],
        cwd=ROOT, env=outside(), capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert "test_b_ceiling_measured.py: " in done.stdout
    assert "usage: python -m reports" in done.stdout


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("engines.naive", "import pytest"),
        ("engines.naive", "from fixtures import rounds"),
        ("engines.cost", "import torch.nn"),
        ("engines.cost", "from engines.clock import Clock"),
        ("engines.cost", "def f():\n    import torch"),
        ("reports.stats", "try:\n    import torch\nexcept ImportError:\n    torch = None"),
        ("reports.stats", "from engines import models"),
        ("fixtures.rounds", "if True:\n    from tests import chapter"),
    ],
)
def test_a_planted_violation_is_found(module, source):
    found = [
        *violations({module: source}, BASE, never=("engines", *HEAVY), but=BASE, lazy=True),
        *violations({module: source}, ["engines"], never=["pytest", "fixtures"], lazy=True),
        *violations({module: source}, ["reports"], never=("engines", *HEAVY), but=BASE, lazy=True),
        *violations({module: source}, ["fixtures"], never=["tests"], lazy=True),
    ]
    assert len(found) == 1, found


def test_torch_behind_an_engine_is_found_with_the_way_to_it():
    sources = {
        "fixtures.rounds": "from engines.clock import Clock",
        "engines.clock": "import time\nimport torch",
        "fixtures.lazy": "def f():\n    from engines.clock import Clock",
    }
    (path,) = paths_to(sources, "fixtures.rounds", HEAVY)
    assert path == "fixtures.rounds -> engines.clock -> torch"
    assert paths_to(sources, "fixtures.lazy", HEAVY) == []


def test_what_runs_at_import_is_told_from_what_does_not():
    source = """
from __future__ import annotations
import a
if TYPE_CHECKING:
    import types_only
else:
    import otherwise
class C:
    import inside_class
    def method(self):
        import in_method
try:
    import b.c
except ImportError:
    import instead
finally:
    from d import e, f
async def g():
    import in_coroutine
"""
    names = {"__future__.annotations", "a", "otherwise", "inside_class", "b.c", "instead"}
    assert imports(source) == names | {"d.e", "d.f"}
    assert imports(source, lazy=True) == imports(source) | {"in_method", "in_coroutine"}
