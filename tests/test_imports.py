"""Imports within functions, of which a run that never gets there says nothing."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
OURS = ("lancestat", "tests")
WITHIN = re.compile(rf"^\s+from ({'|'.join(OURS)})\b", re.MULTILINE)


def imports(path: Path) -> Iterator[tuple[int, str, str]]:
    """The line, module and name of each import of ours in a file that has any within a block."""
    text = path.read_text()
    if not WITHIN.search(text):
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in OURS:
            names = (alias.name for alias in node.names if alias.name != "*")
            yield from ((node.lineno, node.module or "", name) for name in names)


def is_there(module: str, name: str) -> bool:
    found = importlib.import_module(module)
    if hasattr(found, name):
        return True
    return hasattr(found, "__path__") and find_spec(f"{module}.{name}") is not None


@pytest.mark.parametrize("folder", ["lancestat", "tests", "benchmarks", "examples"])
def test_what_is_imported_is_there(folder: str) -> None:
    found = [
        (f"{path.relative_to(ROOT)}:{line}", module, name)
        for path in sorted((ROOT / folder).rglob("*.py"))
        for line, module, name in imports(path)
    ]
    missing = [where for where in found if not is_there(*where[1:])]
    assert found
    assert missing == []
