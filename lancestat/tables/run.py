"""Runs tables: fragments are read in this process or on Spark, and statistics published."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import chain

from typing_extensions import assert_never

from lancestat.errors import LakeError, StateError, TableKeepsChanging
from lancestat.formats import count
from lancestat.lake.fingerprint import Fingerprint
from lancestat.lake.history import pinned_rows_changed_at
from lancestat.lake.open import REPLACED
from lancestat.lake.snapshot import Pin
from lancestat.runs.actions import (
    STATE_LACKS,
    Action,
    Blocked,
    Deferred,
    Figures,
    Reason,
    RunsOn,
    Skip,
    StageProgress,
)
from lancestat.runs.events import FragmentsRead, StageReached
from lancestat.runs.execute import MAX_ATTEMPTS, RunContext
from lancestat.runs.node import NodeEnded
from lancestat.runs.result import NodeResult, Status, deferred, planned
from lancestat.spark.failure import SessionLostError
from lancestat.spec.model import Table
from lancestat.spec.relations import Columns
from lancestat.state.partials import Group
from lancestat.state.values import StoredPartials, is_special, partial_key, weight
from lancestat.tables.action import (
    FoldPartials,
    MergePartials,
    PublishStatistics,
    ReadFragments,
    RecordStatistics,
    RestampStatistics,
    ReusePartials,
    Scan,
    TableAction,
    TableVersion,
)
from lancestat.tables.analyze import ProcessScanner, Scanned, ScanPartials, SparkScanner
from lancestat.tables.carriers import CARRIERS
from lancestat.tables.coverage import Carry, Coverage, Reuse
from lancestat.tables.folding import count_ranges, fold_stored
from lancestat.tables.judgement import TableAssessment, TableChanges
from lancestat.tables.planner import read_missing
from lancestat.tables.relations import KeyResult, key_result
from lancestat.tables.statistics.bounds import Bound
from lancestat.tables.statistics.column_statistics import ColumnStatistics, column_statistics_of
from lancestat.tables.statistics.column_type import ColumnType, column_type
from lancestat.tables.statistics.partial import EMPTY_PARTIAL, ColumnPartial, decode
from lancestat.tables.stored import TableRecord, add_partials, read_partials
from lancestat.tables.summary import GroupPartials, RunningMerge, reuse_groups, store_summary
from lancestat.tables.wire import (
    GuardReason,
    JointStatistics,
    encode_kept,
    encode_statistics,
    published_entries,
    restamp,
    same_statistics,
)

Fingerprints = tuple[Fingerprint, ...]


class PartialsGoneError(Exception):
    """The state no longer has, or cannot decode, partials that the plan counted on."""


_Merges = dict[str, RunningMerge]

_log = logging.getLogger("lancestat.run")

NOT_FOLDED = "the partials of '%s' are not folded: %s"
PARTIALS_PER_COMMIT = 8_192
# Sketches of up to so many bytes are kept for a table's summary rather than read again.
_BYTES_KEPT = 100_000_000

# What a job on Spark reads where the run has to end in time: it is carried through.
_BYTES_PER_TIMED_JOB = 4_000_000_000

# Reads the scans of a stage of a table, and yields each once. What it yields before it fails has
# been read all the same.
ScanTable = Callable[[str, TableVersion, ReadFragments], Iterable[Scanned]]
# Assesses a table as it is now, and gathers its changes.
Assess = Callable[[Table], tuple[TableAssessment, TableChanges]]


class TableWorkspace:
    """The intermediate results that the stages of one table share.

    It merges what covers the table, each (fragment, column) once, holding one partial per column.
    `record` is what the state is to remember, of the version that the statistics stand for once
    published; `at_hand` are partials for the table's summary.
    """

    def __init__(self, context: RunContext, action: TableAction, scan: ScanTable) -> None:
        self.node, self.table = action.node, action.table
        self.record: TableRecord | None = None
        self._context, self._state, self._scan = context, context.state, scan
        # Whether the state had nothing of use for the table.
        self._is_new = action.verb == "analyze"
        self._coverage = Coverage((), (), ())
        # What was read, where the state gets it folded.
        self._read: list[Reuse] = []
        self.at_hand: list[GroupPartials] = []
        self._room = _BYTES_KEPT
        self._total: _Merges = defaultdict(RunningMerge)
        self._carried: list[tuple[Carry, _Merges]] = []

    def reuse(self, coverage: Coverage) -> None:
        """Merge stored partials, groups of fragments first."""
        self._coverage = coverage
        groups, rest = reuse_groups(self._state, self.table, coverage)
        for group, partials in groups:
            for key, partial in partials.items():
                self._total[key].add(partial)
            self._keep(group, partials)
        takers = self._takers(rest)
        keys = rest.stored_keys()
        for stored in read_partials(self._state, self.table.identity, keys) if keys else ():
            for fields, times, merges in takers.get(stored.fingerprints, ()):
                for key in fields & stored.partials.keys():
                    merges[key].add(stored.partials[key], times)

    def _takers(
        self, coverage: Coverage
    ) -> Mapping[Fingerprints, list[tuple[frozenset[str], int, _Merges]]]:
        """Expect stored rows, and return the fields that each gives to merges how many times."""
        takers: dict[Fingerprints, list[tuple[frozenset[str], int, _Merges]]] = defaultdict(list)
        for item in coverage.reuse:
            takers[item.fingerprints].append((item.fields, item.times, self._total))
            _expect(self._total, item.fields, item.times)
        for carry in coverage.carries:
            merges: _Merges = defaultdict(RunningMerge)
            self._carried.append((carry, merges))
            _expect(self._total, carry.fields)
            _expect(merges, carry.fields, len(carry.sources))
            for source in carry.sources:
                takers[source].append((carry.fields, 1, merges))
        return takers

    def _keep(self, group: Group, partials: Mapping[str, ColumnPartial]) -> None:
        """Keep partials of fragments for the table's summary, as far as there is room."""
        self._room -= sum(len(partial.sketch.content) for partial in partials.values())
        if self._room >= 0:
            self.at_hand.append((group, partials))

    def read(self, stage: ReadFragments) -> None:
        """Read fragments, storing their partials on the way, so that a killed run keeps most."""
        for scan in stage.scans:
            _expect(self._total, scan.fields)
        for scanned in self._scan(self.node, self.table, stage):
            self._read += (
                Reuse(_fingerprints(scans), scans[0].fields)
                for scans, _ in scanned.stored
                if self.table.fold > 1
            )
            for batch in _batches(scanned.stored):
                self._state.add_partials(self.table.identity, batch)
                self._context.stored.update({self.node: len(batch)})
            for scans, encoded in scanned.merged:
                partials = {key: decode(partial) for key, partial in encoded.items()}
                for key, partial in partials.items():
                    self._total[key].add_sum(partial, len(scans))
                self._keep(tuple(scan.fragment_id for scan in scans), partials)

    def merge(self, version: int) -> None:
        """Make statistics of all partials, for the version that is to hold them.

        Raises:
            PartialsGoneError: the state lost some of the partials meanwhile.
        """
        by_columns = self.partials()
        columns: dict[str, tuple[ColumnType, ColumnStatistics[Bound]]] = {}
        for column in self.table.fields:
            type = column_type(column.type)
            assert type is not None, f"{column.name} was planned, so it can be analyzed"
            merged = by_columns[(column.name,)]
            columns[column.name] = (type, column_statistics_of(merged, type))
        now = self._context.clock()
        values = encode_statistics(
            columns,
            rows=self.table.rows,
            schema_hash=self.table.schema_hash,
            computed_at_version=version,
            computed_at=now,
            newest_fragment=self.table.newest_fragment,
            joint=[
                JointStatistics(names, partial.distinct, partial.nulls)
                for names, partial in by_columns.items()
                if len(names) > 1
            ],
        )
        keys = tuple(
            key_result(names, by_columns[names])
            for key, names in self.table.needs.items()
            if partial_key(key).is_unique
        )
        bounds, kept = _private_bounds(columns), encode_kept(columns)
        self.record = self._record(now, values, bounds, kept, keys)

    def restamp(self, stage: RestampStatistics) -> None:
        """Keep the statistics, for another version.

        Raises:
            PartialsGoneError: the state lost some of the partials meanwhile.
        """
        self._finished()
        now = self._context.clock()
        values = restamp(
            dict(stage.values),
            computed_at_version=stage.version,
            computed_at=now,
            newest_fragment=self.table.newest_fragment,
        )
        bounds, kept = dict(stage.bounds), dict(stage.kept)
        record = self._record(now, values, bounds, kept, stage.keys)
        self.record = replace(record, is_restored=stage.is_restored)

    def _record(
        self,
        computed_at: datetime,
        values: Mapping[str, str],
        bounds: Mapping[str, tuple[str, str]],
        kept: Mapping[str, str],
        keys: tuple[KeyResult, ...],
    ) -> TableRecord:
        """Return what the state will remember, as of the version that was read."""
        table, ranges = self.table, count_ranges(self.table)
        return TableRecord(
            table=table.identity,
            node=self.node,
            version=table.version,
            published=False,
            content_digest=table.content_digest,
            schema_hash=table.schema_hash,
            rows=table.rows,
            fragments=table.fragments,
            computed_at=computed_at,
            columns=tuple(field.name for field in table.fields),
            values=values,
            bounds=bounds,
            manifest=table.pin.manifest,
            size_bytes=table.size_bytes,
            histograms=tuple(sorted(table.histograms)),
            special_keys=tuple(sorted(filter(is_special, table.wanted))),
            kept=kept,
            keys=keys,
            # Of one range for each fragment nothing is to be remembered.
            ranges=ranges if len(ranges) > 1 else (),
        )

    def partials(self) -> Mapping[Columns, ColumnPartial]:
        """Return the merged partials of all rows, by their columns.

        Raises:
            PartialsGoneError: the state lost some of the partials meanwhile, or what it has is not
                of as many rows as the table has.
        """
        finished = self._finished()
        needs = self.table.needs.items()
        merged = {names: finished.get(key, EMPTY_PARTIAL) for key, names in needs}
        for names, partial in merged.items():
            if partial.rows != self.table.rows:
                text = "the partials of %s of '%s' are of %s, of which the table has %d"
                rows = count(partial.rows, "row")
                _log.warning(text, ", ".join(names), self.node, rows, self.table.rows)
                raise PartialsGoneError
        return merged

    def _finished(self) -> dict[str, ColumnPartial]:
        """Return the merged partial per field key, and store the carried ones."""
        carried = []
        for carry, merges in self._carried:
            partials = _merged(merges)
            for key, partial in partials.items():
                self._total[key].add(partial, 1)
            carried.append(StoredPartials(tuple(sorted(carry.new)), partials))
        merged = _merged(self._total)
        if carried:
            add_partials(self._state, self.table.identity, carried)
        return merged

    @property
    def coverage(self) -> Coverage:
        """What is known of the fragments now, from before and of what was read and folded."""
        return replace(self._coverage, reuse=(*self._coverage.reuse, *self._read))

    def _stored(self) -> list[Reuse]:
        """Return what is stored of the fragments now, with what was carried."""
        coverage = self.coverage
        carried = (Reuse(tuple(sorted(one.new)), one.fields) for one in coverage.carries)
        return [*coverage.reuse, *carried]

    def publish(self, stage: PublishStatistics, *, even_late: bool) -> bool:
        """Publish the statistics, and return whether they stand; if not the table has moved on.

        With `even_late` other commits may have landed first.

        Raises:
            PublishError: they cannot be committed.
        """
        assert self.record is not None, "statistics are made before they are published"
        carrier = CARRIERS[stage.publish]
        landed = carrier.publish(
            self.table.pin,
            self.table.config,
            self.record.values,
            run=self._context.run_id,
            options=self._context.options.of(self.table.uri),
            even_late=even_late,
        )
        if landed is None:
            return False
        self._record_landed(landed, self.record.values, is_public=carrier.is_public)
        self._fold()
        return True

    def record_published(self, entries: Mapping[str, str]) -> bool:
        """Make the record and the summary of statistics that are published as these entries.

        Returns:
            Whether the partials give the same statistics; without that there is no record.
        """
        assert self.record is not None, "statistics are made before they are recorded"
        if not same_statistics(entries, self.record.values):
            self.record = None
            return False
        self._record_landed(self.table.pin, published_entries(entries), is_public=True)
        self._fold()
        return True

    def _record_landed(self, landed: Pin, values: Mapping[str, str], *, is_public: bool) -> None:
        """Make the record of statistics at the version that has them, and store their summary."""
        assert self.record is not None, "statistics are made before they are recorded"
        self.record = replace(
            self.record,
            version=landed.version,
            manifest=landed.manifest,
            values=values,
            published=is_public,
            rows_changed_at=self._rows_changed_at(landed),
        )
        self._sum_up(landed)

    def _sum_up(self, landed: Pin) -> None:
        """Store the summary of the groups of fragments, as far as the state can be written."""
        table, coverage, is_new = self.table, self.coverage, self._is_new
        try:
            store_summary(self._state, table, coverage, landed, at_hand=self.at_hand, is_new=is_new)
        except StateError as error:
            # The statistics are published: without a summary fewer fragments are ruled out.
            _log.warning("'%s' is not summed up by groups of fragments: %s", self.node, error)

    def _fold(self) -> None:
        """Fold what is stored, which comes last: it may take long, and a later run goes on."""
        assert self.record is not None, "statistics are published"
        fold = self.table.fold
        try:
            if fold > 1 and fold_stored(self._state, self.table, self._stored()):
                self.record = replace(self.record, fold=fold)
        except StateError as error:
            _log.warning(NOT_FOLDED, self.node, error)

    def _rows_changed_at(self, pin: Pin) -> datetime | None:
        """Return when rows last changed, which spares reports looking it up."""
        try:
            return pinned_rows_changed_at(pin, self._context.options.of(pin.uri))
        except LakeError as error:
            _log.info("when the rows of '%s' last changed is not known: %s", self.node, error)
            return None


def _expect(merges: _Merges, fields: Iterable[str], times: int = 1) -> None:
    for key in fields:
        merges[key].left += times


def _merged(merges: _Merges) -> dict[str, ColumnPartial]:
    if any(merge.left for merge in merges.values()):
        raise PartialsGoneError
    return {key: merge.partial for key, merge in merges.items() if merge.partial is not None}


def _fingerprints(scans: Iterable[Scan]) -> Fingerprints:
    return tuple(sorted(scan.fingerprint for scan in scans))


def _batches(scans: Iterable[ScanPartials]) -> Iterator[list[StoredPartials[bytes]]]:
    """Group what was scanned, so that the state gets few commits and a killed run keeps most."""
    batch: list[StoredPartials[bytes]] = []
    count = 0
    for some, partials in scans:
        batch.append(StoredPartials(_fingerprints(some), partials))
        count += weight(some[0].fields)
        if count >= PARTIALS_PER_COMMIT:
            yield batch
            batch, count = [], 0
    if batch:
        yield batch


def _private_bounds(
    columns: Mapping[str, tuple[ColumnType, ColumnStatistics[Bound]]],
) -> dict[str, tuple[str, str]]:
    return {
        name: (statistics.minimum.hex(), statistics.maximum.hex())
        for name, (_, statistics) in columns.items()
        if isinstance(statistics.minimum, bytes) and isinstance(statistics.maximum, bytes)
    }


@contextmanager
def table_runner(context: RunContext, assess: Assess) -> Iterator[TableRunner]:
    """Lend what runs the tables of a run."""
    options = context.options

    def advanced(node: str, fragments: int, size_bytes: int) -> None:
        context.events.emit(FragmentsRead(node, fragments, size_bytes))

    is_timed = context.allowance.seconds_left is not None
    spark = SparkScanner(
        context.spark, options, advanced, _BYTES_PER_TIMED_JOB if is_timed else None
    )
    with ProcessScanner(context.spec.target, advanced, options) as process:

        def scan(node: str, table: TableVersion, stage: ReadFragments) -> Iterable[Scanned]:
            scanner = process if stage.runs_on is RunsOn.PROCESS else spark
            return scanner.scan(node, table, stage.scans)

        def pause() -> None:
            process.cancel()
            spark.pause()

        yield TableRunner(context, scan, assess, process.cancel, pause)


@dataclass(frozen=True, slots=True)
class TableRunner:
    """Runs actions on tables; `scan` reads fragments, and `assess` looks at a table again.

    `cancel` stops what reads in this process, and `pause` what reads at all, on Spark between jobs.
    """

    context: RunContext
    scan: ScanTable
    assess: Assess
    cancel: Callable[[], None]
    pause: Callable[[], None]

    def run(self, action: TableAction | Skip) -> NodeEnded:
        """Carry out an action until its statistics are published for the version they describe."""
        if isinstance(action, Skip):
            return self._tidied(action)
        result, fragments, rows, size_bytes = planned(action), 0, 0, 0
        uses_stored = True
        for attempt in range(1, MAX_ATTEMPTS + 1):
            rows_by_fragment = {scan.fragment_id: scan.rows for scan in action.scans}
            fragments += len(rows_by_fragment)
            rows += sum(rows_by_fragment.values())
            size_bytes += sum(scan.size_bytes for scan in action.scans)
            # What was read counts over all attempts.
            result = replace(
                result, fragments_scanned=fragments, rows_scanned=rows, bytes_scanned=size_bytes
            )
            try:
                done = self._table_stages(action, even_late=attempt == MAX_ATTEMPTS)
                if action.is_part:
                    return NodeEnded(_part_result(result, action.figures))
                if done is not None:
                    return _table_ended(result, action, done)
                again = self._planned_again(action)
            except PartialsGoneError:
                # Another run may have folded them. What cannot be decoded is lost again.
                again = self._planned_again(action, uses_stored=uses_stored)
                uses_stored = False
            except REPLACED as error:
                _log.info("'%s' is planned again: %s", action.node, error.message)
                again = self._planned_again(action)
            except SessionLostError as error:
                _log.warning("'%s' goes on: %s", action.node, error)
                # What a run in full has stored, it cannot tell from what was there before.
                is_full = Reason.FULL_REFRESH in action.reasons
                again = action if is_full else self._planned_again(action)
            match again:
                case TableAction():
                    action = again
                case Skip(figures=Figures() as figures):
                    return NodeEnded(_table_result(result, figures))
                case Deferred():
                    stored = self.context.stored[action.node]
                    return NodeEnded(deferred(result, again.why, stored))
                case Blocked():
                    raise again.error
                case _:
                    raise AssertionError(f"no action on a table: {again}")
        raise TableKeepsChanging(
            f"the table changed during each of {MAX_ATTEMPTS} attempts to publish its statistics",
            hint="what was read is remembered: run again when the table is quieter",
        )

    def _tidied(self, action: Skip) -> NodeEnded:
        """Tidy up what the state has of a table whose statistics stand."""
        result = replace(planned(action), status=Status.SUCCESS)
        [stage] = action.stages
        spec = self.context.spec.node(action.node)
        assert isinstance(spec, Table), "what is skipped is a table"
        self.context.events.emit(StageReached(action.node, StageProgress(stage)))
        match stage:
            case FoldPartials():
                return self._folded(action, result, stage.fold, *self.assess(spec))
            case RecordStatistics():
                return self._recorded(action, result, stage.table.fold, *self.assess(spec))
            case _:
                raise AssertionError(f"no stage of what is skipped: {stage}")

    def _recorded(
        self,
        action: Skip,
        result: NodeResult,
        fold: int,
        assessment: TableAssessment,
        changes: TableChanges,
    ) -> NodeEnded:
        """Make the record of published statistics again, unless something has changed meanwhile."""
        found = read_missing(assessment, changes)
        found = replace(found, table=replace(found.table, fold=fold))
        unrecorded = NodeEnded(replace(result, notes=(*assessment.notes, STATE_LACKS)))
        if found.reading or assessment.finding.reason is not GuardReason.CURRENT:
            return NodeEnded(result)
        workspace = TableWorkspace(self.context, found, self.scan)
        try:
            if found.reusing:
                workspace.reuse(found.reusing.coverage)
            workspace.merge(found.table.version)
        except PartialsGoneError:
            _log.warning("stored partials of '%s' are gone: its record is not made", action.node)
            return unrecorded
        if not workspace.record_published(assessment.entries):
            text = "the published statistics of '%s' are not those that its stored partials give"
            _log.warning(text, action.node)
            return unrecorded
        ended = _table_ended(result, found, workspace)
        return replace(ended, result=result)

    def _folded(
        self,
        action: Skip,
        result: NodeResult,
        fold: int,
        assessment: TableAssessment,
        changes: TableChanges,
    ) -> NodeEnded:
        """Fold stored partials."""
        found, record = read_missing(assessment, changes), assessment.record
        table = replace(found.table, fold=fold)
        coverage = found.reusing.coverage if found.reusing else Coverage((), (), ())
        try:
            is_folded = fold_stored(self.context.state, table, coverage.reuse)
        except StateError as error:
            # The statistics stand: the state takes more until a later run folds it.
            _log.warning(NOT_FOLDED, action.node, error)
            return NodeEnded(result)
        done = replace(record, fold=fold) if record is not None and is_folded else None
        # What the next refresh carries over a compaction is needed until then.
        carried = chain.from_iterable(carry.sources for carry in coverage.carries)
        live = {table.identity: table.live.union(*carried)}
        stored = None if done is None else done.stored()
        return NodeEnded(result, stored, live=live, needed=_needed(table))

    def _table_stages(self, action: TableAction, *, even_late: bool) -> TableWorkspace | None:
        """The workspace after the last stage, None where the table has moved on meanwhile."""
        workspace = TableWorkspace(self.context, action, self.scan)
        for stage in action.stages:
            self.context.events.emit(StageReached(action.node, StageProgress(stage)))
            self.context.refuse_when_stopped(action.node)
            match stage:
                case ReusePartials():
                    workspace.reuse(stage.coverage)
                case ReadFragments():
                    workspace.read(stage)
                case MergePartials():
                    workspace.merge(stage.version)
                case RestampStatistics():
                    workspace.restamp(stage)
                case PublishStatistics():
                    if not self._publish(workspace, stage, even_late=even_late):
                        return None
                case _:
                    assert_never(stage)
        return workspace

    def _publish(
        self, workspace: TableWorkspace, stage: PublishStatistics, *, even_late: bool
    ) -> bool:
        """Publish as the workspace does; a table that is published stays in `publishing`."""
        is_published = False
        # Added before the look: whoever sets `stopped`, and then finds none here, has seen all.
        self.context.publishing.add(workspace.node)
        try:
            self.context.refuse_when_stopped(workspace.node)
            is_published = workspace.publish(stage, even_late=even_late)
        finally:
            if not is_published:
                self.context.publishing.discard(workspace.node)
        return is_published

    def _planned_again(self, action: TableAction, *, uses_stored: bool = True) -> Action:
        again = self.context.observer.plan_again(action.node, uses_stored=uses_stored)
        return self.context.allowance.take(again)


def _table_ended(result: NodeResult, action: TableAction, done: TableWorkspace) -> NodeEnded:
    assert done.record is not None, "publishing is the last stage"
    landed = done.record.version
    result = replace(
        _table_result(result, action.figures),
        version_published=landed if landed != action.table.version else None,
    )
    table = action.table
    live, versions = {table.identity: table.live}, {table.uri: table.version}
    needed = _needed(table)
    found = {**done.record.history_figures(), "bytes_read": result.bytes_scanned}
    if table.schema_change is not None:
        found["schema_change"] = table.schema_change
    stored, is_in_record = done.record.stored(), not done.record.published
    return NodeEnded(result, stored, found, live, versions, needed, is_in_record)


def _needed(table: TableVersion) -> Mapping[str, frozenset[str]]:
    """Return the fields that the state keeps of a table where a budget bounds it."""
    return {table.identity: frozenset(table.needs)} if table.fold > 1 else {}


def _part_result(result: NodeResult, figures: Figures) -> NodeResult:
    """The result of an action that has read what the budget had room for."""
    stored = count(figures.fragments_scanned, "fragment is", "fragments are")
    why = f"{stored} stored; the budget defers the rest, and statistics come once all are"
    return replace(_table_result(result, figures), status=Status.DEFERRED, message=why)


def _table_result(result: NodeResult, figures: Figures) -> NodeResult:
    """The result of an action whose last attempt had these figures."""
    return replace(
        result,
        status=Status.SUCCESS,
        fragments_total=figures.fragments_total,
        rows_total=figures.rows_total,
        version_read=figures.version_read,
    )
