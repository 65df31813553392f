"""The guard: the statistics of one table as its readers get them, and whether they may be used.

It decides in two steps. A `Finding` says what the statistics are: current, stale, or unusable and
why. A `Verdict` says whether they are used under a policy, which may accept stale ones.

All that use statistics, show them or decide whether to refresh them use this module: the readers
(`attach`, `read_table`, `lancestat sql`), `show`, `status`, `docs`, the system views and the
planner. Other code that looked at tags, policies or histories could answer differently.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any

from typing_extensions import Self

from lancestat.errors import (
    InvalidColumnChoice,
    LakeError,
    ReferenceMismatch,
    SpecError,
    did_you_mean,
)
from lancestat.formats import count, quoted
from lancestat.lake.fingerprint import ColumnGroup, field_key, schema_hash
from lancestat.lake.history import Effect, History, rows_changed_between
from lancestat.lake.snapshot import UNREADABLE_NAME, Field, Snapshot, is_readable_name
from lancestat.spec.column_selection import AvailableColumn, ResolvedColumns, check_named
from lancestat.spec.model import Publish, StaleBounds, Table
from lancestat.state.values import PartialIndex, PartialKey, capacity_for, is_special
from lancestat.tables.carriers import CARRIERS, Carrier
from lancestat.tables.coverage import Rewritten
from lancestat.tables.relations import KeyStatus
from lancestat.tables.statistics.column_statistics import HISTOGRAM_KINDS
from lancestat.tables.statistics.column_type import ColumnType, column_type
from lancestat.tables.stored import TableRecord
from lancestat.tables.wire import (
    SCHEMA_HASH,
    Finding,
    GuardReason,
    PublishedColumn,
    PublishedStatistics,
    decode_kept,
    decode_statistics,
    is_altered,
    newest_fragment,
    same_statistics,
    version_tag,
)

_log = logging.getLogger("lancestat.read")

_NAMES_LISTED = 5
# What leaves keys as they are.
_KEYS_STAY = frozenset({Effect.ROWS_UNCHANGED, Effect.REWRITTEN, Effect.DELETED})


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether statistics are used under a policy; `statistics` is None unless they are.

    `detail` is the reason in a few words for people.
    """

    reason: GuardReason
    detail: str
    statistics: PublishedStatistics | None = None

    @property
    def use(self) -> bool:
        """Whether they are used."""
        return self.reason in (GuardReason.CURRENT, GuardReason.STALE_ACCEPTED)


def examine(decoded: PublishedStatistics | Finding, *, version: int, schema_hash: str) -> Finding:
    """Return what statistics are for a reader of a version, whatever the policy is."""
    if isinstance(decoded, Finding):
        return decoded
    if decoded.schema_hash is None or decoded.schema_hash != schema_hash:
        detail = f"their {SCHEMA_HASH} is not that of the table's columns"
        return Finding(GuardReason.SCHEMA_CHANGED, detail)
    tag = decoded.version_tag
    described = f"the statistics describe version {tag}"
    if tag == version:
        return Finding(GuardReason.CURRENT, described, decoded)
    detail = f"{described}, the table is at version {version}"
    return Finding(GuardReason.STALE, detail, decoded)


def under_policy(
    finding: Finding,
    allow_stale: bool | StaleBounds,
    *,
    version: int,
    now: datetime,
    changed_rows: Callable[[], float | None] = lambda: None,
) -> Verdict:
    """Return the verdict on a finding.

    Args:
        finding: What the statistics are.
        allow_stale: The policy: never, always, or bounds that must all hold.
        version: The version that is read.
        now: An aware instant.
        changed_rows: The share of the rows that changed since, None where it is not known, which
            exceeds every bound. Called only where it decides.
    """
    stale = finding.statistics
    if finding.reason is not GuardReason.STALE or stale is None:
        return Verdict(finding.reason, finding.detail, finding.statistics)
    objection = _objection(stale, allow_stale, version, now, changed_rows)
    if objection is not None:
        return Verdict(GuardReason.STALE, f"{finding.detail}; {objection}")
    detail = f"{finding.detail}; the policy accepts it"
    return Verdict(GuardReason.STALE_ACCEPTED, detail, stale)


def _objection(
    statistics: PublishedStatistics,
    allow_stale: bool | StaleBounds,
    version: int,
    now: datetime,
    changed_rows: Callable[[], float | None],
) -> str | None:
    """Return the policy's objection to stale statistics, None where it accepts them."""
    if allow_stale is True:
        return None
    if allow_stale is False:
        return "the policy accepts no distance"
    if statistics.version_tag > version:
        return "no bound can be checked against a later version"
    if allow_stale == StaleBounds():
        return "the policy gives no bound"
    bounds, versions = allow_stale, version - statistics.version_tag

    def beyond(what: str, bound: str, value: object) -> str:
        return f"{what}, the policy accepts {bounds.templates.get(bound, value)}"

    if bounds.max_versions is not None and versions > bounds.max_versions:
        return beyond(f"{versions} versions behind", "max_versions", bounds.max_versions)
    if bounds.max_age is not None:
        # An instant that has not come yet says nothing about age.
        if statistics.computed_at is None or statistics.computed_at > now:
            return "their age is not known"
        age = now - statistics.computed_at
        if age > bounds.max_age:
            return beyond(f"they are {age} old", "max_age", bounds.max_age)
    if bounds.max_changed_rows is not None:
        share = changed_rows()
        if share is None:
            return "the share of changed rows is not known"
        # Written so that a NaN share exceeds the bound.
        if not share <= bounds.max_changed_rows:
            most = f"{bounds.max_changed_rows:.2%}"
            return beyond(f"{share:.2%} of the rows changed", "max_changed_rows", most)
    return None


# A table as it was at an earlier version, None when that version is gone, and the commits since.
LookBack = Callable[[Snapshot, int], tuple[Snapshot | None, History]]


def no_history(now: Snapshot, version: int) -> tuple[None, History]:
    """Return no earlier version and no commits: the `LookBack` without a known history."""
    return None, History(now.version, now.version, ())


@dataclass(frozen=True)
class TableStatistics:
    """The statistics of a table at one version, from where its declaration keeps them.

    `snapshot` is the table at the version that is read, `carrier` where statistics are kept,
    `record` what the state remembers. `look_back` opens an earlier version, only when the share of
    changed rows matters. `options` are the storage options for the table.
    """

    snapshot: Snapshot
    carrier: Carrier = CARRIERS[Publish.MANIFEST]
    allow_stale: bool | StaleBounds = False
    record: TableRecord | None = None
    look_back: LookBack = field(default=no_history, repr=False)
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def declared(
        cls,
        table: Table,
        snapshot: Snapshot,
        record: TableRecord | None,
        look_back: LookBack = no_history,
        options: Mapping[str, str] | None = None,
        **more: Any,
    ) -> Self:
        """The statistics of a table that a project declares; `more` is of subclasses."""
        carrier, allow_stale = CARRIERS[table.publish], table.policy.allow_stale
        return cls(snapshot, carrier, allow_stale, record, look_back, options or {}, **more)

    @cached_property
    def types(self) -> Mapping[str, ColumnType]:
        """The columns that can have statistics, by name."""
        types = {field.name: column_type(field.type) for field in self.snapshot.fields}
        return {name: type for name, type in types.items() if type is not None}

    @cached_property
    def schema_hash(self) -> str:
        """The hash of the schema that is read."""
        return schema_hash(self.snapshot.fields)

    @cached_property
    def entries(self) -> Mapping[str, str]:
        """The `lance.stats.*` entries of the carrier, empty where none may be of this dataset.

        Those that name its current version may be of a dataset that this one replaced, which
        counted its versions from 1 as well.
        """
        entries = self.carrier.entries(self.snapshot, self.record, self.options)
        is_current = version_tag(entries) == self.snapshot.version
        if (
            is_current
            and not self.carrier.is_of(entries, self.record, self.snapshot)
            and not is_altered(entries)
        ):
            return {}
        return entries

    @cached_property
    def published(self) -> PublishedStatistics | None:
        """The decoded entries, used or refused; None where they cannot be read."""
        return self._decoded if isinstance(self._decoded, PublishedStatistics) else None

    @property
    def public(self) -> PublishedStatistics | None:
        """The decoded entries where readers find them without the state."""
        return self.published if self.carrier.is_public else None

    @property
    def is_recorded(self) -> bool:
        """Whether the state's record is of the very version that is read."""
        return self.record is not None and self.record.describes(self.snapshot.pin)

    @cached_property
    def _decoded(self) -> PublishedStatistics | Finding:
        # With many columns that takes longer than all else about them.
        return decode_statistics(self.entries, self.types)

    @cached_property
    def remembered(self) -> TableRecord | None:
        """The record of the run that made these very statistics, None where there is none.

        It has what is not published, and holds as far as the published statistics do.
        """
        record, published = self.record, self.published
        if record is None or published is None or record.version != published.version_tag:
            return None
        if not self.carrier.is_public:
            return record
        is_of_dataset = newest_fragment(record.values) == newest_fragment(self.entries)
        is_same = is_of_dataset and same_statistics(self.entries, record.values)
        return record if record.published and is_same else None

    @cached_property
    def kept(self) -> Mapping[str, PublishedColumn]:
        """The statistics of columns that are not published, from the state."""
        return {} if self.remembered is None else decode_kept(self.remembered.kept, self.types)

    @cached_property
    def proven_keys(self) -> frozenset[frozenset[str]]:
        """The declared keys that are proven for the rows as they are: also after deletions.

        They hold whether or not a policy accepts the other statistics.
        """
        record, published = self.remembered, self.published
        if record is None or published is None or not record.keys:
            return frozenset()
        if published.version_tag != self.snapshot.version:
            _, history = self._base_and_history
            if not (self._is_proven and history.is_complete and history.effects <= _KEYS_STAY):
                return frozenset()
        proven = (key for key in record.keys if key.status is KeyStatus.PROVEN)
        return frozenset(frozenset(key.columns) for key in proven)

    @property
    def described_version(self) -> int | None:
        """The version whose rows the statistics describe, None where there are none."""
        if self.published is None:
            return None
        return self.carrier.described_version(self.published.version_tag)

    @cached_property
    def changed_rows(self) -> float | None:
        """The share of the rows that changed since the version that the statistics describe.

        Manifests alone are read, and none where the statistics are of the current version. None
        where there are no statistics, or where it cannot be found out.
        """
        published, version = self.published, self.described_version
        if published is None or version is None:
            return None
        if published.version_tag == self.snapshot.version:
            return 0.0
        base, history = self._base_and_history
        if base is None or not self._is_of(base):
            return None
        return rows_changed_between(base, self.snapshot, published.columns, history)

    @cached_property
    def _base_and_history(self) -> tuple[Snapshot | None, History]:
        """The table at the version that the statistics describe, if any, and the commits since."""
        version = self.described_version
        try:
            return self.look_back(
                self.snapshot, self.snapshot.version if version is None else version
            )
        except LakeError as error:
            uri = self.snapshot.uri
            _log.warning("how far '%s' has moved on is not known: %s", uri, error.message)
            return no_history(self.snapshot, self.snapshot.version)

    @cached_property
    def finding(self) -> Finding:
        """What the statistics are for readers of this version, before any policy."""
        version, schema_hash = self.snapshot.version, self.schema_hash
        return examine(self._decoded, version=version, schema_hash=schema_hash)

    def verdict(
        self, now: datetime, *, allow_stale: bool | None = None, enabled: bool = True
    ) -> Verdict:
        """Return whether the statistics are used under the policy.

        Args:
            now: An aware instant.
            allow_stale: The setting of a session or a scan instead of the declared policy.
            enabled: Whether the session and the scan want statistics.
        """
        if not enabled:
            return Verdict(GuardReason.DISABLED, "column statistics are switched off")
        if self.finding.reason is GuardReason.SCHEMA_CHANGED:
            detail = self.schema_change or self.finding.detail
            return Verdict(GuardReason.SCHEMA_CHANGED, detail)
        policy = self.allow_stale if allow_stale is None else allow_stale
        verdict = self._under_policy(self.finding, policy, now)
        if verdict.reason is GuardReason.STALE_ACCEPTED and not self._is_proven:
            what = f"nothing proves that the statistics of version {self.described_version} are"
            return Verdict(GuardReason.STALE, f"{what} this table's: that version is gone")
        return verdict

    def accepts_distance(self, now: datetime) -> bool:
        """Whether the policy accepts how far the table has moved on, whatever its columns are."""
        published = self.published
        if published is None or published.schema_hash is None:
            return False
        version, schema_hash = self.snapshot.version, published.schema_hash
        finding = examine(published, version=version, schema_hash=schema_hash)
        return self._under_policy(finding, self.allow_stale, now).use

    def _under_policy(
        self, finding: Finding, allow_stale: bool | StaleBounds, now: datetime
    ) -> Verdict:
        return under_policy(
            finding,
            allow_stale,
            version=self.snapshot.version,
            now=now,
            changed_rows=lambda: self.changed_rows,
        )

    @property
    def schema_change(self) -> str | None:
        """How the columns have changed since they were read, None for no way, or if not known."""
        if self.finding.reason is not GuardReason.SCHEMA_CHANGED:
            return None
        base, _ = self._base_and_history
        if base is None or not self._is_of(base):
            return None
        return schema_change(base.fields, self.snapshot.fields)

    @property
    def _is_proven(self) -> bool:
        """Whether statistics of an earlier version are known to be of this dataset."""
        is_public = self.carrier.is_public
        if is_public and (self.published is None or self.published.newest_fragment is None):
            return True
        base, _ = self._base_and_history
        return is_public if base is None else self._is_of(base)

    def _is_of(self, base: Snapshot) -> bool:
        """Whether `base` is what the statistics were made from."""
        return self.carrier.is_of(self.entries, self.record, base)


def schema_change(before: Sequence[Field], now: Sequence[Field]) -> str | None:
    """Return in words how columns differ, such as `column price2 was added`, None for no way."""
    old, new = {field.name: field for field in before}, {field.name: field for field in now}
    gone = {field.id: field for name, field in old.items() if name not in new}
    # An overwritten table counts its fields from 0 again.
    renamed = {
        name: gone[field.id].name
        for name, field in new.items()
        if name not in old and field.id in gone and _type(gone[field.id]) == _type(field)
    }
    former = set(renamed.values())
    changes = (
        ("added", [name for name in new if name not in old and name not in renamed]),
        ("removed", [field.name for field in gone.values() if field.name not in former]),
        ("renamed", [f"{was} (now {name})" for name, was in renamed.items()]),
        (
            "changed in type",
            [
                f"{name} ({_type(old[name])}, now {_type(field)})"
                for name, field in new.items()
                if name in old and _type(old[name]) != _type(field)
            ],
        ),
    )
    parts = [_changed(names, how) for how, names in changes if names]
    if not parts and list(old) != list(new):
        return "the columns have another order"
    return " and ".join(parts) or None


def _type(field: Field) -> str:
    return f"{field.spark_type or field.type}{'' if field.nullable else ' not null'}"


def _changed(names: Sequence[str], how: str) -> str:
    shown = ", ".join(names[:_NAMES_LISTED])
    more = f" and {count(len(names) - _NAMES_LISTED)} more" if len(names) > _NAMES_LISTED else ""
    is_one = len(names) == 1
    return f"{'column' if is_one else 'columns'} {shown}{more} {'was' if is_one else 'were'} {how}"


@dataclass(frozen=True, kw_only=True)
class TableAssessment(TableStatistics):
    """The statistics of one table as it is now, next to its declaration.

    `identity` is the state's name for the dataset, `resolved` the declared columns.
    """

    spec: Table
    identity: str
    resolved: ResolvedColumns

    @cached_property
    def columns(self) -> tuple[Field, ...]:
        """The columns to analyze, in schema order."""
        names = set(self.resolved.names)
        return tuple(field for field in self.snapshot.fields if field.name in names)

    @cached_property
    def histograms(self) -> frozenset[str]:
        """The names of the columns that are to have histograms."""
        wanted = self.columns if self.spec.histogram else ()
        return frozenset(f.name for f in wanted if self.types[f.name].kind in HISTOGRAM_KINDS)

    @cached_property
    def groups(self) -> tuple[tuple[str, ...], ...]:
        """The groups of columns that get joint statistics, each in the order of its tuples."""
        ids = {field.name: field.id for field in self.columns}
        return tuple(
            tuple(sorted(names, key=ids.__getitem__))
            for names in self.spec.joint_groups
            if ids.keys() >= set(names)
        )

    @cached_property
    def wanted(self) -> Mapping[str, tuple[str, ...]]:
        """The columns of each partial that is needed, by its key (`state.values`)."""
        fields = {field.name: field for field in self.columns}
        common, keys = self.spec.common_values, set(map(frozenset, self.spec.keys))

        def key(names: tuple[str, ...]) -> str:
            has_common = common is not None and common.covers(names)
            made = PartialKey(
                tuple(field_key(fields[name]) for name in names),
                len(names) == 1 and names[0] in self.histograms,
                capacity_for(common.limit) if common is not None and has_common else 0,
                frozenset(names) in keys,
            )
            return str(made)

        return {key(names): names for names in (*((name,) for name in fields), *self.groups)}

    @cached_property
    def special_keys(self) -> frozenset[str]:
        """The keys of those partials that only tables with groups, keys or common values need."""
        return frozenset(filter(is_special, self.wanted))

    @property
    def notes(self) -> tuple[str, ...]:
        """All that people should know of the declared columns: also which are skipped, and why."""
        skipped = (f"column '{name}' skipped: {why}" for name, why in self.resolved.skipped)
        return (*self.resolved.warnings, *self.resolved.notes, *skipped)


@dataclass(frozen=True, slots=True)
class TableChanges:
    """The changes of a table since its last statistics, read where the manifest does not decide.

    `groups` is the content of the wanted columns now under the keys of the partials they need
    (`state.values`), `digest` the `table_digest` of the columns, `base_digest`
    that of the columns of the same names as the last statistics read them, None when that version
    is gone. `history` holds the commits since, `rewrites` its compactions as content.
    `verdict` is that under the declared policy. `index` is what the state has stored.
    """

    groups: tuple[ColumnGroup, ...]
    digest: str
    base_digest: str | None
    history: History
    rewrites: tuple[Rewritten, ...]
    verdict: Verdict
    index: PartialIndex


def assess(
    spec: Table,
    identity: str,
    snapshot: Snapshot,
    record: TableRecord | None,
    look_back: LookBack = no_history,
    options: Mapping[str, str] | None = None,
) -> TableAssessment:
    """Resolve the declared columns of a table; `identity` is the state's name for the dataset.

    Raises:
        SpecError: A declared column does not exist or cannot be analyzed, or a group, a key, a
            reference or common values name one without statistics.
    """
    resolved = resolve(spec, snapshot, analyzable(snapshot))
    more = {"spec": spec, "identity": identity, "resolved": resolved}
    return TableAssessment.declared(spec, snapshot, record, look_back, options, **more)


def analyzable(snapshot: Snapshot) -> Mapping[str, ColumnType]:
    """The types of all columns that can be analyzed, by name."""
    return TableStatistics(snapshot).types


def resolve(spec: Table, snapshot: Snapshot, types: Mapping[str, ColumnType]) -> ResolvedColumns:
    """The declared columns of a table against its schema; SpecError as `assess` raises it."""
    available = _all_available(snapshot, types)
    is_shared = spec.source is not None
    resolved = spec.columns.resolve(available, spec.name, is_shared=is_shared)
    named = ((name, spec.at(key)) for key, name in spec.named_columns)
    check_named(named, resolved, available, spec.name)
    return resolved


def check_reference(table: Table, index: int, snapshot: Snapshot, other: TableAssessment) -> None:
    """Raise SpecError where a reference of `table`, as `snapshot` has it, does not fit another."""
    reference, to = table.references[index], other.spec.name
    named = [
        (name, table.at(f"references.{index}.to.{number}"))
        for number, name in enumerate(reference.to)
    ]
    check_named(named, other.resolved, _all_available(other.snapshot, other.types), to)
    types = analyzable(snapshot)
    for column, (name, location) in zip(reference.columns, named, strict=True):
        kind, other_kind = types[column].kind.value, other.types[name].kind.value
        if kind != other_kind:
            raise ReferenceMismatch(
                f"column {quoted(name)} of table '{to}' is of type {other_kind}, and "
                f"{quoted(column)} of '{table.name}', which refers to it, of type {kind}",
                location=location,
            )


def _all_available(snapshot: Snapshot, types: Mapping[str, ColumnType]) -> list[AvailableColumn]:
    return [_available(field, types.get(field.name)) for field in snapshot.fields]


def _available(field: Field, type: ColumnType | None) -> AvailableColumn:
    if type is None:
        name_of_extension = getattr(field.type, "extension_name", None)
        type_name = name_of_extension or field.spark_type or str(field.type)
        return AvailableColumn(field.name, None, f"type {type_name} has no statistics")
    if not is_readable_name(field.name):
        return AvailableColumn(field.name, None, UNREADABLE_NAME)
    return AvailableColumn(field.name, type.kind.value)


def named_columns(
    assessment: TableAssessment, names: Sequence[str], *, is_case_sensitive: bool = False
) -> tuple[str, ...]:
    """The named columns and those that have statistics already, which stay as Spark's do.

    Args:
        assessment: The table, with any columns declared.
        names: As they were written; case counts only if `is_case_sensitive`.

    Raises:
        InvalidColumnChoice: a column is not there, may be one of several, or cannot have
            statistics.
    """
    named = [_resolved(assessment, name, is_case_sensitive) for name in names]
    try:
        resolve(assessment.spec.of_columns(named), assessment.snapshot, assessment.types)
    except SpecError as error:
        raise InvalidColumnChoice(error.message, hint=error.hint) from None
    retained = [
        name for name in _known(assessment) if name in assessment.types and name not in named
    ]
    return (*named, *retained)


def _resolved(assessment: TableAssessment, name: str, is_case_sensitive: bool) -> str:
    columns = [field.name for field in assessment.snapshot.fields]
    table = assessment.spec.name
    if is_case_sensitive:
        matches = [column for column in columns if column == name]
    else:
        matches = [column for column in columns if column.lower() == name.lower()]
    if len(matches) > 1:
        listed = " and ".join(f"'{column}'" for column in matches)
        raise InvalidColumnChoice(
            f"column '{name}' of table '{table}' may be {listed}",
            hint="set spark.sql.caseSensitive to true",
        )
    if not matches:
        raise InvalidColumnChoice(
            f"table '{table}' has no column '{name}'",
            hint=did_you_mean(name, columns, "its columns"),
        )
    return matches[0]


def _known(assessment: TableAssessment) -> Sequence[str]:
    """The columns with statistics, where the table keeps them."""
    if not assessment.carrier.is_public:
        return assessment.record.columns if assessment.record is not None else ()
    return tuple(assessment.published.columns) if assessment.published is not None else ()
