"""`lancestat jar`, and the sessions that users start with it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner, Result

from lancestat.cli.main import cli
from lancestat.spark import compiler as jar_module
from lancestat.spark.compiler import EXTENSION_NAME
from tests.interpreted import short_lived
from tests.versions import needs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

JOIN = "SELECT a, b FROM l JOIN r EXACT NEAREST 1 BY DISTANCE vector_l2_distance(v, w) ORDER BY a"
# A user's program: a session that lancestat has not started.
PROGRAM = textwrap.dedent(
    """
    import sys
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.sql.shuffle.partitions", "2")
    builder = builder.config("spark.jars", sys.argv[1])
    spark = builder.config("spark.sql.extensions", sys.argv[2]).getOrCreate()
    spark.conf.set("spark.lancestat.nearestBy.minRightRows", "0")
    for side, vector, name in (("l", "v", "a"), ("r", "w", "b")):
        rows = spark.range(40).selectExpr(f"id AS {name}", f"array(float(id), 1.0f) AS {vector}")
        rows.createOrReplaceTempView(side)

    def show(title):
        frame = spark.sql(sys.argv[3])
        plan = frame._jdf.queryExecution().executedPlan().toString()
        pairs = [(row.a, row.b) for row in frame.collect()]
        print(title, "LancestatNearestBy" in plan, pairs == [(n, n) for n in range(40)])

    show("before")
    import lancestat

    frame = spark.sql(sys.argv[3])
    try:
        print(lancestat.explain(frame))
        lancestat.register(spark)
    except lancestat.errors.LancestatError as error:
        print(error)
        sys.exit()
    show("after")
    print(lancestat.explain(spark.sql(sys.argv[3])))
    """
)


def jar(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, ["jar", *map(str, arguments)])


def run(path: Path, folder: Path) -> str:
    program = folder / "program.py"
    program.write_text(PROGRAM)
    finished = subprocess.run(
        [sys.executable, program, path, EXTENSION_NAME, JOIN],
        env={**os.environ, **short_lived(), "PYTHONPATH": os.pathsep.join(sys.path)},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


@needs.nearest_by_join
def test_a_session_with_the_jar_runs_joins_once_it_is_registered(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "lancestat.jar"
    written = jar("--out", path)
    assert written.exit_code == 0, written.output
    assert f"spark.jars  {path}" in written.stdout
    assert f"spark.sql.extensions  {EXTENSION_NAME}" in written.stdout

    printed = run(path, tmp_path)

    assert "before False True" in printed
    assert "spark, since no Python process with lancestat is connected" in printed
    assert "after True True" in printed
    assert "exact, since every pair is to be compared" in printed


@needs.nearest_by_join
def test_a_jar_of_another_release_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    path, other = tmp_path / "lancestat.jar", tmp_path / "other.jar"
    assert jar("--out", path).exit_code == 0
    with zipfile.ZipFile(path) as here, zipfile.ZipFile(other, "w") as changed:
        for name in here.namelist():
            if "sources-" not in name:
                changed.writestr(name, here.read(name))
    printed = run(other, tmp_path)
    assert "before False True" in printed
    assert "the jar of lancestat that Spark was started with is not of this release" in printed


@needs.nearest_by_join
def test_the_same_sources_give_the_same_jar(spark: SparkSession, tmp_path: Path) -> None:
    first, second = tmp_path / "first.jar", tmp_path / "second.jar"
    assert jar("--out", first).exit_code == jar("--out", second).exit_code == 0
    assert first.read_bytes() == second.read_bytes()


@needs.nearest_by_join
def test_files_that_are_there_are_left_alone(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "lancestat.jar"
    path.write_text("mine")
    refused = jar("--out", path)
    assert refused.exit_code == 2
    assert "LS409" in refused.stderr and "give --force to replace it" in refused.stderr
    assert path.read_text() == "mine"
    replaced = CliRunner().invoke(cli, ["--output", "json", "jar", "--out", str(path), "--force"])
    payload = json.loads(replaced.stdout)
    assert payload["size_bytes"] == path.stat().st_size
    assert payload["spark"] == spark.version
    assert payload["conf"]["spark.sql.extensions"] == EXTENSION_NAME


@pytest.mark.parametrize("name", ["lancestat.zip", "missing/lancestat.jar"])
def test_names_that_spark_could_not_load_are_refused(tmp_path: Path, name: str) -> None:
    refused = jar("--out", tmp_path / name)
    assert refused.exit_code == 2
    assert "LS409" in refused.stderr


def test_a_spark_without_nearest_by_needs_no_jar(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jar_module, "has_nearest_by_join", lambda: False)
    refused = jar("--out", tmp_path / "lancestat.jar")
    assert refused.exit_code == 2
    assert "this Spark has no NEAREST BY" in refused.stderr
