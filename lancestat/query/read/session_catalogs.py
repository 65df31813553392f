"""Catalogs of a target as catalogs of a Spark session."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Mapping
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

from lancestat.errors import CatalogNotAttached, InternalError, LancestatError
from lancestat.lake.snapshot import Pin
from lancestat.query.named_tables import NamedTables
from lancestat.query.read.connector import schema_differences
from lancestat.query.read.relation import (
    ReaderFunctions,
    Relation,
    declared_relation,
    inner_of,
    planning_callback,
)
from lancestat.query.table import DeclaredTables, ReadTable
from lancestat.redact import Audience
from lancestat.spark.compiler import relation_classes
from lancestat.spark.failure import WorkerError
from lancestat.spark.start import active, require_classic
from lancestat.state.identity import table_identity

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger("lancestat.read")
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
# Spark has catalogs of these names in every session, and asks them for more than tables.
_SPARKS_OWN = ("spark_catalog", "system")

# A question of the JVM: a JSON object.
_Question = dict[str, Any]


def attach_catalogs(
    spark: SparkSession, declared: DeclaredTables, names: Collection[str]
) -> dict[str, LancestatError | None]:
    """Make catalogs of a target catalogs of a session; no catalog is asked for anything yet.

    Where the session has a catalog of the name, that one goes on answering, and declared tables
    that it has are planned with their statistics. What was attached by the name before, by this
    project or another, is replaced.

    Args:
        spark: A classic session.
        declared: Opens the project's tables.
        names: Catalogs of the project's target.

    Returns:
        None for each that is attached, else the reason why it is not.

    Raises:
        RunError: the session cannot be used.
    """
    require_classic(spark)
    attached: dict[str, LancestatError | None] = {}
    for name in names:
        if name.lower() in _SPARKS_OWN:
            attached[name] = CatalogNotAttached(
                f"the catalog '{name}' cannot be attached: Spark has one of its own by that name",
                hint="give the catalog another name in the target",
            )
            continue
        callback = _NamesCallback(spark, NamedTables(name, declared))
        relations, session = relation_classes(spark), spark._jsparkSession
        try:
            # Spark makes a catalog by the configuration of the active session.
            with active(spark):
                relations.attachCatalog(session, name, callback, planning_callback(spark))
        except Exception as error:
            java = getattr(error, "java_exception", None)
            reason = str(java.getMessage() if java is not None else error)
            attached[name] = declared.spec.redactor.error(
                CatalogNotAttached(
                    f"the session's catalog '{name}' cannot be attached: {reason}",
                    hint=f"check spark.sql.catalog.{name} of the session",
                ),
                Audience.PERSON,
            )
        else:
            attached[name] = None
    return attached


def detach(spark: SparkSession, catalogs: Collection[str], views: Collection[str]) -> None:
    """Restore the catalogs that a session had before, and drop views of lancestat's tables.

    Raises:
        RunError: the session cannot be used.
    """
    require_classic(spark)
    relations, session = relation_classes(spark), spark._jsparkSession
    with active(spark):
        for name in catalogs:
            relations.detachCatalog(session, name)
        for name in views:
            relations.detachView(session, name)


class _NamesCallback:
    """The function by which the JVM asks for the tables of one catalog."""

    def __init__(self, spark: SparkSession, tables: NamedTables) -> None:
        self._spark = spark
        self._tables = tables
        self._answers: Mapping[str, Callable[[_Question, tuple[str, ...]], list[Any]]] = {
            "load": self._load,
            "load_at": self._load_at,
            "load_as": self._load_as,
            "exists": self._exists,
            "tables": self._names,
            "namespaces": self._names,
        }

    def accept(self, question: str, answer: Any) -> None:
        """Add the answer to a list of the JVM; it stays empty where there is no such thing."""
        for part in self._answer(question):
            answer.add(part)

    class Java:
        implements = ("java.util.function.BiConsumer",)

    def _answer(self, question: str) -> list[Any]:
        asked: _Question = json.loads(question)
        try:
            return self._answers[asked["op"]](asked, tuple(asked["identifier"]))
        except LancestatError as error:
            problem = error
        except Exception as error:
            problem = InternalError(
                f"a table of the catalog '{self._tables.catalog}' cannot be found: "
                f"{type(error).__name__}: {error}"
            )
        shown = self._tables.declared.spec.redactor.error(problem, Audience.PERSON)
        if asked["op"] == "load_as":
            # The session's own catalog reads it all the same.
            _log.warning("a table has no statistics: %s", shown.message)
            return []
        return [json.dumps({"error": str(WorkerError.carrying(shown))})]

    def _load(self, asked: _Question, identifier: tuple[str, ...]) -> list[Any]:
        return self._related(self._tables.open(identifier))

    def _load_at(self, asked: _Question, identifier: tuple[str, ...]) -> list[Any]:
        microseconds = asked.get("microseconds")
        moment = None
        if microseconds is not None:
            moment = _EPOCH + timedelta(microseconds=microseconds)
        table = self._tables.open_at(identifier, version=asked.get("version"), moment=moment)
        return self._related(table)

    def _load_as(self, asked: _Question, identifier: tuple[str, ...]) -> list[Any]:
        table = self._tables.open_as(identifier, asked["uri"])
        if table is None:
            return []
        differences = schema_differences(table.snapshot.fields, asked["schema"])
        if differences:
            _log.warning(
                "%s has no statistics: its columns are others for the session's catalog (%s)",
                table.name,
                "; ".join(differences),
            )
            return []
        # The session's own catalog reads.
        declared = declared_relation(self._spark, Relation(table), 0)
        return [json.dumps({"table": {**declared, **_version(table)}})]

    def _related(self, table: ReadTable | None) -> list[Any]:
        if table is None:
            return []
        spec = self._tables.declared.spec
        inner = inner_of(self._spark, table, spec.target.reader)
        relation = Relation(table, inner=inner)
        readers = ReaderFunctions(self._spark)
        declared = declared_relation(self._spark, relation, readers.index_of(relation))
        [reader] = readers.functions
        return [json.dumps({"table": {**declared, **_version(table)}}), reader]

    def _exists(self, asked: _Question, identifier: tuple[str, ...]) -> list[Any]:
        return ["{}"] if self._tables.exists(identifier) else []

    def _names(self, asked: _Question, identifier: tuple[str, ...]) -> list[Any]:
        names = self._tables.names(identifier, asked["op"])
        return [] if names is None else [json.dumps({"names": names})]


def _version(table: ReadTable) -> dict[str, str]:
    """Return the version, and what tables have in common that are the same one at that version."""
    pin: Pin = table.snapshot.pin
    identity = f"{table_identity(pin.uri)} {pin.version} {pin.manifest}"
    return {"version": str(pin.version), "identity": identity}
