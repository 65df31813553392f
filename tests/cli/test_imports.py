from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

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


LOADED = """
import sys
from lancestat.cli.main import main
sys.argv[0] = "lancestat"
try:
    main()
finally:
    print(*sys.modules, sep="\\n", file=sys.stderr)
"""


def loaded(*args: str, folder: Path) -> set[str]:
    """The modules in a process that ran a command."""
    command = [sys.executable, "-c", LOADED, *args]
    completed = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    return set(completed.stderr.splitlines())


def test_python_importtime_reports_no_heavy_library(tmp_path: Path) -> None:
    command = [sys.executable, "-X", "importtime", "-m", "lancestat", "--help"]
    completed = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    lines = [line for line in completed.stderr.splitlines() if line.startswith("import time:")]
    modules = {line.rpartition("|")[2].strip() for line in lines}
    assert "click" in modules
    assert modules.isdisjoint(HEAVY)


@pytest.mark.parametrize("args", [("--help",), ("--version",)])
def test_help_loads_nothing_heavy(args: tuple[str, ...], tmp_path: Path) -> None:
    modules = loaded(*args, folder=tmp_path)
    assert "click" in modules
    assert modules.isdisjoint(HEAVY)
    assert not [name for name in modules if name.startswith("lancestat.cli.commands.")]


def test_planning_a_join_loads_neither_spark_nor_search_libraries(tmp_path: Path) -> None:
    import lance

    from tests.execution.joined import vectors

    for side, name in (("l", "v"), ("r", "w")):
        lance.write_dataset(vectors(0, 5, name=name), str(tmp_path / f"{side}.lance"))
    (tmp_path / "specs").mkdir()
    (tmp_path / "lancestat_project.yml").write_text(
        "name: shop\ndefault-target: dev\ntargets: {dev: {state: state}}\n"
    )
    (tmp_path / "specs" / "s.yml").write_text(
        "knn_joins: [{name: near, left: {lance: l.lance, vector: v, select: [id]},"
        " right: {lance: r.lance, vector: w, select: [key]}, k: 1, output: {lance: o.lance}}]\n"
    )
    modules = loaded("plan", folder=tmp_path)
    assert "lancestat.plan.join_planner" in modules
    assert modules.isdisjoint(["faiss", "pyspark", "py4j", "polars"])


def test_status_loads_neither_spark_nor_search_libraries(tmp_path: Path) -> None:
    import lance

    from tests.execution.world import orders, write_project

    write_project(tmp_path, "orders")
    lance.write_dataset(orders(0, 5), str(tmp_path / "orders.lance"))
    command = [sys.executable, "-c", LOADED, "status"]
    completed = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert completed.returncode == 1
    modules = set(completed.stderr.splitlines())
    assert "lancestat.report.gather" in modules
    assert modules.isdisjoint(["faiss", "pyspark", "py4j", "polars"])


def test_help_of_one_command_loads_only_that_one(tmp_path: Path) -> None:
    modules = loaded("plan", "--help", folder=tmp_path)
    assert modules.isdisjoint(HEAVY)
    commands = {name for name in modules if name.startswith("lancestat.cli.commands.")}
    assert commands == {"lancestat.cli.commands.plan"}


def test_validate_opens_no_dataset_and_starts_no_spark(tmp_path: Path) -> None:
    loaded("init", ".", folder=tmp_path)
    modules = loaded("validate", folder=tmp_path)
    assert modules.isdisjoint({"pyspark", "py4j", "lance", "pyarrow", "polars"})
