"""The project of `lancestat init` on Spark: its KNN join, and a query over its tables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import lance
import numpy as np
import pytest

from lancestat import Project
from lancestat.scaffold import orders, products, starter_project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_a_new_project_runs_its_join_and_answers_queries(
    spark: SparkSession, tmp_path: Path
) -> None:
    starter_project().write(tmp_path)
    joins = tmp_path / "specs" / "knn_joins.yml"
    joins.with_suffix(".yml.example").rename(joins)
    project = Project.load(tmp_path)
    assert project.run(session=spark).status.value == "success"

    rows = lance.dataset(tmp_path / "sample" / "similar_products.lance").to_table()
    found: dict[str, set[str]] = {}
    for row in rows.to_pylist():
        found.setdefault(row["name"], set()).add(row["name_right"])
    names = products()["name"].to_pylist()
    vectors = np.array(products()["embedding"].to_pylist())
    distances = np.linalg.norm(vectors[:, None] - vectors[None], axis=2)
    nearest = np.argsort(distances, axis=1)[:, :3]
    assert found == {
        name: {names[other] for other in row} for name, row in zip(names, nearest, strict=True)
    }

    assert project.attach(spark).views == ("orders", "products")
    try:
        answer = spark.sql(
            "select category, count(*) as orders from orders join products using (product_id)"
            " group by category"
        ).collect()
    finally:
        for view in ("orders", "products"):
            spark.catalog.dropTempView(view)
    categories = products().select(["product_id", "category"])
    joined = orders().join(categories, "product_id")
    expected = joined.group_by("category").aggregate([([], "count_all")])
    assert {row["category"]: row["orders"] for row in answer} == {
        row["category"]: row["count_all"] for row in expected.to_pylist()
    }
