"""Lance tables as relations of a Spark session, read by lancestat or by the Lance connector."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, cast

from lancestat import display
from lancestat.arguments import check_name, check_session
from lancestat.errors.base import LakeError, LancestatError, RunError, did_you_mean
from lancestat.errors.codes import (
    ConnectorCannotOpen,
    ConnectorMissing,
    ConnectorNotPinned,
    ConnectorNotReadable,
    ConnectorSchemaDiffers,
    DataSourcesMissing,
    UnknownReader,
)
from lancestat.formats import count
from lancestat.lake.catalog_tables import CatalogOptions, LocatedTable, locate
from lancestat.lake.files import local_path
from lancestat.lake.snapshot import Field, Snapshot, connector_type
from lancestat.query.read.arrow_columns import make_reader
from lancestat.query.read.planning_service import PlanningService
from lancestat.query.table import ReadTable, check_options, open_table
from lancestat.redact import redact_line, secret_values
from lancestat.spark.compiler import jvm_message, relation_classes
from lancestat.spark.session import active, require_classic
from lancestat.spark.versions import (
    TIME_SETTING,
    has_python_sources,
    has_times,
    java_class,
    own_python,
    release_line,
    spark_schema,
    unreadable,
)
from lancestat.spec.catalog import Catalog, parse_table_name
from lancestat.spec.model import Reader
from lancestat.tables.statistics.column_type import decoded_size

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_log = logging.getLogger("lancestat.read")
_starting = threading.Lock()


@dataclass(frozen=True, slots=True)
class Relation:
    """A table to relate, and the name of its temporary view, if any.

    `options` are those of its scans, such as `cbo.column.stats.enabled`. `inner` is the JVM's table
    of another data source that reads it instead of lancestat's workers.
    """

    table: ReadTable
    view: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    inner: Any = None

    def reader(self, spark: SparkSession) -> Any:
        """Return what reads it: its table of another data source, or a function.

        A context has one function for each set of storage options.
        """
        if self.inner is not None:
            return self.inner
        options = self.table.storage_options
        # Options that a catalog renews are told apart by the catalog.
        is_renewed = isinstance(options, CatalogOptions)
        key: Any = options if is_renewed else tuple(sorted(options.items()))
        made = spark.sparkContext.__dict__.setdefault("_lancestat_readers", {})
        if key not in made:
            made[key] = make_reader(spark, options)
        return made[key]


def relate(spark: SparkSession, relations: Sequence[Relation]) -> list[DataFrame]:
    """Make temporary views of tables, or DataFrames where no view is named; return the DataFrames.

    Scans are planned in this process and read by workers. Each table stays at its version; every
    scan reports the statistics that the guard accepts. All tables are related in one call to the
    JVM.

    Raises:
        RunError: the session is one of Spark Connect, or the relation's Java source cannot be
            compiled or loaded.
    """
    from pyspark.sql import DataFrame

    require_classic(spark)
    if not relations:
        return []
    functions = [relation.reader(spark) for relation in relations]
    distinct = {id(function): function for function in functions}
    indexes = {id: index for index, id in enumerate(distinct)}
    declared = [
        declared_relation(spark, relation, indexes[id(function)])
        for relation, function in zip(relations, functions, strict=True)
    ]
    readers = java_class(spark, "java.util.ArrayList")()
    for function in distinct.values():
        readers.add(function)
    attached = relation_classes(spark).attach(
        spark._jsparkSession, planning_callback(spark), readers, json.dumps(declared)
    )
    return [DataFrame(rows, spark) for rows in attached]


@cache
def planning_service() -> PlanningService:
    """Return the one planning service of this process, which all its sessions share."""
    return PlanningService()


# Characters of the identifier of a question in parts, a UUID.
_ID = 36


class _PlanningCallback:
    """The function that the JVM calls and waits for, on the thread that plans.

    A question is a JSON object, or comes in parts: `<id>+<text>` for each but the last, which has a
    dot in place of the sign, and is answered.
    """

    def __init__(self) -> None:
        self._begun: dict[str, list[str]] = {}

    def apply(self, question: str) -> str:
        if question.startswith("{"):
            return planning_service().answer(question)
        id, sign, text = question[:_ID], question[_ID], question[_ID + 1 :]
        if sign == "+":
            self._begun.setdefault(id, []).append(text)
            return ""
        return planning_service().answer("".join((*self._begun.pop(id), text)))

    class Java:
        implements = ("java.util.function.Function",)


def planning_callback(spark: SparkSession) -> _PlanningCallback:
    """Return what the JVM asks while it plans scans; a Spark context has one."""
    from pyspark.java_gateway import ensure_callback_server_started

    context = spark.sparkContext
    with _starting:
        ensure_callback_server_started(context._gateway)
        planner = context.__dict__.setdefault("_lancestat_planner", _PlanningCallback())
        return cast(_PlanningCallback, planner)


def declared_relation(spark: SparkSession, relation: Relation, reader: int) -> dict[str, Any]:
    """Register the table of a relation with the planning service, and describe it for the JVM.

    `reader` is the index of what reads it among those that the JVM is given.
    """
    table = relation.table
    without = unreadable(table.snapshot.fields)
    for name, why in without.items():
        _log.warning("column '%s' of '%s' is left out: %s", name, table.name, why)
    fields = [field for field in table.snapshot.fields if field.name not in without]
    _warn_of_times(spark, table.name, fields)
    return {
        "name": table.name,
        "handle": planning_service().register(table),
        "schema": spark_schema(fields).jsonValue(),
        "rows": table.snapshot.rows,
        "size": decoded_size(table.snapshot.rows, fields, {}),
        "reader": reader,
        "view": relation.view,
        "options": dict(relation.options),
    }


def _warn_of_times(spark: SparkSession, table: str, fields: Iterable[Field]) -> None:
    """Name the setting where Spark has times of day turned off, as it is shipped."""
    times = [field.name for field in fields if has_times(field)]
    if times and spark.conf.get(TIME_SETTING, "false") != "true":
        _log.warning(
            "column '%s' of '%s' has times of day, which this session has turned off: DataFrames "
            "with it cannot be counted or written; set %s to true",
            times[0],
            table,
            TIME_SETTING,
        )


def read_table(
    spark: SparkSession,
    uri: str,
    *,
    version: int | None = None,
    tag: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    options: Mapping[str, str] | None = None,
    reader: str = Reader.LANCESTAT.value,
) -> DataFrame:
    """Return any Lance table as a DataFrame with the statistics of its manifest.

    The DataFrame stays at the version that it was created from; call this again to see later ones.
    Spark uses column statistics if `spark.sql.cbo.enabled` is true; row counts and sizes always.

    Args:
        spark: A classic session.
        uri: A path or an object-store URI, or the name of a table, such as `lake.sales.orders`, in
            a catalog that the session's configuration declares as for the Lance connector
            (`spark.sql.catalog.lake.impl` and properties such as `spark.sql.catalog.lake.root`).
        version: The version to read; None is the latest.
        tag: The tag of the version to read, instead of `version`.
        storage_options: Options for the object store. They travel inside tasks only.
        options: Options of the scan: `cbo.column.stats.enabled`, `cbo.column.stats.allow.stale` and
            `aggregate.pushdown.enabled`, each `true` or `false`. The session's configuration
            overrides them. With `reader="connector"` the connector gets all others.
        reader: What reads the rows: `lancestat`, or `connector` for the Lance connector for Spark.

    Raises:
        UsageError: An argument is of a wrong kind, both a version and a tag are given, or the
            version, the reader or the name of an option is invalid.
        LakeError: The dataset, version or tag cannot be opened.
        RunError: The session or the connector cannot be used.
    """
    require_classic(spark)
    check_name("uri", uri)
    chosen = _reader(reader)
    given = _scan_options(options, chosen)
    place = _place(spark, uri, storage_options or {})
    table = open_table(place.uri, version=version, tag=tag, storage_options=place.options)
    inner = inner_of(spark, table, chosen)
    [rows] = relate(spark, [Relation(table, options=given, inner=inner)])
    return rows


def _scan_options(options: Mapping[str, str] | None, reader: Reader) -> Mapping[str, str]:
    given = options or {}
    if reader is Reader.LANCESTAT:
        check_options(given)
    return given


def _place(spark: SparkSession, uri: str, options: Mapping[str, str]) -> LocatedTable:
    try:
        table = parse_table_name(uri)
    except ValueError:
        return LocatedTable(uri, options)
    prefix = f"spark.sql.catalog.{table.catalog}."
    if spark.conf.get(f"{prefix}impl", None) is None:
        return LocatedTable(uri, options)
    settings = {}
    remaining = cast(Any, spark)._jsparkSession.conf().getAll().iterator()
    while remaining.hasNext():
        setting = remaining.next()
        if setting._1().startswith(prefix):
            settings[setting._1().removeprefix(prefix)] = setting._2()
    catalogs = {table.catalog: Catalog(settings.pop("impl"), settings)}
    place = locate([table], catalogs, lambda _: options)[table]
    if isinstance(place, LakeError):
        raise place
    return place


def register(spark: SparkSession) -> None:
    """Make `spark.read.format("lancestat")` known to a session.

    Raises:
        InvalidArgument: `spark` is no session.
        DataSourcesMissing: Spark has no Python data sources, as before 4.0.
    """
    check_session("spark", spark)
    if not has_python_sources():
        raise DataSourcesMissing(
            "this Spark has no Python data sources, which the format lancestat is: it needs "
            "Spark 4.0 or newer",
            hint="use lancestat.read_table, which every version can",
        )
    from lancestat.query.read.source import LanceDataSource

    # Spark refuses a name that the thread's active session has, although each has its own.
    with active(spark), own_python(spark):
        spark.dataSource.register(LanceDataSource)


@dataclass(frozen=True, slots=True)
class Attachment:
    """The temporary views that were made, and the errors of tables without one.

    `catalogs` are those that are attached. `failed_catalogs` has the errors of the others.
    """

    views: tuple[str, ...]
    failed: Mapping[str, LancestatError] = field(default_factory=dict)
    catalogs: tuple[str, ...] = ()
    failed_catalogs: Mapping[str, LancestatError] = field(default_factory=dict)

    def __repr__(self) -> str:
        parts = [
            count(len(self.views), "view"),
            *([count(len(self.catalogs), "catalog")] if self.catalogs else []),
            *(f"{name} failed" for name in (*self.failed, *self.failed_catalogs)),
        ]
        return display.summary(self, ", ".join(parts))


def attach_views(
    spark: SparkSession,
    tables: Mapping[str, ReadTable | LancestatError],
    reader: Reader = Reader.LANCESTAT,
    options: Mapping[str, str] | None = None,
) -> Attachment:
    """Make a temporary view of each table that could be opened, under its name; log the others.

    Args:
        spark: A classic session.
        tables: The tables, or the errors of those that could not be opened, by name.
        reader: What reads the rows.
        options: Of all scans, as for `read_table`.

    Raises:
        InvalidReadOption: there is no such option.
        RunError: the session cannot be used, or the connector is missing.
    """
    require_classic(spark)
    given = _scan_options(options, reader)
    relations: dict[str, Relation] = {}
    failed: dict[str, LancestatError] = {}
    for name, table in tables.items():
        try:
            if isinstance(table, LancestatError):
                raise table
            inner = inner_of(spark, table, reader)
            relations[name] = Relation(table, view=name, options=given, inner=inner)
        except ConnectorMissing:
            raise
        except LancestatError as error:
            failed[name] = error
            _log.warning("table '%s' is not attached: %s", name, error.message)
    relate(spark, list(relations.values()))
    return Attachment(tuple(relations), failed)


def inner_of(spark: SparkSession, table: ReadTable, reader: Reader) -> Any:
    """Return the JVM's table that reads in place of lancestat's workers, None where these read."""
    if reader is Reader.LANCESTAT:
        return None
    return inner_table(spark, table.snapshot, table.storage_options)


def _reader(name: str) -> Reader:
    try:
        return Reader(name)
    except ValueError:
        valid = [reader.value for reader in Reader]
        raise UnknownReader(
            f"unknown reader '{name}', expected {' or '.join(valid)}",
            hint=did_you_mean(name, valid),
        ) from None


SOURCE = "lance"

# The lines of Spark for which the connector is released, by its own documentation.
_BUNDLED = ("3.5", "4.0", "4.1", "4.2")
# No table has that many versions, and it fits Java's int, which the connector takes.
_NO_VERSION = 2_000_000_000
_SHOWN = 5
_OWN_READER = "or let lancestat read: reader: lancestat"


def inner_table(spark: SparkSession, snapshot: Snapshot, storage_options: Mapping[str, str]) -> Any:
    """Open the same version and columns of a table with the connector, as a DSv2 `Table` of the
    JVM.

    The connector's data source `lance` is asked directly, not through a catalog. It gets the
    dataset as `path`, the version as `version`, and the storage options.

    Raises:
        ConnectorMissing: the connector is not on the class path.
        ConnectorCannotOpen: it cannot open the table.
        ConnectorSchemaDiffers: it sees other columns or types than Lance's own library.
        ConnectorNotPinned: it does not keep to a version.
        ConnectorNotReadable: it cannot be read in batches.
    """
    classes = relation_classes(spark)

    def options(version: int) -> Any:
        path = local_path(snapshot.uri)
        given = java_class(spark, "java.util.HashMap")()
        for key, value in storage_options.items():
            given.put(key, value)
        given.put("path", snapshot.uri if path is None else str(path.absolute()))
        given.put("version", str(version))
        return java_class(spark, "org.apache.spark.sql.util.CaseInsensitiveStringMap")(given)

    with _opening(snapshot, storage_options):
        provider = _provider(spark, classes)
        _require_pinning(
            spark, provider, snapshot, lambda: classes.schema(provider, options(_NO_VERSION))
        )
        schema = classes.schema(provider, options(snapshot.version))
        if schema is None:
            raise ValueError("it finds no schema there")
        table = classes.table(provider, schema, options(snapshot.version))
        if not classes.isReadable(table):
            raise ConnectorNotReadable(
                f"the data source '{SOURCE}' cannot read '{snapshot.uri}' in batches",
                hint=_OWN_READER.removeprefix("or "),
            )
        _require_same(snapshot, str(classes.columns(table).json()))
        return table


@contextmanager
def _opening(snapshot: Snapshot, storage_options: Mapping[str, str]) -> Iterator[None]:
    try:
        yield
    except RunError:
        raise
    except Exception as error:
        reason = redact_line(jvm_message(error), secret_values(storage_options))
        raise ConnectorCannotOpen(
            f"the data source '{SOURCE}' does not open version {snapshot.version} of "
            f"'{snapshot.uri}': {reason}",
            hint=f"see that the connector is one for this Spark and this table, {_OWN_READER}",
        ) from None


def _provider(spark: SparkSession, classes: Any) -> Any:
    provider = None
    try:
        provider = classes.provider(spark._jsparkSession, SOURCE)
    except Exception as error:
        if "DATA_SOURCE_NOT_FOUND" not in jvm_message(error):
            raise
    if provider is None or "PythonDataSource" in provider.getClass().getName():
        raise ConnectorMissing(
            f"Spark's class path has no data source '{SOURCE}', the Lance connector for Spark, "
            "which is to read",
            hint=f"{_where_it_is(release_line(spark))}, {_OWN_READER}",
        )
    return provider


def _require_pinning(
    spark: SparkSession, provider: Any, snapshot: Snapshot, ask: Callable[[], Any]
) -> None:
    """Ask for a version that cannot exist: a source that answers always reads the latest one.

    Asked once per Spark context and class of source.
    """
    name = provider.getClass().getName()
    proven = spark.sparkContext.__dict__.setdefault("_lancestat_pinning", set())
    if name in proven:
        return
    try:
        answer = ask()
    except Exception:
        answer = None
    if answer is not None:
        raise ConnectorNotPinned(
            f"the data source '{SOURCE}' ({name}) does not read version {snapshot.version} of "
            f"'{snapshot.uri}': it takes no notice of the option 'version'",
            hint=f"use a later release of the connector, {_OWN_READER}",
        )
    proven.add(name)


def _where_it_is(line: str) -> str:
    """Return how to get the connector for a line of Spark and Scala, such as `4.2_2.13`."""
    spark = line.partition("_")[0]
    if spark in _BUNDLED:
        return (
            "set spark.jars.packages to its bundle for this Spark, "
            f"org.lance:lance-spark-bundle-{line}:VERSION"
        )
    return (
        f"it has bundles for Spark {_BUNDLED[0]} to {_BUNDLED[-1]}, and none for {spark} that "
        "lancestat knows of: put one that was built for this Spark on its class path"
    )


def _require_same(snapshot: Snapshot, schema: str) -> None:
    """Refuse columns other than those of the statistics; nullability is not compared."""
    differences = schema_differences(snapshot.fields, schema)
    if differences:
        more = len(differences) - _SHOWN
        listed = "; ".join(differences[:_SHOWN]) + (f"; and {more} more" if more > 0 else "")
        raise ConnectorSchemaDiffers(
            f"the schema that '{SOURCE}' gives for '{snapshot.uri}' is not that of Lance: {listed}",
            hint=_OWN_READER.removeprefix("or "),
        )


def schema_differences(fields: Sequence[Field], schema: str) -> list[str]:
    """Return how the connector's columns, as Spark's JSON, differ from those of a table."""
    from pyspark.sql.types import StructType

    columns = StructType.fromJson(json.loads(schema))
    read = {column.name: column.dataType.simpleString() for column in columns}
    differences = []
    for column in fields:
        type, expected = read.get(column.name), connector_type(column.type)
        if type is None and expected is not None:
            differences.append(f"it has no column '{column.name}'")
        elif type is not None and type != expected:
            expected = expected or "a type that Spark does not have"
            differences.append(f"column '{column.name}' is {type}, expected {expected}")
    known = {field.name for field in fields}
    differences += [f"it has a column '{name}'" for name in read if name not in known]
    return differences
