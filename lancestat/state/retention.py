"""Decides what the state need not hold any more, and drops it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

from lancestat.lake.fingerprint import Fingerprint
from lancestat.state.history import past_history_ids
from lancestat.state.partials import FieldSets, past_summary_ids, split_fingerprints, tables_filter
from lancestat.state.run_records import newest_record_positions, newest_run_rows
from lancestat.state.stored_table import Kind, StoredTable, commit_order

if TYPE_CHECKING:
    from lance import LanceDataset


# Superseded rows kept per table at least, so that going back to a recent version costs no scan.
SUPERSEDED_KEPT = 64


# The id of a row of the partials dataset, and its fingerprints joined as stored.
StoredRow = tuple[int, bytes]
FieldsOf = Callable[[Sequence[int]], Mapping[int, frozenset[str]]]
NO_FIELDS: frozenset[str] = frozenset()


def expired_rows(
    rows: Sequence[StoredRow], live: frozenset[Fingerprint], fields_of: FieldsOf
) -> list[int]:
    """Return the ids of one table's rows to remove; `rows` are newest first.

    These are rows whose fields newer rows hold of all their fingerprints, rows with malformed
    fingerprints, and of those with a fingerprint that is not live all but the newest: as many as
    there are of live ones, but at least 64. What several live fingerprints have together counts
    where each was stored before: it was folded. `fields_of` is called only for rows that share a
    fingerprint.
    """
    duplicates = _duplicates(rows, live, fields_of)
    dropped, superseded = list[int](), list[int]()
    live_rows = 0
    for number, joined in rows:
        fingerprints = split_fingerprints(joined)
        if number in duplicates or not fingerprints:
            dropped.append(number)
        elif live.issuperset(fingerprints):
            live_rows += 1
        else:
            superseded.append(number)
    return dropped + superseded[max(SUPERSEDED_KEPT, live_rows) :]


def _duplicates(
    rows: Sequence[StoredRow], live: frozenset[Fingerprint], fields_of: FieldsOf
) -> set[int]:
    members = {number: split_fingerprints(joined) for number, joined in rows}
    times = Counter(chain.from_iterable(members.values()))
    several = [number for number, _ in rows if any(times[one] > 1 for one in members[number])]
    fields = fields_of(several) if several else {}

    def covers(held: Mapping[Fingerprint, frozenset[str]], number: int) -> bool:
        return all(fields[number] <= held.get(one, NO_FIELDS) for one in members[number])

    def add(held: dict[Fingerprint, frozenset[str]], number: int) -> None:
        for one in members[number]:
            held[one] = held.get(one, NO_FIELDS) | fields[number]

    older: dict[Fingerprint, frozenset[str]] = {}
    replacing: set[int] = set()
    for number in reversed(several):
        fingerprints = members[number]
        if len(fingerprints) == 1 or (live.issuperset(fingerprints) and covers(older, number)):
            replacing.add(number)
        add(older, number)
    newer: dict[Fingerprint, frozenset[str]] = {}
    duplicates: set[int] = set()
    for number in several:
        if covers(newer, number):
            duplicates.add(number)
        elif number in replacing:
            add(newer, number)
    return duplicates


RUNS_KEPT = 200
# Runs are dropped several at a time, so that most runs leave the dataset alone.
_RUNS_TOLERATED = 250
_FRAGMENTS_TOLERATED = 16
_DELETED_SHARE_TOLERATED = 0.25
_NAMED_ROWS = 16_384
# Rows of partials are as wide as the table has columns, 4 kB each: few at a time.
_COMPACTED_ROWS = 32
_BATCH_BYTES = 8 << 20


def expire(
    stored: StoredTable,
    live: Mapping[str, frozenset[Fingerprint]],
    needed: Mapping[str, frozenset[str]],
) -> None:
    """Drop the expired rows of the tables in `live` (their current fingerprints), then compact.

    Rows of tables in `needed` expire as if they had no other fields than these. Of runs, the newest
    are kept, and the newest record of every node.
    """

    def expired(dataset: LanceDataset) -> list[int]:
        match stored.kind:
            case Kind.RUNS:
                return _past_run_ids(dataset)
            case Kind.PARTIALS:
                return _expired_ids(dataset, live, needed) if live else []
            case Kind.SUMMARIES:
                return past_summary_ids(dataset, live) if live else []
            case Kind.HISTORY:
                return past_history_ids(dataset)

    drop_rows(stored, stored.read(expired, [], latest=True))
    compact(stored)


def drop_rows(stored: StoredTable, ids: Sequence[int]) -> None:
    """Delete rows by their ids; what a conflict leaves is for a later run."""
    for start in range(0, len(ids), _NAMED_ROWS):
        named = ",".join(map(str, ids[start : start + _NAMED_ROWS]))
        if not stored.attempt(lambda dataset, named=named: dataset.delete(f"id IN ({named})")):  # type: ignore[misc]
            return


def compact(stored: StoredTable, *, every_fragment: bool = False) -> None:
    """Join small fragments and shed deleted rows, when either have become many."""
    dataset = stored.dataset()
    if dataset is None or not (every_fragment or _is_loose(dataset, stored.rows_per_file)):
        return
    is_small = stored.kind in (Kind.RUNS, Kind.HISTORY)
    compacted = stored.attempt(
        lambda dataset: dataset.optimize.compact_files(
            target_rows_per_fragment=stored.rows_per_file,
            materialize_deletions_threshold=0.0 if every_fragment else _DELETED_SHARE_TOLERATED,
            # Sketches are copied as they are, a few megabytes at a time; decoding them would take
            # several times the memory. Runs are small and better off as few pages.
            compaction_mode="reencode" if is_small else "try_binary_copy",
            binary_copy_read_batch_bytes=_BATCH_BYTES,
            batch_size=None if is_small else _COMPACTED_ROWS,
            num_threads=1,
        )
    )
    if not compacted:
        # A dataset that cannot be read cannot be compacted either, and would grow without bound.
        stored.read(_read_through, None)


def _read_through(dataset: LanceDataset) -> None:
    for _ in dataset.scanner(batch_size_bytes=_BATCH_BYTES, fragment_readahead=1).to_batches():
        pass


def _is_loose(dataset: LanceDataset, rows_per_file: int) -> bool:
    fragments = [fragment.metadata for fragment in dataset.get_fragments()]
    physical = sum(fragment.physical_rows for fragment in fragments)
    deleted = sum(fragment.num_deletions for fragment in fragments)
    small = sum(fragment.physical_rows < rows_per_file for fragment in fragments)
    return bool(small > _FRAGMENTS_TOLERATED or deleted > _DELETED_SHARE_TOLERATED * physical)


def _expired_ids(
    dataset: LanceDataset,
    live: Mapping[str, frozenset[Fingerprint]],
    needed: Mapping[str, frozenset[str]],
) -> list[int]:
    rows = dataset.to_table(columns=["id", "table", "fingerprints"], filter=tables_filter(live))
    by_table: dict[str, list[StoredRow]] = {}
    newest_first = rows.take(commit_order(rows.column("id"))[::-1])
    for row, table, fingerprints in zip(
        newest_first.column("id").to_pylist(),
        newest_first.column("table").to_pylist(),
        newest_first.column("fingerprints").to_pylist(),
        strict=True,
    ):
        if table in live:
            by_table.setdefault(table, []).append((row, fingerprints))

    def fields_of(table: str, ids: Sequence[int]) -> dict[int, frozenset[str]]:
        fields, only = _fields_of(dataset, ids), needed.get(table)
        return fields if only is None else {row: some & only for row, some in fields.items()}

    return [
        row
        for table, table_rows in by_table.items()
        for row in expired_rows(table_rows, live[table], partial(fields_of, table))
    ]


def _fields_of(dataset: LanceDataset, ids: Sequence[int]) -> dict[int, frozenset[str]]:
    sets = FieldSets()
    fields: dict[int, frozenset[str]] = {}
    for start in range(0, len(ids), _NAMED_ROWS):
        named = ",".join(map(str, ids[start : start + _NAMED_ROWS]))
        scanner = dataset.scanner(columns=["id", "fields"], filter=f"id IN ({named})")
        for batch in scanner.to_batches():
            fields.update(
                zip(batch.column("id").to_pylist(), sets.of(batch.column("fields")), strict=True)
            )
    return fields


def _past_run_ids(dataset: LanceDataset) -> list[int]:
    run_ids = dataset.to_table(columns=["run_id"]).column("run_id")
    if len(run_ids.unique()) <= _RUNS_TOLERATED:
        return []
    is_retained = newest_run_rows(dataset, RUNS_KEPT)
    is_retained[newest_record_positions(dataset)] = True
    ids = dataset.to_table(columns=["id"]).column("id").to_numpy()
    return [int(row) for row in ids[~is_retained]]
