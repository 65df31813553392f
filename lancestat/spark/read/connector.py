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
from lancestat.redact import redact_line, secret_values
from lancestat.spark.session.compiler import relation_classes
from lancestat.spark.session.versions import release_line

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SOURCE = "lance"

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
    schema = connector.schema()
    _require_same(snapshot, json.loads(schema.json()))
    return connector.table(schema)


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
        self._provider = self._find_provider()

    def schema(self) -> Any:
        """Return the schema at that version, as the connector infers it."""
        try:
            schema = self._inferred(self._version)
        except Exception as error:
            raise self._not_opened(_jvm_message(error)) from None
        if schema is None:
            raise self._not_opened("it finds no schema there")
        return schema

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

    def table(self, schema: Any) -> Any:
        """Return the table, if Spark can read it in batches."""
        from py4j.java_gateway import is_instance_of

        options = self._options(self._version)
        try:
            partitioning = self._provider.inferPartitioning(options)
            table = self._provider.getTable(schema, partitioning, options.asCaseSensitiveMap())
            batches = getattr(self._jvm, f"{_CATALOG}.TableCapability").BATCH_READ
            readable = table.capabilities().contains(batches)
        except Exception as error:
            raise self._not_opened(_jvm_message(error)) from None
        gateway = cast(Any, self._spark.sparkContext._gateway)
        if not readable or not is_instance_of(gateway, table, f"{_CATALOG}.SupportsRead"):
            raise ConnectorNotReadable(
                f"the data source '{SOURCE}' cannot read '{self._uri}' in batches",
                hint=_OWN_READER.removeprefix("or "),
            )
        return table

    def _find_provider(self) -> Any:
        try:
            provider = relation_classes(self._spark).provider(self._spark._jsparkSession, SOURCE)
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
                hint="set spark.jars.packages to its bundle for this Spark, "
                f"org.lance:lance-spark-bundle-{release_line(self._spark)}:VERSION, {_OWN_READER}",
            )
        return provider

    def _inferred(self, version: int) -> Any:
        return self._provider.inferSchema(self._options(version))

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


def _require_same(snapshot: Snapshot, schema: dict[str, Any]) -> None:
    """Refuse a schema other than that of the statistics; nullability is not compared."""
    from pyspark.sql.types import StructType

    read = {
        column.name: column.dataType.simpleString() for column in StructType.fromJson(schema).fields
    }
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
        type = read.get(field.name)
        if type is None and field.spark_type is not None:
            differences.append(f"it has no column '{field.name}'")
        elif type is not None and type != field.spark_type:
            expected = field.spark_type or "a type that Spark does not have"
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
