"""The folder of a state, and its tables: the newest sound generation of each kind of dataset.

The datasets are `<uri>/v2/<kind>-<generation>.lance`.

Ids of rows give the order in which rows were committed. Positions do not: a compaction that races
with an append moves older rows behind newer ones. Times do not either, since clocks differ. So an
id begins with the version of the dataset that its writer saw: a writer that saw a row has seen a
later version than that row's writer. Rows whose writers saw the same version were written
concurrently, and of these the one that is stored later counts as newer.
"""

from __future__ import annotations

import copy
import logging
import re
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum
from functools import cached_property
from itertools import chain, count, islice
from typing import TYPE_CHECKING, NoReturn, TypeVar

from lancestat.errors import LakeError, LancestatError, StateContended, StateError, StateUnreachable
from lancestat.formats import StringEnum
from lancestat.lake.commit import BatchSource, CommitOutcome, Conflict, commit
from lancestat.lake.error_mapping import (
    Cause,
    cause_of,
    is_full,
    is_of_file_names,
    is_of_store,
    is_panic,
)
from lancestat.lake.files import Storage, storage_at, store_of, store_options
from lancestat.lake.open import probe
from lancestat.redact import redact_line, secret_values
from lancestat.state.values import canonical_uri

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from lance import FragmentMetadata, LanceDataset, LanceOperation
    from numpy.typing import NDArray


class Failure(Enum):
    """The meaning of a failure of Lance for the dataset that was read or written."""

    ABSENT = "absent"
    EXISTS = "exists"
    CONFLICT = "conflict"
    UNREACHABLE = "unreachable"
    CORRUPT = "corrupt"


_LIBRARIES = {"lance", "pyarrow"}
_FAILURES = {
    Cause.CONFLICT: Failure.CONFLICT,
    Cause.EXISTS: Failure.EXISTS,
    Cause.ABSENT: Failure.ABSENT,
    Cause.TRUNCATED: Failure.CORRUPT,
}
# Damage, unless the store reports it: a dataset that may be sound must not be set aside.
_DAMAGE = {Cause.UNSUPPORTED, Cause.NOT_FOUND, Cause.DAMAGED, Cause.UNKNOWN}


def failure_of(error: BaseException) -> Failure:
    """Return what an exception of Lance means for the dataset that was read or written."""
    cause = cause_of(error)
    if cause in _DAMAGE and not is_of_store(error):
        return Failure.CORRUPT
    return _FAILURES.get(cause, Failure.UNREACHABLE)


def is_lance_failure(error: BaseException) -> bool:
    """Return whether Lance may have raised `error`: not a mistake in our own code."""
    if is_of_file_names(error):
        return False
    if isinstance(error, (ValueError, OSError, RuntimeError)) or is_panic(error):
        return True
    return type(error).__module__.split(".")[0] in _LIBRARIES


def message_of(error: BaseException, options: Mapping[str, str]) -> str:
    """Return the message of an error without places in Lance's source, and without secrets."""
    message = error.message if isinstance(error, LancestatError) else str(error)
    return redact_line(message, secret_values(options))


def unreachable(uri: str, error: BaseException, options: Mapping[str, str]) -> StateError:
    """Return the error for a state that may well be sound but cannot be read or written now."""
    if is_full(error):
        return StateUnreachable(
            f"no space is left for the state at {canonical_uri(uri)}",
            hint="make room there, and run again; the target's state_budget bounds what it takes",
        )
    return StateUnreachable(
        f"the state at {canonical_uri(uri)} cannot be reached: {message_of(error, options)}",
        hint="check the target's state, its storage_options and the permissions there",
    )


def contended(uri: str) -> StateError:
    """Return the error for a commit that lost to others again and again."""
    return StateContended(
        f"the state at {canonical_uri(uri)} could not be written: other runs kept committing first",
        hint="run again; nothing is lost but time",
    )


_LAYOUT = "v2"
_DATASET_NAME = re.compile(r"(partials|runs|summaries|history)-(\d+)\.lance")


class Kind(StringEnum):
    """The datasets of the state."""

    PARTIALS = "partials"
    RUNS = "runs"
    SUMMARIES = "summaries"
    HISTORY = "history"


@dataclass(frozen=True, slots=True, order=True)
class DatasetLocation:
    """One dataset of the state: its kind and generation."""

    kind: Kind
    generation: int

    @property
    def path(self) -> str:
        """Relative to the state's URI."""
        return f"{_LAYOUT}/{self.kind.value}-{self.generation}.lance"


@dataclass(frozen=True, repr=False)
class StateFolder:
    """The folder or object-store prefix that holds a state; `options` may hold secrets."""

    uri: str
    options: Mapping[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"StateFolder({canonical_uri(self.uri)!r})"

    def dataset_uri(self, location: DatasetLocation) -> str:
        """Return the URI that Lance opens."""
        return storage_at(self.uri, self.options).uri(location.path)

    def locations(self) -> list[DatasetLocation]:
        """Return the datasets, sound or not, oldest generation first."""
        with self.reached():
            names = self.storage.children(_LAYOUT)
        return sorted(
            DatasetLocation(Kind(match[1]), int(match[2]))
            for name in names
            if (match := _DATASET_NAME.fullmatch(name))
        )

    def manifests(self, location: DatasetLocation) -> int:
        """Count the versions of a dataset that are kept."""
        with self.reached():
            names = self.storage.files(f"{location.path}/_versions")
        return sum(name.endswith(".manifest") for name in names)

    @contextmanager
    def reached(self) -> Iterator[None]:
        """Raise `StateUnreachable` for what Lance or the storage raises in the block."""
        try:
            yield
        except BaseException as error:
            if not (isinstance(error, LakeError) or is_lance_failure(error)):
                raise
            raise unreachable(self.uri, error, self.options) from None

    @cached_property
    def lance_options(self) -> dict[str, str] | None:
        """The storage options for Lance; may hold secrets."""
        return store_options(self.uri, self.options)

    @cached_property
    def storage(self) -> Storage:
        """The files of the state, once its object store has answered."""
        store = store_of(self.uri)
        if store:
            probe(store, self.options)
        return storage_at(self.uri, self.options)


_FIRST = -(1 << 63)
_NAME_BITS = 36
_NAMES = 1 << _NAME_BITS
_LAST_VERSION = (1 << (63 - _NAME_BITS)) - 1


def row_ids(version: int) -> Iterator[int]:
    """Yield ids for the rows of one append, whose writer saw this version of the dataset."""
    start = _FIRST + (min(version, _LAST_VERSION) << _NAME_BITS)
    name = secrets.randbits(_NAME_BITS)
    return (start + (name + number) % _NAMES for number in count())


def commit_order(ids: pa.ChunkedArray) -> NDArray[np.int64]:
    """Return positions of rows in the order of their commits; `ids` are as stored."""
    import numpy as np

    return np.argsort(ids.to_numpy() >> _NAME_BITS, kind="stable")


_log = logging.getLogger("lancestat.state")
_T = TypeVar("_T")

FORMAT_KEY = b"lancestat.state.format"
FORMAT = b"1"
_ATTEMPTS = 6
_PAUSE_SECONDS = 0.05


class StoredTable:
    """The newest sound generation of a kind of dataset.

    A dataset that does not open, is not of this format or cannot be read is set aside: it reads as
    empty, and the next write starts the generation after it. Instances may be shared by threads.
    """

    def __init__(
        self, folder: StateFolder, kind: Kind, schema: pa.Schema, rows_per_file: int
    ) -> None:
        self.schema = schema.with_metadata({FORMAT_KEY: FORMAT})
        self.rows_per_file = rows_per_file
        self._folder = folder
        self.kind = kind
        self._aside: set[DatasetLocation] = set()
        self._opened: tuple[DatasetLocation, LanceDataset] | None = None
        self._lock = threading.RLock()
        # Lance gives a commit up that loses too often against others: those of one process queue.
        self._turn = threading.Lock()
        # Batches to be written with those of other threads.
        self._waiting: deque[tuple[pa.RecordBatch, Future[None]]] = deque()
        self._writing = threading.Lock()

    def dataset(self, *, latest: bool = False) -> LanceDataset | None:
        """Return the dataset as this instance last saw it, or at its latest version, or None.

        Every caller gets a handle of its own: one that compacts or deletes cannot be used by
        another thread meanwhile.
        """
        opened = self._open(latest)
        return copy.copy(opened[1]) if opened else None

    def location(self) -> DatasetLocation | None:
        """Return the location of the sound dataset that reads and writes now use."""
        opened = self._open(latest=False)
        return opened[0] if opened else None

    def is_aside(self, location: DatasetLocation) -> bool:
        """Return whether this instance found the dataset there damaged."""
        return location in self._aside

    def read(
        self, question: Callable[[LanceDataset], _T], empty: _T, *, latest: bool = False
    ) -> _T:
        """Return the dataset's answer; `empty` when there is none or it turns out to be damaged.

        The question is asked twice: a clean-up may take away the files of an old version.
        """
        for again in (False, True):
            dataset = self.dataset(latest=again or latest)
            if dataset is None:
                return empty
            try:
                return question(dataset)
            except BaseException as error:
                if again or not is_lance_failure(error):
                    self.fail(error)
        return empty

    def scan(
        self, batches: Callable[[LanceDataset], Iterator[pa.RecordBatch]]
    ) -> Iterator[pa.RecordBatch]:
        """Yield batches of the latest version; none where there is no dataset or it is damaged.

        When a clean-up takes files away, `batches` is called again, for what is still missing.
        """
        for again in (False, True):
            dataset = self.dataset(latest=True)
            if dataset is None:
                return
            reading = batches(dataset)
            while True:
                try:
                    batch = next(reading, None)
                except BaseException as error:
                    if again or not is_lance_failure(error):
                        self.fail(error)
                        return
                    break
                if batch is None:
                    return
                yield batch

    def fail(self, error: BaseException) -> None:
        """Set the dataset aside for a failed read, or raise when it may well be sound."""
        if not is_lance_failure(error):
            raise error
        if failure_of(error) in (Failure.UNREACHABLE, Failure.CONFLICT):
            self._raise(error)
        with self._lock:
            if self._opened:
                self._set_aside(self._opened[0], message_of(error, self._folder.options))

    def append(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Append rows in one commit; other appends may commit meanwhile.

        Files are written first and committed afterwards on the version that is then the latest,
        because a stream may take long. Rows for a dataset that is damaged meanwhile are dropped.
        Threads that append one batch each at the same time share a commit, since every commit makes
        the dataset slower to open.
        """
        iterator = iter(batches)
        first = list(islice(iterator, 2))
        if len(first) == 1:
            self._append_together(first[0])
        elif first:
            self._append(chain(first, iterator))

    def _append_together(self, batch: pa.RecordBatch) -> None:
        own: Future[None] = Future()
        self._waiting.append((batch, own))
        with self._writing:
            if not own.done():
                together = [self._waiting.popleft() for _ in range(len(self._waiting))]
                try:
                    self._append(batch for batch, _ in together)
                except BaseException as error:
                    for _, done in together:
                        done.set_exception(error)
                else:
                    for _, done in together:
                        done.set_result(None)
        own.result()

    def _append(self, batches: Iterable[pa.RecordBatch]) -> None:
        dataset = self._open_or_create()
        fragments = self._write(dataset, batches)
        with self._turn:
            self._commit(dataset, fragments)

    def _commit(self, dataset: LanceDataset, fragments: list[FragmentMetadata]) -> None:
        from lance import LanceOperation

        for attempt in range(_ATTEMPTS):
            operation = LanceOperation.Append(fragments)
            outcome = self._try_commit(dataset.uri, operation, attempt, dataset)
            if outcome is not None and not isinstance(outcome, Conflict):
                self._advance(outcome.dataset)
                return
            if self.dataset() is None:
                return
        raise contended(self._folder.uri)

    def _try_commit(
        self,
        uri: str,
        operation: LanceOperation.BaseOperation,
        attempt: int,
        dataset: LanceDataset | None = None,
    ) -> CommitOutcome | None:
        """Commit on the latest version of `dataset`, or create one; None where it is damaged."""
        try:
            version = 0 if dataset is None else dataset.latest_version
            outcome = commit(uri, operation, version, storage_options=self._folder.options)
        except BaseException as error:
            if not is_lance_failure(error):
                raise
            match failure_of(error):
                case Failure.UNREACHABLE:
                    self._raise(error)
                case Failure.CORRUPT:
                    self.fail(error)
                    return None
                case Failure.CONFLICT | Failure.EXISTS | Failure.ABSENT:
                    outcome = Conflict(message_of(error, self._folder.options))
        if isinstance(outcome, Conflict):
            time.sleep(_PAUSE_SECONDS * (attempt + 1))
        return outcome

    def attempt(self, change: Callable[[LanceDataset], object]) -> bool:
        """Make a change that a later run may make as well: False after a conflict or damage."""
        dataset = self.dataset(latest=True)
        if dataset is None:
            return False
        for number in range(_ATTEMPTS):
            try:
                change(dataset)
            except BaseException as error:
                if not is_lance_failure(error) or failure_of(error) is Failure.UNREACHABLE:
                    self._raise(error)
                time.sleep(_PAUSE_SECONDS * number)
                dataset = self.dataset(latest=True)
                if dataset is None:
                    return False
            else:
                self._advance(dataset)
                return True
        return False

    def remove_old_versions(self, older_than: timedelta) -> None:
        """Delete versions older than that, and the files that only they use."""
        self.attempt(
            lambda dataset: dataset.cleanup_old_versions(
                older_than=older_than, error_if_tagged_old_versions=False
            )
        )

    def _open(self, latest: bool) -> tuple[DatasetLocation, LanceDataset] | None:
        with self._lock:
            if self._opened and not latest:
                return self._opened
            self._opened = None
            locations = self._locations()
            if locations and locations[-1] not in self._aside:
                self._opened = self._sound(locations[-1])
            return self._opened

    def _locations(self) -> list[DatasetLocation]:
        return [location for location in self._folder.locations() if location.kind is self.kind]

    def _sound(self, location: DatasetLocation) -> tuple[DatasetLocation, LanceDataset] | None:
        import lance

        try:
            dataset = lance.dataset(
                self._folder.dataset_uri(location), storage_options=self._folder.lance_options
            )
            schema = dataset.schema
        except BaseException as error:
            if not is_lance_failure(error):
                raise
            match failure_of(error):
                case Failure.ABSENT:
                    return None
                case Failure.UNREACHABLE | Failure.CONFLICT:
                    self._raise(error)
                case _:
                    self._set_aside(location, message_of(error, self._folder.options))
                    return None
        if (schema.metadata or {}).get(FORMAT_KEY) != FORMAT or not schema.equals(self.schema):
            self._set_aside(location, "it is not of this format")
            return None
        return location, dataset

    def _open_or_create(self) -> LanceDataset:
        from lance import LanceOperation

        for attempt in range(_ATTEMPTS):
            with self._lock:
                dataset = self.dataset(latest=True)
                if dataset is not None:
                    return dataset
                uri = self._folder.dataset_uri(self._next_location())
            # Not Lance's mode `create`, which looks first and then overwrites what another run
            # creates and fills meanwhile. Where another run was first, its dataset opens.
            self._try_commit(uri, LanceOperation.Overwrite(self.schema, []), attempt)
        raise contended(self._folder.uri)

    def _next_location(self) -> DatasetLocation:
        taken = self._locations()
        if not taken:
            return DatasetLocation(self.kind, 1)
        last = taken[-1]
        # A folder without a manifest is what a run leaves that was killed while creating.
        step = 1 if last in self._aside else 0
        return DatasetLocation(self.kind, last.generation + step)

    def _write(
        self, dataset: LanceDataset, batches: Iterable[pa.RecordBatch]
    ) -> list[FragmentMetadata]:
        from lance.fragment import write_fragments

        source = BatchSource(self.schema, _with_ids(batches, dataset.version))
        with source.own_errors():
            try:
                written = write_fragments(
                    source.reader(),
                    dataset,
                    schema=self.schema,
                    mode="append",
                    max_rows_per_file=self.rows_per_file,
                    storage_options=self._folder.lance_options,
                )
            except BaseException as error:
                self._raise(error)
        return list(written)

    def _advance(self, committed: LanceDataset) -> None:
        """Go on from the own commit, unless another thread has come further."""
        with self._lock:
            if self._opened:
                location, dataset = self._opened
                if dataset.uri == committed.uri and dataset.version < committed.version:
                    self._opened = location, committed

    def _set_aside(self, location: DatasetLocation, cause: str) -> None:
        self._opened = None
        if location in self._aside:
            return
        self._aside.add(location)
        _log.warning("state %s is set aside and will be rebuilt: %s", location.path, cause)

    def _raise(self, error: BaseException) -> NoReturn:
        if not is_lance_failure(error):
            raise error
        raise unreachable(self._folder.uri, error, self._folder.options) from None


def _with_ids(batches: Iterable[pa.RecordBatch], version: int) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    ids = row_ids(version)
    for batch in batches:
        column = pa.array(islice(ids, batch.num_rows), pa.int64())
        yield batch.set_column(batch.schema.get_field_index("id"), "id", column)
