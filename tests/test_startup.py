"""The modules that commands and workers load, and that none import each other in a circle."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import grimp
import lance
import pytest

from tests.joins.joined import vectors

pytestmark = pytest.mark.whole

HEAVY = frozenset(
    {"datasketches", "faiss", "jinja2", "jsonschema", "lance", "lance_namespace", "numpy", "polars",
     "polars_hash", "py4j", "pyarrow", "pyspark", "rich", "yaml"}
)  # fmt: skip
YAML = frozenset({"jinja2", "jsonschema", "yaml"})
LANCE = YAML | {"lance", "numpy", "pyarrow"}

# What a process loads: commands, one after the other, the most modules of lancestat, libraries.
BUDGETS = (
    (["--help"], 22, frozenset()),
    (["plan --help", "sql --help"], 37, frozenset()),
    (["list", "validate"], 66, YAML - {"jinja2"}),
    (["plan"], 190, LANCE),
    (["show l", "status", "docs --out pages", "gc", "unpublish"], 190, LANCE),
)
# Tasks set variables of the environment before these libraries are loaded.
OF_WORKERS = ("lancestat.tables.analyze", "lancestat.spark.versions")

COMMAND = """
import json, sys
from lancestat.cli.main import main
for command in sys.argv[1:]:
    sys.argv = ["lancestat", *command.split()]
    try:
        main()
    except SystemExit:
        pass
print("\\n" + json.dumps(list(sys.modules)), file=sys.stderr)
"""
MODULE = """
import importlib, json, sys
importlib.import_module(sys.argv[1])
print(json.dumps(list(sys.modules)), file=sys.stderr)
"""


def loaded(program: str, args: Sequence[str], folder: Path) -> set[str]:
    """The modules of a process at its end."""
    command = [sys.executable, "-c", program, *args]
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    return set(json.loads(ended.stderr.splitlines()[-1]))


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A table and a join, neither of which was run."""
    for side, name in (("l", "v"), ("r", "w")):
        lance.write_dataset(vectors(0, 5, name=name), str(tmp_path / f"{side}.lance"))
    (tmp_path / "specs").mkdir()
    (tmp_path / "lancestat_project.yml").write_text("name: shop\ntargets: {dev: {state: state}}\n")
    (tmp_path / "specs" / "s.yml").write_text(
        "tables: [{name: l, uri: l.lance}]\n"
        "knn_joins: [{name: near, left: {lance: l.lance, vector: v, select: [id]},"
        " right: {lance: r.lance, vector: w, select: [key]}, k: 1, output: {lance: o.lance}}]\n"
    )
    return tmp_path


@pytest.mark.parametrize(
    ("commands", "most", "libraries"), BUDGETS, ids=[", ".join(words) for words, _, _ in BUDGETS]
)
def test_a_command_loads_no_more_than_its_budget(
    shop: Path, commands: list[str], most: int, libraries: frozenset[str]
) -> None:
    modules = loaded(COMMAND, commands, shop)
    assert modules & HEAVY <= libraries
    assert len({name for name in modules if name.startswith("lancestat")}) <= most


def test_a_run_with_nothing_to_do_loads_no_kernel(shop: Path) -> None:
    (shop / "specs" / "s.yml").write_text("tables: [{name: l, uri: l.lance, columns: [id]}]\n")
    assert "polars" in loaded(COMMAND, ["run"], shop)
    assert loaded(COMMAND, ["run"], shop) & HEAVY <= LANCE


@pytest.mark.parametrize("properties", ["", ", manifest_enabled: 'true'"])
def test_tables_of_folders_are_found_without_the_library_of_catalogs(
    shop: Path, properties: str
) -> None:
    (shop / "specs" / "s.yml").write_text("sources: [{catalog: lake}]\n")
    catalog = f"{{lake: {{impl: dir, properties: {{root: '{shop}'{properties}}}}}}}"
    project = f"name: shop\ntargets: {{dev: {{state: state, catalogs: {catalog}}}}}\n"
    (shop / "lancestat_project.yml").write_text(project)
    assert "lance_namespace" not in loaded(COMMAND, ["run"], shop)
    assert loaded(COMMAND, ["run", "plan", "list", "status"], shop) & HEAVY <= LANCE
    assert lance.dataset(str(shop / "l.lance")).version == 2


@pytest.mark.parametrize("module", OF_WORKERS)
def test_workers_are_set_up_before_heavy_libraries_are_loaded(module: str, tmp_path: Path) -> None:
    assert loaded(MODULE, [module], tmp_path).isdisjoint(HEAVY - YAML)


def test_no_modules_import_each_other() -> None:
    """Neither at their tops nor in functions, where a circle could hide."""
    graph = grimp.build_graph("lancestat", exclude_type_checking_imports=True, cache_dir=None)
    imports = {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(reversed(error.args[1])))
