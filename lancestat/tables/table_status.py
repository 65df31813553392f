"""One table's statistics as a reader would see them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from lancestat import display
from lancestat.formats import count, spoken, visible
from lancestat.lake.snapshot import is_readable_name
from lancestat.redact import EMPTY_REDACTOR, Redactor
from lancestat.tables.judgement import TableAssessment
from lancestat.tables.planner import notes_of
from lancestat.tables.relations import NO_RELATIONS, Relations
from lancestat.tables.statistics.column_statistics import BOUNDED_KINDS
from lancestat.tables.statistics.column_type import ColumnType, Kind, decoded_size, shown_bound
from lancestat.tables.wire import GuardReason, PublishedColumn


@dataclass(frozen=True, slots=True)
class TableStatus(display.Rows):
    """The statistics of one table under its policy, as `lancestat show` prints them.

    `size_bytes` estimates the decoded size of all columns, `disk_bytes` that of the data files.
    `columns` is what is published or kept, used or refused, `kept` names those of a type that is
    not published, `unbounded` those whose values have no bounds that Spark can take, as far as
    lancestat wrote the statistics, and `analyzable` counts the columns that could have statistics.
    Bounds of strings and binary are cut (`bound_text.shown_bound`), and left out under
    `show_values: false`.
    `versions_behind`, `age` and `changed_rows` (a share) are None where nothing is published or it
    cannot be found out. `covered` has, by wanted column, in how many fragments the state knows it,
    None where it was not asked. `types` are Spark's, of the columns that can have statistics.
    `relations` has groups, keys, references and the common values that people may see.
    `is_tolerated` is set if the policy would accept the statistics of a table whose columns have
    changed, which no reader uses. It prints as `lancestat show` does, and has a row per column.
    """

    table: str
    uri: str
    version: int
    use: bool
    reason: str
    detail: str
    policy: str | None
    rows: int
    fragments: int
    size_bytes: int
    disk_bytes: int
    computed_at: datetime | None
    columns: Mapping[str, PublishedColumn]
    dropped: Mapping[str, str]
    analyzable: int
    missing: tuple[str, ...]
    skipped: tuple[str, ...]
    versions_behind: int | None
    age: timedelta | None
    changed_rows: float | None
    covered: Mapping[str, int] | None = None
    types: Mapping[str, str] = field(default_factory=dict)
    is_tolerated: bool = False
    kept: frozenset[str] = frozenset()
    unbounded: tuple[str, ...] = ()
    relations: Relations = NO_RELATIONS
    redactor: Redactor = field(default=EMPTY_REDACTOR, repr=False, compare=False)

    def __repr__(self) -> str:
        verdict = f"statistics {'used' if self.use else 'refused'}: {spoken([self.reason])}"
        columns = count(len(self.columns), "column")
        return display.summary(self, f"{self.table}, version {self.version}, {columns}, {verdict}")

    @property
    def unbounded_words(self) -> str:
        """Why bounds of columns are blank, in words; empty where none are."""
        why = "since values are NaN, infinite or beyond Spark's type"
        names = ", ".join(map(visible, self.unbounded))
        return f"no bounds or distinct count, {why}: {names}" if names else ""


def table_status(
    assessment: TableAssessment,
    now: datetime,
    covered: Mapping[str, int] | None = None,
    redactor: Redactor = EMPTY_REDACTOR,
    relations: Relations = NO_RELATIONS,
) -> TableStatus:
    """Judge a table's statistics under its policy, and gather all that is known of them."""
    statistics = assessment.published
    behind = assessment.snapshot.version - statistics.version_tag if statistics else None
    verdict = assessment.verdict(now)
    columns = _columns(assessment)
    lengths = {name: column.average_length for name, column in columns.items()}
    known = {name: length for name, length in lengths.items() if length is not None}
    snapshot = assessment.snapshot
    computed_at = statistics.computed_at if statistics else None
    has_changed = verdict.reason is GuardReason.SCHEMA_CHANGED
    return TableStatus(
        table=assessment.spec.name,
        uri=assessment.spec.uri,
        version=snapshot.version,
        use=verdict.use,
        reason=verdict.reason.value,
        detail=verdict.detail,
        policy=assessment.spec.policy.name,
        rows=snapshot.rows,
        fragments=len(snapshot.fragments),
        size_bytes=decoded_size(snapshot.rows, snapshot.fields, known),
        disk_bytes=snapshot.size_bytes,
        computed_at=computed_at,
        columns=columns,
        dropped=statistics.dropped if statistics else {},
        analyzable=sum(map(is_readable_name, assessment.types)),
        missing=tuple(f.name for f in assessment.columns if f.name not in columns),
        skipped=notes_of(assessment, verdict),
        versions_behind=behind,
        age=now - computed_at if computed_at else None,
        changed_rows=assessment.changed_rows,
        covered=covered,
        types={name: type.spark_type for name, type in assessment.types.items()},
        redactor=redactor,
        is_tolerated=has_changed and assessment.accepts_distance(now),
        kept=frozenset(assessment.kept),
        unbounded=tuple(_unbounded(assessment, columns)),
        relations=relations,
    )


def _unbounded(
    assessment: TableAssessment, columns: Mapping[str, PublishedColumn]
) -> Iterator[str]:
    """Yield the columns with values and without bounds.

    They have no distinct count either, while a column without values has the count 0.
    """
    published = assessment.published
    if published is not None and published.revision is None:
        return
    for name, column in columns.items():
        type = assessment.types.get(name)
        is_blank = column.minimum is None and column.distinct is None
        if is_blank and type is not None and type.kind in BOUNDED_KINDS:
            yield name


def _with_zone(column: PublishedColumn, type: ColumnType | None) -> PublishedColumn:
    """Mark the bounds of instants, which are in UTC, unlike those of timestamps without a zone."""
    low, high = column.minimum, column.maximum
    if type is None or type.kind is not Kind.TIMESTAMP or low is None or high is None:
        return column
    return replace(column, minimum=f"{low}Z", maximum=f"{high}Z")


def _columns(assessment: TableAssessment) -> dict[str, PublishedColumn]:
    """Return what is known of columns, in the order of the schema."""
    published = assessment.published
    known = {**(published.columns if published else {}), **assessment.kept}
    columns = {
        f.name: _with_zone(known[f.name], assessment.types.get(f.name))
        for f in assessment.snapshot.fields
        if f.name in known
    }
    if assessment.remembered is None or not assessment.spec.show_values:
        return columns
    for name, bounds in assessment.remembered.bounds.items():
        type = assessment.types.get(name)
        if name in columns and type is not None and type.is_variable_width:
            with suppress(ValueError):
                low, high = (shown_bound(bytes.fromhex(bound), type) for bound in bounds)
                columns[name] = replace(columns[name], minimum=low, maximum=high)
    return columns
