"""Spark's Python workers in the sessions that lancestat starts."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING
from zipimport import zipimporter

import pyspark
import pytest

from lancestat.spark.daemon import without_archives

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOME = Path(pyspark.__file__).parent
ARCHIVES = [f"{HOME}/python/lib/pyspark.zip", f"{HOME}/jars/spark-core.jar"]


@pytest.mark.spark
def test_workers_import_the_installed_pyspark_and_read_no_archive(spark: SparkSession) -> None:
    def imported(_: int) -> tuple[str, list[str]]:
        import pyspark.worker

        importers = sys.path_importer_cache.items()
        archives = [name for name, found in importers if isinstance(found, zipimporter)]
        return pyspark.worker.__file__, archives

    [(file, archives)] = spark.sparkContext.parallelize([0], 1).map(imported).collect()
    assert Path(file).parent == HOME
    assert [name for name in archives if HOME in Path(name).parents] == []


def test_archives_of_the_installed_pyspark_are_left() -> None:
    around = ["", "/opt/modules.zip", str(HOME.parent), "/absent"]
    assert without_archives([*ARCHIVES, *around]) == around


def test_archives_of_another_spark_are_kept(tmp_path: Path) -> None:
    other = [f"{tmp_path}/python/lib/pyspark.zip", str(HOME.parent)]
    assert without_archives(other) == other


def test_archives_are_kept_where_nothing_else_has_pyspark(tmp_path: Path) -> None:
    path = [*ARCHIVES, str(tmp_path), "/absent"]
    assert without_archives(path) == path
