"""Tables of catalogs: where their datasets are, and the storage options that open them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from lancestat.errors import (
    CatalogLimitExceeded,
    CatalogMisconfigured,
    CatalogTableMissing,
    CatalogUnreachable,
    LakeError,
)
from lancestat.lake.catalogs import (
    BOUNDS,
    EXPIRES,
    THREADS,
    CatalogClient,
    Description,
    LimitError,
    client_of,
    expires_soon,
    require_time,
)
from lancestat.lake.files import local_path
from lancestat.redact import RenewedOptions
from lancestat.spec.catalog import Catalog, TableName

if TYPE_CHECKING:
    from lance_namespace import DeclareTableResponse, DescribeTableResponse


@dataclass(frozen=True, slots=True)
class LocatedTable:
    """A table of a catalog: the URI of its dataset, and the storage options that open it."""

    uri: str
    options: Mapping[str, str] = field(repr=False)


class CatalogOptions(RenewedOptions):
    """The storage options of a table whose catalog has a part in opening it.

    They are renewed when they expire; datasets are opened, and committed to, through the catalog.
    Instances can be sent to Spark's workers.
    """

    def __init__(
        self,
        catalog: Catalog,
        table: TableName,
        base: Mapping[str, str],
        given: Mapping[str, str],
        is_managed: bool,
    ) -> None:
        self.table = table
        self.is_managed = is_managed
        self._catalog = catalog
        self._base = dict(base)
        self._given = dict(given)

    def __repr__(self) -> str:
        return f"CatalogOptions({self.table})"

    def __eq__(self, other: object) -> bool:
        """Whether these are the options of the same table, however often they were renewed."""
        return isinstance(other, CatalogOptions) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self.table)

    @property
    def _key(self) -> tuple[object, ...]:
        return self.table, self._catalog, self._base, self.is_managed

    def current(self) -> dict[str, str]:
        given = self._client.options.get(self.table.identifier, self._given)
        if expires_soon(given):
            described = self._client.describe(self.table)
            given = described.storage_options or {}
        return {**self._base, **given}

    @property
    def secrets(self) -> frozenset[str]:
        return frozenset((*self._base.values(), *self._given.values(), *self._client.secrets))

    @property
    def renewing(self) -> dict[str, Any]:
        """Arguments with which Lance renews credentials while it reads or writes."""
        return {"namespace_client": self._client, "table_id": list(self.table.identifier)}

    @property
    def committing(self) -> dict[str, Any]:
        """Arguments with which Lance opens the table and commits to it, by the catalog."""
        return {**self.renewing, "namespace_client_managed_versioning": self.is_managed}

    @property
    def _client(self) -> CatalogClient:
        return client_of(self._catalog, self.table.catalog)


def locate(
    tables: Sequence[TableName],
    catalogs: Mapping[str, Catalog],
    base: Callable[[TableName], Mapping[str, str]],
    threads: int = THREADS,
) -> dict[TableName, LocatedTable | LakeError]:
    """Ask catalogs for the locations of tables; a table that cannot be located becomes its error.

    A catalog that does not answer, or takes longer than `BOUNDS` allows, is not asked again. `base`
    returns the declared storage options, which those of the catalog override.
    """
    located: dict[TableName, LocatedTable | LakeError] = {}
    silent: dict[str, LakeError] = {}
    until: dict[str, float] = {}

    def ask(table: TableName) -> LocatedTable | LakeError:
        if (failure := silent.get(table.catalog)) is not None:
            return failure
        try:
            catalog = catalogs[table.catalog]
            client = client_of(catalog, table.catalog)
            try:
                require_time(until[table.catalog])
            except LimitError as error:
                raise client.failure(error, str(table)) from None
            described = client.describe(table)
            return _located(catalog, table, base(table), described)
        except LakeError as error:
            if isinstance(error, (CatalogUnreachable, CatalogLimitExceeded)):
                silent[table.catalog] = error
            return error

    for name in dict.fromkeys(table.catalog for table in tables):
        until[name] = time.monotonic() + BOUNDS.locating_seconds
        first, *others = dict.fromkeys(table for table in tables if table.catalog == name)
        located[first] = ask(first)
        if others:
            with ThreadPoolExecutor(min(threads, len(others))) as pool:
                located |= zip(others, pool.map(ask, others), strict=True)
    return located


def declare(catalog: Catalog, table: TableName, base: Mapping[str, str]) -> LocatedTable:
    """Return the location of a table, created in its catalog unless it exists."""
    client = client_of(catalog, table.catalog)
    try:
        return _located(catalog, table, base, client.describe(table))
    except CatalogTableMissing:
        return _located(catalog, table, base, client.declare(table))


def tables_at(uri: str, catalogs: Mapping[str, Catalog]) -> Iterator[tuple[TableName, bool]]:
    """Yield the tables of catalogs that are the dataset at a URI, and whether it is the catalog's.

    Tables whose names occur in the last folder of the URI are asked for first, and the others only
    where none of those matches. LakeError where a catalog cannot be listed.
    """
    folder = unquote(uri.rstrip("/").rpartition("/")[2])
    for name, catalog in catalogs.items():
        if not _may_hold(catalog, uri):
            continue
        client = client_of(catalog, name)
        tables = client.listed()
        named = [table for table in tables if table.identifier[-1] in folder]
        others = [table for table in tables if table.identifier[-1] not in folder]
        for candidates in (named, others):
            found = [
                (table, is_managed)
                for table, place, is_managed in client.places(candidates)
                if _same_place(place, uri)
            ]
            yield from found
            if found:
                break


def _may_hold(catalog: Catalog, uri: str) -> bool:
    """Whether a dataset may be a table of a catalog: those of a folder lie in it."""
    root = catalog.properties.get("root")
    if catalog.impl != "dir" or not root:
        return True
    folder = uri.rstrip("/").rpartition("/")[0]
    return _same_place(folder, root)


def _same_place(uri: str, other: str) -> bool:
    paths = local_path(uri), local_path(other)
    if None not in paths:
        return os.path.realpath(paths[0] or "") == os.path.realpath(paths[1] or "")
    return uri.rstrip("/") == other.rstrip("/")


def _located(
    catalog: Catalog,
    table: TableName,
    base: Mapping[str, str],
    described: Description | DescribeTableResponse | DeclareTableResponse,
) -> LocatedTable:
    if not described.location:
        raise CatalogMisconfigured(
            f"the catalog '{table.catalog}' does not report the location of {table}",
            hint="catalogs of Lance tables report their locations",
        )
    given = described.storage_options or {}
    is_managed = described.managed_versioning is True
    path = local_path(described.location)
    uri = described.location if path is None else str(path)
    if is_managed or EXPIRES in given:
        return LocatedTable(uri, CatalogOptions(catalog, table, base, given, is_managed))
    return LocatedTable(uri, {**base, **given})
