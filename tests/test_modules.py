"""Imports between modules, beyond the layers that import-linter checks."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent / "lancestat"
# Libraries that take long to import, or that must not be imported before a worker is prepared.
HEAVY = frozenset(
    {"datasketches", "faiss", "jinja2", "jsonschema", "lance", "numpy", "polars", "polars_hash",
     "pyarrow", "pyspark", "rich"}
)  # fmt: skip
# pyarrow and lance import numpy themselves.
IMPLIED = {"pyarrow": frozenset({"numpy"}), "lance": frozenset({"numpy", "pyarrow"})}
# What a command or a method of `Project` does not need is not imported for it.
DOORS = ("lancestat.project", "lancestat.cli")


@dataclass
class Module:
    """The modules of lancestat and the heavy libraries that a module imports at its top."""

    top: set[str] = field(default_factory=set)
    in_functions: set[tuple[str, int]] = field(default_factory=set)
    libraries: set[str] = field(default_factory=set)


def names() -> dict[str, Path]:
    modules = {}
    for path in ROOT.rglob("*.py"):
        parts = ("lancestat", *path.relative_to(ROOT).with_suffix("").parts)
        modules[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return modules


@cache
def modules() -> dict[str, Module]:
    known = names()
    return {name: _module(path, frozenset(known)) for name, path in known.items()}


def _module(path: Path, known: frozenset[str]) -> Module:
    module = Module()

    def visit(node: ast.AST, is_function: bool) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
                continue
            inside = is_function or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
            for target in _targets(child, known):
                if target.split(".")[0] != "lancestat":
                    module.libraries |= {target.split(".")[0]} & HEAVY if not inside else set()
                elif inside:
                    module.in_functions.add((target, child.lineno))  # type: ignore[attr-defined]
                else:
                    module.top.add(target)
            visit(child, inside)

    visit(ast.parse(path.read_text(encoding="utf-8")), False)
    return module


def _targets(node: ast.AST, known: frozenset[str]) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module is not None:
        for alias in node.names:
            whole = f"{node.module}.{alias.name}"
            yield whole if whole in known else node.module


@cache
def loaded(name: str) -> frozenset[str]:
    """The modules that importing a module imports."""
    seen: set[str] = set()
    waiting = [name]
    while waiting:
        module = waiting.pop()
        if module not in seen:
            seen.add(module)
            waiting += modules()[module].top
            waiting += [parent] if (parent := module.rpartition(".")[0]) else []
    return frozenset(seen)


def libraries(name: str) -> frozenset[str]:
    imported = frozenset[str]().union(*(modules()[module].libraries for module in loaded(name)))
    return imported.union(*(IMPLIED.get(library, frozenset()) for library in imported))


def test_imports_in_functions_spare_a_heavy_library() -> None:
    """Or, in the modules that every command loads, at least a module that is not yet loaded."""
    needless = [
        f"{name}:{line} imports {target}"
        for name, module in modules().items()
        for target, line in module.in_functions
        if (
            loaded(target) <= loaded(name)
            if name.startswith(DOORS)
            else libraries(target) <= libraries(name)
        )
    ]
    assert needless == []


def test_the_help_of_no_command_loads_more_than_that_of_another() -> None:
    commands = [name for name in modules() if name.startswith("lancestat.cli.commands.")]
    allowed = loaded("lancestat.cli.commands.plan")
    assert [name for name in commands if loaded(name) - allowed - {name}] == []


def test_no_modules_import_each_other() -> None:
    """Neither at their tops nor in functions, where a circle could hide."""
    imports = {
        name: module.top | {target for target, _ in module.in_functions}
        for name, module in modules().items()
    }
    order = TopologicalSorter(imports)
    try:
        order.prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(reversed(error.args[1])))


def test_workers_are_set_up_before_heavy_libraries_are_loaded() -> None:
    """A task's modules are imported when it is unpickled, before it can set its variables."""
    for name in ("lancestat.tables.analyze.scan_task", "lancestat.spark.python"):
        assert libraries(name) == set(), name
