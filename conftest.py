"""Options, markers, header and the list of plugins. Imports no torch.

`pytest-benchmark compare` imports this file on machines that only compare, and `--collect-only` has
to be fast where torch is not installed; everything heavy is behind the plugins named below.
"""

from __future__ import annotations

import pytest

from fixtures.options import Options, add_options, header_lines
from fixtures.sharing import long_files_first, scheduler, share_between_workers

pytest_plugins = [  # each after those that it imports, so that asserts are rewritten in all
    "pytester",
    "fixtures.selection",
    "fixtures.judging",
    "fixtures.models_at_hand",
    "fixtures.recording",
    "fixtures.cuda_health",
    "fixtures.telemetry",
    "fixtures.ceilings",
    "fixtures.measuring",
    "fixtures.qualities",
    "fixtures.rows",
    "fixtures.material",
]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the options of the experiment (README, "Options")."""
    add_options(parser.getgroup("experiment", "the serving experiment"))


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Before pytest-xdist looks at its options: share the tests that need no GPU."""
    share_between_workers(config)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """How pytest-xdist shares files between its processes."""
    return scheduler(config, log) if config.option.dist == "loadfile" else None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """After the choice of tests: the order in which workers take them."""
    long_files_first(config, items)


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers and refuse options that cannot work, before anything is measured."""
    config.addinivalue_line("markers", "claim(id): the claim of the registry that a test examines")
    config.addinivalue_line("markers", "gpu: needs a CUDA GPU (set by the device of the test)")
    config.addinivalue_line("markers", "devices(*kinds): devices on which a test makes sense")
    config.addinivalue_line("markers", "control: an instrument check that runs before the claims")
    config.addinivalue_line("markers", "thorough: takes seconds; run by --thorough or by its path")
    config.addinivalue_line("markers", "colab: runs the README's cells in a clean environment")
    Options.store(config)
    if Options.of(config).json_path is not None:
        # A measured run must not be lost to a deprecation in some other version of a library.
        config.addinivalue_line("filterwarnings", "default")


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Say what is under test."""
    return header_lines(Options.of(config))
