"""What differs between the versions of PySpark, chosen by what the installed one has.

The Java side of it is SparkApi.java.
"""

from __future__ import annotations

import inspect
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

from lancestat.lake.temporary_files import temporary_folder
from lancestat.spark.python import own_python

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark import SparkContext
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


P = ParamSpec("P")
R = TypeVar("R")
ArrowFunction = Callable[[Iterable["pa.RecordBatch"]], Iterator["pa.RecordBatch"]]

# `PythonEvalType.SQL_MAP_ARROW_ITER_UDF`, which has moved from module to module.
_MAP_ARROW_ITER = 207
_CANCEL_AGAIN_SECONDS = 0.1
# Spark 3.5 is the last whose API and implementation of sessions are one class, and the last of
# Scala 2.12, which has other sequences.
_WITHOUT_CLASSIC = {
    "org.apache.spark.sql.classic.": "org.apache.spark.sql.",
    "scala.collection.immutable.Seq": "scala.collection.Seq",
}

_OF_NEAREST_BY = "NearestBy"
TIME_SETTING = "spark.sql.timeType.enabled"


def java_sources(spark: SparkSession, sources: Mapping[str, str]) -> dict[str, str]:
    """Return Java sources with the names that the classes of the running Spark have.

    Those about NEAREST BY are left out where Spark has no such joins.
    """
    has_nearest_by = has_nearest_by_join()
    texts = {
        name: text
        for name, text in sources.items()
        if has_nearest_by or not name.startswith(_OF_NEAREST_BY)
    }
    if not _has_classic(spark):
        for name in texts:
            for current, earlier in _WITHOUT_CLASSIC.items():
                texts[name] = texts[name].replace(current, earlier)
    return texts


def session_class(spark: SparkSession) -> Any:
    """Return the JVM's class of sessions, with its static methods."""
    package = cast(Any, spark._jvm).org.apache.spark.sql
    return package.classic.SparkSession if _has_classic(spark) else package.SparkSession


def release_line(spark: SparkSession) -> str:
    """Return the running Spark's line and its Scala's, as packages for it are named: `4.3_2.13`."""
    scala = cast(Any, spark._jvm).scala.util.Properties.versionNumberString()
    return "_".join(".".join(version.split(".")[:2]) for version in (spark.version, scala))


def _has_classic(spark: SparkSession) -> bool:
    from py4j.java_gateway import JavaClass

    return isinstance(cast(Any, spark._jvm).org.apache.spark.sql.classic.SparkSession, JavaClass)


def map_in_arrow(rows: DataFrame, function: ArrowFunction, schema: str) -> DataFrame:
    """Apply a pickled function to the batches of each partition; `schema` is DDL.

    PySpark's own `mapInArrow` requires pandas, which neither its workers nor the function use; this
    builds the same plan without it.
    """
    from pyspark.sql import DataFrame
    from pyspark.sql.udf import UserDefinedFunction

    if not hasattr(rows, "_jdf"):
        return rows.mapInArrow(function, schema)
    udf = UserDefinedFunction(function, schema, evalType=_MAP_ARROW_ITER)
    columns, frame = [rows[name] for name in rows.columns], rows._jdf
    with own_python(rows.sparkSession):
        column = udf(*columns)._jc
    if _has_classic(rows.sparkSession):
        mapped = frame.mapInArrow(column, False, None)
    else:
        mapped = frame.pythonMapInArrow(column.expr(), False)
    return DataFrame(mapped, rows.sparkSession)


def arrow_frame(spark: SparkSession, rows: pa.Table, schema: StructType | None = None) -> DataFrame:
    """Return the rows of an Arrow table, which the driver holds, as a DataFrame."""
    from pyspark.sql import DataFrame
    from pyspark.sql.pandas.types import from_arrow_schema

    if _has_arrow_frames():
        return spark.createDataFrame(rows, schema)
    schema = schema or from_arrow_schema(rows.schema)
    with temporary_folder() as folder:
        path = folder / "rows.arrows"
        _write_stream(path, rows)
        utils = cast(Any, spark._jvm).PythonSQLUtils
        batches = utils.readArrowStreamFromFile(str(path))
        frame = utils.toDataFrame(batches, schema.json(), spark._jsparkSession)
        return DataFrame(frame, spark)


def _write_stream(path: Path, rows: pa.Table) -> None:
    import pyarrow as pa

    with pa.ipc.new_stream(str(path), rows.schema) as stream:
        stream.write_table(rows)


def thread_target(spark: SparkSession, function: Callable[P, R]) -> Callable[P, R]:
    """Return a function that other threads may call, with this thread's job group."""
    from pyspark.util import inheritable_thread_target

    if _has_classic(spark):
        return cast("Callable[P, R]", inheritable_thread_target(spark)(function))
    return cast("Callable[P, R]", inheritable_thread_target(function))


def cancel_jobs(context: SparkContext, group: str, is_over: Callable[[], bool]) -> None:
    """Cancel the jobs of a group or with a tag of its name, and later ones until `is_over`.

    By a tag, and by a group on Spark 3.5, only what runs is cancelled, and no later job: Spark is
    told again until nothing can start one.
    """
    from py4j.protocol import Py4JError, Py4JJavaError

    jobs = context._jsc.sc()

    def cancel_running() -> None:
        jobs.cancelJobGroup(group)
        jobs.cancelJobsWithTag(group)

    try:
        jobs.cancelJobGroupAndFutureJobs(group)
    except Py4JJavaError:
        raise
    except Py4JError:
        # Spark 3.5 has no such method.
        pass
    cancel_running()
    cancel_until(cancel_running, is_over)


def cancel_until(cancel: Callable[[], object], is_over: Callable[[], bool]) -> None:
    """Cancel again and again in a thread, where Spark cancels what runs and no later job."""

    def cancel_again() -> None:
        while not is_over():
            # A server that has gone, and a session that was stopped, run nothing any more.
            with suppress(Exception):
                cancel()
            time.sleep(_CANCEL_AGAIN_SECONDS)

    threading.Thread(target=cancel_again, name="lancestat-cancel", daemon=True).start()


@cache
def has_nearest_by_join() -> bool:
    """Whether DataFrames have `nearestByJoin`: its source says so; importing takes long."""
    package = find_spec("pyspark")
    if package is None or package.origin is None:
        return False
    source = Path(package.origin).parent / "sql" / "dataframe.py"
    return b"def nearestByJoin(" in source.read_bytes()


def has_python_sources() -> bool:
    """Whether sessions have data sources written in Python, since Spark 4.0."""
    from pyspark.sql import SparkSession

    return hasattr(SparkSession, "dataSource")


def has_time_type() -> bool:
    """Whether Spark has a type for times of day, since 4.1."""
    from pyspark.sql import types

    return hasattr(types, "TimeType")


def time_settings() -> dict[str, str]:
    """Return the settings with which Spark takes times of day everywhere, none without the type.

    Spark, at least up to 4.3, has the type turned off: queries compute with it, but DataFrames that
    have it cannot be counted or written.
    """
    return {TIME_SETTING: "true"} if has_time_type() else {}


def to_arrow_schema(schema: StructType, timezone: str) -> pa.Schema:
    """Return the Arrow schema of Spark's columns, with instants in a time zone."""
    import pyarrow as pa
    from pyspark.sql.pandas import types

    if "timezone" in inspect.signature(types.to_arrow_schema).parameters:
        return types.to_arrow_schema(schema, timezone=timezone)
    return pa.schema([_in_zone(field, timezone) for field in types.to_arrow_schema(schema)])


def _in_zone(field: pa.Field, timezone: str) -> pa.Field:
    import pyarrow as pa

    kind, types = field.type, pa.types
    if types.is_timestamp(kind) and kind.tz is not None:
        return field.with_type(pa.timestamp(kind.unit, timezone))
    if types.is_list(kind):
        return field.with_type(pa.list_(_in_zone(kind.value_field, timezone)))
    if types.is_map(kind):
        key, item = (_in_zone(part, timezone) for part in (kind.key_field, kind.item_field))
        return field.with_type(pa.map_(key, item))
    if types.is_struct(kind):
        return field.with_type(pa.struct([_in_zone(member, timezone) for member in kind.fields]))
    return field


def _has_arrow_frames() -> bool:
    from pyspark.sql.pandas.conversion import SparkConversionMixin

    return hasattr(SparkConversionMixin, "_create_from_arrow_table")


def condition(error: Any) -> str | None:
    """Return the name of the condition that Spark raised an error for, None where it has none."""
    # PySpark 4.0 has given the method this name.
    for name in ("getCondition", "getErrorClass"):
        if hasattr(error, name):
            found: str | None = getattr(error, name)()
            return found
    return None


def query_contexts(error: Any) -> list[Any]:
    """Return where in queries Spark met an error, as its JVM has them."""
    if hasattr(error, "getQueryContext"):
        return list(error.getQueryContext())
    # PySpark 3.5 hands on everything else that the JVM's exceptions with a condition have.
    java = getattr(error, "_origin", None)
    if java is None or condition(error) is None:
        return []
    return list(java.getQueryContext())
