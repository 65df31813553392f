"""Scripts that spark-submit starts: PySpark comes from an archive, and the session from Spark."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import lance
import pyarrow as pa
import pyspark
import pytest

from lancestat.spark.jvm import spark_home
from lancestat.spark.versions import has_nearest_by_join

ARCHIVE = Path(pyspark.__file__).parent / "python" / "lib" / "pyspark.zip"
PROJECT = "name: shop\ntargets: {dev: {state: state, spark: {min_bytes: 0}}}\n"
SCRIPT = """
from pyspark.sql import SparkSession

from lancestat import Project

session = SparkSession.builder.getOrCreate()
result = Project.load(".").run()
result.raise_for_status()
# The session of the script is the one that the run has used, and is still there.
print(result.nodes[0].action, result.nodes[0].runs_on, session.range(3).count())
"""


def test_what_pyspark_has_is_found_in_an_archive() -> None:
    code = (
        "import sys; from lancestat.spark.versions import has_nearest_by_join as has;"
        "print(has(), 'pyspark' in sys.modules)"
    )
    printed = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(ARCHIVE)},
        check=True,
        capture_output=True,
        text=True,
    )
    assert printed.stdout == f"{has_nearest_by_join()} False\n"


@pytest.mark.spark
def test_a_script_runs_in_the_session_of_spark_submit(tmp_path: Path) -> None:
    (tmp_path / "specs").mkdir()
    (tmp_path / "lancestat_project.yml").write_text(PROJECT)
    (tmp_path / "specs" / "shop.yml").write_text("tables: [{name: orders, uri: orders.lance}]\n")
    (tmp_path / "job.py").write_text(SCRIPT)
    lance.write_dataset(pa.table({"id": range(10)}), str(tmp_path / "orders.lance"))
    submitted = subprocess.run(
        [f"{spark_home()}/bin/spark-submit", "--master", "local[1]", "job.py"],
        cwd=tmp_path,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
    )
    assert submitted.stdout.endswith("analyze spark 3\n"), submitted.stderr[-2000:]
    assert submitted.returncode == 0
