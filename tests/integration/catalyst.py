"""The parts of Spark that compute, write, read and use column statistics, through py4j."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lancestat.manifest.wire import COLUMN_PREFIX, encode_statistics
from lancestat.statistics.column_statistics import ColumnStatistics
from lancestat.statistics.column_type import ColumnType
from tests.integration.planned import planned

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


NOON = datetime(2026, 3, 1, 12, tzinfo=timezone.utc)


def entries_of(name: str, type: ColumnType, statistics: ColumnStatistics) -> dict[str, str]:
    """A column's entries as Spark's own maps name them, `<name>.<suffix>`."""
    encoded = encode_statistics(
        {name: (type, statistics)}, rows=3, schema_hash="", computed_at_version=1, computed_at=NOON
    )
    return {
        key.removeprefix(COLUMN_PREFIX): text
        for key, text in encoded.items()
        if key.startswith(COLUMN_PREFIX)
    }


class Catalyst:
    """Spark's own statistics: computed over a query, written to entries, read back."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark: Any = spark
        self.jvm: Any = spark._jvm
        sql = self.jvm.org.apache.spark.sql
        self.codec = self._module(sql.catalyst.catalog, "CatalogColumnStat")
        self.commands = self._module(sql.execution.command, "CommandUtils")
        self.types = self._module(sql.types, "DataType")
        self.converters = self._module(self.jvm.scala.jdk.javaapi, "CollectionConverters")

    @staticmethod
    def _module(package: Any, name: str) -> Any:
        return getattr(getattr(package, f"{name}$"), "MODULE$")

    def computed(self, query: str) -> dict[str, tuple[Any, Any, dict[str, str]]]:
        """By column: its Spark type, the ColumnStat, and its entries as `toMap` gives them."""
        plan = self.spark.sql(query)._jdf.queryExecution().analyzed()
        statistics = self.commands.computeColumnStats(
            self.spark._jsparkSession, plan, plan.output()
        )
        stats = self.converters.asJava(statistics._2())
        columns = {}
        for attribute in stats.keySet():
            name, type = attribute.name(), attribute.dataType()
            stat = stats.get(attribute)
            entries = stat.toCatalogColumnStat(name, type).toMap(name)
            columns[name] = (type, stat, dict(self.converters.asJava(entries)))
        return columns

    def decoded(self, name: str, entries: Mapping[str, str], type: Any) -> Any:
        """The ColumnStat that Spark's optimizer gets from entries."""
        return self.catalog_stat(name, entries).toPlanStat(name, type)

    def catalog_stat(self, name: str, entries: Mapping[str, str]) -> Any:
        return self.codec.fromMap("t", name, self.map(entries)).get()

    def map(self, entries: Mapping[str, Any]) -> Any:
        scala = self._module(self.jvm.scala.collection.immutable, "Map").empty()
        for key, text in entries.items():
            scala = scala.updated(key, text)
        return scala

    def histogram(self, height: float, bins: Iterable[tuple[float, float, int]]) -> str:
        """A histogram as Spark's catalog stores it."""
        logical = self.jvm.org.apache.spark.sql.catalyst.plans.logical
        made = [logical.HistogramBin(float(low), float(high), n) for low, high, n in bins]
        array = self.spark.sparkContext._gateway.new_array(logical.HistogramBin, len(made))
        for place, bin in enumerate(made):
            array[place] = bin
        serializer = self._module(logical, "HistogramSerializer")
        return str(serializer.serialize(logical.Histogram(float(height), array)))

    def bound(self, text: str, type: ColumnType) -> Any:
        """Return the value that Spark parses from a bound's text, in its internal form."""
        return self.codec.fromExternalString(text, "c", self.types.fromDDL(type.spark_type), 2)


class PlannedTable:
    """A table of one column whose statistics tests set, for Spark to plan with."""

    _MAKER = (
        "new org.apache.spark.sql.catalyst.catalog.CatalogStatistics("
        "new scala.math.BigInt(java.math.BigInteger.valueOf(16000L)),"
        "new scala.Some(new scala.math.BigInt(java.math.BigInteger.valueOf({rows}L))), columns)"
    )

    def __init__(
        self, catalyst: Catalyst, type: ColumnType, place: Path, name: str | None = None
    ) -> None:
        self.catalyst = catalyst
        self.type = type
        self.name = name or f"planned_{type.kind.value}"
        catalyst.spark.sql(
            f"create table {self.name} (c {type.spark_type}) using parquet location '{place}'"
        )

    def set(self, entries: Mapping[str, str], rows: int = 1000) -> None:
        catalyst, jvm = self.catalyst, self.catalyst.jvm
        state = catalyst.spark._jsparkSession.sessionState()
        columns = catalyst.map({"c": catalyst.catalog_stat("c", entries)})
        maker = jvm.org.codehaus.janino.ExpressionEvaluator()
        maker.setParentClassLoader(jvm.Thread.currentThread().getContextClassLoader())
        map_class = jvm.java.lang.Class.forName("scala.collection.immutable.Map")
        maker.setParameters(
            self._array(jvm.java.lang.String, "columns"),
            self._array(jvm.java.lang.Class, map_class),
        )
        maker.cook(self._MAKER.format(rows=rows))
        statistics = maker.evaluate(self._array(jvm.java.lang.Object, columns))
        identifier = state.sqlParser().parseTableIdentifier(self.name)
        state.catalog().alterTableStats(identifier, jvm.scala.Some(statistics))

    def _array(self, cls: Any, *items: Any) -> Any:
        array = self.catalyst.spark.sparkContext._gateway.new_array(cls, len(items))
        for place, item in enumerate(items):
            array[place] = item
        return array

    def estimate(self, condition: str) -> int:
        estimated = planned(self.catalyst.spark.sql(f"select * from {self.name} where {condition}"))
        assert estimated.rows is not None
        return int(estimated.rows)
