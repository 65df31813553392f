"""Tables by their names in catalogs, opened anew whenever a query names them."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property

from lancestat.errors import CatalogTableMissing, LakeError, LancestatError
from lancestat.lake.catalogs import LocatedTable, client_of, locate
from lancestat.lake.error_mapping import is_error_or_panic
from lancestat.lake.observe import version_at
from lancestat.query.table import DeclaredTables, ReadTable, open_table
from lancestat.redact import redact_line
from lancestat.spec.catalog import Catalog, TableName, table_name_of
from lancestat.spec.model import Table
from lancestat.state.identity import table_identity

_log = logging.getLogger("lancestat.read")


@dataclass(frozen=True)
class NamedTables:
    """The tables of one catalog of a project's target, declared or not.

    A declared table is one that the project names by this catalog, or whose dataset it names by the
    URI. It has its policy, and what the state knows of it; any other has its manifest alone.
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
            if table is not None:
                return self._opened(table, name)
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
            version: A version's number, or a tag.
            moment: In place of `version`: the version that was the latest then.

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
        options = place.options
        opened = open_table(place.uri, version=number, tag=tag, storage_options=options)
        return replace(opened, name=str(name))

    def open_as(self, identifier: tuple[str, ...], uri: str) -> ReadTable | None:
        """Open the declared table whose dataset another reader has found under a name.

        Args:
            identifier: The name in that reader's catalog.
            uri: The dataset that it reads.

        Returns:
            None where the project does not declare that dataset.

        Raises:
            LancestatError: the table cannot be opened.
        """
        name = TableName(self.catalog, identifier)
        identity = table_identity(uri)
        table = self._by_name.get(identifier) or self._by_identity.get(identity)
        if table is None:
            return None
        opened = self._opened(table, name)
        if table_identity(opened.snapshot.uri) != identity:
            ours, theirs = redact_line(opened.snapshot.uri), redact_line(uri)
            _log.warning(
                "%s has no statistics: the session's catalog has it at %s, the project at %s",
                name,
                theirs,
                ours,
            )
            return None
        return opened

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
        """Return the `tables` or `namespaces` in a namespace, None where there is no such one.

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
