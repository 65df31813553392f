"""Tables of catalogs of lance_namespace: their locations, and how they are opened and committed to.

A catalog reports the location of a table and may give credentials that expire. Where it also owns
the versions of its tables, commits have to go through it: otherwise its readers stay at the version
before. A catalog is asked again where a moment later it may answer, and nothing of an answer is
used before it is known to make sense.
"""

from __future__ import annotations

import math
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields
from functools import cache, cached_property, partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeVar

from lancestat.errors import (
    AccessDenied,
    CatalogAnswerInvalid,
    CatalogLimitExceeded,
    CatalogMisconfigured,
    CatalogTableMissing,
    CatalogUnreachable,
    LakeError,
    did_you_mean,
)
from lancestat.formats import count, duration
from lancestat.lake.error_mapping import (
    Cause,
    cause_of,
    explained,
    is_error_or_panic,
    is_no_url,
    plain_reason,
)
from lancestat.lake.files import local_path
from lancestat.redact import redact_line, secret_values
from lancestat.spec.catalog import Catalog, TableName

if TYPE_CHECKING:
    from lance_namespace import DeclareTableResponse, DescribeTableResponse, LanceNamespace


# No file system and no object store has longer paths.
_LONGEST_LOCATION = 4096
_LONGEST_NAME = 1024
# Milliseconds to the end of the year 33658.
_MOST_DIGITS = 15
_NUL = re.compile("\0")
# As the YAML refuses them in a `uri`; keys in options have line breaks.
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_MILLIS = ("expires_at_millis", "refresh_offset_millis")


class AnswerError(ValueError):
    """An answer of a catalog is invalid; the message says why and shows no value of it."""


def is_unreadable(error: BaseException) -> bool:
    """Whether a client could not read what its server answered, which it will answer again."""
    return type(error).__name__ == "ValidationError" or "Failed to parse response" in str(error)


def names_in(answer: Any, kind: str) -> list[str]:
    """Return the names on a page of a list of `tables` or `namespaces`; AnswerError for others."""
    names = getattr(answer, kind, None)
    if names is None and answer is not None:
        return []
    if not isinstance(names, (list, tuple, set, frozenset)):
        raise AnswerError(f"its list of {kind} is a {type(names).__name__}")
    for name in names:
        if not isinstance(name, str) or not name:
            raise AnswerError(f"its list of {kind} has a name that is empty or no text")
        if len(name) > _LONGEST_NAME:
            limit = count(_LONGEST_NAME, "character")
            raise AnswerError(f"its list of {kind} has a name of more than {limit}")
    return list(names)


def token_in(answer: Any) -> str | None:
    """Return the token of the next page, None or "" on the last; AnswerError if it is no string."""
    token = getattr(answer, "page_token", None)
    if token is not None and not isinstance(token, str):
        raise AnswerError(f"the token of its next page is a {type(token).__name__}")
    return token


def check_description(answer: Any) -> None:
    """Raise AnswerError for a location or options that cannot be those of a dataset."""
    location = getattr(answer, "location", None)
    if location is not None:
        _check_text(location, "the location", _CONTROL)
        if len(location) > _LONGEST_LOCATION:
            limit = count(_LONGEST_LOCATION, "character")
            raise AnswerError(f"the location has more than {limit}")
    options = getattr(answer, "storage_options", None) or {}
    if not isinstance(options, Mapping):
        raise AnswerError(f"the storage options are a {type(options).__name__}")
    for key, value in options.items():
        _check_text(key, "the name of a storage option")
        _check_text(value, f"the storage option {key!r}")
    for key in _MILLIS:
        text = options.get(key, "0")
        if not (text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS):
            raise AnswerError(f"the storage option {key!r} is no number of milliseconds")


def _check_text(value: object, what: str, refused: re.Pattern[str] = _NUL) -> None:
    if not isinstance(value, str):
        raise AnswerError(f"{what} is a {type(value).__name__}")
    if (found := refused.search(value)) is not None:
        raise AnswerError(f"{what} holds the control character {found[0]!r}")


@dataclass(slots=True)
class Description:
    """Where a table is, and how it is opened: what is used of a catalog's own description."""

    location: str | None
    storage_options: Mapping[str, str] | None = None
    managed_versioning: bool | None = None


class _Folder:
    """A directory catalog, asked by Lance itself: the models of lance_namespace, in which other
    catalogs are asked and answer, take a second of a processor to import.
    """

    def __init__(self, properties: Mapping[str, str]) -> None:
        from lance.lance import PyDirectoryNamespace  # type: ignore[attr-defined]

        try:
            self._client: Any = PyDirectoryNamespace(
                session=None, context_provider=None, **properties
            )
        except Exception as error:
            # As of other catalogs: Lance calls it an internal error, which a busy server has.
            raise ValueError(str(error)) from None

    def list_tables(self, request: Mapping[str, object]) -> SimpleNamespace:
        return SimpleNamespace(**self._client.list_tables(request))

    def list_namespaces(self, request: Mapping[str, object]) -> SimpleNamespace:
        return SimpleNamespace(**self._client.list_namespaces(request))

    def describe_table(self, request: Mapping[str, object]) -> Description:
        answer = self._client.describe_table(request)
        return Description(*(answer.get(field.name) for field in fields(Description)))


T = TypeVar("T")
R = TypeVar("R", "DescribeTableResponse", "DeclareTableResponse", Description)

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
class Bounds:
    """How much of a catalog is asked for at most, which sound ones stay far below.

    `pages` are of one list, `names` and `depth` of one listing; a listing, and the locating of all
    tables of a command, have seconds.
    """

    pages: int = 10_000
    names: int = 1_000_000
    depth: int = 32
    listing_seconds: float = 300.0
    locating_seconds: float = 600.0


BOUNDS = Bounds()
_HINT_SECONDS = 5.0


class LimitError(Exception):
    """A catalog exceeds one of its bounds; the message says which."""


class _Listing:
    """What is left of the bounds for one listing; methods raise LimitError."""

    def __init__(self, seconds: float | None = None) -> None:
        self._seconds = BOUNDS.listing_seconds if seconds is None else seconds
        self._until = time.monotonic() + self._seconds
        self._names = 0

    def require_time(self) -> float:
        """Return the seconds that are left."""
        left = self._until - time.monotonic()
        if left <= 0:
            raise LimitError(f"its tables are not listed within {duration(self._seconds)}")
        return left

    def take(self, names: int) -> None:
        self._names += names
        if self._names > BOUNDS.names:
            raise LimitError(f"it lists more than {count(BOUNDS.names, 'name')}")


def expires_soon(given: Mapping[str, str]) -> bool:
    """Whether options have to be renewed before they are used."""
    lease, before = _lease_millis(given), given.get(_RENEWED_BEFORE, "")
    return lease is not None and lease < (int(before) if before.isdecimal() else 0)


def _lease_millis(given: Mapping[str, str]) -> int | None:
    expires = given.get(EXPIRES, "")
    return int(expires) - int(time.time() * 1000) if expires.isdecimal() else None


def _with_renewal(given: Mapping[str, str]) -> dict[str, str]:
    """Return options that have just been given, with the time before their end to renew them."""
    lease = _lease_millis(given)
    if lease is None or _RENEWED_BEFORE in given:
        return dict(given)
    before = min(_RENEWED_BEFORE_MILLIS, int(lease * _RENEWED_BEFORE_SHARE))
    return {**given, _RENEWED_BEFORE: str(max(0, before))}


_MANIFEST = "__manifest"
THREADS = 8


class CatalogClient:
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
        others = {name for name in catalog.properties if not name.startswith("storage.")}
        is_plain = catalog.impl == "dir" and others <= {"root", "manifest_enabled"}
        self._root = catalog.properties.get("root", "") if is_plain else ""
        self._storage = {
            key.removeprefix("storage."): text
            for key, text in catalog.properties.items()
            if key.startswith("storage.")
        }
        self._flat: dict[tuple[str, ...], str] = {}
        self._lock = threading.Lock()
        self._listing = threading.Lock()
        self._listed: tuple[TableName, ...] = ()
        self._listed_until = 0.0
        self._places: dict[TableName, tuple[str, bool] | None] = {}
        self._catalog = catalog
        self._folder: _Folder | None = None
        with self._explained(f"the catalog '{name}'"):
            if is_plain:
                self._folder = _answered(lambda: _Folder(catalog.properties))
            else:
                _ = self._inner

    @cached_property
    def _inner(self) -> LanceNamespace:
        import lance_namespace

        properties = dict(self._catalog.properties)
        return _answered(lambda: lance_namespace.connect(self._catalog.impl, properties))

    def __getattr__(self, name: str) -> Any:
        # Copies ask before there is any attribute.
        if name.startswith("__") or name in ("_inner", "_catalog"):
            raise AttributeError(name)
        return getattr(self._inner, name)

    def describe_table(self, request: Any) -> DescribeTableResponse:
        """Answer as the catalog does; Lance calls this, with a dict, to renew credentials."""
        if isinstance(request, dict):
            from lance_namespace import DescribeTableRequest

            request = DescribeTableRequest(**request)
        described: DescribeTableResponse = _repeated(lambda: self._inner.describe_table(request))
        return self._with_options(described, request.id)

    def list_table_versions(self, request: Any) -> Any:
        """Answer as the catalog does; Lance asks for versions that a catalog owns."""
        return _repeated(lambda: self._inner.list_table_versions(request))

    def describe_table_version(self, request: Any) -> Any:
        return _repeated(lambda: self._inner.describe_table_version(request))

    def create_table_version(self, request: Any) -> Any:
        """Announce a commit; one that a failing catalog has taken on all the same is a conflict."""
        return _repeated(lambda: self._inner.create_table_version(request))

    def describe(self, table: TableName) -> Description | DescribeTableResponse:
        """Return the description of a table; LakeError where the catalog does not give it."""
        place = self._flat.get(table.identifier)
        if place is not None:
            return Description(place)
        with self._explained(str(table), table):
            return self._described(table, with_credentials=True)

    def _described(
        self, table: TableName, *, with_credentials: bool
    ) -> Description | DescribeTableResponse:
        folder, identifier = self._folder, list(table.identifier)
        if folder is not None:
            wanted = {"id": identifier, "vend_credentials": with_credentials}
            described = _repeated(lambda: folder.describe_table(wanted))
            return self._with_options(described, table.identifier)
        from lance_namespace import DescribeTableRequest

        return self.describe_table(
            DescribeTableRequest(id=identifier, vend_credentials=with_credentials)
        )

    def declare(
        self, table: TableName
    ) -> Description | DeclareTableResponse | DescribeTableResponse:
        """Return the location of a table that is created unless it is there; LakeError as there."""
        from lance_namespace import DeclareTableRequest

        request = DeclareTableRequest(id=list(table.identifier), vend_credentials=True)
        with self._explained(str(table), table):
            try:
                declared = _repeated(lambda: self._inner.declare_table(request))
            except Exception as error:
                if type(error).__name__ != "TableAlreadyExistsError":
                    raise
                # Another writer was first, or an answer of the catalog got lost.
                return self.describe(table)
            return self._with_options(declared, table.identifier)

    def _explained(self, what: str, table: TableName | None = None) -> AbstractContextManager[None]:
        return explained(lambda error: self.failure(error, what, table))

    def _with_options(self, answer: R, identifier: Sequence[str] | None) -> R:
        check_description(answer)
        if not answer.storage_options:
            return answer
        given = _with_renewal(answer.storage_options)
        answer.storage_options = given
        with self._lock:
            self.secrets.update(given.values())
            if identifier:
                self.options[tuple(identifier)] = given
        return answer

    def tables(self) -> Iterator[TableName]:
        """Yield the tables of all namespaces; LakeError if they cannot be listed or exceed
        `BOUNDS`.
        """
        listing = _Listing()
        pending: list[tuple[str, ...]] = [()]
        while pending:
            namespace = pending.pop()
            with self._explained(f"the tables of the catalog '{self.name}'"):
                tables = self.names(namespace, "tables", listing=listing)
                inner = self.names(namespace, "namespaces", listing=listing)
                if inner and len(namespace) >= BOUNDS.depth:
                    raise LimitError(f"its namespaces are nested more than {BOUNDS.depth} deep")
                if not namespace:
                    self._flat = self._flat_places(tables) if not inner else {}
            for table in tables:
                yield TableName(self.name, (*namespace, table))
            pending += ((*namespace, name) for name in reversed(inner))

    def _flat_places(self, tables: Iterable[str]) -> dict[tuple[str, ...], str]:
        """Where tables are that a directory catalog without a manifest finds by folder names."""
        if not self._root or self._has_manifest():
            return {}
        path = local_path(self._root)
        root = self._root.rstrip("/") if path is None else str(Path.cwd() / path)
        return {(table,): f"{root}/{table}.lance" for table in tables}

    def _has_manifest(self) -> bool:
        path = local_path(self._root)
        if path is not None:
            return (path / _MANIFEST).exists()
        from lance.file import LanceFileSession

        session = LanceFileSession(self._root, storage_options=self._storage)
        return bool(
            _answered(lambda: session.list_with_delimiter(f"{_MANIFEST}/_versions")).objects
        )

    def listed(self) -> Sequence[TableName]:
        """Return all tables, as they were listed at most a minute ago; LakeError as `tables`."""
        with self._listing:
            if time.monotonic() > self._listed_until:
                self._listed, self._places = tuple(self.tables()), {}
                self._listed_until = time.monotonic() + _LISTED_FOR_SECONDS
            return self._listed

    def places(self, tables: Sequence[TableName]) -> Iterator[tuple[TableName, str, bool]]:
        """Yield the URIs of tables that may be described, and whether the catalog owns versions."""
        until = time.monotonic() + BOUNDS.locating_seconds

        def place_of(table: TableName) -> tuple[str, bool] | None:
            try:
                require_time(until)
                described = self._described(table, with_credentials=False)
            except BaseException as error:
                if not is_error_or_panic(error):
                    raise
                failure = self.failure(error, str(table))
                if isinstance(failure, (CatalogUnreachable, CatalogLimitExceeded)):
                    raise failure from None
                # It was dropped a moment ago, or is not for us, or is nowhere.
                return None
            return described.location or "", described.managed_versioning is True

        with self._listing:
            asked = [table for table in tables if table not in self._places]
            if asked:
                with ThreadPoolExecutor(min(THREADS, len(asked))) as pool:
                    self._places |= zip(asked, pool.map(place_of, asked), strict=True)
            known = [(table, self._places[table]) for table in tables]
        yield from ((table, *place) for table, place in known if place is not None)

    def failure(self, error: BaseException, what: str, table: TableName | None = None) -> LakeError:
        """Return the error for what a request about a table, or the whole catalog, raised."""
        reason = redact_line(plain_reason(str(error)), {*self._hidden, *self.secrets})
        kind = type(error).__name__
        if table is not None and kind in ("TableNotFoundError", "NamespaceNotFoundError"):
            return CatalogTableMissing(
                f"the catalog '{self.name}' has no table {what}", hint=self._nearest(table)
            )
        if isinstance(error, LimitError):
            return CatalogLimitExceeded(
                f"the catalog '{self.name}' exceeds a limit: {reason}",
                hint="ask whoever runs the catalog; tables that are declared by 'uri' need none",
            )
        if isinstance(error, AnswerError) or is_unreadable(error):
            return CatalogAnswerInvalid(
                f"the catalog '{self.name}' gives an invalid answer about {what} ({reason})",
                hint="ask whoever runs the catalog",
            )
        cause = cause_of(error)
        is_denied = kind in ("PermissionDeniedError", "UnauthenticatedError")
        if is_denied or cause is Cause.DENIED:
            return AccessDenied(
                f"no permission to read {what} ({reason})",
                hint=f"check the properties of the catalog '{self.name}' in the target",
            )
        is_passing = kind in _PASSING and not is_no_url(error)
        if is_passing or isinstance(error, _NoAnswerError) or cause in _SILENT:
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
            listing = _Listing(_HINT_SECONDS)
            tables = self.names(tuple(namespace), "tables", _MOST_NAMES_FOR_HINTS, listing)
            near = did_you_mean(name, tables)
            if near or tables:
                some = ", ".join(tables[:10]) + (" and more" if len(tables) > 10 else "")
                return near or f"tables there: {some}"
            parent = tuple(namespace[:-1])
            most = _MOST_NAMES_FOR_HINTS
            spaces = self.names(parent, "namespaces", most, listing) if namespace else []
        except Exception:
            return "its tables cannot be listed"
        near = did_you_mean(namespace[-1], spaces) if namespace else None
        return near or (f"namespaces: {', '.join(spaces[:10])}" if spaces else "it has no tables")

    def names(
        self,
        namespace: tuple[str, ...],
        kind: str,
        most: int | None = None,
        listing: _Listing | None = None,
    ) -> list[str]:
        """Return the sorted names of the `tables` or `namespaces` of a namespace.

        Reads all pages, or as many as hold `most` names, within `BOUNDS` or what is left of
        `listing`. Raises LimitError, AnswerError and whatever the catalog raises.
        """
        page_of = self._pages(kind)
        listing = listing or _Listing()
        names: dict[str, None] = {}
        token, tokens = None, set[str]()
        while most is None or len(names) < most:
            page = {"id": list(namespace), "limit": self._page, "page_token": token}
            answer: Any = _repeated(partial(page_of, page), listing)
            more = names_in(answer, kind)
            listing.take(len(more))
            names |= dict.fromkeys(more)
            token = token_in(answer)
            if not token:
                break
            if token in tokens:
                raise LimitError(f"its list of {kind} never ends")
            tokens.add(token)
            if len(tokens) >= BOUNDS.pages:
                raise LimitError(f"its list of {kind} has more than {count(BOUNDS.pages)} pages")
        return sorted(names)

    def _pages(self, kind: str) -> Callable[[dict[str, Any]], Any]:
        """Return what asks for a page of the `tables` or `namespaces` of a namespace."""
        method = f"list_{kind}"
        if self._folder is not None:
            ask: Callable[[dict[str, Any]], Any] = getattr(self._folder, method)
            return ask
        import lance_namespace

        inner = getattr(self._inner, method)
        models = {"tables": "ListTablesRequest", "namespaces": "ListNamespacesRequest"}
        model = getattr(lance_namespace, models[kind])
        return lambda page: inner(model(**page))


_SILENT = (Cause.CATALOG, Cause.UNREACHABLE)
_PASSING = ("ServiceUnavailableError", "ThrottlingError", "InternalError")


class _NoAnswerError(Exception):
    """A request to a catalog has not been answered in time."""


def require_time(until: float) -> None:
    """Raise LimitError once it is later than a moment of `time.monotonic`."""
    if time.monotonic() > until:
        limit = duration(BOUNDS.locating_seconds)
        raise LimitError(f"it does not report the locations of its tables within {limit}")


def _answered(ask: Callable[[], T], seconds: float = math.inf) -> T:
    """Return the answer to one request, or raise _NoAnswerError after so many seconds."""
    answer: Future[T] = Future()

    def wait() -> None:
        try:
            answer.set_result(ask())
        except BaseException as error:
            answer.set_exception(error)

    threading.Thread(target=wait, daemon=True, name="lancestat-catalog").start()
    seconds = min(seconds, _ANSWERED_WITHIN_SECONDS)
    done, _ = wait_for([answer], timeout=seconds)
    if not done:
        raise _NoAnswerError(f"no answer within {duration(seconds)}")
    return answer.result()


def _repeated(ask: Callable[[], T], listing: _Listing | None = None) -> T:
    """Ask again, after longer and longer pauses, while the answer is that of a busy server."""
    pause = _FIRST_PAUSE_SECONDS
    for _ in range(_ATTEMPTS - 1):
        try:
            return _in_time(ask, listing)
        except Exception as error:
            if type(error).__name__ not in _PASSING or is_unreadable(error):
                raise
        time.sleep(pause)
        pause *= 2
    return _in_time(ask, listing)


def _in_time(ask: Callable[[], T], listing: _Listing | None) -> T:
    if listing is None:
        return _answered(ask)
    try:
        return _answered(ask, listing.require_time())
    except _NoAnswerError:
        # It may be the listing whose time is over.
        listing.require_time()
        raise


def client_of(catalog: Catalog, name: str) -> CatalogClient:
    """Return the client of a catalog, of which a process has one; LakeError if none can be made."""
    return _client(name, catalog.impl, tuple(sorted(catalog.properties.items())))


@cache
def _client(name: str, impl: str, properties: tuple[tuple[str, str], ...]) -> CatalogClient:
    return CatalogClient(name, Catalog(impl, dict(properties)))
