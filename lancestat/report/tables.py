"""Reports of tables."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from types import MappingProxyType

from lancestat.errors.base import LakeError, LancestatError, SpecError
from lancestat.formats import age, count, format_instant, roughly, share, size, spoken
from lancestat.lake.fingerprint import field_key
from lancestat.lake.history import pinned_rows_changed_at
from lancestat.lake.snapshot import Fragment, Snapshot
from lancestat.query.fragments import FragmentStatistics, load_groups_of_tables
from lancestat.report.expectations import checks_of, failed_checks, other_tables
from lancestat.report.monitors import monitor_checks, monitors_of
from lancestat.report.relations import groups_of, refuted, relations_of
from lancestat.report.values import (
    Health,
    NodeReport,
    Problem,
    Reporter,
    failed,
    problem,
    seconds_since,
    unreadable,
    worst,
)
from lancestat.runs.actions import STATE_LACKS, UNRECORDED
from lancestat.runs.observe import Observer
from lancestat.runs.result import NodeCheck, PastRun
from lancestat.spec.expectations import Severity, referred
from lancestat.spec.model import Freshness, Node, Table, tables_of
from lancestat.state.values import PartialIndex, partial_key, table_identity
from lancestat.tables.coverage import cover
from lancestat.tables.expectations import CheckResult, CheckVerdict
from lancestat.tables.judgement import TableAssessment
from lancestat.tables.node import TableObserver, assess_table
from lancestat.tables.planner import stored_groups
from lancestat.tables.statistics.column_statistics import Histogram, equi_height
from lancestat.tables.table_status import TableStatus, table_status


@dataclass(frozen=True, slots=True)
class FragmentReport:
    """A fragment of a table; `covered` of the wanted columns have partials of it in the state.

    `rows` are live ones, `size_bytes` is that of its data files, None where it is not recorded.
    """

    id: int
    rows: int
    deleted_rows: int
    files: int
    size_bytes: int | None
    covered: int

    @classmethod
    def of(cls, fragment: Fragment, covered: int) -> FragmentReport:
        sizes = [file.size_bytes for file in fragment.files]
        known = [size for size in sizes if size is not None]
        return cls(
            id=fragment.id,
            rows=fragment.rows,
            deleted_rows=fragment.deleted_rows,
            files=len(fragment.files),
            size_bytes=sum(known) if len(known) == len(sizes) else None,
            covered=covered,
        )


@dataclass(frozen=True, slots=True)
class TableReport(NodeReport):
    """A table: its status as `show` prints it, and facts from the state and its history.

    `verdict` and `reason` are the
    guard's words under the declared policy; where the dataset cannot be opened they are `refuse`
    and `unreadable`, and `blocked` where it lacks a declared column or one cannot have
    statistics: `error` says why and `status` is None. `changed_at` is when rows last changed,
    as far as the history goes back, and `freshness` judges its age by the declared bounds, None
    where there are none. `checks` says what is known of what the rows are expected to be.
    """

    status: TableStatus | None = None
    changed_at: datetime | None = None
    freshness: Health | None = None
    histograms: Mapping[str, Histogram] = field(default_factory=dict)
    fragments: tuple[FragmentReport, ...] = ()
    checks: tuple[CheckResult, ...] = ()

    @property
    def reason(self) -> str:
        """The guard's reason."""
        return self.reasons[0]

    @property
    def made_at(self) -> datetime | None:
        return self.status.computed_at if self.status else None

    def node_checks(self, now: datetime) -> Iterator[NodeCheck]:
        name = self.spec.name
        if self.freshness is not None:
            since = "an unknown time" if self.changed_at is None else age(now - self.changed_at)
            severity = Severity.WARN if self.freshness is Health.WARN else Severity.ERROR
            detail = f"rows last changed {since} ago"
            yield NodeCheck(name, "freshness", self.freshness is Health.OK, severity.value, detail)
        columns = {str(each.name): each.check.columns for each in self.spec.expect}
        for check in self.checks:
            if check.verdict is not CheckVerdict.UNKNOWN:
                about = columns.get(check.check, ())
                yield NodeCheck(
                    name,
                    check.check,
                    check.verdict is CheckVerdict.PROVED,
                    check.severity.value,
                    check.detail,
                    about[0] if len(about) == 1 else None,
                )

    @property
    def words(self) -> Mapping[str, str]:
        verdict = {"verdict": spoken([self.reason])}
        if self.status is None:
            return verdict
        figures, behind = TableFigures.of(self.status), self.status.versions_behind
        return {
            **verdict,
            "behind": count(behind) if behind else "",
            "changed": figures.changed or "",
            "columns": f"{figures.covered}/{figures.selected}",
        }

    def cells(self) -> dict[str, object]:
        cells: dict[str, object] = {
            "reasons": list(self.reasons),
            "rows_changed_at": self.changed_at,
        }
        status = self.status
        if status is None:
            return cells
        return {
            **cells,
            "computed_at": status.computed_at,
            "rows": status.rows,
            "version": status.version,
            "versions_behind": status.versions_behind,
            "changed_rows": status.changed_rows,
            "columns_covered": len(status.columns),
            "columns_wanted": len(status.columns) + len(status.missing),
        }

    def to_json(self, now: datetime) -> dict[str, object]:
        status = self.status
        computed_at = status.computed_at if status else None
        return {
            "verdict": self.verdict,
            "reason": self.reason,
            "detail": status.detail if status else self.error.message if self.error else None,
            "policy": self.spec.policy.name,
            "version": status.version if status else None,
            "versions_behind": status.versions_behind if status else None,
            "computed_at": format_instant(computed_at) if computed_at else None,
            "age_seconds": seconds_since(computed_at, now),
            "changed_rows": status.changed_rows if status else None,
            "rows_changed_at": format_instant(self.changed_at) if self.changed_at else None,
            "rows_age_seconds": seconds_since(self.changed_at, now),
            "freshness": self._freshness(),
            "rows": status.rows if status else None,
            "fragments": status.fragments if status else None,
            "size_bytes": status.size_bytes if status else None,
            "disk_bytes": status.disk_bytes if status else None,
            "columns_analyzable": status.analyzable if status else None,
            "columns_wanted": len(status.columns) + len(status.missing) if status else None,
            "columns_covered": len(status.columns) if status else None,
            "columns_missing": list(status.missing) if status else None,
            "checks": [check.to_json() for check in self.checks],
        }

    def _freshness(self) -> dict[str, object] | None:
        bounds: Freshness | None = self.spec.freshness
        if bounds is None:
            return None
        warn, error = bounds.warn_after, bounds.error_after
        return {
            "status": self.freshness.value if self.freshness else None,
            "warn_after_seconds": None if warn is None else warn.total_seconds(),
            "error_after_seconds": None if error is None else error.total_seconds(),
        }


@dataclass(frozen=True, slots=True)
class TableFigures:
    """The figures of a table's content and statistics.

    `age` is that of the statistics; `behind` counts the versions since and `changed` is the share
    of rows that changed since, None where there are none or it is not known. `covered` of the
    `wanted` columns have statistics.
    """

    verdict: str
    rows: str
    size: str
    age: str | None
    behind: str | None
    changed: str | None
    covered: int
    selected: int

    @classmethod
    def of(cls, status: TableStatus) -> TableFigures:
        is_behind = bool(status.versions_behind)
        changed = status.changed_rows
        return cls(
            verdict=verdict_words(status.use, status.reason),
            rows=f"{count(status.rows, 'row')} in {count(status.fragments, 'fragment')}",
            size=f"{size(status.size_bytes)} decoded, {size(status.disk_bytes)} on disk",
            age=None if status.age is None else roughly(status.age),
            behind=count(status.versions_behind or 0, "version") if is_behind else None,
            changed=share(changed) if is_behind and changed is not None else None,
            covered=len(status.columns),
            selected=len(status.columns) + len(status.missing),
        )


def observed_status(observer: Observer, name: str) -> TableStatus:
    """Return the status of a table as it is now, with what is known of its relations.

    Raises:
        UnknownTable: No table has this name.
        LancestatError: The dataset cannot be opened or lacks a declared column.
    """

    def assessed(name: str) -> TableAssessment | None:
        try:
            return assess_table(observer, observer.spec.table(name))[0]
        except LancestatError:
            return None

    assessment, changes = assess_table(observer, observer.spec.table(name))
    _, covered = fragment_coverage(assessment, changes.index)
    relations = relations_of(assessment, groups_of(observer.state), assessed)
    return table_status(assessment, observer.clock(), covered, observer.spec.redactor, relations)


def verdict_words(is_used: bool, reason: str) -> str:
    """Return what readers do with the statistics, and why: `refused: stale`."""
    return f"{'used' if is_used else 'refused'}: {spoken([reason])}"


def fragment_coverage(
    assessment: TableAssessment, index: PartialIndex
) -> tuple[tuple[FragmentReport, ...], Mapping[str, int]]:
    """Count the stored content of a table; content that a compaction moved does not count."""
    by_fragment: Counter[int] = Counter()
    by_key: Counter[str] = Counter()
    for group, keys in cover(stored_groups(assessment), index, ()).missing:
        columns_missing = [key.fields[0] for key in map(partial_key, keys) if not key.is_joint]
        by_fragment[group.fragment_id] += len(columns_missing)
        by_key.update(columns_missing)
    columns, fragments = assessment.columns, assessment.snapshot.fragments
    return (
        tuple(
            FragmentReport.of(fragment, len(columns) - by_fragment[fragment.id])
            for fragment in fragments
        ),
        {field.name: len(fragments) - by_key[field_key(field)] for field in columns},
    )


_log = logging.getLogger("lancestat.report")


# A table with when its rows last changed, as far as that is known, or why it cannot be looked at.
_Looked = tuple[TableAssessment, datetime | None] | LancestatError


class TableReporter(Reporter):
    """Makes reports of tables from what was observed; what a run would do is not asked for."""

    indexes: Mapping[str, PartialIndex] = MappingProxyType({})
    groups: Mapping[str, FragmentStatistics] = MappingProxyType({})

    def prepare(self, nodes: Sequence[Node]) -> None:
        """Read what the state has of all tables among some nodes in one pass."""
        self._looked: dict[str, _Looked] = {}
        if self.with_fragments:
            identities = frozenset(table_identity(table.uri) for table in tables_of(nodes))
            self.indexes = self.observed.state.partial_indexes(identities)
        self.groups = load_groups_of_tables(self.observed.state, self._judged(tables_of(nodes)))

    def _judged(self, tables: Iterable[Table]) -> Mapping[str, tuple[Snapshot, Collection[str]]]:
        """Return the tables that are judged by their groups, with the columns that decide."""
        names: dict[str, set[str]] = {}
        for table in tables:
            uses_groups = table.keys or table.groups or table.common_values or table.references
            if uses_groups or table.expect or (self.with_histograms and table.histogram):
                own = names.setdefault(table.name, set())
                own.update(*(each.check.columns for each in table.expect))
                own.update(self._with_common_values(table))
            for reference in (*table.references, *referred(table.expect)):
                own.update(reference.columns)
                names.setdefault(reference.table, set()).update(reference.to)
        judged: dict[str, tuple[Snapshot, Collection[str]]] = {}
        for name, columns in names.items():
            node = self.observed.spec.node(name)
            snapshot = self.observed.snapshots.get(node.uri) if isinstance(node, Table) else None
            if isinstance(snapshot, Snapshot):
                judged[table_identity(snapshot.uri)] = snapshot, columns
        return judged

    def _with_common_values(self, table: Table) -> Iterator[str]:
        """Yield the columns whose common values may be shown."""
        common, snapshot = table.common_values, self.observed.snapshots.get(table.uri)
        if common is not None and common.show and isinstance(snapshot, Snapshot):
            fields = (field.name for field in snapshot.fields)
            yield from fields if common.columns is None else common.columns

    def _groups(self, assessment: TableAssessment) -> FragmentStatistics:
        known = self.groups.get(assessment.identity)
        return groups_of(self.observed.state)(assessment) if known is None else known

    def look(self, node: Table) -> None:
        """Look at a table, and back where it has moved on."""
        try:
            assessment = TableObserver(self.observed).assess(node)
            assessment.verdict(self.now)
            self._looked[node.name] = assessment, self._changed_at(assessment)
        except LancestatError as error:
            self._looked[node.name] = error

    def report(self, node: Table, runs: tuple[PastRun, ...]) -> TableReport:
        """The report of one table, also of one that cannot be opened."""
        looked = self._looked[node.name]
        try:
            if isinstance(looked, LancestatError):
                raise looked
            return self._report(*looked, runs)
        except LancestatError as error:
            problems = [unreadable(error), *failed(runs, self.now, error)]
            return TableReport(
                spec=node,
                health=Health.ERROR,
                problems=tuple(sentence for _, sentence in problems),
                verdict="refuse",
                reasons=("blocked" if isinstance(error, SpecError) else "unreadable",),
                error=error,
                runs=runs,
            )

    def _report(
        self,
        assessment: TableAssessment,
        changed_at: datetime | None,
        runs: tuple[PastRun, ...],
    ) -> TableReport:
        table = assessment.spec
        index = self.indexes.get(assessment.identity)
        fragments, covered = fragment_coverage(assessment, index) if index else ((), None)
        spec, state, other = self.observed.spec, self.observed.state, other_tables(self.observed)
        relations = relations_of(assessment, self._groups, other)
        status = table_status(assessment, self.now, covered, spec.redactor, relations)
        history = self.histories.get(assessment.identity, ())
        checks = (
            *checks_of(assessment, state, self._groups, other),
            *monitor_checks(monitors_of(table, spec), history, assessment, self.now),
        )
        problems = [
            *refused(status, assessment),
            *failed(runs, self.now),
            *outdated(table.freshness, changed_at, self.now),
            *uncovered(status),
            *lacking(status),
            *refuted(relations),
            *failed_checks(checks),
            *(problem(Health.WARN, warning) for warning in assessment.resolved.warnings),
        ]
        return TableReport(
            spec=table,
            health=worst(problems),
            problems=tuple(sentence for _, sentence in problems),
            verdict="use" if status.use else "refuse",
            reasons=(status.reason,),
            status=status,
            changed_at=changed_at,
            freshness=freshness_of(table.freshness, changed_at, self.now),
            histograms=self._histograms(assessment),
            fragments=fragments,
            checks=checks,
            runs=runs,
        )

    def _changed_at(self, assessment: TableAssessment) -> datetime | None:
        record, pin = assessment.record, assessment.snapshot.pin
        if record is not None and record.rows_changed_at is not None and record.describes(pin):
            return record.rows_changed_at
        try:
            return pinned_rows_changed_at(pin, self.observed.spec.options.of(pin.uri))
        except LakeError as error:
            _log.warning("when rows last changed is not known: %s", error.message)
            return None

    def _histograms(self, assessment: TableAssessment) -> Mapping[str, Histogram]:
        if not (self.with_histograms and assessment.histograms):
            return {}
        known = self._groups(assessment)
        names = [field.name for field in assessment.columns if field.name in assessment.histograms]
        known.load(names)
        # Spark takes NaN for the largest number, and people do not.
        made = {
            name: equi_height(
                replace(partial, rows=partial.rows - partial.nans, nans=0), assessment.types[name]
            )
            for name in names
            if (partial := known.partial(name)) is not None
        }
        return {name: histogram for name, histogram in made.items() if histogram is not None}


def refused(status: TableStatus, assessment: TableAssessment) -> list[Problem]:
    """Return the guard's objection to the statistics under the declared policy, if there is one."""
    if status.use:
        return []
    if status.reason == "absent":
        return [problem(Health.ERROR, _ABSENT[_had_statistics(assessment)])]
    if status.reason == "schema_changed":
        health = Health.WARN if status.is_tolerated else Health.ERROR
        return [
            problem(
                health, f"{status.detail}; readers refuse its statistics, the next run refreshes"
            )
        ]
    return [problem(Health.ERROR, f"readers refuse its statistics: {status.detail}")]


_ABSENT = {
    False: "it has no statistics yet",
    True: "it no longer has the statistics of its last run: the table was restored or replaced, or "
    "they were removed",
}


def _had_statistics(assessment: TableAssessment) -> bool:
    """Whether a run has put statistics where the declaration keeps them."""
    record = assessment.record
    return record is not None and (record.published or not assessment.carrier.is_public)


_NAMES_LISTED = 5


def uncovered(status: TableStatus) -> list[Problem]:
    """Wanted columns without statistics, where nothing else explains it."""
    if not status.missing or status.reason in ("absent", "schema_changed"):
        return []
    names, more = ", ".join(status.missing[:_NAMES_LISTED]), len(status.missing) - _NAMES_LISTED
    listed = f"{names} and {count(more)} more" if more > 0 else names
    text = count(len(status.missing), "wanted column has", "wanted columns have")
    return [problem(Health.WARN, f"{text} no statistics: {listed}")]


def lacking(status: TableStatus) -> list[Problem]:
    """What a lost state takes along, of statistics that are published and current."""
    notes = (note for note in (UNRECORDED, STATE_LACKS) if note in status.skipped)
    return [problem(Health.WARN, note) for note in notes]


def freshness_of(
    bounds: Freshness | None, changed_at: datetime | None, now: datetime
) -> Health | None:
    """Judge the age of the newest rows by the declared bounds, None where there are none.

    Source: dbt's `freshness`: older than `error_after` is an error, else older than `warn_after` a
    warning. Rows whose age is not known are a warning.
    """
    if bounds is None:
        return None
    if changed_at is None:
        return Health.WARN
    old = now - changed_at
    if bounds.error_after is not None and old > bounds.error_after:
        return Health.ERROR
    return Health.WARN if bounds.warn_after is not None and old > bounds.warn_after else Health.OK


def outdated(bounds: Freshness | None, changed_at: datetime | None, now: datetime) -> list[Problem]:
    """Rows that are older than they may be."""
    health = freshness_of(bounds, changed_at, now)
    if bounds is None or health is None or health is Health.OK:
        return []
    if changed_at is None:
        return [problem(health, "how old its newest rows are is not known")]
    key = "error_after" if health is Health.ERROR else "warn_after"
    bound = bounds.error_after if health is Health.ERROR else bounds.warn_after
    limit = bounds.templates.get(key) or age(bound or timedelta())
    return [problem(health, f"its rows last changed {age(now - changed_at)} ago, {key} is {limit}")]
