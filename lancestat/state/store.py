"""The state in Lance datasets."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import datetime, timedelta, timezone
from threading import Lock
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from lancestat import display
from lancestat.lake.fingerprint import Fingerprint
from lancestat.lake.snapshot import committed_at
from lancestat.state.partials import (
    partial_batches,
    partial_schema,
    read_indexes,
    read_summary,
    stream_blocks,
    stream_partials,
    summary_batches,
    summary_schema,
)
from lancestat.state.retention import compact, expire
from lancestat.state.run_records import (
    LeaseFolder,
    RunMarks,
    Writers,
    newest_first,
    read_digests,
    read_outcomes,
    read_records,
    read_run_ids,
    read_runs,
    run_batch,
    run_schema,
    with_interrupted,
)
from lancestat.state.stored_table import LAYOUT, Kind, StateFolder, StoredTable
from lancestat.state.values import (
    BlockKey,
    Decoded,
    PartialIndex,
    Record,
    RunRecord,
    StoredPartials,
    SummaryBlock,
    TableSummary,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from lance import LanceDataset

_log = logging.getLogger("lancestat.state")

# How long a version stays readable after a newer one: longer than any read of the state takes.
RETENTION = timedelta(minutes=15)
# A row holds a sketch of up to 4 kB per column; what is compacted at once is a file's worth.
_PARTIALS_PER_FILE = 1024
_RUNS_PER_FILE = 65_536
_BLOCKS_PER_FILE = 1024


def open_state(
    uri: str,
    storage_options: Mapping[str, str] | None = None,
    *,
    retention: timedelta = RETENTION,
    clock: Callable[[], datetime] = lambda: datetime.now(timezone.utc),
) -> LanceState:
    """The state at `uri`; nothing is opened or created before it is needed.

    Reading raises `StateUnreachable` when the folder cannot be reached; what is missing or damaged
    reads as empty.
    """
    return LanceState(StateFolder(uri, dict(storage_options or {})), retention, clock)


class LanceState:
    """A `StateWriter` over Lance datasets; instances may be shared by threads."""

    def __init__(
        self, folder: StateFolder, retention: timedelta, clock: Callable[[], datetime]
    ) -> None:
        self.folder = folder
        self.retention = retention
        self.writers = Writers(LeaseFolder(folder, "writers"))
        self.run_marks = RunMarks(LeaseFolder(folder, "running"))
        self.partial_table = StoredTable(
            folder, Kind.PARTIALS, partial_schema(), _PARTIALS_PER_FILE
        )
        self.run_table = StoredTable(folder, Kind.RUNS, run_schema(), _RUNS_PER_FILE)
        self.summary_table = StoredTable(folder, Kind.SUMMARIES, summary_schema(), _BLOCKS_PER_FILE)
        self._clock = clock
        self._warned = False
        self._appends: Counter[Kind] = Counter()
        self._counting = Lock()
        self._records: dict[object, tuple[tuple[str, int, datetime], Mapping[str, Any]]] = {}

    def __repr__(self) -> str:
        # Not the URI: the project knows which parts of it are secret.
        place = self.folder.uri.split("://")[0] if "://" in self.folder.uri else "a local folder"
        return display.summary(self, f"in {place}")

    @property
    def tables(self) -> tuple[StoredTable, ...]:
        """All that the state stores."""
        return self.partial_table, self.run_table, self.summary_table

    def records(self, kind: str, decode: Callable[[str], Record]) -> Mapping[str, Record]:
        self._warn_of_older_layouts()
        self.partial_table.dataset(latest=True)
        self.run_table.dataset(latest=True)

        def read(dataset: LanceDataset) -> Mapping[str, Record]:
            # Queries ask for each table that they name, and most of them between two runs.
            version = dataset.uri, dataset.version, committed_at(dataset)
            known = self._records.get((kind, decode))
            if known is None or known[0] != version:
                records = MappingProxyType(read_records(dataset, kind, decode))
                known = self._records[kind, decode] = version, records
            return known[1]

        return self.run_table.read(read, {})

    def digests(self) -> Mapping[str, str]:
        nothing: dict[str, str] = {}
        return self.run_table.read(read_digests, nothing, latest=True)

    def runs(self, limit: int) -> list[RunRecord]:
        nothing: list[RunRecord] = []
        runs = self.run_table.read(lambda dataset: read_runs(dataset, limit), nothing, latest=True)
        return newest_first(runs, self._interrupted())[:limit]

    def running(self) -> list[RunRecord]:
        marks = [mark for mark in self.run_marks.folder.files() if mark.is_held]
        return sorted(self.run_marks.read(marks), key=lambda run: run.started_at, reverse=True)

    def _interrupted(self) -> list[RunRecord]:
        """The runs whose process was killed, as far as they are not recorded."""
        marks = [mark for mark in self.run_marks.folder.files() if not mark.is_held]
        if not marks:
            return []
        nothing: frozenset[str] = frozenset()
        recorded = self.run_table.read(read_run_ids, nothing)
        return self.run_marks.read(mark for mark in marks if mark.suffix not in recorded)

    def recorded(self, kind: str, target: str, limit: int) -> Mapping[str, tuple[RunRecord, ...]]:
        return self.outcomes(target, limit, kind)

    def outcomes(
        self, target: str, limit: int, recorded_kind: str | None = None
    ) -> Mapping[str, tuple[RunRecord, ...]]:
        nothing: Mapping[str, tuple[RunRecord, ...]] = {}
        recorded = self.run_table.read(
            lambda dataset: read_outcomes(dataset, target, limit, recorded_kind=recorded_kind),
            nothing,
            latest=True,
        )
        interrupted = [] if recorded_kind else self._interrupted()
        return with_interrupted(recorded, interrupted, target, limit)

    def partial_index(self, table: str) -> PartialIndex:
        """Return the index of one table's partials, as of the last `records` or write."""
        return self.partial_indexes([table])[table]

    def partial_indexes(self, tables: Collection[str]) -> Mapping[str, PartialIndex]:
        """Return the indexes of some tables' partials, as of the last `records` or write."""

        nothing: Mapping[str, PartialIndex] = {table: PartialIndex({}, {}) for table in tables}
        if not tables:
            return nothing
        return self.partial_table.read(lambda dataset: read_indexes(dataset, tables), nothing)

    def partials(
        self,
        table: str,
        keys: Mapping[tuple[Fingerprint, ...], frozenset[str]],
        decode: Callable[[bytes], Decoded],
    ) -> Iterator[StoredPartials[Decoded]]:
        return stream_partials(self.partial_table, table, keys, decode)

    def add_partials(self, table: str, stored: Iterable[StoredPartials[bytes]]) -> None:
        schema = self.partial_table.schema
        with self.writers.writing():
            self._append(self.partial_table, partial_batches(table, stored, self._clock(), schema))

    def begin_run(self, run: RunRecord) -> None:
        self.run_marks.add(run)

    def add_run(self, run: RunRecord) -> None:
        ended = [mark for mark in self.run_marks.folder.files() if not mark.is_held]
        runs = [*sorted(self._interrupted(), key=lambda run: run.started_at), run]
        with self.writers.writing():
            schema = self.run_table.schema
            self._append(self.run_table, [run_batch(each, schema) for each in runs])
        own = [mark for mark in self.run_marks.folder.files() if mark.suffix == run.run_id]
        if ended or own:
            self.run_marks.folder.remove(mark.path for mark in [*ended, *own])

    def summary(self, table: str) -> TableSummary | None:
        return self.summary_table.read(
            lambda dataset: read_summary(dataset, table), None, latest=True
        )

    def summary_blocks(
        self, table: str, keys: Collection[BlockKey], decode: Callable[[bytes], Decoded]
    ) -> Iterator[SummaryBlock[Decoded]]:
        return stream_blocks(self.summary_table, table, keys, decode)

    def add_summary(
        self, table: str, summary: TableSummary, blocks: Iterable[SummaryBlock[bytes]]
    ) -> None:
        schema = self.summary_table.schema
        rows = summary_batches(table, summary, blocks, self._clock(), schema)
        with self.writers.writing():
            self._append(self.summary_table, rows)

    def expire(self, live: Mapping[str, frozenset[Fingerprint]]) -> None:
        if not any(stored.location() for stored in self.tables):
            return
        with self.writers.writing():
            for stored in self.tables:
                expire(stored, live)
            for stored in self.tables:
                location = stored.location()
                if location and self.folder.manifests(location) > _VERSIONS_KEPT:
                    stored.remove_old_versions(self.retention)

    def _append(self, stored: StoredTable, batches: Iterable[pa.RecordBatch]) -> None:
        """Append, and compact now and then, since opening a table opens every file."""
        stored.append(batches)
        with self._counting:
            self._appends[stored.kind] += 1
            is_due = self._appends[stored.kind] % _APPENDS_BETWEEN_COMPACTIONS == 0
        if is_due:
            compact(stored)

    def _warn_of_older_layouts(self) -> None:
        if self._warned:
            return
        self._warned = True
        for layout in self.folder.layouts():
            if layout < LAYOUT:
                _log.warning("state v%d is of an older layout and is not used", layout)


_VERSIONS_KEPT = 16
_APPENDS_BETWEEN_COMPACTIONS = 64
