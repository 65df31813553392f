"""The parts of Spark that compute, write, read and use column statistics, through py4j."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lancestat.tables.statistics.column_statistics import ColumnStatistics
from lancestat.tables.statistics.column_type import ColumnType
from lancestat.tables.wire import COLUMN_PREFIX, encode_statistics
from tests.integration.planned import planned, values

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# Parameters with their classes, and the body of each script.
_JAVA = {
    "histogram": (
        {"height": "java.lang.String", "bins": "java.lang.String"},
        """
        String[] numbers = bins.split(" ");
        org.apache.spark.sql.catalyst.plans.logical.HistogramBin[] made =
            new org.apache.spark.sql.catalyst.plans.logical.HistogramBin[numbers.length / 3];
        for (int place = 0; place < made.length; place++) {
            made[place] = new org.apache.spark.sql.catalyst.plans.logical.HistogramBin(
                Double.parseDouble(numbers[3 * place]),
                Double.parseDouble(numbers[3 * place + 1]),
                Long.parseLong(numbers[3 * place + 2]));
        }
        return new org.apache.spark.sql.catalyst.plans.logical.Histogram(
            Double.parseDouble(height), made);
        """,
    ),
    "statistics": (
        {"rows": "java.lang.String", "columns": "scala.collection.immutable.Map"},
        """
        return new org.apache.spark.sql.catalyst.catalog.CatalogStatistics(
            new scala.math.BigInt(java.math.BigInteger.valueOf(16000L)),
            new scala.Some(new scala.math.BigInt(new java.math.BigInteger(rows))),
            columns);
        """,
    ),
}
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
        self._scripts: dict[str, Any] = {}
        self.jvm: Any = spark._jvm
        sql = self.jvm.org.apache.spark.sql
        self.codec = self._module(sql.catalyst.catalog, "CatalogColumnStat")
        self.commands = self._module(sql.execution.command, "CommandUtils")
        self.types = self._module(sql.types, "DataType")

    @staticmethod
    def _module(package: Any, name: str) -> Any:
        return getattr(getattr(package, f"{name}$"), "MODULE$")

    def computed(self, query: str) -> dict[str, tuple[Any, Any, dict[str, str]]]:
        """By column: its Spark type, the ColumnStat, and its entries as `toMap` gives them."""
        plan = self.spark.sql(query)._jdf.queryExecution().analyzed()
        statistics = self.commands.computeColumnStats(
            self.spark._jsparkSession, plan, plan.output()
        )
        columns = {}
        for pair in values(statistics._2()):
            attribute, stat = pair._1(), pair._2()
            name, type = attribute.name(), attribute.dataType()
            entries = values(stat.toCatalogColumnStat(name, type).toMap(name))
            columns[name] = (type, stat, {entry._1(): entry._2() for entry in entries})
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
        numbers = (f"{float(low)!r} {float(high)!r} {count}" for low, high, count in bins)
        histogram = self._evaluated("histogram", repr(float(height)), " ".join(numbers))
        logical = self.jvm.org.apache.spark.sql.catalyst.plans.logical
        return str(self._module(logical, "HistogramSerializer").serialize(histogram))

    def statistics(self, rows: int, columns: Any) -> Any:
        """Statistics of a table as Spark's catalog stores them; `columns` is one of its maps."""
        return self._evaluated("statistics", str(rows), columns)

    def _evaluated(self, name: str, *arguments: Any) -> Any:
        """Call one of `_JAVA`, since each call from Python takes long."""
        if name not in self._scripts:
            script = self.jvm.org.codehaus.janino.ScriptEvaluator()
            script.setParentClassLoader(self.jvm.Thread.currentThread().getContextClassLoader())
            of = self.jvm.java.lang.Class.forName
            parameters, text = _JAVA[name]
            script.setReturnType(of("java.lang.Object"))
            script.setParameters(
                self._array(self.jvm.java.lang.String, *parameters),
                self._array(self.jvm.java.lang.Class, *map(of, parameters.values())),
            )
            script.cook(text)
            self._scripts[name] = script
        return self._scripts[name].evaluate(self._array(self.jvm.java.lang.Object, *arguments))

    def _array(self, cls: Any, *items: Any) -> Any:
        array = self.spark.sparkContext._gateway.new_array(cls, len(items))
        for place, item in enumerate(items):
            array[place] = item
        return array

    def bound(self, text: str, type: ColumnType) -> Any:
        """Return the value that Spark parses from a bound's text, in its internal form."""
        return self.codec.fromExternalString(text, "c", self.types.fromDDL(type.spark_type), 2)


class PlannedTable:
    """A table of one column whose statistics tests set, for Spark to plan with."""

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
        statistics = catalyst.statistics(rows, columns)
        identifier = state.sqlParser().parseTableIdentifier(self.name)
        state.catalog().alterTableStats(identifier, jvm.scala.Some(statistics))

    def estimate(self, condition: str) -> int:
        estimated = planned(self.catalyst.spark.sql(f"select * from {self.name} where {condition}"))
        assert estimated.rows is not None
        return int(estimated.rows)
