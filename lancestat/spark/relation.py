"""Lance tables as relations of a Spark session, with their statistics."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, cast

from lancestat.read.table import ReadTable
from lancestat.spark.arrow_types import spark_schema, unreadable
from lancestat.spark.compiler import relation_classes
from lancestat.spark.desk import Desk
from lancestat.spark.read_task import make_reader
from lancestat.spark.session import require_classic
from lancestat.stats.size import decoded_size

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_log = logging.getLogger("lancestat.read")
_starting = threading.Lock()


@dataclass(frozen=True, slots=True)
class Relation:
    """A table to relate, and the temporary view to make of it, if any.

    `options` are those of its scans, such as `cbo.column.stats.enabled`. `inner` is what reads it
    instead of lancestat's own workers: the JVM's table of another data source.
    """

    table: ReadTable
    view: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    inner: Any = None


def relate(spark: SparkSession, relations: Sequence[Relation]) -> list[DataFrame]:
    """Temporary views, or DataFrames where none is named, of tables that Spark's workers read.

    Scans are planned here. Each table stays at its version; every scan reports the statistics that
    the guard lets pass. All tables are related in one call to the JVM.

    Args:
        spark: A classic session.
        relations: The tables.

    Returns:
        The DataFrames of those that become no view, in their order.

    Raises:
        RunError: the session is one of Spark Connect (LS523), or the relation's Java source cannot
            be compiled or loaded (LS530, LS531).
    """
    from pyspark.sql import DataFrame

    require_classic(spark)
    if not relations:
        return []
    readers = _Readers(spark)
    declared = [_declared(each, readers) for each in relations]
    attached = relation_classes(spark).attach(
        spark._jsparkSession, _planner(spark), readers.functions(), json.dumps(declared)
    )
    return [DataFrame(rows, spark) for rows in attached]


@cache
def desk() -> Desk:
    """The one desk of this process, which all its sessions ask."""
    return Desk()


class _Planner:
    """What the JVM calls; it waits for the answer on whichever thread plans."""

    def apply(self, question: str) -> str:
        return desk().answer(question)

    class Java:
        implements = ("java.util.function.Function",)


def _planner(spark: SparkSession) -> _Planner:
    from pyspark.java_gateway import ensure_callback_server_started

    context = spark.sparkContext
    with _starting:
        ensure_callback_server_started(context._gateway)
        planner = context.__dict__.setdefault("_lancestat_planner", _Planner())
        return cast(_Planner, planner)


class _Readers:
    """What reads: functions, one for each set of storage options, pickled once per context.

    Tables of other sources stand among them.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._places: dict[tuple[tuple[str, str], ...], int] = {}
        self._functions: list[Any] = []

    def place(self, relation: Relation) -> int:
        if relation.inner is not None:
            self._functions.append(relation.inner)
            return len(self._functions) - 1
        key = tuple(sorted(relation.table.storage_options.items()))
        if key not in self._places:
            self._places[key] = len(self._functions)
            self._functions.append(self._function(key))
        return self._places[key]

    def functions(self) -> Any:
        java = cast(Any, self._spark._jvm).java.util.ArrayList()
        for function in self._functions:
            java.add(function)
        return java

    def _function(self, key: tuple[tuple[str, str], ...]) -> Any:
        context = self._spark.sparkContext
        made: dict[Any, Any] = context.__dict__.setdefault("_lancestat_readers", {})
        if key not in made:
            made[key] = make_reader(self._spark, dict(key))
        return made[key]


def _declared(relation: Relation, readers: _Readers) -> dict[str, Any]:
    table = relation.table
    without = unreadable(table.snapshot.fields)
    for name, why in without.items():
        _log.warning("column '%s' of '%s' is left out: %s", name, table.name, why)
    fields = [each for each in table.snapshot.fields if each.name not in without]
    return {
        "name": table.name,
        "handle": desk().register(table),
        "schema": spark_schema(fields).jsonValue(),
        "rows": table.snapshot.rows,
        "size": decoded_size(table.snapshot.rows, fields, {}),
        "reader": readers.place(relation),
        "view": relation.view,
        "options": dict(relation.options),
    }
