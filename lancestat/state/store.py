"""The state in Lance datasets."""

from __future__ import annotations

import secrets
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from threading import Lock
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from lancestat import display
from lancestat.lake.fingerprint import Fingerprint
from lancestat.lake.snapshot import committed_at
from lancestat.state import history, partials, run_records
from lancestat.state.history import HistoryPoint
from lancestat.state.retention import compact, expire
from lancestat.state.run_records import LeaseFolder
from lancestat.state.stored_table import Kind, StateFolder, StoredTable
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

# How long a version stays readable after a newer one: longer than any read of the state takes.
RETENTION = timedelta(minutes=15)
# A row holds a sketch of up to 4 kB per column; what is compacted at once is a file's worth.
_PARTIALS_PER_FILE = 1024
_RUNS_PER_FILE = 65_536
_BLOCKS_PER_FILE = 1024
_HISTORY_PER_FILE = 65_536
_VERSIONS_KEPT = 16
_APPENDS_BETWEEN_COMPACTIONS = 64


class StateReader:
    """The state as planning reads it; instances may be shared by threads.

    Nothing is opened before it is needed. Methods raise StateUnreachable where the folder cannot be
    reached; what is missing or damaged reads as empty.
    """

    def __init__(self, folder: StateFolder) -> None:
        self.folder = folder
        self.writers = LeaseFolder(folder, "writers")
        self.run_marks = LeaseFolder(folder, "running")
        self.partial_table = StoredTable(
            folder, Kind.PARTIALS, partials.partial_schema(), _PARTIALS_PER_FILE
        )
        self.run_table = StoredTable(folder, Kind.RUNS, run_records.run_schema(), _RUNS_PER_FILE)
        self.summary_table = StoredTable(
            folder, Kind.SUMMARIES, partials.summary_schema(), _BLOCKS_PER_FILE
        )
        self.history_table = StoredTable(
            folder, Kind.HISTORY, history.history_schema(), _HISTORY_PER_FILE
        )
        self._records: dict[str, tuple[tuple[str, int, datetime], Mapping[str, Any]]] = {}

    def __repr__(self) -> str:
        # Not the URI: the project knows which parts of it are secret.
        place = self.folder.uri.split("://")[0] if "://" in self.folder.uri else "a local folder"
        return display.summary(self, f"in {place}")

    @property
    def tables(self) -> tuple[StoredTable, ...]:
        """All that the state stores."""
        return self.partial_table, self.run_table, self.summary_table, self.history_table

    def records(self, kind: str, decode: Callable[[str], Record]) -> Mapping[str, Record]:
        """The newest record of every node of a kind, by key.

        A record for whose JSON `decode` raises ValueError is left out. A kind has one `decode`.
        """
        self.partial_table.dataset(latest=True)
        self.run_table.dataset(latest=True)

        def read(dataset: LanceDataset) -> Mapping[str, Record]:
            # Queries ask for each table that they name, and most of them between two runs.
            version = dataset.uri, dataset.version, committed_at(dataset)
            known = self._records.get(kind)
            if known is None or known[0] != version:
                records = MappingProxyType(run_records.read_records(dataset, kind, decode))
                known = self._records[kind] = version, records
            return known[1]

        return self.run_table.read(read, {})

    def past_records(
        self, kind: str, decode: Callable[[str], Record]
    ) -> Mapping[str, tuple[tuple[RunRecord, Record], ...]]:
        """The records of past runs by key, oldest first, each with its run and that node alone."""
        return self.run_table.read(
            lambda dataset: run_records.read_past_records(dataset, kind, decode),
            {},
            latest=True,
        )

    def history(
        self, keys: Collection[str] | None = None
    ) -> Mapping[str, tuple[HistoryPoint, ...]]:
        """What runs found of nodes, by the keys of their records, oldest first; None is of all."""
        return self.history_table.read(
            lambda dataset: history.read_history(dataset, keys), {}, latest=True
        )

    def digests(self, project: str, target: str) -> Mapping[str, str]:
        """By node, the digest of its meaning in the newest run of a target that took it up."""
        return self.run_table.read(
            lambda dataset: run_records.read_digests(dataset, project, target), {}, latest=True
        )

    def runs(self, limit: int) -> list[RunRecord]:
        """The newest runs, newest first; those whose process was killed are interrupted ones."""
        runs: list[RunRecord] = self.run_table.read(
            lambda dataset: run_records.read_runs(dataset, limit), [], latest=True
        )
        return run_records.newest_first(runs, self._interrupted())[:limit]

    def running(self) -> list[RunRecord]:
        """The runs that may go on now, newest first, as they would be were they killed."""
        runs = self._marked(self.run_marks.files(is_held=True).values())
        return sorted(runs, key=lambda run: run.started_at, reverse=True)

    def _interrupted(self) -> list[RunRecord]:
        """The runs whose process was killed, as far as they are not recorded."""
        marks = self.run_marks.files(is_held=False)
        if not marks:
            return []
        recorded: frozenset[str] = self.run_table.read(run_records.read_run_ids, frozenset())
        return self._marked(path for run_id, path in marks.items() if run_id not in recorded)

    def _marked(self, paths: Iterable[str]) -> list[RunRecord]:
        """Return the runs of some marks; one that is gone or does not decode is left out."""
        with self.folder.reached():
            texts = [self.folder.storage.read(path) for path in paths]
        return [run for text in texts if text for run in run_records.marked_runs(text)]

    def recorded(
        self, kind: str, project: str, target: str, limit: int
    ) -> Mapping[str, tuple[RunRecord, ...]]:
        """By node of a kind, as `outcomes`, of the runs alone that recorded it."""
        return self._outcomes(project, target, limit, kind)

    def outcomes(
        self, project: str, target: str, limit: int
    ) -> Mapping[str, tuple[RunRecord, ...]]:
        """By node, the newest runs of a target that took it up, with it alone, newest first."""
        recorded = self._outcomes(project, target, limit)
        interrupted = self._interrupted()
        return run_records.with_interrupted(recorded, interrupted, project, target, limit)

    def _outcomes(
        self, project: str, target: str, limit: int, kind: str | None = None
    ) -> Mapping[str, tuple[RunRecord, ...]]:
        def read(dataset: LanceDataset) -> Mapping[str, tuple[RunRecord, ...]]:
            return run_records.read_outcomes(dataset, project, target, limit, recorded_kind=kind)

        return self.run_table.read(read, {}, latest=True)

    def partial_index(self, table: str) -> PartialIndex:
        """Return the index of one table's partials, as of the last `records` or write."""
        return self.partial_indexes([table])[table]

    def partial_indexes(self, tables: Collection[str]) -> Mapping[str, PartialIndex]:
        """Return the indexes of some tables' partials, as of the last `records` or write."""
        nothing: Mapping[str, PartialIndex] = {table: PartialIndex({}, {}) for table in tables}
        if not tables:
            return nothing
        return self.partial_table.read(
            lambda dataset: partials.read_indexes(dataset, tables), nothing
        )

    def partials(
        self,
        table: str,
        keys: Mapping[tuple[Fingerprint, ...], frozenset[str]],
        decode: Callable[[bytes], Decoded],
    ) -> Iterator[StoredPartials[Decoded]]:
        """Stream the partials of some keys, less what is gone or does not decode."""
        return partials.stream_partials(self.partial_table, table, keys, decode)

    def summary(self, table: str) -> TableSummary | None:
        """The newest summary of a table, its `contents` empty where blocks are not stored."""
        return self.summaries_of_tables([table]).get(table)

    def summaries_of_tables(self, tables: Collection[str]) -> Mapping[str, TableSummary]:
        """As `summary`, of some tables in one pass; those without one are left out."""
        if not tables:
            return {}
        return self.summary_table.read(
            lambda dataset: partials.read_summaries(dataset, tables), {}, latest=True
        )

    def summary_blocks(
        self, table: str, keys: Collection[BlockKey], decode: Callable[[bytes], Decoded]
    ) -> Iterator[SummaryBlock[Decoded]]:
        """Stream the blocks of some keys, each once, less what is gone or does not decode."""
        return (block for _, block in self.blocks_of_tables({table: keys}, decode))

    def blocks_of_tables(
        self, keys: Mapping[str, Collection[BlockKey]], decode: Callable[[bytes], Decoded]
    ) -> Iterator[tuple[str, SummaryBlock[Decoded]]]:
        """As `summary_blocks`, of some tables in one pass, each with its table."""
        return partials.stream_blocks(self.summary_table, keys, decode)


class LanceState(StateReader):
    """The state as a run writes it, created when something is written.

    `retention` is how long a version stays readable after a newer one; `clock` stamps what is
    written.
    """

    def __init__(
        self, folder: StateFolder, retention: timedelta, clock: Callable[[], datetime]
    ) -> None:
        super().__init__(folder)
        self.retention = retention
        self._clock = clock
        self._appends: Counter[Kind] = Counter()
        self._counting = Lock()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the lease of a writer while the block runs."""
        path = self.writers.add(time.time(), secrets.token_hex(6))
        try:
            yield
        finally:
            self.writers.remove([path])

    def add_partials(self, table: str, stored: Iterable[StoredPartials[bytes]]) -> None:
        """Append partials in one commit."""
        schema = self.partial_table.schema
        rows = partials.partial_batches(table, stored, self._clock(), schema)
        self._append(self.partial_table, rows)

    def add_summary(
        self, table: str, summary: TableSummary, blocks: Iterable[SummaryBlock[bytes]]
    ) -> None:
        """Append a summary, and blocks that are not stored yet, in one commit."""
        schema = self.summary_table.schema
        rows = partials.summary_batches(table, summary, blocks, self._clock(), schema)
        self._append(self.summary_table, rows)

    def begin_run(self, run: RunRecord) -> None:
        """Mark a run of this process as begun: `runs` has it should it never be added."""
        self.run_marks.add(run.started_at.timestamp(), run.run_id, run_records.mark(run))

    def add_run(self, run: RunRecord) -> None:
        """Append a run in one commit, after those whose process was killed."""
        ended = self.run_marks.files(is_held=False)
        runs = [*sorted(self._interrupted(), key=lambda run: run.started_at), run]
        schema = self.run_table.schema
        self._append(self.run_table, [run_records.run_batch(each, schema) for each in runs])
        own = self.run_marks.files(is_held=True).get(run.run_id)
        marks = [*ended.values(), *([own] if own else [])]
        if marks:
            self.run_marks.remove(marks)

    def add_history(self, points: Sequence[HistoryPoint]) -> None:
        """Append what a run found of nodes in one commit."""
        if points:
            batch = history.history_batch(points, self.history_table.schema)
            self._append(self.history_table, [batch])

    def expire(
        self,
        live: Mapping[str, frozenset[Fingerprint]],
        needed: Mapping[str, frozenset[str]] | None = None,
    ) -> None:
        """Drop what the tables in `live` no longer need (their current fingerprints), compact.

        Of tables in `needed`, whose partials are folded, other fields than these do not matter.
        """
        if not any(stored.location() for stored in self.tables):
            return
        with self.writing():
            for stored in self.tables:
                expire(stored, live, needed or {})
            for stored in self.tables:
                location = stored.location()
                if location and self.folder.manifests(location) > _VERSIONS_KEPT:
                    stored.remove_old_versions(self.retention)

    def _append(self, stored: StoredTable, batches: Iterable[pa.RecordBatch]) -> None:
        """Append, and compact now and then, since opening a table opens every file."""
        with self.writing():
            stored.append(batches)
            with self._counting:
                self._appends[stored.kind] += 1
                is_due = self._appends[stored.kind] % _APPENDS_BETWEEN_COMPACTIONS == 0
            if is_due:
                compact(stored)


def open_state(
    uri: str,
    storage_options: Mapping[str, str] | None = None,
    *,
    retention: timedelta = RETENTION,
    clock: Callable[[], datetime] = lambda: datetime.now(timezone.utc),
) -> LanceState:
    """The state at `uri`; nothing is opened or created before it is needed."""
    return LanceState(StateFolder(uri, dict(storage_options or {})), retention, clock)
