"""Catalogs of a target as catalogs of a Spark session, and the tables that queries name in them."""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from functools import cached_property
from typing import TYPE_CHECKING, Any

from lancestat.errors.base import InternalError, LakeError, LancestatError
from lancestat.errors.codes import CatalogNotAttached, CatalogTableMissing
from lancestat.lake.catalog_tables import LocatedTable, locate
from lancestat.lake.catalogs import client_of
from lancestat.lake.error_mapping import is_error_or_panic
from lancestat.lake.open import version_at
from lancestat.query.read.relation import (
    Attachment,
    Relation,
    declared_relation,
    inner_of,
    planning_callback,
    schema_differences,
)
from lancestat.query.table import DeclaredTables, ReadTable, open_table
from lancestat.redact import Audience, redact_line
from lancestat.spark.compiler import relation_classes
from lancestat.spark.failure import WorkerError
from lancestat.spark.session import active, require_classic
from lancestat.spec.catalog import Catalog, TableName, table_name_of
from lancestat.spec.model import Table
from lancestat.state.values import table_identity

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_log = logging.getLogger("lancestat.read")
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
# Spark has catalogs of these names in every session, and asks them for more than tables.
_SPARKS_OWN = ("spark_catalog", "system")


def attach_catalogs(
    spark: SparkSession, declared: DeclaredTables, names: Collection[str]
) -> Attachment:
    """Make catalogs of a target catalogs of a session, without asking them for anything yet.

    Those that cannot be attached are logged. A catalog of that name in the session goes on
    answering, and declared tables in it are planned with their statistics. An earlier attachment of
    the name is replaced.

    Args:
        spark: A classic session.
        declared: Opens the project's tables.
        names: Catalogs of the project's target.

    Raises:
        RunError: the session cannot be used.
    """
    require_classic(spark)
    attached: list[str] = []
    failed: dict[str, LancestatError] = {}
    for name in names:
        if name.lower() in _SPARKS_OWN:
            failed[name] = CatalogNotAttached(
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
            attached.append(name)
        except Exception as error:
            java = getattr(error, "java_exception", None)
            reason = str(java.getMessage() if java is not None else error)
            refused = CatalogNotAttached(
                f"the session's catalog '{name}' cannot be attached: {reason}",
                hint=f"check spark.sql.catalog.{name} of the session",
            )
            failed[name] = declared.spec.redactor.error(refused, Audience.PERSON)
    for failure in failed.values():
        _log.warning("%s", failure.message)
    return Attachment((), catalogs=tuple(attached), failed_catalogs=failed)


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

    def accept(self, question: str, answer: Any) -> None:
        """Add the answer to a list of the JVM; it stays empty where there is no such thing."""
        for part in self._answer(question):
            answer.add(part)

    class Java:
        implements = ("java.util.function.BiConsumer",)

    def _answer(self, question: str) -> list[Any]:
        asked: dict[str, Any] = json.loads(question)
        try:
            return self._found(asked, tuple(asked["identifier"]))
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

    def _found(self, asked: dict[str, Any], identifier: tuple[str, ...]) -> list[Any]:
        tables = self._tables
        match asked["op"]:
            case "load":
                return self._related(tables.open(identifier))
            case "load_at":
                since = asked.get("microseconds")
                moment = None if since is None else _EPOCH + timedelta(microseconds=since)
                version = asked.get("version")
                return self._related(tables.open_at(identifier, version=version, moment=moment))
            case "load_as":
                # The session's own catalog reads.
                table = tables.open_as(identifier, asked["uri"], asked["schema"])
                return [] if table is None else [self._described(Relation(table))]
            case "exists":
                return ["{}"] if tables.exists(identifier) else []
            case kind:
                names = tables.names(identifier, kind)
                return [] if names is None else [json.dumps({"names": names})]

    def _related(self, table: ReadTable | None) -> list[Any]:
        if table is None:
            return []
        inner = inner_of(self._spark, table, self._tables.declared.spec.target.reader)
        relation = Relation(table, inner=inner)
        return [self._described(relation), relation.reader(self._spark)]

    def _described(self, relation: Relation) -> str:
        """Return a table with its version, and what is equal of the same one at that version."""
        pin = relation.table.snapshot.pin
        identity = f"{table_identity(pin.uri)} {pin.version} {pin.manifest}"
        table = declared_relation(self._spark, relation, 0)
        return json.dumps({"table": {**table, "version": str(pin.version), "identity": identity}})


@dataclass(frozen=True)
class NamedTables:
    """The tables of one catalog of a project's target, declared or not.

    A table is declared if the project names it by this catalog, or its dataset by the URI. It has
    its policy, and the statistics in the state; any other has its manifest alone.
    """

    catalog: str
    declared: DeclaredTables

    def open(self, identifier: tuple[str, ...]) -> ReadTable | None:
        """Open a table at its latest version, None where the catalog has none of that name.

        Raises:
            LancestatError: the table cannot be opened, or the catalog cannot be asked.
        """
        name = TableName(self.catalog, identifier)
        try:
            table = self._by_name.get(identifier)
            if table is None:
                place = self._place(name)
                table = self._by_identity.get(table_identity(place.uri))
            if table is not None:
                return self._opened(table, name)
            opened = open_table(place.uri, storage_options=place.options)
        except CatalogTableMissing:
            return None
        return replace(opened, name=str(name))

    def open_at(
        self,
        identifier: tuple[str, ...],
        *,
        version: str | None = None,
        moment: datetime | None = None,
    ) -> ReadTable | None:
        """Open a table at an earlier version, with the statistics of that version's manifest.

        Args:
            identifier: The table; None is returned where the catalog has no such table.
            version: The number of a version, or a tag.
            moment: Instead of `version`: the version that was the latest at that time.

        Raises:
            LancestatError: as `open`; or there is no such version.
        """
        name = TableName(self.catalog, identifier)
        try:
            place = self._place(name)
        except CatalogTableMissing:
            return None
        number, tag = None, version
        if moment is not None:
            number = version_at(place.uri, moment, place.options)
        elif version is not None and version.isascii() and version.isdecimal():
            number, tag = int(version), None
        opened = open_table(place.uri, version=number, tag=tag, storage_options=place.options)
        return replace(opened, name=str(name))

    def open_as(self, identifier: tuple[str, ...], uri: str, schema: str) -> ReadTable | None:
        """Open the declared table whose dataset another reader has at `uri` under a name.

        Returns:
            None where the project does not declare that dataset, or its columns are others than in
            `schema`, Spark's JSON.

        Raises:
            LancestatError: the table cannot be opened.
        """
        name = TableName(self.catalog, identifier)
        identity = table_identity(uri)
        table = self._by_name.get(identifier) or self._by_identity.get(identity)
        if table is None:
            return None
        opened = self._opened(table, name)
        differences = schema_differences(opened.snapshot.fields, schema)
        if table_identity(opened.snapshot.uri) != identity:
            ours, theirs = redact_line(opened.snapshot.uri), redact_line(uri)
            what = f"the session's catalog has it at {theirs}, the project at {ours}"
        elif differences:
            listed = "; ".join(differences)
            what = f"its columns are others for the session's catalog ({listed})"
        else:
            return opened
        _log.warning("%s has no statistics: %s", name, what)
        return None

    def exists(self, identifier: tuple[str, ...]) -> bool:
        """Whether the catalog has a table; it is not opened.

        Raises:
            LakeError: the catalog cannot be asked.
        """
        try:
            self._place(TableName(self.catalog, identifier))
        except CatalogTableMissing:
            return False
        return True

    def names(self, namespace: tuple[str, ...], kind: str) -> list[str] | None:
        """Return the `tables` or `namespaces` in a namespace, None where it does not exist.

        Raises:
            LakeError: the catalog cannot be asked.
        """
        client = client_of(self._declaration, self.catalog)
        try:
            names = client.names(namespace, kind)
            # Some catalogs list an empty namespace where there is none.
            if names or not namespace:
                return names
            *parent, name = namespace
            return names if name in client.names(tuple(parent), "namespaces") else None
        except BaseException as error:
            if not is_error_or_panic(error):
                raise
            if type(error).__name__ == "NamespaceNotFoundError":
                return None
            raise client.failure(error, f"the {kind} of the catalog '{self.catalog}'") from None

    @property
    def _declaration(self) -> Catalog:
        return self.declared.spec.target.catalogs[self.catalog]

    @cached_property
    def _by_name(self) -> Mapping[tuple[str, ...], Table]:
        """The tables that are named by the catalog, as they were before they were located."""
        named = {}
        for table in self.declared.spec.tables:
            written = table.declared or table
            name = table_name_of(written.uri)
            if name is not None and name.catalog == self.catalog:
                named[name.identifier] = written
        return named

    @cached_property
    def _by_identity(self) -> Mapping[str, Table]:
        tables = self.declared.spec.tables
        return {
            table_identity(table.uri): table for table in tables if not table_name_of(table.uri)
        }

    def _place(self, name: TableName) -> LocatedTable:
        options = self.declared.spec.options
        catalogs = {self.catalog: self._declaration}
        place = locate([name], catalogs, lambda table: options.declared(table.uri))[name]
        if isinstance(place, LakeError):
            raise place
        return place

    def _opened(self, table: Table, name: TableName) -> ReadTable:
        opened = self.declared.open([table])[table.name]
        if isinstance(opened, LancestatError):
            raise opened
        return replace(opened, name=str(name))
