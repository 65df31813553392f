"""A session of Spark that has one build of the real connector, and its catalog `lance`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lancestat.spark.session import start_session
from lancestat.spec.model import Target
from tests.connector.jars import class_path, connector_jars
from tests.interpreted import INTERPRETED, remember_names

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# `tests/connector/test_connector_jars.py` sets it, in the process that it starts.
BUILD = os.environ.get("LANCESTAT_CONNECTOR_BUILD")
collect_ignore_glob = [] if BUILD else ["test_*.py"]


@pytest.fixture(scope="session")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder whose tables the catalog `lance` has, by the names of their folders."""
    return tmp_path_factory.mktemp("lance")


@pytest.fixture(scope="session")
def session(warehouse: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    remember_names()
    [jar] = [jar for jar in connector_jars() if jar.build == BUILD]
    jars = [str(path) for path in class_path(jar)]
    conf = {
        **INTERPRETED,
        "spark.driver.extraClassPath": os.pathsep.join(jars),
        "spark.driver.extraJavaOptions": "--add-opens=java.base/java.nio=ALL-UNNAMED",
        "spark.sql.extensions": "org.lance.spark.extensions.LanceSparkSessionExtensions",
        "spark.sql.catalog.lance": "org.lance.spark.LanceNamespaceSparkCatalog",
        "spark.sql.catalog.lance.impl": "dir",
        "spark.sql.catalog.lance.root": str(warehouse),
        "spark.sql.cbo.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
    }
    target = Target(
        name="connector",
        state=str(tmp_path_factory.mktemp("state")),
        spark_master="local[2]",
        spark_conf=conf,
    )
    started = start_session(target, "lancestat tests", is_short_lived=True)
    yield started
    started.stop()


@pytest.fixture(scope="session")
def has_statistics(session: SparkSession) -> bool:
    """Whether the build reads `lance.stats.*`, and so has ANALYZE TABLE."""
    keys = "org/lance/spark/read/LanceStatsKeys.class"
    return session._jvm.Thread.currentThread().getContextClassLoader().getResource(keys) is not None


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark all tests of this folder: they run in a process of their own, with its Spark."""
    item.add_marker(pytest.mark.spark)
