"""Plans tables: pure functions from values to actions, tested without Spark or disk."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache

from lancestat.formats import count, visible
from lancestat.lake.fingerprint import ByteEstimator, ColumnGroup, column_groups, with_joint
from lancestat.lake.history import Effect
from lancestat.runs.actions import (
    STATE_LACKS,
    UNRECORDED,
    Action,
    Figures,
    Reason,
    RunsOn,
    Skip,
)
from lancestat.spec.model import Refresh as RefreshWhen
from lancestat.spec.relations import Columns
from lancestat.state.values import PartialIndex, covered_keys, field_keys, partial_key, plain_key
from lancestat.tables.action import (
    MergePartials,
    PublishStatistics,
    ReadFragments,
    RecordStatistics,
    RestampStatistics,
    ReusePartials,
    Scan,
    TableAction,
    TableStage,
    TableVersion,
    scan_figures,
)
from lancestat.tables.coverage import Coverage, cover
from lancestat.tables.judgement import TableAssessment, TableChanges, Verdict
from lancestat.tables.stored import TableRecord
from lancestat.tables.wire import (
    REVISION,
    GuardReason,
    Writer,
    own_keys,
    published_entries,
    same_statistics,
    unknown_keys,
    writer_of,
    written_revision,
)

NOTHING_STORED = PartialIndex({}, {})

_RECORDED_AGAIN = (
    "the state lacks the record of the published statistics, as after a run that was killed, and "
    "gets it from stored partials"
)
_KEYS_LISTED = 5
# A process has one interpreter of Python, which works as long on a partial, whatever its rows, as
# on reading so many bytes: benchmarks/startup.py. Of fewer partials that is soon done.
_BYTES_A_PARTIAL = 40_000
_FEW_PARTIALS = 100_000
_UNREADABLE = (
    GuardReason.UNKNOWN_FORMAT,
    GuardReason.INCOMPLETE,
    GuardReason.MALFORMED,
    GuardReason.ALTERED,
)
_ROW_REASONS = {
    Effect.APPENDED: Reason.ROWS_APPENDED,
    Effect.DELETED: Reason.ROWS_DELETED,
    Effect.CHANGED: Reason.ROWS_CHANGED,
    Effect.UNKNOWN: Reason.ROWS_CHANGED,
    Effect.REWRITTEN: Reason.FRAGMENTS_REWRITTEN,
}
_ROWS_STAY = frozenset({Effect.ROWS_UNCHANGED, Effect.REWRITTEN})


def stored_groups(assessment: TableAssessment) -> tuple[ColumnGroup, ...]:
    """The content of the wanted columns and groups now, by the keys of the partials they need."""
    return marks(assessment)(tuple(column_groups(assessment.snapshot, assessment.columns)))


# Puts content under the keys of the partials that it needs.
Marks = Callable[[tuple[ColumnGroup, ...]], tuple[ColumnGroup, ...]]


def marks(assessment: TableAssessment) -> Marks:
    """Return what puts the content of columns under the keys of partials, with that of groups."""
    stored_keys = {plain_key(key): key for key in assessment.wanted}
    joint = {
        plain_key(key): partial_key(key).fields
        for key in assessment.wanted
        if partial_key(key).is_joint
    }

    # Equal sets of keys stay one object.
    @cache
    def mark(keys: frozenset[str]) -> frozenset[str]:
        return frozenset(stored_keys.get(key, key) for key in keys)

    def mark_all(groups: tuple[ColumnGroup, ...]) -> tuple[ColumnGroup, ...]:
        if joint:
            groups = tuple(with_joint(groups, joint))
        if all(plain == key for plain, key in stored_keys.items()):
            return groups
        return tuple(replace(group, fields=mark(group.fields)) for group in groups)

    return mark_all


def skip_if_current(assessment: TableAssessment) -> Skip | None:
    """Return a skip where the manifest alone shows that there is nothing to do, else None.

    Statistics under `publish: none` are never skipped this way: a version number proves nothing
    about a dataset that may have been made anew, so their content has to be compared.
    """
    if assessment.finding.reason is not GuardReason.CURRENT or not _is_intact(assessment):
        return None
    needs_state = assessment.histograms or assessment.special_keys
    if needs_state and not (_is_ours(assessment) and _has_partials(assessment)):
        return None
    if not _keeps_unpublished(assessment):
        return None
    notes = (*assessment.notes, *_lacking(assessment))
    return Skip(assessment.spec.name, (Reason.UNCHANGED,), _idle_figures(assessment), notes)


def is_unrecorded(assessment: TableAssessment) -> bool:
    """Whether lancestat published the statistics, and the state has a record of others or none."""
    published = assessment.public
    is_ours = published is not None and published.revision is not None
    return is_ours and assessment.remembered is None


def record_again(skip: Skip, assessment: TableAssessment, changes: TableChanges) -> Skip:
    """Return a skip that makes the record of published statistics where all partials are stored.

    Nothing is published: projects with states of their own would do so in turn.
    """
    coverage = cover(changes.groups, changes.index, changes.rewrites)
    if coverage.missing or assessment.finding.reason is not GuardReason.CURRENT:
        return skip
    return replace(
        skip,
        stages=(RecordStatistics(_version(assessment, changes)),),
        notes=(*assessment.notes, _RECORDED_AGAIN),
    )


def notes_of(assessment: TableAssessment, verdict: Verdict) -> tuple[str, ...]:
    """Return the notes on a table as a plan has them; `verdict` is final."""
    if skip_if_current(assessment) is None and not _policy_accepts(assessment, verdict):
        return assessment.notes
    lacking = (UNRECORDED,) if is_unrecorded(assessment) else _lacking(assessment)
    return (*assessment.notes, *lacking)


def decide(
    assessment: TableAssessment,
    changes: TableChanges,
    *,
    full_refresh: bool = False,
    in_process_bytes: int = 0,
) -> Action:
    """Decide what to do about one table that its manifest does not show to be current, and why.

    Args:
        assessment: The table now, and what the manifest and the state say of it.
        changes: The changes since the last statistics.
        full_refresh: Read everything again, whatever is known.
        in_process_bytes: Less than this is read in this process, and the rest on Spark.
    """
    name, notes = assessment.spec.name, assessment.notes
    if full_refresh:
        coverage = cover(changes.groups, NOTHING_STORED, [])
        return _make(assessment, changes, coverage, (Reason.FULL_REFRESH,), in_process_bytes)
    if _policy_accepts(assessment, changes.verdict):
        notes = (*notes, *_lacking(assessment))
        return Skip(name, (Reason.POLICY_ACCEPTS,), _idle_figures(assessment), notes)
    stand, is_public = _stand(assessment, changes), assessment.carrier.is_public
    if stand and not is_public and assessment.is_recorded:
        return Skip(name, (Reason.UNCHANGED,), _idle_figures(assessment), notes)
    coverage = cover(changes.groups, changes.index, changes.rewrites)
    remaking = _remaking(assessment, changes, coverage)
    if not stand or remaking is None:
        reasons = _reasons(assessment, changes)
        return _make(assessment, changes, coverage, reasons, in_process_bytes)
    rewritten = Effect.REWRITTEN in changes.history.effects
    reason = Reason.FRAGMENTS_REWRITTEN if rewritten else Reason.VERSION_MOVED
    publishing = PublishStatistics(assessment.spec.publish)
    stages: tuple[TableStage, ...] = (*_reused(coverage), remaking, publishing)
    figures, table = _idle_figures(assessment), _version(assessment, changes)
    if isinstance(remaking, RestampStatistics) and remaking.is_restored:
        notes = (*notes, *_lacking(assessment))
    return TableAction(name, "restamp", (reason,), figures, table, stages, notes)


def read_missing(
    assessment: TableAssessment, changes: TableChanges, in_process_bytes: int = 0
) -> TableAction:
    """Return an action whose stages gather the wanted partials and read those that are missing.

    Nothing is published. Arguments are as `decide` has them.
    """
    coverage = cover(changes.groups, changes.index, changes.rewrites)
    action = _make(assessment, changes, coverage, (), in_process_bytes)
    gathering = (ReusePartials, ReadFragments)
    stages = tuple(stage for stage in action.stages if isinstance(stage, gathering))
    return replace(action, stages=stages)


def _lacking(assessment: TableAssessment) -> tuple[str, ...]:
    """Return a note where what the state alone has of statistics of lancestat's is lost."""
    published, record = assessment.public, assessment.remembered
    if published is None or published.revision is None:
        return ()
    texts = any(
        column.distinct and name in assessment.types and assessment.types[name].is_variable_width
        for name, column in published.columns.items()
    )
    is_lacking = record is None or (texts and record.is_restored)
    return (STATE_LACKS,) if is_lacking else ()


def work_of(scans: Sequence[Scan]) -> int:
    """Return the bytes that take as long to analyze in one process as these scans."""
    size = sum(scan.size_bytes for scan in scans)
    partials = sum(len(scan.fields) for scan in scans)
    return size if partials <= _FEW_PARTIALS else max(size, partials * _BYTES_A_PARTIAL)


def _make(
    assessment: TableAssessment,
    changes: TableChanges,
    coverage: Coverage,
    reasons: tuple[Reason, ...],
    in_process_bytes: int,
) -> TableAction:
    scans = _scans(assessment, coverage)
    runs_on = RunsOn.PROCESS if work_of(scans) < in_process_bytes else RunsOn.SPARK
    nothing_usable = assessment.record is None and not (coverage.reuse or coverage.carries)
    first = nothing_usable and assessment.finding.reason is not GuardReason.CURRENT
    stages: tuple[TableStage, ...] = (
        *_reused(coverage),
        *((ReadFragments(scans, runs_on),) if scans else ()),
        MergePartials(assessment.carrier.tag(assessment.snapshot.version)),
        PublishStatistics(assessment.spec.publish),
    )
    return TableAction(
        node=assessment.spec.name,
        verb="analyze" if first else "refresh",
        reasons=reasons,
        figures=scan_figures(_idle_figures(assessment), scans),
        table=_version(assessment, changes),
        stages=stages,
        notes=(*assessment.notes, *_removed(assessment)),
    )


def _removed(assessment: TableAssessment) -> tuple[str, ...]:
    """Return a note where publishing removes entries that lancestat never writes."""
    keys = unknown_keys(assessment.snapshot.config)
    if not assessment.carrier.commits or not keys:
        return ()
    more = len(keys) - _KEYS_LISTED
    listed = ", ".join(map(visible, keys[:_KEYS_LISTED]))
    listed += f" and {count(more)} more" if more > 0 else ""
    what = count(len(keys), "entry that is", "entries that are")
    return (f"publishing removes {what} not lancestat's: {listed}",)


def _reused(coverage: Coverage) -> tuple[ReusePartials, ...]:
    return (ReusePartials(coverage),) if coverage.reuse or coverage.carries else ()


def _is_intact(assessment: TableAssessment) -> bool:
    """Whether readers find exactly the wanted columns that they can, as we last wrote them."""
    published = assessment.public
    if published is None or published.dropped or published.is_outdated:
        return False
    if set(published.columns) != _names(assessment, are_published=True):
        return False
    if not _has_groups(assessment):
        return False
    return not _is_altered(assessment)


def _has_groups(assessment: TableAssessment) -> bool:
    """Whether readers find exactly the wanted groups, where there are statistics."""
    published = assessment.published
    return published is None or set(published.joint) == set(map(frozenset, assessment.groups))


def _keeps_unpublished(assessment: TableAssessment) -> bool:
    """Whether the state keeps exactly the wanted columns that are not published."""
    return set(assessment.kept) == _names(assessment, are_published=False)


def _names(assessment: TableAssessment, *, are_published: bool) -> set[str]:
    types = assessment.types
    return {f.name for f in assessment.columns if types[f.name].is_published == are_published}


def _is_outdated(assessment: TableAssessment) -> bool:
    published = assessment.published
    return published is not None and published.is_outdated


def _is_altered(assessment: TableAssessment) -> bool:
    published, record = assessment.published, assessment.record
    if published is None or record is None or not record.published:
        return False
    if published.version_tag != record.version:
        return False
    return not same_statistics(assessment.entries, record.values)


def _policy_accepts(assessment: TableAssessment, verdict: Verdict) -> bool:
    if assessment.spec.policy.refresh is not RefreshWhen.WHEN_STALE or not verdict.use:
        return False
    is_whole = _is_intact(assessment) and _keeps_unpublished(assessment)
    return is_whole and _has_partials(assessment)


def _has_partials(assessment: TableAssessment) -> bool:
    """Whether all that the state alone has were wanted, and so made, when the last run read."""
    return not _unmade(assessment)


def _unmade(assessment: TableAssessment) -> set[Columns]:
    """The columns of partials that the state alone has, and that the last run did not want."""
    record = assessment.record
    histograms, keys = (record.histograms, record.special_keys) if record else ((), ())
    new_keys = assessment.special_keys - covered_keys(frozenset(keys))
    new_histograms = assessment.histograms.difference(histograms)
    return {assessment.wanted[key] for key in new_keys} | {(name,) for name in new_histograms}


def _is_ours(assessment: TableAssessment) -> bool:
    published, record = assessment.published, assessment.record
    return bool(published and record and record.version == published.version_tag)


def _stand(assessment: TableAssessment, changes: TableChanges) -> bool:
    """Whether the statistics of an earlier version are whole and describe the rows as they are."""
    if not _has_partials(assessment) or _is_outdated(assessment):
        return False
    if not (_keeps_unpublished(assessment) and _has_groups(assessment)):
        return False
    record, history = assessment.record, changes.history
    are_rows_kept = history.is_complete and history.effects <= _ROWS_STAY
    if not assessment.carrier.is_public:
        # A dataset made anew under the same URI counts its versions from 1 again.
        digests = (changes.digest, changes.base_digest if are_rows_kept else None)
        return record is not None and _is_whole(assessment) and record.content_digest in digests
    if assessment.finding.reason is not GuardReason.STALE or not _is_intact(assessment):
        return False
    if record is not None and record.content_digest == changes.digest and _is_ours(assessment):
        return True
    return changes.base_digest == changes.digest or (
        changes.base_digest is not None and are_rows_kept
    )


def _is_whole(assessment: TableAssessment) -> bool:
    """Whether the record has the wanted columns, under the names and types that they have."""
    record = assessment.record
    names = tuple(field.name for field in assessment.columns)
    return (
        record is not None
        and record.columns == names
        and record.schema_hash == assessment.schema_hash
    )


def _remaking(
    assessment: TableAssessment, changes: TableChanges, coverage: Coverage
) -> RestampStatistics | MergePartials | None:
    """Return how statistics that stand are made again without reading, None where they cannot be.

    What is published is taken over only where lancestat wrote it, and nothing but commits that keep
    rows came since: a restored version brings back the entries of then. Where the state lacks its
    record, stored partials of all rows have more.
    """
    if (assessment.histograms or assessment.special_keys) and coverage.missing:
        return None
    version, record = assessment.carrier.tag(assessment.snapshot.version), assessment.record
    if record is not None and _record_stands(assessment, changes):
        return _restamp(version, record.values, record)
    if assessment.remembered is None and not coverage.missing:
        return MergePartials(version)
    published, history = assessment.published, changes.history
    is_ours = published is not None and published.revision is not None
    if is_ours and history.is_complete and history.effects <= _ROWS_STAY:
        entries = published_entries(assessment.entries)
        return _restamp(version, entries, assessment.remembered)
    return None if coverage.missing else MergePartials(version)


def _restamp(
    version: int, values: Mapping[str, str], made: TableRecord | None
) -> RestampStatistics:
    """Return the stage that keeps values, with what the state alone has of the same rows."""
    return RestampStatistics(
        version,
        tuple(sorted(values.items())),
        tuple(sorted(made.bounds.items())) if made else (),
        tuple(sorted(made.kept.items())) if made else (),
        made.keys if made else (),
        is_restored=made is None or made.is_restored,
    )


def _record_stands(assessment: TableAssessment, changes: TableChanges) -> bool:
    """Whether the values in the state are those of the rows, by today's rules."""
    record = assessment.record
    if record is None or not _is_whole(assessment):
        return False
    is_current = written_revision(record.values) == REVISION
    is_same = is_current and record.content_digest == changes.digest
    return is_same or not assessment.carrier.is_public


def _reasons(assessment: TableAssessment, changes: TableChanges) -> tuple[Reason, ...]:
    """Every difference between what was last made and what is wanted now."""
    reasons = _publication_reasons(assessment)
    if Reason.NEW in reasons:
        return (Reason.NEW,)
    published, record = assessment.published, assessment.record
    columns_before: set[str] = set(record.columns) if record else set()
    if published:
        columns_before = {*published.columns, *published.dropped, *assessment.kept}
    columns = {field.name for field in assessment.columns}
    known_hash = published.schema_hash if published else record.schema_hash if record else None
    if published or record:
        reasons |= {Reason.COLUMNS_ADDED} if columns - columns_before else set()
        reasons |= {Reason.COLUMNS_REMOVED} if columns_before - columns else set()
        reasons |= {Reason.SCHEMA_CHANGED} if known_hash != assessment.schema_hash else set()
    if not _has_groups(assessment):
        reasons.add(Reason.SPEC_CHANGED)
    unmade = _unmade(assessment)
    if record is None and unmade:
        reasons.add(Reason.NEW)
    elif any(columns_before.issuperset(names) for names in unmade):
        reasons.add(Reason.SPEC_CHANGED)
    reasons |= {Reason.RULES_CHANGED} if _is_outdated(assessment) else set()
    effects = changes.history.effects
    reasons |= {_ROW_REASONS[effect] for effect in effects if effect in _ROW_REASONS}
    if Effect.COLUMNS_WRITTEN in effects and Reason.SCHEMA_CHANGED not in reasons:
        reasons.add(Reason.ROWS_CHANGED)
    if changes.base_digest is None and not changes.history.is_complete:
        reasons.add(Reason.ROWS_CHANGED)
    if _is_other_dataset(assessment, changes):
        reasons.add(Reason.ROWS_CHANGED)
    if not reasons:
        reasons.add(Reason.VERSION_MOVED)
    return tuple(reason for reason in Reason if reason in reasons)


def _is_other_dataset(assessment: TableAssessment, changes: TableChanges) -> bool:
    """Whether the dataset was made anew: it lacks the version that a run read, or has another."""
    record, base = assessment.record, changes.base_digest
    if record is None or assessment.described_version not in (None, record.version):
        return False
    is_same_selection = set(record.columns) == {field.name for field in assessment.columns}
    is_other = is_same_selection and base is not None and base != record.content_digest
    return is_other or record.version > assessment.snapshot.version


def _publication_reasons(assessment: TableAssessment) -> set[Reason]:
    record, published = assessment.record, assessment.published
    if not assessment.carrier.is_public:
        return set() if record else {Reason.NEW}
    if assessment.finding.reason is GuardReason.ABSENT or _is_foreign(assessment):
        if record is None:
            return {Reason.NEW}
        return {Reason.PUBLISH_MISSING} if record.published else {Reason.SPEC_CHANGED}
    unreadable = assessment.finding.reason in _UNREADABLE
    names = {field.name for field in assessment.columns}
    damaged = published is not None and not names.isdisjoint(published.dropped)
    return {Reason.PUBLISH_ALTERED} if unreadable or damaged or _is_altered(assessment) else set()


def _is_foreign(assessment: TableAssessment) -> bool:
    """Whether what is published cannot be read, and is nothing that lancestat ever published."""
    config, record = assessment.snapshot.config, assessment.record
    is_others = writer_of(config) is Writer.OTHER and not own_keys(config)
    was_ours = record is not None and record.published
    return is_others and not was_ours and assessment.finding.reason in _UNREADABLE


def _scans(assessment: TableAssessment, coverage: Coverage) -> tuple[Scan, ...]:
    fragments = {fragment.id: fragment for fragment in assessment.snapshot.fragments}
    bytes_read = ByteEstimator(assessment.snapshot.fields)
    return tuple(
        Scan(
            group.fragment_id,
            group.fingerprint,
            fields,
            fragments[group.fragment_id].rows,
            bytes_read.estimate(fragments[group.fragment_id], field_keys(fields)),
        )
        for group, fields in coverage.missing
    )


def _version(assessment: TableAssessment, changes: TableChanges) -> TableVersion:
    return TableVersion(
        pin=assessment.snapshot.pin,
        identity=assessment.identity,
        config=assessment.snapshot.config,
        fields=assessment.columns,
        schema_hash=assessment.schema_hash,
        content_digest=changes.digest,
        rows=assessment.snapshot.rows,
        fragments=len(assessment.snapshot.fragments),
        live=frozenset(group.fingerprint for group in changes.groups),
        histograms=assessment.histograms,
        groups=changes.groups,
        newest_fragment=assessment.snapshot.newest_fragment,
        wanted=assessment.wanted,
        size_bytes=assessment.snapshot.size_bytes,
        schema_change=assessment.schema_change,
    )


def _idle_figures(assessment: TableAssessment) -> Figures:
    return Figures(
        fragments_total=len(assessment.snapshot.fragments),
        fragments_scanned=0,
        columns=len(assessment.columns),
        rows_total=assessment.snapshot.rows,
        rows_scanned=0,
        bytes_scanned=0,
        version_read=assessment.snapshot.version,
        still_published=not assessment.carrier.commits
        and bool(own_keys(assessment.snapshot.config)),
    )
