"""Runs tables: fragments are read in this process or on Spark, and statistics published."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime

from typing_extensions import assert_never

from lancestat.errors import StateError, TableKeepsChanging
from lancestat.lake.fingerprint import Fingerprint
from lancestat.lake.open import REPLACED
from lancestat.runs.actions import Action, Blocked, Figures, Reason, RunsOn, Skip, StageProgress
from lancestat.runs.execute import MAX_ATTEMPTS, RunContext
from lancestat.runs.node import NodeEnded
from lancestat.runs.result import NodeResult, Status, planned
from lancestat.spark.failure import SessionLostError
from lancestat.state.store import LanceState
from lancestat.state.values import StoredPartials, weight
from lancestat.tables.action import (
    MergePartials,
    PublishStatistics,
    ReadFragments,
    RestampStatistics,
    ReusePartials,
    Scan,
    TableAction,
    TableVersion,
)
from lancestat.tables.analyze import ProcessScanner, SparkScanner
from lancestat.tables.carriers import CARRIERS
from lancestat.tables.coverage import (
    Carry,
    Coverage,
    RunningMerge,
    reuse_groups,
    store_summary,
    stored_keys,
)
from lancestat.tables.statistics.column_statistics import ColumnStatistics, column_statistics_of
from lancestat.tables.statistics.column_type import ColumnType, column_type
from lancestat.tables.statistics.partial import EMPTY_PARTIAL, Bound, ColumnPartial
from lancestat.tables.stored import TableRecord, add_partials, read_partials, stored_record
from lancestat.tables.wire import (
    encode_kept,
    encode_statistics,
    restamp,
)

Fingerprints = tuple[Fingerprint, ...]


class PartialsGoneError(Exception):
    """The state no longer has, or cannot decode, partials that the plan counted on."""


_Merges = dict[str, RunningMerge]


class Assembly:
    """Merges what covers a table, each (fragment, column) once, holding one partial per column.

    Announce what is to come (`expect_stored`, `expect_scans`), feed it every stored and every
    scanned partial, in any order, then `finish`.
    """

    def __init__(self) -> None:
        self._total: _Merges = defaultdict(RunningMerge)
        self._carried: list[tuple[Carry, _Merges]] = []
        # The fields that a fetched row gives to merges, and how many times.
        self._takers: dict[Fingerprints, list[tuple[frozenset[str], int, _Merges]]] = defaultdict(
            list
        )

    def _expect(self, merges: _Merges, fields: Iterable[str], times: int = 1) -> None:
        for key in fields:
            merges[key].left += times

    def expect_stored(self, coverage: Coverage, known: Mapping[str, ColumnPartial]) -> None:
        """Expect the stored partials of a coverage; `known` is merged of those it leaves out."""
        for key, partial in known.items():
            self._total[key].add(partial)
        for item in coverage.reuse:
            self._takers[item.fingerprints].append((item.fields, item.times, self._total))
            self._expect(self._total, item.fields, item.times)
        for carry in coverage.carries:
            merges: _Merges = defaultdict(RunningMerge)
            self._carried.append((carry, merges))
            self._expect(self._total, carry.fields)
            self._expect(merges, carry.fields, len(carry.sources))
            for source in carry.sources:
                self._takers[source].append((carry.fields, 1, merges))

    def expect_scans(self, scans: Iterable[Scan]) -> None:
        for scan in scans:
            self._expect(self._total, scan.fields)

    def add_scanned(self, partials: Mapping[str, ColumnPartial]) -> None:
        """Take in the partials of one scan."""
        for key, partial in partials.items():
            self._total[key].add(partial, 1)

    def add_stored(self, stored: StoredPartials[ColumnPartial]) -> None:
        """Take in a stored row that the coverage reuses or carries over."""
        for fields, times, merges in self._takers.get(stored.fingerprints, ()):
            for key in fields & stored.partials.keys():
                merges[key].add(stored.partials[key], times)

    def finish(self) -> tuple[dict[str, ColumnPartial], list[StoredPartials[ColumnPartial]]]:
        """Return the merged partial per field key, and the carried ones to remember.

        Raises:
            PartialsGoneError: not everything that was expected was fed.
        """
        to_store = []
        for carry, merges in self._carried:
            partials = _merged(merges)
            self.add_scanned(partials)
            to_store.append(StoredPartials(tuple(sorted(carry.new)), partials))
        return _merged(self._total), to_store


def _merged(merges: _Merges) -> dict[str, ColumnPartial]:
    if any(merge.left for merge in merges.values()):
        raise PartialsGoneError
    return {key: merge.partial for key, merge in merges.items() if merge.partial is not None}


_log = logging.getLogger("lancestat.run")

PARTIALS_PER_COMMIT = 8_192
# Up to so many partials of a table, 2 MB, are kept for its summary rather than read again.
_PARTIALS_KEPT = 512


@dataclass(frozen=True, slots=True)
class ScanTotals:
    """The fragments and rows that were read for a table, over all attempts."""

    fragments: int = 0
    rows: int = 0

    def plus(self, scans: Iterable[Scan]) -> ScanTotals:
        rows = {scan.fragment_id: scan.rows for scan in scans}
        return ScanTotals(self.fragments + len(rows), self.rows + sum(rows.values()))


ScannedPartials = Iterable[tuple[Scan, Mapping[str, ColumnPartial]]]
# Reads the scans of a stage of a table, and yields each with its partials by field key.
ScanTable = Callable[[str, TableVersion, ReadFragments], ScannedPartials]


@dataclass
class TableWorkspace:
    """The intermediate results that the stages of one table share.

    `scan` reads fragments. `is_new` says that the state had nothing of use for the table.
    `on_stored` receives how many more fragments have been read and are in the state. `record` is
    what the state is to remember, of the version that the statistics stand for once published.
    """

    node: str
    table: TableVersion
    state: LanceState
    scan: ScanTable
    storage_options: Mapping[str, str]
    run_id: str
    clock: Callable[[], datetime]
    is_new: bool = False
    on_stored: Callable[[int], None] = lambda fragments: None
    assembly: Assembly = field(default_factory=Assembly)
    coverage: Coverage = field(default_factory=lambda: Coverage((), (), ()))
    scanned: dict[Fingerprint, Mapping[str, ColumnPartial]] = field(default_factory=dict)
    record: TableRecord | None = None

    def reuse(self, coverage: Coverage) -> None:
        """Merge stored partials, groups of fragments first."""
        self.coverage = coverage
        known, rest = reuse_groups(self.state, self.table, coverage)
        self.assembly.expect_stored(rest, known)
        keys = stored_keys(rest)
        if keys:
            for stored in read_partials(self.state, self.table.identity, keys):
                self.assembly.add_stored(stored)

    def read(self, stage: ReadFragments) -> None:
        """Read fragments, storing their partials on the way, so that a killed run keeps most."""
        self.assembly.expect_scans(stage.scans)
        are_few = sum(weight(scan.fields) for scan in stage.scans) <= _PARTIALS_KEPT
        for batch in _batches(self.scan(self.node, self.table, stage)):
            for scanned in batch:
                self.assembly.add_scanned(scanned.partials)
            add_partials(self.state, self.table.identity, batch)
            self.on_stored(len(batch))
            if are_few:
                self.scanned.update({one.fingerprints[0]: one.partials for one in batch})

    def merge(self, version: int) -> None:
        """Make statistics of all partials, for the version that is to hold them.

        Raises:
            PartialsGoneError: the state lost some of the partials meanwhile.
        """
        partials = self._finished()
        columns: dict[str, tuple[ColumnType, ColumnStatistics[Bound]]] = {}
        for column in self.table.fields:
            type = column_type(column.type)
            assert type is not None, f"{column.name} was planned, so it can be analyzed"
            merged = partials.get(self.table.stored_key(column), EMPTY_PARTIAL)
            columns[column.name] = (type, column_statistics_of(merged, type))
        now = self.clock()
        values = encode_statistics(
            columns,
            rows=self.table.rows,
            schema_hash=self.table.schema_hash,
            computed_at_version=version,
            computed_at=now,
            newest_fragment=self.table.newest_fragment,
        )
        self.record = self._record(now, values, _private_bounds(columns), encode_kept(columns))

    def restamp(self, stage: RestampStatistics) -> None:
        """Keep the statistics, for another version.

        Raises:
            PartialsGoneError: the state lost some of the partials meanwhile.
        """
        self._finished()
        now = self.clock()
        values = restamp(
            dict(stage.values),
            computed_at_version=stage.version,
            computed_at=now,
            newest_fragment=self.table.newest_fragment,
        )
        self.record = self._record(now, values, dict(stage.bounds), dict(stage.kept))

    def _record(
        self,
        computed_at: datetime,
        values: Mapping[str, str],
        bounds: Mapping[str, tuple[str, str]],
        kept: Mapping[str, str],
    ) -> TableRecord:
        """Return what the state will remember, as of the version that was read."""
        table = self.table
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
            histograms=tuple(sorted(table.histograms)),
            kept=kept,
        )

    def _finished(self) -> dict[str, ColumnPartial]:
        partials, carried = self.assembly.finish()
        if carried:
            add_partials(self.state, self.table.identity, carried)
        return partials

    def publish(self, stage: PublishStatistics, *, even_late: bool) -> bool:
        """Publish the statistics, and return whether they stand; if not the table has moved on.

        With `even_late` other commits may have landed first.

        Raises:
            PublishError: they cannot be committed.
        """
        assert self.record is not None, "statistics are made before they are published"
        carrier = CARRIERS[stage.publish]
        landed = carrier.publish(
            self.table,
            self.record.values,
            run=self.run_id,
            options=self.storage_options,
            even_late=even_late,
        )
        if landed is None:
            return False
        self.record = replace(
            self.record,
            version=landed.version,
            manifest=landed.manifest,
            published=carrier.is_public,
        )
        try:
            store_summary(
                self.state,
                self.table,
                self.coverage,
                landed,
                scanned=self.scanned,
                is_new=self.is_new,
            )
        except StateError as error:
            # The statistics are published: without a summary fewer fragments are ruled out.
            _log.warning("'%s' is not summed up by groups of fragments: %s", self.node, error)
        return True


def _batches(
    results: Iterable[tuple[Scan, Mapping[str, ColumnPartial]]],
) -> Iterator[list[StoredPartials[ColumnPartial]]]:
    """Group what was scanned, so that the state gets few commits and a killed run keeps most."""
    batch: list[StoredPartials[ColumnPartial]] = []
    count = 0
    try:
        for scan, partials in results:
            batch.append(StoredPartials((scan.fingerprint,), partials))
            count += weight(scan.fields)
            if count >= PARTIALS_PER_COMMIT:
                yield batch
                batch, count = [], 0
    except (Exception, KeyboardInterrupt):
        # What was read before reading failed or was interrupted is not read again.
        if batch:
            yield batch
        raise
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
def table_runner(context: RunContext) -> Iterator[TableRunner]:
    """Lend what runs the tables of a run."""
    advanced, options = context.progress.advanced, context.options
    spark = SparkScanner(context.spark, options, advanced)
    with ProcessScanner(context.spec.target, advanced, options) as process:

        def scan(node: str, table: TableVersion, stage: ReadFragments) -> ScannedPartials:
            scanner = process if stage.runs_on is RunsOn.PROCESS else spark
            return scanner.scan(node, table, stage.scans)

        yield TableRunner(context, scan, process.cancel)


@dataclass(frozen=True, slots=True)
class TableRunner:
    """Runs actions on tables; `scan` reads fragments, `cancel` stops what reads in this process."""

    context: RunContext
    scan: ScanTable
    cancel: Callable[[], None]

    def run(self, action: TableAction) -> NodeEnded:
        """Carry out an action until its statistics are published for the version they describe."""
        result, scanned = planned(action), ScanTotals()
        for attempt in range(1, MAX_ATTEMPTS + 1):
            scanned = scanned.plus(action.scans)
            try:
                done = self._table_stages(action, even_late=attempt == MAX_ATTEMPTS)
                if done is not None:
                    return _table_ended(result, action, scanned, done)
                again = self._planned_again(action)
            except PartialsGoneError:
                again = self._planned_again(action, uses_stored=False)
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
                    return NodeEnded(_table_result(result, figures, scanned))
                case Blocked():
                    raise again.error
                case _:
                    raise AssertionError(f"no action on a table: {again}")
        raise TableKeepsChanging(
            f"the table changed during each of {MAX_ATTEMPTS} attempts to publish its statistics",
            hint="what was read is remembered: run again when the table is quieter",
        )

    def _table_stages(self, action: TableAction, *, even_late: bool) -> TableWorkspace | None:
        """The workspace after the last stage, None where the table has moved on meanwhile."""
        workspace = TableWorkspace(
            action.node,
            action.table,
            self.context.state,
            self.scan,
            self.context.options.of(action.table.uri),
            self.context.run_id,
            self.context.clock,
            is_new=action.verb == "analyze",
            on_stored=lambda fragments: self.context.stored.update({action.node: fragments}),
        )
        for stage in action.stages:
            self.context.progress.at_stage(action.node, StageProgress(stage))
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
        return self.context.observer.plan_again(action.node, uses_stored=uses_stored)


def _table_ended(
    result: NodeResult, action: TableAction, scanned: ScanTotals, done: TableWorkspace
) -> NodeEnded:
    assert done.record is not None, "publishing is the last stage"
    landed = done.record.version
    result = replace(
        _table_result(result, action.figures, scanned),
        version_published=landed if landed != action.table.version else None,
    )
    live = {action.table.identity: action.table.live}
    return NodeEnded(result, stored_record(done.record), live)


def _table_result(result: NodeResult, figures: Figures, scanned: ScanTotals) -> NodeResult:
    """The result of an action whose last attempt had these figures."""
    return replace(
        result,
        status=Status.SUCCESS,
        fragments_total=figures.fragments_total,
        fragments_scanned=scanned.fragments,
        rows_total=figures.rows_total,
        rows_scanned=scanned.rows,
        version_read=figures.version_read,
    )
