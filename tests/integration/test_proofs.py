"""`lancestat check --prove` on Spark, of what statistics of fragments cannot decide."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from lancestat.report import proof
from tests.runs.world import write_project

pytestmark = pytest.mark.spark


def test_spark_compares_what_statistics_cannot(tmp_path: Path, spark: SparkSession) -> None:
    # Fragments whose ranges overlap, and more rows than the state keeps hashes of.
    many = 140_000
    numbers = np.random.default_rng(7).permutation(many)
    wide = {
        "id": numbers,
        "twice": np.where(numbers == 5, 6, numbers),
        "customer": pa.array([None if n == 3 else n % 3000 for n in range(many)]),
        "lost": numbers % 3001,
        "points": pa.array([None] + [[1.0]] * (many - 1)),
        "x y": numbers,
    }
    uri = str(tmp_path / "orders.lance")
    lance.write_dataset(pa.table(wide), uri, max_rows_per_file=many // 2)
    lance.write_dataset(pa.table({"key": range(3000)}), str(tmp_path / "customers.lance"))

    def to_customers(column: str) -> dict[str, Any]:
        return {"references": {"columns": [column], "table": "customers", "to": ["key"]}}

    def to_itself(column: str) -> dict[str, Any]:
        return {"references": {"columns": [column], "table": "orders", "to": ["id"]}}

    expect = [
        {"unique": "id"},
        {"unique": "twice"},
        {"unique": ["customer", "x y"]},
        {"distinct_between": {"column": "customer", "min": 3000, "max": 3000}},
        {"distinct_between": {"column": "lost", "max": 3000}},
        to_customers("customer"),
        to_customers("lost"),
        to_itself("twice"),
        {"not_null": "points"},
        {"max_null_share": {"column": "points", "share": 0.1}},
    ]
    customers = {"name": "customers", "uri": "customers.lance"}
    project = write_project(
        tmp_path, {"name": "orders", "uri": "orders.lance", "expect": expect}, customers
    )
    held = project.check(prove=True, session=spark)
    assert not held.errors
    assert {check.check: (check.verdict.value, check.detail) for _, check in held.checks} == {
        "unique(id)": ("proved", "no two rows are equal"),
        "unique(twice)": ("refuted", "at least two rows are equal"),
        "unique(customer, x y)": ("proved", "no two rows are equal"),
        "distinct_between(customer)": ("proved", "3,000 distinct values are there"),
        "distinct_between(lost)": ("refuted", "3,001 distinct values are there"),
        "references(customer to customers)": ("proved", "every row has its row"),
        "references(lost to customers)": ("refuted", "46 rows refer to nothing"),
        "references(twice to orders)": ("proved", "every row has its row"),
        "not_null(points)": ("refuted", "1 row has a null"),
        "max_null_share(points)": ("proved", "1 of 140,000 rows have a null (<0.1 %)"),
    }
    assert held.checks == project.check().checks
    # What is referred to is part of the question.
    lance.dataset(str(tmp_path / "customers.lance")).delete("key = 7")
    later = {check.check: check.verdict.value for _, check in project.check().checks}
    assert later["references(customer to customers)"] == "unknown"
    assert later["unique(id)"] == "proved"


def test_rows_of_a_table_made_again_prove_nothing(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = str(tmp_path / "orders.lance")
    lance.write_dataset(pa.table({"id": [[1.0]] * 3}), uri)
    expect = [{"unique": "id"}]
    project = write_project(tmp_path, {"name": "orders", "uri": "orders.lance", "expect": expect})

    def replaced(*arguments: object) -> tuple[bool, str]:
        shutil.rmtree(uri)
        lance.write_dataset(pa.table({"id": [[2.0]] * 3}), uri)
        return True, "no two rows are equal"

    monkeypatch.setattr(proof, "_queried", replaced)
    checked = project.check(prove=True, session=spark)
    assert list(checked.errors) == ["orders"]
    assert [check.verdict.value for _, check in checked.checks] == ["unknown"]
