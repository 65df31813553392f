"""Plans tables: pure functions from values to actions, tested without Spark or disk."""

from __future__ import annotations

from collections.abc import Mapping

from lancestat.lake.column_bytes import estimated_bytes
from lancestat.lake.history import Effect
from lancestat.manifest.guard import GuardReason
from lancestat.manifest.wire import published_entries, same_statistics
from lancestat.plan.actions import Action, Figures, Reason, Skip, TableAction, TableVersion
from lancestat.plan.assessment import Appraisal, Background
from lancestat.plan.coverage import Coverage, cover
from lancestat.plan.stages import (
    MergePartials,
    PublishStatistics,
    ReadFragments,
    RestampStatistics,
    ReusePartials,
    Scan,
    TableStage,
)
from lancestat.spec.model import Publish
from lancestat.spec.model import Refresh as RefreshWhen
from lancestat.state.identity import plain_keys
from lancestat.state.values import PartialIndex

NOTHING_STORED = PartialIndex({}, ())

_UNREADABLE = (GuardReason.UNKNOWN_FORMAT, GuardReason.INCOMPLETE, GuardReason.MALFORMED)
_ROW_REASONS = {
    Effect.APPENDED: Reason.ROWS_APPENDED,
    Effect.DELETED: Reason.ROWS_DELETED,
    Effect.CHANGED: Reason.ROWS_CHANGED,
    Effect.UNKNOWN: Reason.ROWS_CHANGED,
    Effect.REWRITTEN: Reason.FRAGMENTS_REWRITTEN,
}
_ROWS_STAY = frozenset({Effect.ROWS_UNCHANGED, Effect.REWRITTEN})


def settle(appraisal: Appraisal) -> Skip | None:
    """Return a skip where the manifest alone shows that there is nothing to do, else None.

    Statistics under `publish: none` are never skipped this way: a version number proves nothing
    about a dataset that may have been made anew, so their content has to be compared.
    """
    current = appraisal.verdict.reason is GuardReason.CURRENT
    if appraisal.spec.publish is Publish.NONE or not current or not _is_intact(appraisal):
        return None
    if appraisal.histograms and not (_is_ours(appraisal) and _has_histograms(appraisal)):
        return None
    return Skip(
        appraisal.spec.name, (Reason.UNCHANGED,), _idle_figures(appraisal), appraisal.skipped
    )


def decide(appraisal: Appraisal, background: Background, *, full_refresh: bool = False) -> Action:
    """Decide what to do about one table that its manifest does not show to be current, and why.

    Args:
        appraisal: The table now, and what the manifest and the state say of it.
        background: What happened since.
        full_refresh: Read everything again, whatever is known.
    """
    name, skipped = appraisal.spec.name, appraisal.skipped
    if full_refresh:
        coverage = cover(background.groups, NOTHING_STORED, [])
        return _make(appraisal, background, coverage, (Reason.FULL_REFRESH,))
    if _policy_accepts(appraisal, background):
        return Skip(name, (Reason.POLICY_ACCEPTS,), _idle_figures(appraisal), skipped)
    values = _standing_values(appraisal, background)
    record = appraisal.record
    unpublished = appraisal.spec.publish is Publish.NONE and values is not None
    if unpublished and record is not None and record.describes(appraisal.snapshot.pin):
        return Skip(name, (Reason.UNCHANGED,), _idle_figures(appraisal), skipped)
    coverage = cover(background.groups, background.index, background.rewrites)
    unknown = appraisal.histograms and coverage.missing
    if values is None or unknown:
        return _make(appraisal, background, coverage, _reasons(appraisal, background))
    rewritten = Effect.REWRITTEN in background.history.effects
    reason = Reason.FRAGMENTS_REWRITTEN if rewritten else Reason.VERSION_MOVED
    bounds = tuple(sorted(record.bounds.items())) if record else ()
    stages: tuple[TableStage, ...] = (
        *_reused(coverage),
        RestampStatistics(_described(appraisal), tuple(sorted(values.items())), bounds),
        _publication(appraisal),
    )
    figures = _idle_figures(appraisal)
    table = _version(appraisal, background)
    return TableAction(name, "restamp", (reason,), figures, table, stages, skipped)


def _make(
    appraisal: Appraisal,
    background: Background,
    coverage: Coverage,
    reasons: tuple[Reason, ...],
) -> TableAction:
    scans = _scans(appraisal, coverage)
    nothing_usable = appraisal.record is None and not (coverage.reuse or coverage.carries)
    first = nothing_usable and not appraisal.verdict.use
    stages: tuple[TableStage, ...] = (
        *_reused(coverage),
        *((ReadFragments(scans),) if scans else ()),
        MergePartials(_described(appraisal)),
        _publication(appraisal),
    )
    return TableAction(
        node=appraisal.spec.name,
        verb="analyze" if first else "refresh",
        reasons=reasons,
        figures=_figures(appraisal, scans),
        table=_version(appraisal, background),
        stages=stages,
        notes=appraisal.skipped,
    )


def _reused(coverage: Coverage) -> tuple[ReusePartials, ...]:
    return (ReusePartials(coverage),) if coverage.reuse or coverage.carries else ()


def _described(appraisal: Appraisal) -> int:
    """The version that the statistics will describe: the one that the publishing commit makes."""
    version = appraisal.snapshot.version
    return version + 1 if appraisal.spec.publish is Publish.MANIFEST else version


def _publication(appraisal: Appraisal) -> PublishStatistics:
    return PublishStatistics(to_manifest=appraisal.spec.publish is Publish.MANIFEST)


def _is_intact(appraisal: Appraisal) -> bool:
    """Whether the manifest holds exactly the wanted columns, as we last wrote them if we did."""
    published = appraisal.published
    if published is None or published.dropped:
        return False
    if set(published.columns) != {field.name for field in appraisal.wanted}:
        return False
    return not _is_altered(appraisal)


def _is_altered(appraisal: Appraisal) -> bool:
    published, record = appraisal.published, appraisal.record
    if published is None or record is None or not record.published:
        return False
    if published.version_tag != record.version:
        return False
    return not same_statistics(appraisal.snapshot.config, record.values)


def _policy_accepts(appraisal: Appraisal, background: Background) -> bool:
    policy = appraisal.spec.policy
    if policy.refresh is not RefreshWhen.WHEN_STALE or appraisal.spec.publish is Publish.NONE:
        return False
    return background.verdict.use and _is_intact(appraisal) and _has_histograms(appraisal)


def _has_histograms(appraisal: Appraisal) -> bool:
    """Whether all that are wanted now were wanted, and so made, when the last run read."""
    record = appraisal.record
    return appraisal.histograms <= set(record.histograms if record else ())


def _is_ours(appraisal: Appraisal) -> bool:
    published, record = appraisal.published, appraisal.record
    return bool(published and record and record.version == published.version_tag)


def _standing_values(appraisal: Appraisal, background: Background) -> Mapping[str, str] | None:
    """The statistics of an earlier version, if they are whole and describe the rows as they are."""
    record = appraisal.record
    if not _has_histograms(appraisal):
        return None
    if appraisal.spec.publish is Publish.NONE:
        names = tuple(field.name for field in appraisal.wanted)
        whole = (
            record is not None
            and record.columns == names
            and record.schema_hash == appraisal.schema_hash
        )
        stands = whole and record is not None and _rows_stand(appraisal, background)
        return record.values if stands and record is not None else None
    if appraisal.verdict.reason is not GuardReason.STALE or not _is_intact(appraisal):
        return None
    if not _rows_stand(appraisal, background):
        return None
    return published_entries(appraisal.snapshot.config)


def _rows_stand(appraisal: Appraisal, background: Background) -> bool:
    """Whether what was described is proven to be the same rows, under the same names, as now."""
    record = appraisal.record
    now = background.digest
    unpublished = appraisal.spec.publish is Publish.NONE
    known = unpublished or _is_ours(appraisal)
    if record is not None and record.content_digest == now and known:
        return True
    then = background.base_digest
    if then is None:
        return False
    if unpublished and (record is None or record.content_digest != then):
        # A dataset made anew under the same URI counts its versions from 1 again.
        return False
    history = background.history
    return then == now or (history.is_complete and history.effects <= _ROWS_STAY)


def _reasons(appraisal: Appraisal, background: Background) -> tuple[Reason, ...]:
    """Every difference between what was last made and what is wanted now."""
    reasons = _publication_reasons(appraisal)
    if Reason.NEW in reasons:
        return (Reason.NEW,)
    published, record = appraisal.published, appraisal.record
    had: set[str] = set(record.columns) if record else set()
    if published:
        had = {*published.columns, *published.dropped}
    want = {field.name for field in appraisal.wanted}
    known_hash = published.schema_hash if published else record.schema_hash if record else None
    if published or record:
        reasons |= {Reason.COLUMNS_ADDED} if want - had else set()
        reasons |= {Reason.COLUMNS_REMOVED} if had - want else set()
        reasons |= {Reason.SCHEMA_CHANGED} if known_hash != appraisal.schema_hash else set()
    reasons |= set() if _has_histograms(appraisal) else {Reason.SPEC_CHANGED}
    effects = background.history.effects
    reasons |= {_ROW_REASONS[effect] for effect in effects if effect in _ROW_REASONS}
    if Effect.COLUMNS_WRITTEN in effects and Reason.SCHEMA_CHANGED not in reasons:
        reasons.add(Reason.ROWS_CHANGED)
    if background.base_digest is None and not background.history.is_complete:
        reasons.add(Reason.ROWS_CHANGED)
    if not reasons:
        reasons.add(Reason.VERSION_MOVED)
    return tuple(reason for reason in Reason if reason in reasons)


def _publication_reasons(appraisal: Appraisal) -> set[Reason]:
    record, published = appraisal.record, appraisal.published
    if appraisal.spec.publish is Publish.NONE:
        return set() if record else {Reason.NEW}
    if appraisal.verdict.reason is GuardReason.ABSENT:
        if record is None:
            return {Reason.NEW}
        return {Reason.PUBLISH_MISSING} if record.published else {Reason.SPEC_CHANGED}
    unreadable = appraisal.verdict.reason in _UNREADABLE
    wanted = {field.name for field in appraisal.wanted}
    damaged = published is not None and not wanted.isdisjoint(published.dropped)
    return {Reason.PUBLISH_ALTERED} if unreadable or damaged or _is_altered(appraisal) else set()


def _scans(appraisal: Appraisal, coverage: Coverage) -> tuple[Scan, ...]:
    fragments = {fragment.id: fragment for fragment in appraisal.snapshot.fragments}
    return tuple(
        Scan(
            group.fragment_id,
            group.fingerprint,
            fields,
            fragments[group.fragment_id].rows,
            estimated_bytes(
                fragments[group.fragment_id], plain_keys(fields), appraisal.snapshot.fields
            ),
        )
        for group, fields in coverage.missing
    )


def _version(appraisal: Appraisal, background: Background) -> TableVersion:
    return TableVersion(
        pin=appraisal.snapshot.pin,
        identity=appraisal.identity,
        config=appraisal.snapshot.config,
        fields=appraisal.wanted,
        schema_hash=appraisal.schema_hash,
        content_digest=background.digest,
        rows=appraisal.snapshot.rows,
        fragments=len(appraisal.snapshot.fragments),
        live=frozenset(group.fingerprint for group in background.groups),
        histograms=appraisal.histograms,
        groups=background.groups,
    )


def _idle_figures(appraisal: Appraisal) -> Figures:
    return _figures(appraisal, ())


def _figures(appraisal: Appraisal, scans: tuple[Scan, ...]) -> Figures:
    rows = {scan.fragment_id: scan.rows for scan in scans}
    return Figures(
        fragments_total=len(appraisal.snapshot.fragments),
        fragments_scanned=len(rows),
        columns=len(appraisal.wanted),
        rows_total=appraisal.snapshot.rows,
        rows_scanned=sum(rows.values()),
        bytes_scanned=sum(scan.size_bytes for scan in scans),
        version_read=appraisal.snapshot.version,
    )
