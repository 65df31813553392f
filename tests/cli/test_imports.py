from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import lance
import pytest

from tests.joins.joined import vectors

HEAVY = (
    "pyspark",
    "py4j",
    "lance",
    "pyarrow",
    "polars",
    "numpy",
    "jsonschema",
    "jinja2",
    "rich",
    "yaml",
)


# Runs commands one after the other; after each, prints its exit code and all modules so far.
PROGRAM = """
import json, sys
from lancestat.cli.main import main
for command in json.loads(sys.argv[1]):
    sys.argv = ["lancestat", *command]
    try:
        main()
    except SystemExit as ended:
        print("\\n" + json.dumps([ended.code, list(sys.modules)]), file=sys.stderr)
"""


def loaded(*args: str, folder: Path, code: int = 0) -> set[str]:
    """The modules in a process that ran a command."""
    [modules] = loaded_after_each(args, folder=folder, codes=[code])
    return modules


def loaded_after_each(
    *commands: Sequence[str], folder: Path, codes: Sequence[int] = ()
) -> list[set[str]]:
    """The modules in one process after each of its commands, which end with 0 or these codes."""
    program = [sys.executable, "-c", PROGRAM, json.dumps(commands)]
    completed = subprocess.run(program, cwd=folder, capture_output=True, text=True, check=True)
    ends = [json.loads(line) for line in completed.stderr.splitlines() if line.startswith("[")]
    assert [end[0] for end in ends] == (list(codes) or [0] * len(commands)), completed.stderr
    return [set(end[1]) for end in ends]


def test_python_importtime_reports_no_heavy_library(tmp_path: Path) -> None:
    command = [sys.executable, "-X", "importtime", "-m", "lancestat", "--help"]
    completed = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    lines = [line for line in completed.stderr.splitlines() if line.startswith("import time:")]
    modules = {line.rpartition("|")[2].strip() for line in lines}
    assert "click" in modules
    assert modules.isdisjoint(HEAVY)


def test_help_loads_nothing_heavy_and_of_the_commands_only_the_one_that_it_is_about(
    tmp_path: Path,
) -> None:
    version, root, plan, sql = loaded_after_each(
        ("--version",), ("--help",), ("plan", "--help"), ("sql", "--help"), folder=tmp_path
    )
    assert "click" in version
    assert sql.isdisjoint(HEAVY)
    assert commands_in(root) == set()
    assert commands_in(plan) == {"plan"}


def commands_in(modules: set[str]) -> set[str]:
    folder = "lancestat.cli.commands."
    return {name.removeprefix(folder) for name in modules if name.startswith(folder)}


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A table and a join, neither of which was run, in a git repository."""
    for side, name in (("l", "v"), ("r", "w")):
        lance.write_dataset(vectors(0, 5, name=name), str(tmp_path / f"{side}.lance"))
    (tmp_path / "specs").mkdir()
    (tmp_path / "lancestat_project.yml").write_text(
        "name: shop\ndefault_target: dev\ntargets: {dev: {state: state}}\n"
    )
    (tmp_path / "specs" / "s.yml").write_text(
        "tables: [{name: l, uri: l.lance}]\n"
        "knn_joins: [{name: near, left: {lance: l.lance, vector: v, select: [id]},"
        " right: {lance: r.lance, vector: w, select: [key]}, k: 1, output: {lance: o.lance}}]\n"
    )
    return tmp_path


def test_only_runs_and_queries_load_spark_or_search_libraries(shop: Path) -> None:
    """Validating does not even load Lance."""
    validated, planned, shown, judged, written, collected, removed = loaded_after_each(
        ("validate",),
        ("plan",),
        ("show", "l"),
        ("status",),
        ("docs", "--out", "pages"),
        ("gc",),
        ("unpublish",),
        folder=shop,
        codes=[0, 0, 0, 1, 0, 0, 0],
    )
    assert validated.isdisjoint({"lance", "pyarrow", "numpy"})
    assert "lancestat.joins.planner" in planned
    assert "lancestat.tables.table_status" in shown
    assert "lancestat.report.gather" in judged
    assert "lancestat.report.site.build" in written
    assert "lancestat.state.garbage_collection" in collected
    assert "lancestat.tables.unpublish" in removed
    assert removed.isdisjoint({"faiss", "pyspark", "py4j", "polars"})
    assert collected.isdisjoint({"faiss", "pyspark", "py4j", "polars"})
