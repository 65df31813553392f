"""Tables of catalogs: where they are, and how they are opened and committed to.

A catalog tells the location of a table and may give credentials that expire. Where it also owns the
versions of its tables, a commit has to go through it: otherwise its readers stay at the version
before. Catalogs are those of lance_namespace.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from dataclasses import dataclass, field
from functools import cache, partial
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote

from lancestat.errors import (
    AccessDenied,
    CatalogMisconfigured,
    CatalogTableMissing,
    CatalogUnreachable,
    LakeError,
    did_you_mean,
)
from lancestat.lake.error_mapping import Cause, cause_of, is_error_or_panic
from lancestat.lake.files import local_path
from lancestat.redact import RenewedOptions, redact_line, secret_values
from lancestat.spec.catalog import Catalog, TableName

if TYPE_CHECKING:
    from lance_namespace import DeclareTableResponse, DescribeTableResponse, LanceNamespace

T = TypeVar("T")
R = TypeVar("R", "DescribeTableResponse", "DeclareTableResponse")

EXPIRES = "expires_at_millis"
# How long before that Lance renews credentials in what it has opened, and we what is opened next.
_RENEWED_BEFORE = "refresh_offset_millis"
_RENEWED_BEFORE_MILLIS = 60_000
# Of a lease too short for that: the share of it.
_RENEWED_BEFORE_SHARE = 0.25
_ATTEMPTS = 4
_FIRST_PAUSE_SECONDS = 0.25
# The clients of some catalogs would wait for ever.
_ANSWERED_WITHIN_SECONDS = 30.0
_PAGE = 1000
_MOST_NAMES_FOR_HINTS = 10_000
_LISTED_FOR_SECONDS = 60


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

    def __getitem__(self, key: str) -> str:
        return self.current()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.current())

    def __len__(self) -> int:
        return len(self.current())

    def current(self) -> dict[str, str]:
        """See `RenewedOptions`."""
        given = self._client.options.get(self.table.identifier, self._given)
        if _expires_soon(given):
            described = self._client.describe(self.table)
            given = described.storage_options or {}
        return {**self._base, **given}

    @property
    def secrets(self) -> frozenset[str]:
        """See `RenewedOptions`."""
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
    def _client(self) -> _Client:
        return client_of(self._catalog, self.table.catalog)


def _expires_soon(given: Mapping[str, str]) -> bool:
    lease, before = _lease_millis(given), given.get(_RENEWED_BEFORE, "")
    return lease is not None and lease < (int(before) if before.isdigit() else 0)


def _lease_millis(given: Mapping[str, str]) -> int | None:
    """How long options are good for from now on; None for ever."""
    expires = given.get(EXPIRES, "")
    return int(expires) - int(time.time() * 1000) if expires.isdigit() else None


def _with_renewal(given: Mapping[str, str]) -> dict[str, str]:
    """Return options that have just been given, with the time before their end to renew them."""
    lease = _lease_millis(given)
    if lease is None or _RENEWED_BEFORE in given:
        return dict(given)
    before = min(_RENEWED_BEFORE_MILLIS, int(lease * _RENEWED_BEFORE_SHARE))
    return {**given, _RENEWED_BEFORE: str(max(0, before))}


class _Client:
    """A catalog's own client, asked again where a moment later it may answer.

    Lance gets it in place of the catalog's, so that what Lance renews is known to be secret.
    """

    def __init__(self, name: str, catalog: Catalog) -> None:
        self.name = name
        self.options: dict[tuple[str, ...], Mapping[str, str]] = {}
        self.secrets: set[str] = set()
        # A folder is listed as a whole for every page.
        self._page = None if catalog.impl == "dir" else _PAGE
        self._hidden = secret_values(catalog.secret_properties)
        self._lock = threading.Lock()
        self._listing = threading.Lock()
        self._listed: tuple[TableName, ...] = ()
        self._listed_until = 0.0
        import lance_namespace

        try:
            self._inner: LanceNamespace = _answered(
                lambda: lance_namespace.connect(catalog.impl, dict(catalog.properties))
            )
        except BaseException as error:
            if not is_error_or_panic(error):
                raise
            raise self.failure(error, f"the catalog '{name}'") from None

    def __getattr__(self, name: str) -> Any:
        # Copies ask before there is any attribute.
        if name.startswith("__") or name == "_inner":
            raise AttributeError(name)
        return getattr(self._inner, name)

    def describe_table(self, request: Any) -> DescribeTableResponse:
        """Answer as the catalog does; Lance calls this, with a dict, to renew credentials."""
        if isinstance(request, dict):
            from lance_namespace import DescribeTableRequest

            request = DescribeTableRequest(**request)
        described: DescribeTableResponse = _repeated(lambda: self._inner.describe_table(request))
        return self._with_options(described, request)

    def list_table_versions(self, request: Any) -> Any:
        """Answer as the catalog does; Lance asks for versions that a catalog owns."""
        return _repeated(lambda: self._inner.list_table_versions(request))

    def describe_table_version(self, request: Any) -> Any:
        """See `list_table_versions`."""
        return _repeated(lambda: self._inner.describe_table_version(request))

    def create_table_version(self, request: Any) -> Any:
        """Announce a commit; one that a failing catalog has taken on all the same is a conflict."""
        return _repeated(lambda: self._inner.create_table_version(request))

    def describe(self, table: TableName) -> DescribeTableResponse:
        """Return the description of a table.

        Raises:
            LakeError: the catalog does not have it, refuses it or does not answer.
        """
        from lance_namespace import DescribeTableRequest

        request = DescribeTableRequest(id=list(table.identifier), vend_credentials=True)
        try:
            return self.describe_table(request)
        except BaseException as error:
            if not is_error_or_panic(error):
                raise
            raise self.failure(error, str(table), table) from None

    def declare(self, table: TableName) -> DeclareTableResponse | DescribeTableResponse:
        """Return the location of a table that is created unless it is there.

        Raises:
            LakeError: as `describe`.
        """
        from lance_namespace import DeclareTableRequest

        request = DeclareTableRequest(id=list(table.identifier), vend_credentials=True)
        try:
            declared = _repeated(lambda: self._inner.declare_table(request))
            return self._with_options(declared, request)
        except BaseException as error:
            if not is_error_or_panic(error):
                raise
            if type(error).__name__ == "TableAlreadyExistsError":
                # Another writer was first, or an answer of the catalog got lost.
                return self.describe(table)
            raise self.failure(error, str(table), table) from None

    def _with_options(self, answer: R, request: Any) -> R:
        """Remember the options of an answer, and return it with the time to renew them."""
        if not answer.storage_options:
            return answer
        given = _with_renewal(answer.storage_options)
        answer.storage_options = given
        with self._lock:
            self.secrets.update(given.values())
            if request.id:
                self.options[tuple(request.id)] = given
        return answer

    def tables(self, namespace: tuple[str, ...] = ()) -> Iterator[TableName]:
        """Yield the tables of a namespace and of those in it.

        Raises:
            LakeError: they cannot be listed.
        """
        try:
            tables = self.names(namespace, "tables", most=None)
            namespaces = self.names(namespace, "namespaces", most=None)
        except BaseException as error:
            if not is_error_or_panic(error):
                raise
            raise self.failure(error, f"the tables of the catalog '{self.name}'") from None
        for table in tables:
            yield TableName(self.name, (*namespace, table))
        for inner in namespaces:
            yield from self.tables((*namespace, inner))

    def listed(self) -> Sequence[TableName]:
        """Return all tables, as they were listed at most a minute ago.

        Raises:
            LakeError: as `tables`.
        """
        with self._listing:
            if time.monotonic() > self._listed_until:
                self._listed = tuple(self.tables())
                self._listed_until = time.monotonic() + _LISTED_FOR_SECONDS
            return self._listed

    def failure(self, error: BaseException, what: str, table: TableName | None = None) -> LakeError:
        """Return the error for what a request about a table, or the whole catalog, raised."""
        reason = redact_line(str(error), {*self._hidden, *self.secrets})
        kind = type(error).__name__
        if table is not None and kind in ("TableNotFoundError", "NamespaceNotFoundError"):
            return CatalogTableMissing(
                f"the catalog '{self.name}' has no table {what}", hint=self._nearest(table)
            )
        cause = cause_of(error)
        is_denied = kind in ("PermissionDeniedError", "UnauthenticatedError")
        if is_denied or cause is Cause.DENIED:
            return AccessDenied(
                f"no permission to read {what} ({reason})",
                hint=f"check the properties of the catalog '{self.name}' in the target",
            )
        is_silent = (
            kind in _PASSING or isinstance(error, _NoAnswerError) or cause is Cause.UNREACHABLE
        )
        if is_silent:
            return CatalogUnreachable(
                f"the catalog '{self.name}' does not answer ({reason})",
                hint="check the properties of the catalog in the target, and the network",
            )
        return CatalogMisconfigured(
            f"the catalog '{self.name}' cannot be used as it is declared ({reason})",
            hint="check its impl and its properties in the target",
        )

    def _nearest(self, table: TableName) -> str:
        *namespace, name = table.identifier
        try:
            tables = self.names(tuple(namespace), "tables", _MOST_NAMES_FOR_HINTS)
            near = did_you_mean(name, tables)
            if near or tables:
                some = ", ".join(tables[:10]) + (" and more" if len(tables) > 10 else "")
                return near or f"tables there: {some}"
            parent = tuple(namespace[:-1])
            most = _MOST_NAMES_FOR_HINTS
            spaces = self.names(parent, "namespaces", most) if namespace else []
        except Exception:
            return "its tables cannot be listed"
        near = did_you_mean(namespace[-1], spaces) if namespace else None
        return near or (f"namespaces: {', '.join(spaces[:10])}" if spaces else "it has no tables")

    def names(self, namespace: tuple[str, ...], kind: str, most: int | None = None) -> list[str]:
        """Return the sorted names of the tables or namespaces in a namespace.

        They are those of all pages, or of as many as have `most` names.

        Raises:
            BaseException: what the catalog raises.
            ValueError: its pages go in a circle.
        """
        from lance_namespace import ListNamespacesRequest, ListTablesRequest

        inner: Any = self._inner
        request, ask = {
            "tables": (ListTablesRequest, inner.list_tables),
            "namespaces": (ListNamespacesRequest, inner.list_namespaces),
        }[kind]
        names: dict[str, None] = {}
        token, tokens = None, set[str]()
        while most is None or len(names) < most:
            page = request(id=list(namespace), limit=self._page, page_token=token)
            answer: Any = _repeated(partial(ask, page))
            names |= dict.fromkeys(getattr(answer, kind) or ())
            token = answer.page_token
            if not token:
                break
            if token in tokens:
                raise ValueError(f"its list of {kind} never ends")
            tokens.add(token)
        return sorted(names)


_PASSING = ("ServiceUnavailableError", "ThrottlingError", "InternalError")


class _NoAnswerError(Exception):
    """A request to a catalog has not been answered in time."""


def _answered(ask: Callable[[], T]) -> T:
    """Return the answer to one request.

    Raises:
        _NoAnswerError: there is none in time; its thread does not keep the process from ending.
        BaseException: what the catalog raises.
    """
    answer: Future[T] = Future()

    def wait() -> None:
        try:
            answer.set_result(ask())
        except BaseException as error:
            answer.set_exception(error)

    threading.Thread(target=wait, daemon=True, name="lancestat-catalog").start()
    done, _ = wait_for([answer], timeout=_ANSWERED_WITHIN_SECONDS)
    if not done:
        raise _NoAnswerError(f"no answer within {_ANSWERED_WITHIN_SECONDS:g} s")
    return answer.result()


def _repeated(ask: Callable[[], T]) -> T:
    """Ask again, after longer and longer pauses, while the answer is that of a busy server."""
    pause = _FIRST_PAUSE_SECONDS
    for _ in range(_ATTEMPTS - 1):
        try:
            return _answered(ask)
        except Exception as error:
            if type(error).__name__ not in _PASSING:
                raise
        time.sleep(pause)
        pause *= 2
    return _answered(ask)


def client_of(catalog: Catalog, name: str) -> _Client:
    """Return the client of a catalog; a process has one.

    Raises:
        LakeError: there can be none as the catalog is declared.
    """
    return _client(name, catalog.impl, tuple(sorted(catalog.properties.items())))


@cache
def _client(name: str, impl: str, properties: tuple[tuple[str, str], ...]) -> _Client:
    return _Client(name, Catalog(impl, dict(properties)))


def locate(
    tables: Sequence[TableName],
    catalogs: Mapping[str, Catalog],
    base: Callable[[TableName], Mapping[str, str]],
    threads: int = 8,
) -> dict[TableName, LocatedTable | LakeError]:
    """Ask catalogs where tables are; what cannot be located becomes its error.

    A catalog that does not answer for one table is not asked for others.

    Args:
        tables: Tables of any of the catalogs.
        catalogs: By name.
        base: The declared storage options of a table, under those that the catalog gives.
        threads: How many tables are asked for at once.
    """
    located: dict[TableName, LocatedTable | LakeError] = {}
    silent: dict[str, LakeError] = {}

    def ask(table: TableName) -> LocatedTable | LakeError:
        if (failure := silent.get(table.catalog)) is not None:
            return failure
        try:
            catalog = catalogs[table.catalog]
            described = client_of(catalog, table.catalog).describe(table)
            return _located(catalog, table, base(table), described)
        except LakeError as error:
            if isinstance(error, CatalogUnreachable):
                silent[table.catalog] = error
            return error

    for name in dict.fromkeys(table.catalog for table in tables):
        first, *others = dict.fromkeys(table for table in tables if table.catalog == name)
        located[first] = ask(first)
        if others:
            with ThreadPoolExecutor(min(threads, len(others))) as pool:
                located |= zip(others, pool.map(ask, others), strict=True)
    return located


def declare(catalog: Catalog, table: TableName, base: Mapping[str, str]) -> LocatedTable:
    """Return where a table is, which its catalog takes on if it does not have it yet.

    Raises:
        LakeError: the catalog has no such namespace, refuses the table or does not answer.
    """
    client = client_of(catalog, table.catalog)
    try:
        return _located(catalog, table, base, client.describe(table))
    except CatalogTableMissing:
        return _located(catalog, table, base, client.declare(table))


def tables_at(
    uri: str, catalogs: Mapping[str, Catalog], base: Mapping[str, str]
) -> Iterator[tuple[TableName, LocatedTable]]:
    """Yield the tables of catalogs whose dataset is at a URI.

    Catalogs name folders by tables: only tables are asked for whose names are in the last folder's.

    Raises:
        LakeError: a catalog cannot be listed.
    """
    folder = unquote(uri.rstrip("/").rpartition("/")[2])
    for name, catalog in catalogs.items():
        client = client_of(catalog, name)
        for table in client.listed():
            if table.identifier[-1] not in folder:
                continue
            try:
                found = _located(catalog, table, base, client.describe(table))
            except CatalogTableMissing:
                # It was dropped a moment ago.
                continue
            if _same_place(found.uri, uri):
                yield table, found


def _same_place(uri: str, other: str) -> bool:
    paths = local_path(uri), local_path(other)
    if None not in paths:
        return os.path.realpath(paths[0] or "") == os.path.realpath(paths[1] or "")
    return uri.rstrip("/") == other.rstrip("/")


def _located(
    catalog: Catalog,
    table: TableName,
    base: Mapping[str, str],
    described: DescribeTableResponse | DeclareTableResponse,
) -> LocatedTable:
    if not described.location:
        raise CatalogMisconfigured(
            f"the catalog '{table.catalog}' does not tell where {table} is",
            hint="a catalog of Lance tables tells their location",
        )
    given = described.storage_options or {}
    is_managed = described.managed_versioning is True
    path = local_path(described.location)
    uri = described.location if path is None else str(path)
    if is_managed or EXPIRES in given:
        return LocatedTable(uri, CatalogOptions(catalog, table, base, given, is_managed))
    return LocatedTable(uri, {**base, **given})
