"""Tables as the Lance connector for Spark opens them, where it is on Spark's class path."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from lancestat.errors import (
    ConnectorCannotOpen,
    ConnectorMissing,
    ConnectorNotPinned,
    ConnectorNotReadable,
    ConnectorSchemaDiffers,
    RunError,
)
from lancestat.lake.files import local_path
from lancestat.lake.snapshot import Field, Snapshot
from lancestat.lake.spark_type import connector_type
from lancestat.redact import redact_line, secret_values
from lancestat.spark.compiler import relation_classes
from lancestat.spark.versions import release_line

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SOURCE = "lance"

# The lines of Spark for which the connector is released, by its own documentation.
_BUNDLED = ("3.5", "4.0", "4.1", "4.2")
# No table has that many versions, and it fits Java's int, which the connector takes.
_NO_VERSION = 2_000_000_000
_SHOWN = 5
_OWN_READER = "or let lancestat read: reader: lancestat"
_CATALOG = "org.apache.spark.sql.connector.catalog"


def inner_table(spark: SparkSession, snapshot: Snapshot, storage_options: Mapping[str, str]) -> Any:
    """Open a table with the connector: the same version and columns, held by the JVM.

    The connector's data source is found by its name, `lance`, and asked directly, not through a
    catalog. It is given the dataset as `path`, the version as `version`, and the storage options.

    Args:
        spark: A classic session.
        snapshot: The dataset at the version to read.
        storage_options: How to reach it.

    Returns:
        A DSv2 `Table`, for `LanceRelation.attach`.

    Raises:
        ConnectorMissing: the connector is not on the class path.
        ConnectorCannotOpen: it cannot open the table.
        ConnectorSchemaDiffers: it sees other columns or types than Lance's own library.
        ConnectorNotPinned: it does not keep to a version.
        ConnectorNotReadable: it cannot be read in batches.
    """
    connector = _Connector(spark, snapshot, storage_options)
    connector.require_pinning()
    table = connector.table()
    _require_same(snapshot, connector.columns(table))
    return table


class _Connector:
    """The connector's data source and one dataset at one version."""

    def __init__(
        self, spark: SparkSession, snapshot: Snapshot, storage_options: Mapping[str, str]
    ) -> None:
        self._spark = spark
        self._jvm = cast(Any, spark._jvm)
        self._uri = snapshot.uri
        self._version = snapshot.version
        self._storage_options = storage_options
        self._classes = relation_classes(spark)
        self._provider = self._find_provider()

    def require_pinning(self) -> None:
        """Ask for a version that cannot exist: a source that answers always reads the latest one.

        Asked once per Spark context and class of source.
        """
        name = self._provider.getClass().getName()
        proven = self._spark.sparkContext.__dict__.setdefault("_lancestat_pinning", set())
        if name in proven:
            return
        try:
            answer = self._inferred(_NO_VERSION)
        except Exception:
            answer = None
        if answer is not None:
            raise ConnectorNotPinned(
                f"the data source '{SOURCE}' ({name}) does not read version {self._version} of "
                f"'{self._uri}': it takes no notice of the option 'version'",
                hint=f"use a later release of the connector, {_OWN_READER}",
            )
        proven.add(name)

    def table(self) -> Any:
        """Return the table at that version, if Spark can read it in batches."""
        try:
            schema = self._inferred(self._version)
            if schema is None:
                raise self._not_opened("it finds no schema there")
            table = self._classes.table(self._provider, schema, self._options(self._version))
            is_readable = self._classes.isReadable(table)
        except RunError:
            raise
        except Exception as error:
            raise self._not_opened(_jvm_message(error)) from None
        if not is_readable:
            raise ConnectorNotReadable(
                f"the data source '{SOURCE}' cannot read '{self._uri}' in batches",
                hint=_OWN_READER.removeprefix("or "),
            )
        return table

    def columns(self, table: Any) -> dict[str, str]:
        """Return the Spark types of a table's columns, as catalog strings."""
        try:
            return _types(self._classes.columns(table).json())
        except Exception as error:
            raise self._not_opened(_jvm_message(error)) from None

    def _find_provider(self) -> Any:
        try:
            provider = self._classes.provider(self._spark._jsparkSession, SOURCE)
        except RunError:
            raise
        except Exception as error:
            if "DATA_SOURCE_NOT_FOUND" not in _jvm_message(error):
                raise self._not_opened(_jvm_message(error)) from None
            provider = None
        if provider is None or "PythonDataSource" in provider.getClass().getName():
            raise ConnectorMissing(
                f"Spark's class path has no data source '{SOURCE}', the Lance connector for Spark, "
                "which is to read",
                hint=f"{_where_it_is(release_line(self._spark))}, {_OWN_READER}",
            )
        return provider

    def _inferred(self, version: int) -> Any:
        return self._classes.schema(self._provider, self._options(version))

    def _options(self, version: int) -> Any:
        path = local_path(self._uri)
        options = self._jvm.java.util.HashMap()
        for key, value in self._storage_options.items():
            options.put(key, value)
        options.put("path", self._uri if path is None else str(path.absolute()))
        options.put("version", str(version))
        return self._jvm.org.apache.spark.sql.util.CaseInsensitiveStringMap(options)

    def _not_opened(self, message: str) -> RunError:
        reason = redact_line(message, secret_values(self._storage_options))
        return ConnectorCannotOpen(
            f"the data source '{SOURCE}' does not open version {self._version} of "
            f"'{self._uri}': {reason}",
            hint=f"see that the connector is one for this Spark and this table, {_OWN_READER}",
        )


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


def schema_differences(fields: Sequence[Field], schema: str) -> list[str]:
    """Return how the connector's columns, as Spark's JSON, differ from those of a table."""
    return _differences(fields, _types(schema))


def _types(schema: str) -> dict[str, str]:
    """Return the Spark types of columns, as catalog strings, by name."""
    from pyspark.sql.types import StructType

    columns = StructType.fromJson(json.loads(schema))
    return {field.name: field.dataType.simpleString() for field in columns}


def _require_same(snapshot: Snapshot, read: Mapping[str, str]) -> None:
    """Refuse columns other than those of the statistics; nullability is not compared."""
    differences = _differences(snapshot.fields, read)
    if differences:
        more = len(differences) - _SHOWN
        listed = "; ".join(differences[:_SHOWN]) + (f"; and {more} more" if more > 0 else "")
        raise ConnectorSchemaDiffers(
            f"the schema that '{SOURCE}' gives for '{snapshot.uri}' is not that of Lance: {listed}",
            hint=_OWN_READER.removeprefix("or "),
        )


def _differences(fields: Sequence[Field], read: Mapping[str, str]) -> list[str]:
    """Return the differences; a column whose type Spark does not have may be missing."""
    differences = []
    for field in fields:
        type, expected = read.get(field.name), connector_type(field.type)
        if type is None and expected is not None:
            differences.append(f"it has no column '{field.name}'")
        elif type is not None and type != expected:
            expected = expected or "a type that Spark does not have"
            differences.append(f"column '{field.name}' is {type}, expected {expected}")
    known = {field.name for field in fields}
    differences += [f"it has a column '{name}'" for name in read if name not in known]
    return differences


def _jvm_message(error: Exception) -> str:
    """Return the JVM's message, without its stack."""
    java = getattr(error, "java_exception", None)
    if java is not None:
        return str(java.getMessage() or java.toString())
    return str(getattr(error, "desc", None) or error)
