"""Read a table in two ways and join DataFrames, on the cluster of a project; print the answers."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import lancestat
from lancestat.spark.versions import has_python_sources


def main(folder: str, root: str) -> None:
    project = lancestat.Project.load(folder)
    spark = project.spark()
    options = dict(project.spec.target.storage_options)
    named = {f"storage.{key}": value for key, value in options.items()}
    uri = f"{root}/orders.lance"
    ways = {"read_table": lancestat.read_table(spark, uri, storage_options=options)}
    if has_python_sources():
        lancestat.register(spark)
        ways["format"] = spark.read.format("lancestat").options(**named).load(uri)
    answers: dict[str, Any] = {}
    answers["tables"] = {
        name: sorted(map(list, rows.where(f"o_id >= {rows.count() // 2}").collect()))
        for name, rows in ways.items()
    }
    left, right = (
        lancestat.read_table(spark, f"{root}/{name}.lance", storage_options=options)
        for name in ("l", "r")
    )
    near = lancestat.knn_join(
        left.where("id >= 0"),
        right.where("id >= 0"),
        left_vector="emb",
        right_vector="emb",
        k=3,
        select_left=["id"],
        select_right=["id"],
        rank=True,
        scratch=project.spec.target.scratch,
        storage_options=options,
    )
    answers["neighbours"] = [list(row) for row in near.collect()]
    places = spark.sparkContext.parallelize(range(4), 4).mapPartitions(_place).collect()
    answers["places"] = sorted(set(places))
    spark.stop()
    print(json.dumps(answers))  # noqa: T201


def _place(_: Iterator[int]) -> Iterator[str]:
    import lancestat.spark

    yield lancestat.spark.__file__


if __name__ == "__main__":
    main(*sys.argv[1:])
