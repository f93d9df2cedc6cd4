"""Which module imports which, read from the source: nothing is executed.

A module-level import is one that runs when the module is imported: not inside a function, and not
under `if TYPE_CHECKING`.
"""

from __future__ import annotations

import ast
import functools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

PACKAGES = ("engines", "reports", "fixtures", "tests")


@functools.cache
def imports(source: str, *, lazy: bool = False) -> frozenset[str]:
    """Dotted names that a module imports; with `lazy` also those inside functions."""
    return frozenset(name for node in _statements(ast.parse(source), lazy) for name in _names(node))


def _statements(node: ast.AST, lazy: bool) -> Iterator[ast.AST]:
    """All nodes below this one in which a statement can stand, and the statements themselves."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr):
            continue
        if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
            yield from _statements(ast.Module(child.orelse, []), lazy)
            continue
        yield child
        if lazy or not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _statements(child, lazy)


def _names(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        assert node.level == 0, f"a relative import: {ast.unparse(node)}"
        yield from (f"{node.module}.{alias.name}" for alias in node.names)


def modules(root: Path) -> dict[str, str]:
    """Source of every module of the project by its dotted name; `conftest` has no package."""
    files = [file for package in PACKAGES for file in (root / package).rglob("*.py")]
    return {
        ".".join(file.relative_to(root).with_suffix("").parts): file.read_text(encoding="utf-8")
        for file in [root / "conftest.py", *files]
    }


def within(name: str, places: Iterable[str]) -> bool:
    """Whether a dotted name is one of these places or below one."""
    return any(name == place or name.startswith(f"{place}.") for place in places)


def violations(
    sources: Mapping[str, str],
    layer: Iterable[str],
    *,
    never: Iterable[str],
    but: Iterable[str] = (),
    lazy: bool = False,
) -> list[str]:
    """`module imports name` for every import in this layer that is forbidden and not excepted."""
    return [
        f"{module} imports {name}"
        for module, source in sources.items()
        if within(module, layer)
        for name in sorted(imports(source, lazy=lazy))
        if within(name, never) and not within(name, but)
    ]


def paths_to(sources: Mapping[str, str], start: str, heavy: Iterable[str]) -> list[str]:
    """Chains of module-level imports by which importing `start` would import something heavy."""
    found, seen, queue = [], {start}, [(start,)]
    while queue:
        chain = queue.pop()
        for name in sorted(imports(sources[chain[-1]])):
            if within(name, heavy):
                found.append(" -> ".join((*chain, name)))
            module = name if name in sources else name.rpartition(".")[0]
            if module in sources and module not in seen:
                seen.add(module)
                queue.append((*chain, module))
    return found
