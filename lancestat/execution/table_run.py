"""Put a table's statistics together from what was scanned, carried over and stored."""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from typing_extensions import assert_never

from lancestat.errors import LakeError, PublishError, StateError
from lancestat.execution.summarize import reuse_groups, store_summary
from lancestat.lake.commit import Conflict, Landed, LandedLate
from lancestat.lake.fingerprint import Fingerprint
from lancestat.lake.open import REPLACED_CODES
from lancestat.lake.snapshot import Pin
from lancestat.manifest.publication import Publication, commit
from lancestat.manifest.wire import COMPUTED_AT_VERSION, encode_statistics, restamp, same_statistics
from lancestat.plan.actions import (
    Action,
    Analyze,
    Blocked,
    Figures,
    Refresh,
    Restamp,
    Scan,
    Skip,
    TableWork,
)
from lancestat.plan.coverage import Carry, stored_keys
from lancestat.state.identity import weight
from lancestat.state.values import StateWriter, StoredPartials, TableRecord
from lancestat.statistics.column_type import ColumnType, column_type
from lancestat.statistics.partial import (
    EMPTY_PARTIAL,
    ColumnPartial,
    ColumnStatistics,
    merge,
    summarize,
)

Fingerprints = tuple[Fingerprint, ...]


class PartialsGoneError(Exception):
    """The state no longer has, or cannot decode, partials that the plan counted on."""


@dataclass(slots=True)
class _Sum:
    """A running merge per field key; `parts` counts what went in."""

    partials: dict[str, ColumnPartial] = field(default_factory=dict)
    parts: Counter[str] = field(default_factory=Counter)

    def add(self, key: str, partial: ColumnPartial, times: int = 1) -> None:
        before = self.partials.get(key)
        self.partials[key] = merge([*([before] if before else []), *[partial] * times])
        self.parts[key] += times


class Assembly:
    """Merges what covers a table, each (fragment, column) once, holding one partial per column.

    `known` is what was merged beforehand of fragments that the work leaves out. Feed it every
    scanned and every fetched partial, in any order, then `finish`.
    """

    def __init__(self, work: TableWork, known: Mapping[str, ColumnPartial]) -> None:
        self._work = work
        self._total = _Sum(dict(known))
        self._carried: list[tuple[Carry, _Sum]] = []
        self._takers: dict[Fingerprints, list[tuple[frozenset[str], int, _Sum]]] = defaultdict(list)
        for item in work.coverage.reuse:
            self._takers[item.fingerprints].append((item.fields, item.times, self._total))
        for carry in work.coverage.carries:
            sums = _Sum()
            self._carried.append((carry, sums))
            for source in carry.sources:
                self._takers[source].append((carry.fields, 1, sums))

    def add_scanned(self, partials: Mapping[str, ColumnPartial]) -> None:
        """Take in the partials of one scan."""
        for key, partial in partials.items():
            self._total.add(key, partial)

    def add_fetched(self, stored: StoredPartials) -> None:
        """Take in a stored row that the coverage reuses or carries over."""
        for fields, times, taker in self._takers.get(stored.fingerprints, ()):
            for key in fields & stored.partials.keys():
                taker.add(key, stored.partials[key], times)

    def finish(self) -> tuple[dict[str, ColumnPartial], list[StoredPartials]]:
        """The merged partial per field key, and the carried ones to remember.

        Raises:
            PartialsGoneError: not everything that the coverage names was fed.
        """
        to_store = []
        for carry, sums in self._carried:
            if any(sums.parts[key] != len(carry.sources) for key in carry.fields):
                raise PartialsGoneError
            for key in carry.fields:
                self._total.add(key, sums.partials[key])
            to_store.append(StoredPartials(tuple(sorted(carry.new)), dict(sums.partials)))
        if self._total.parts != self._expected():
            raise PartialsGoneError
        return self._total.partials, to_store

    def _expected(self) -> Counter[str]:
        expected: Counter[str] = Counter()
        for scan in self._work.scans:
            expected.update(scan.fields)
        for item in self._work.coverage.reuse:
            expected.update(dict.fromkeys(item.fields, item.times))
        for carry in self._work.coverage.carries:
            expected.update(carry.fields)
        return expected


_log = logging.getLogger("lancestat.run")

MAX_ATTEMPTS = 5
PARTIALS_PER_COMMIT = 8_192

# The partials of scans of one table, as they become known.
ScanTable = Callable[[str, TableWork], Iterable[tuple[Scan, Mapping[str, ColumnPartial]]]]


@dataclass(frozen=True, slots=True)
class Scanned:
    """How much was read for a table, over all attempts."""

    fragments: int = 0
    rows: int = 0

    def plus(self, scans: Iterable[Scan]) -> Scanned:
        """With these scans added."""
        rows = {scan.fragment_id: scan.rows for scan in scans}
        return Scanned(self.fragments + len(rows), self.rows + sum(rows.values()))


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a table ended.

    `figures` are those of the last attempt. `version_published` is None where no commit was needed,
    `record` and `live` (the fingerprints of the version read) where nothing was done.
    """

    figures: Figures
    scanned: Scanned
    version_published: int | None = None
    record: TableRecord | None = None
    live: frozenset[Fingerprint] = frozenset()


@dataclass(frozen=True, slots=True)
class _Made:
    """The entries to publish, the bounds that only the state can hold, and when they were made."""

    values: Mapping[str, str]
    bounds: Mapping[str, tuple[str, str]]
    computed_at: datetime


@dataclass(frozen=True, slots=True)
class TableRunner:
    """Runs actions on tables.

    `scan` reads fragments on Spark. `replan` looks at one table again and says what to do now; its
    second argument says whether partials in the state may be counted on.
    """

    state: StateWriter
    scan: ScanTable
    replan: Callable[[str, bool], Action]
    storage_options: Mapping[str, str]
    run_id: str
    clock: Callable[[], datetime]

    def run(self, action: Action) -> Outcome:
        """Carry out an action until its statistics are published for the version they describe.

        Raises:
            LancestatError: the table cannot be read or published; LS604 when it kept moving.
        """
        scanned = Scanned()
        for attempt in range(1, MAX_ATTEMPTS + 1):
            match action:
                case Skip(figures=Figures() as figures):
                    return Outcome(figures, scanned)
                case Blocked():
                    raise action.error
                case Analyze() | Refresh() | Restamp():
                    pass
                case _:
                    raise AssertionError(f"no action on a table: {action}")
            work = action.work
            scanned = scanned.plus(work.scans)
            try:
                made = self._make(action)
            except PartialsGoneError:
                action = self.replan(action.node, False)
                continue
            except LakeError as error:
                if error.code not in REPLACED_CODES:
                    raise
                _log.info("'%s' is planned again: %s", action.node, error.message)
                action = self.replan(action.node, True)
                continue
            landed = self._publish(work, made.values, even_late=attempt == MAX_ATTEMPTS)
            if landed is not None:
                record = _record(action.node, work, made, landed)
                commit_made = landed.version if landed.version != work.version else None
                self._summarize(action.node, work, landed)
                return Outcome(action.figures, scanned, commit_made, record, work.live)
            action = self.replan(action.node, True)
        raise PublishError(
            "LS604",
            f"the table changed during each of {MAX_ATTEMPTS} attempts to publish its statistics",
            hint="what was read is remembered: run again when the table is quieter",
        )

    def _make(self, action: Analyze | Refresh | Restamp) -> _Made:
        work = action.work
        partials = self._assemble(action.node, work)
        version = work.version + 1 if work.publish else work.version
        now = self.clock()
        if isinstance(action, Restamp):
            values = restamp(dict(action.values), computed_at_version=version, computed_at=now)
            return _Made(values, dict(action.bounds), now)
        columns: dict[str, tuple[ColumnType, ColumnStatistics]] = {}
        for column in work.fields:
            type = column_type(column.type)
            assert type is not None, f"{column.name} was planned, so it can be analyzed"
            columns[column.name] = (
                type,
                summarize(partials.get(work.stored_key(column), EMPTY_PARTIAL), type),
            )
        values = encode_statistics(
            columns,
            rows=work.rows,
            schema_hash=work.schema_hash,
            computed_at_version=version,
            computed_at=now,
        )
        return _Made(values, _private_bounds(columns), now)

    def _assemble(self, node: str, work: TableWork) -> dict[str, ColumnPartial]:
        reused = reuse_groups(self.state, work)
        assembly = Assembly(reused.work, reused.partials)
        wanted = stored_keys(reused.work.coverage)
        if wanted:
            for stored in self.state.partials(work.table, wanted):
                assembly.add_fetched(stored)
        if work.scans:
            for batch in _batches(self.scan(node, work)):
                for scan_partials in batch:
                    assembly.add_scanned(scan_partials.partials)
                self.state.add_partials(work.table, batch)
        partials, carried = assembly.finish()
        if carried:
            self.state.add_partials(work.table, carried)
        return partials

    def _summarize(self, node: str, work: TableWork, landed: Pin) -> None:
        try:
            store_summary(self.state, work, landed)
        except StateError as error:
            # The statistics are published: without a summary fewer fragments are ruled out.
            _log.warning("'%s' is not summed up by groups of fragments: %s", node, error)

    def _publish(
        self, work: TableWork, values: Mapping[str, str], *, even_late: bool
    ) -> Pin | None:
        """The version that the statistics now stand for, None when the table has moved on."""
        if not work.publish:
            return work.pin
        is_tagged = work.config.get(COMPUTED_AT_VERSION) == str(work.version)
        if is_tagged and same_statistics(work.config, values):
            return work.pin
        publication = Publication(work.pin, values, work.config, self.run_id)
        landing = commit(publication, storage_options=self.storage_options, even_late=even_late)
        match landing:
            case Landed():
                return landing.pin
            case LandedLate() | Conflict():
                return None
            case _:
                assert_never(landing)


def _batches(
    results: Iterable[tuple[Scan, Mapping[str, ColumnPartial]]],
) -> Iterator[list[StoredPartials]]:
    """Group what was scanned, so that the state gets few commits and a killed run keeps most."""
    batch: list[StoredPartials] = []
    count = 0
    for scan, partials in results:
        batch.append(StoredPartials((scan.fingerprint,), partials))
        count += weight(scan.fields)
        if count >= PARTIALS_PER_COMMIT:
            yield batch
            batch, count = [], 0
    if batch:
        yield batch


def _private_bounds(
    columns: Mapping[str, tuple[ColumnType, ColumnStatistics]],
) -> dict[str, tuple[str, str]]:
    return {
        name: (statistics.minimum.hex(), statistics.maximum.hex())
        for name, (_, statistics) in columns.items()
        if isinstance(statistics.minimum, bytes) and isinstance(statistics.maximum, bytes)
    }


def _record(
    node: str,
    work: TableWork,
    made: _Made,
    landed: Pin,
) -> TableRecord:
    return TableRecord(
        table=work.table,
        node=node,
        version=landed.version,
        published=work.publish,
        content_digest=work.content_digest,
        schema_hash=work.schema_hash,
        rows=work.rows,
        fragments=work.fragments,
        computed_at=made.computed_at,
        columns=tuple(field.name for field in work.fields),
        values=made.values,
        bounds=made.bounds,
        histograms=tuple(sorted(work.histograms)),
        manifest=landed.manifest,
    )
