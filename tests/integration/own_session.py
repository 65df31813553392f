"""A script as people write it first: a session of its own, in a Python that is not activated.

    python own_session.py FOLDER [SETTING=VALUE | VARIABLE=VALUE]...

Each further argument has a session of its own, with that setting of Spark or environment variable.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

import lancestat
from lancestat.runs.result import Status


def main(folder: Path, *settings: str) -> None:
    """Print what a run, a join, a query and the format give in each session."""
    sys.stdout.write(json.dumps([found_in(folder, setting) for setting in settings or ("",)]))


def found_in(folder: Path, setting: str) -> dict[str, object]:
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    name, _, value = setting.partition("=")
    is_variable = name.isupper()
    if is_variable:
        os.environ[name] = value
    elif name:
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    try:
        return found_by(spark, folder)
    finally:
        spark.stop()
        if is_variable:
            del os.environ[name]


def found_by(spark: SparkSession, folder: Path) -> dict[str, object]:
    uri = str(folder / "orders.lance")
    found: dict[str, object] = {}
    result = lancestat.Project.load(folder).run()
    found["run"] = [[node.name, node.status.value, node.text or None] for node in result.nodes]
    if result.status is Status.ERROR:
        return found
    table = lancestat.read_table(spark, uri)
    found["query"] = [row.o_id for row in table.where("o_id > 97").orderBy("o_id").collect()]
    rows = spark.range(4).selectExpr("id", "array(float(id), float(1)) AS v")
    near = lancestat.knn_join(rows, rows, left_vector="v", right_vector="v", k=1)
    found["join"] = near.count()
    if hasattr(spark, "dataSource"):
        lancestat.register(spark)
        found["format"] = spark.read.format("lancestat").load(uri).count()
    found["left alone"] = spark.sparkContext.pythonExec
    return found


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
