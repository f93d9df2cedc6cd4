"""The commands that the README shows, read from its code blocks."""

from __future__ import annotations

import re
import shlex

from tests.meta.mini_suite import ROOT

TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
_BLOCK = re.compile(r"^```\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def between(opening: str, closing: str, text: str = TEXT) -> str:
    """The part of the README between two of its lines."""
    return text.partition(opening)[2].partition(closing)[0]


def colab_cells() -> list[str]:
    """The cells of the Colab section, in order."""
    return _BLOCK.findall(between("<!-- colab -->", "<!-- /colab -->"))


def shell_cells(content: str) -> list[str]:
    """The bash cells with another folder in place of Colab's /content."""
    bash = [cell for cell in colab_cells() if cell.startswith("%%bash\n")]
    return [cell.removeprefix("%%bash\n").replace("/content", content) for cell in bash]


def cluster_commands() -> list[str]:
    """The commands of the section about several GPUs and machines, one a line."""
    section = between("## When one machine is not enough", "\n## ")
    return [line for block in _BLOCK.findall(section) for line in block.splitlines()]


def pytest_options(command: str) -> list[str] | None:
    """What a pytest command is called with, or None for another command."""
    words = shlex.split(command, comments=True)
    if words[:3] == ["python", "-m", "pytest"]:
        return words[3:]
    return words[1:] if words[:1] == ["pytest"] else None
