"""Tables that sources find, in Spark: attached, and asked by `lancestat sql`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lancestat import Project
from lancestat.query.sql.explain import explain_frame
from tests.discovery.catalogs import ROWS, write_catalog, write_folder
from tests.integration.commands import lancestat

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

PROJECT = """\
name: shop
targets:
  dev:
    spark: {{master: "local[1]"}}
    catalogs:
      lake: {{impl: dir, properties: {{root: "{root}/lake"}}}}
"""
SPECS = """\
sources:
  - {catalog: lake, include: ["sales.*"]}
  - {uri: flat}
"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    write_catalog(tmp_path / "lake", "sales.orders", "crm.customers")
    write_folder(tmp_path / "flat", "parts")
    (tmp_path / "specs").mkdir()
    (tmp_path / "lancestat_project.yml").write_text(PROJECT.format(root=tmp_path))
    (tmp_path / "specs" / "sources.yml").write_text(SPECS)
    made = Project.load(tmp_path)
    assert made.run().status == "success"
    return made


def test_found_tables_are_attached(project: Project, spark: SparkSession) -> None:
    attachment = project.attach(spark)
    try:
        assert attachment.failed == {}
        for name in ("sales_orders", "parts"):
            rows = {tuple(row) for row in spark.table(name).select("id", "name").collect()}
            assert rows == {tuple(row.values()) for row in ROWS.to_pylist()}
            [scan] = explain_frame(spark.table(name)).scans
            assert scan.explanation is not None
            assert scan.explanation.verdict.reason.value == "current"
        assert not spark.catalog.tableExists("crm_customers")
    finally:
        for name in attachment.views:
            spark.catalog.dropTempView(name)


def test_sql_asks_found_tables(project: Project, tmp_path: Path) -> None:
    query = "select o.name from sales_orders o join parts p on o.id = p.id where p.id = 2"
    explained = "select count(*) from sales_orders"
    rows, plan = lancestat(
        tmp_path,
        {},
        ("--output", "json", "sql", query),
        ("--output", "json", "sql", "--explain", explained),
    )
    assert rows.returncode == 0, rows.stderr
    assert '"b"' in json.dumps(json.loads(rows.stdout))
    assert plan.returncode == 0, plan.stderr
    assert '"verdict": "use"' in plan.stdout
