"""Judges what a change of a table means: columns with and without statistics, cost, risks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from fnmatch import fnmatchcase

from lancestat.errors import SpecError
from lancestat.formats import count, size
from lancestat.lake.fingerprint import ByteEstimator
from lancestat.lake.snapshot import Snapshot
from lancestat.review.evidence import Evidence
from lancestat.review.values import (
    ColumnsChange,
    Findings,
    Mask,
    PropertyChange,
    Risk,
    RiskNote,
    declared_risks,
    selection_rules,
)
from lancestat.spec.declaration import key_fields
from lancestat.spec.model import (
    ColumnPattern,
    ColumnRule,
    CommonValues,
    NodeKind,
    Policy,
    ProjectSpec,
    Refresh,
    StaleBounds,
    Table,
)
from lancestat.spec.relations import Columns, groups_text, references_text
from lancestat.state.values import canonical_uri, covered_keys, field_keys, table_identity
from lancestat.tables.coverage import cover
from lancestat.tables.judgement import TableAssessment, analyzable, assess, resolve
from lancestat.tables.planner import skip_if_current, stored_groups
from lancestat.tables.stored import TableRecord

Rules = tuple[ColumnRule, ...]


@dataclass(frozen=True, slots=True)
class ColumnComparison:
    """The columns of a table before and after.

    `may_gain` and `may_lose` are certain where there was a schema; else patterns allow it. `notes`
    say what could not be resolved.
    """

    change: ColumnsChange
    may_gain: bool
    may_lose: bool
    notes: tuple[str, ...] = ()


def compare_columns(
    old: Table | None, new: Table | None, snapshot: Snapshot | None, mask: Mask
) -> ColumnComparison:
    """Compare the columns of two declarations, against one schema where there is one."""
    notes: list[str] = []
    is_refused = False
    if snapshot is not None:
        before, after = _names(old, snapshot), _names(new, snapshot)
        if isinstance(after, SpecError):
            is_refused = True
            notes.append(f"'lancestat plan' will refuse this: {mask.line(after.message)}")
        elif not isinstance(before, SpecError):
            names = [field.name for field in snapshot.fields]
            gained = tuple(name for name in names if name in after - before)
            lost = tuple(name for name in names if name in before - after)
            change = ColumnsChange(mask.lines(gained), mask.lines(lost), True)
            return ColumnComparison(change, bool(gained), bool(lost))
        else:
            notes.append(f"what BASE declares does not fit the table: {mask.line(before.message)}")
    before_rules, after_rules = _rules(old), _rules(new)
    gained = tuple(dict.fromkeys(_uncovered(after_rules, before_rules)))
    lost = tuple(dict.fromkeys(_uncovered(before_rules, after_rules)))
    change = ColumnsChange(mask.lines(gained), mask.lines(lost), False)
    return ColumnComparison(change, bool(gained) and not is_refused, bool(lost), tuple(notes))


def _names(table: Table | None, snapshot: Snapshot) -> frozenset[str] | SpecError:
    if table is None:
        return frozenset()
    try:
        return frozenset(resolve(table, snapshot, analyzable(snapshot)).names)
    except SpecError as error:
        return error


def _rules(table: Table | None) -> Rules:
    return () if table is None else selection_rules(table.columns)


def _uncovered(rules: Rules, others: Rules) -> Iterator[str]:
    """The patterns of which some columns may be in `rules` and not in `others`."""
    for rule in rules:
        for pattern in rule.include:
            rests = [_left_out(other, pattern, rule) for other in others]
            known = [sorted(rest) for rest in rests if rest is not None]
            # Of a pattern that is included still, only what it leaves out may be lost.
            yield from sorted(known, key=len)[0] if known else (pattern.text,)


def _left_out(other: ColumnRule, pattern: ColumnPattern, rule: ColumnRule) -> set[str] | None:
    """Return what another rule excludes of a pattern, None where it does not include that."""
    text = pattern.text
    if other.types is not None and not (rule.types is not None and rule.types <= other.types):
        return None
    included = any(
        candidate.text in (text, "*") or (not pattern.is_glob and fnmatchcase(text, candidate.text))
        for candidate in other.include
    )
    if not included:
        return None
    ours = {candidate.text for candidate in rule.exclude}
    excluded = {candidate.text for candidate in other.exclude} - ours
    if pattern.is_glob:
        return excluded
    is_left_out = any(one == text or fnmatchcase(text, one) for one in excluded)
    return {text} if is_left_out else set()


_INFINITE = float("inf")


def staleness_risks(old: Policy, new: Policy) -> tuple[Risk, ...]:
    """Return whether a policy is loosened, tightened, both or neither.

    `false` is below all bounds and `true` above them; a bound that is not given is infinite, and
    each is compared by itself, so that a change may be both. `refresh: when_stale` loosens where
    readers accept anything stale at all: until they refuse, runs bring nothing up to date.
    """
    before, after = _allowed_lag(old), _allowed_lag(new)
    loosened = any(then < now for then, now in zip(before, after, strict=True))
    tightened = any(then > now for then, now in zip(before, after, strict=True))
    changes = ((Risk.STALENESS_LOOSENED, loosened), (Risk.STALENESS_TIGHTENED, tightened))
    return tuple(risk for risk, is_there in changes if is_there)


def _allowed_lag(policy: Policy) -> tuple[float, ...]:
    """Return the allowed lag by each bound, spans in seconds, and whether runs leave it."""
    allowed = policy.allow_stale
    waits = policy.refresh is Refresh.WHEN_STALE and allowed is not False
    names = [declared.name for declared in key_fields(StaleBounds)]
    if isinstance(allowed, StaleBounds) and allowed != StaleBounds():
        return (*(_bound(getattr(allowed, name)) for name in names), float(waits))
    # Nothing stale is below every bound, also below one of 0.
    lag = _INFINITE if allowed is True else -1.0
    return (*(lag for _ in names), float(waits))


def _bound(bound: float | timedelta | None) -> float:
    if isinstance(bound, timedelta):
        return bound.total_seconds()
    return _INFINITE if bound is None else float(bound)


# Only such changes need the columns of the dataset, and the cost of reading them.
_OF_COLUMNS = frozenset((Risk.DATASET_MOVED, Risk.COVERAGE_LOST))
_NAMED = 8
# The order in which the risks of a table are listed.
_RISKS = (
    Risk.STALENESS_LOOSENED,
    Risk.STALENESS_TIGHTENED,
    Risk.PUBLISH_CHANGED,
    Risk.DATASET_MOVED,
    Risk.COVERAGE_LOST,
    Risk.VALUES_SHOWN,
)


@dataclass(frozen=True, slots=True)
class TableChange:
    """A table on both sides, and the properties that differ."""

    old: Table | None
    new: Table | None
    changed: tuple[PropertyChange, ...]

    @property
    def is_moved(self) -> bool:
        """Whether it is another dataset."""
        both = self.old is not None and self.new is not None
        return both and len({canonical_uri(uri) for uri in self.uris}) > 1

    @property
    def uris(self) -> tuple[str, ...]:
        """The URIs of the dataset, HEAD's first."""
        return tuple(
            dict.fromkeys(table.uri for table in (self.new, self.old) if table is not None)
        )

    @property
    def hides_columns(self) -> bool:
        """Whether patterns of columns came from the environment, so that they are not shown."""
        sides = (
            side for change in self.changed if change.name == "columns" for side in change.sides
        )
        return any(side.is_hidden for side in sides)

    @property
    def asks_dataset(self) -> bool:
        """Whether the change needs facts from the dataset."""
        is_one_sided = self.old is None or self.new is None
        return is_one_sided or any(change.risk in _OF_COLUMNS for change in self.changed)

    def opened_uris(self, head: ProjectSpec) -> tuple[str, ...]:
        """Return the URIs of the Lance datasets that tell about the change."""
        return self.uris if self.asks_dataset else ()

    def judge(self, evidence: Evidence) -> Findings:
        """Return the columns, the cost, the risks and the consequences of a change."""
        risks, notes = (*_staleness(self), *_declared(self)), tuple(_consequences(self))
        if not self.asks_dataset:
            return Findings(risks=_ordered(risks), notes=notes)
        snapshot = next(filter(None, map(evidence.snapshot, self.uris)), None)
        comparison = compare_columns(self.old, self.new, snapshot, evidence.mask)
        if self.hides_columns and not comparison.change.are_names:
            comparison = replace(comparison, change=ColumnsChange((), (), False))
        cost, columns = _cost(self, comparison, evidence), comparison.change
        unopened = evidence.unopened_reason(self.uris[0])
        unopened_notes = () if unopened is None else (f"the dataset {unopened}",)
        return Findings(
            columns=columns if columns.gained or columns.lost else None,
            cost_bytes=cost,
            risks=(
                *_ordered((*_coverage(self, comparison), *risks)),
                *_cost_note(self, cost, comparison),
            ),
            notes=(*comparison.notes, *unopened_notes, *notes),
        )


def _cost(change: TableChange, comparison: ColumnComparison, evidence: Evidence) -> int | None:
    if change.new is None:
        return 0
    before = None if change.is_moved else change.old
    cost = table_cost(before, change.new, evidence)
    gains_histograms = change.new.histogram and "histogram" in {c.name for c in change.changed}
    gains = comparison.may_gain or gains_histograms or _gains_relations(change)
    needs_none = before is not None and not gains
    return 0 if cost is None and needs_none else cost


def _staleness(change: TableChange) -> Iterator[RiskNote]:
    if change.old is None or change.new is None:
        return
    texts = {
        changed.name: " -> ".join(side.text for side in changed.sides) for changed in change.changed
    }
    what = texts.get("allow.stale") or f"refresh {texts.get('refresh', '')}"
    sentences = {
        Risk.STALENESS_LOOSENED: f"queries may be planned on older statistics: {what}",
        Risk.STALENESS_TIGHTENED: (
            f"statistics that are used today may be refused until a run brings them up to date: "
            f"{what}"
        ),
    }
    for risk in staleness_risks(change.old.policy, change.new.policy):
        yield RiskNote(risk, sentences[risk])


def _coverage(change: TableChange, comparison: ColumnComparison) -> Iterator[RiskNote]:
    lost = comparison.change.lost
    if change.new is None:
        whose = f"{count(len(lost), 'column')}" if comparison.change.are_names else "the table"
        yield RiskNote(Risk.COVERAGE_LOST, f"nothing refreshes the statistics of {whose} any more")
    elif comparison.may_lose:
        lose = "column loses" if len(lost) == 1 else "columns lose"
        what = f"{count(len(lost))} {lose}" if comparison.change.are_names else "columns may lose"
        named = f": {_listed(lost)}" if lost else ""
        yield RiskNote(Risk.COVERAGE_LOST, f"{what} statistics{named}")


def _declared(change: TableChange) -> Iterator[RiskNote]:
    """Yield the risks that declarations of keys word by themselves, and that of another URI."""
    if change.old is None or change.new is None:
        return
    yield from declared_risks(change.old, change.new)
    yield from _relations_lost(change.old, change.new)
    yield from _common_values_shown(change.old.common_values, change.new.common_values)
    if change.is_moved:
        yield RiskNote(
            Risk.DATASET_MOVED,
            "the table is another dataset, whose statistics are computed from scratch; those of "
            "the old one stay and are no longer refreshed",
        )


def _gains_relations(change: TableChange) -> bool:
    """Whether groups, keys or common values need to be read that were not declared before."""
    old, new = change.old, change.new
    if old is None or new is None:
        return False
    groups = _sets(new.joint_groups) - _sets(old.joint_groups)
    common = new.common_values
    gains_common = common is not None and not (
        old.common_values is not None and old.common_values.includes(common)
    )
    return gains_common or bool(groups or _sets(new.keys) - _sets(old.keys))


def _relations_lost(old: Table, new: Table) -> Iterator[RiskNote]:
    groups, keys = _sets(new.joint_groups), _sets(new.keys)
    lost_groups = [columns for columns in old.joint_groups if frozenset(columns) not in groups]
    lost_keys = [columns for columns in old.keys if frozenset(columns) not in keys]
    references = set(new.references)
    lost_references = [reference for reference in old.references if reference not in references]
    common = old.common_values
    is_less = common is not None and not (new.common_values and new.common_values.includes(common))
    sentences = {
        f"nothing keeps the joint statistics of {groups_text(lost_groups)} any more": lost_groups,
        f"estimates no longer know of the key {groups_text(lost_keys)}": lost_keys,
        f"estimates no longer know of the reference {references_text(lost_references)}": (
            lost_references
        ),
        "fewer common values are kept" if new.common_values else "no common values are kept": (
            is_less
        ),
    }
    for sentence, is_lost in sentences.items():
        if is_lost:
            yield RiskNote(Risk.COVERAGE_LOST, sentence)


def _common_values_shown(old: CommonValues | None, new: CommonValues | None) -> Iterator[RiskNote]:
    if new is None or not new.show:
        return
    if old is None or not old.show:
        yield RiskNote(Risk.VALUES_SHOWN, "the most common values of columns will be shown")
    elif not replace(old, limit=new.limit).includes(new):
        yield RiskNote(Risk.VALUES_SHOWN, "common values of more columns will be shown")


def _sets(groups: Iterable[Columns]) -> frozenset[frozenset[str]]:
    return frozenset(map(frozenset, groups))


def _ordered(risks: Iterable[RiskNote]) -> tuple[RiskNote, ...]:
    rank = {risk: index for index, risk in enumerate(_RISKS)}
    return tuple(sorted(risks, key=lambda note: rank.get(note.risk, len(rank))))


def _cost_note(
    change: TableChange, cost: int | None, comparison: ColumnComparison
) -> Iterator[RiskNote]:
    if cost == 0:
        return
    gained = comparison.change.gained if comparison.change.are_names else ()
    what = f" for {count(len(gained), 'column')}" if gained and not change.is_moved else ""
    much = "an unknown amount more" if cost is None else f"about {size(cost)}"
    yield RiskNote(Risk.COST_INCREASED, f"the first run reads {much}{what}")


def _consequences(change: TableChange) -> Iterator[str]:
    old, new = change.old, change.new
    if old is None:
        return
    if new is None:
        if old.publish.commits:
            yield "what is published stays in the table's manifest, where readers may find it"
            yield f"'lancestat unpublish {old.name}' removes it, while the table is declared"
        yield "'lancestat gc' drops what the state knows of the table"
        return
    if old.publish.commits and not new.publish.commits:
        yield (
            "statistics published earlier stay in the table; "
            f"'lancestat unpublish {new.name}' removes them"
        )
    if old.name != new.name:
        yield f"queries that say '{old.name}' must say '{new.name}'"


def _listed(names: tuple[str, ...]) -> str:
    listed = ", ".join(names[:_NAMED])
    return f"{listed} and {count(len(names) - _NAMED)} more" if len(names) > _NAMED else listed


def table_cost(old: Table | None, new: Table, evidence: Evidence) -> int | None:
    """Bytes of the columns that are analyzed newly, None where the dataset cannot be opened.

    Columns whose partials are stored are not read again; nothing is read where the manifest already
    holds all that is wanted. `old` is what was declared of the same dataset before.
    """
    snapshot = evidence.snapshot(new.uri)
    if snapshot is None:
        return None
    try:
        after = _assess(new, snapshot, evidence)
    except SpecError:
        # A plan that refuses the table reads nothing.
        return 0
    if skip_if_current(after) is not None:
        return 0
    known = _keys(old, snapshot, evidence)
    return _missing_bytes(after, after.wanted.keys() - known, evidence)


def _assess(table: Table, snapshot: Snapshot, evidence: Evidence) -> TableAssessment:
    identity = table_identity(snapshot.uri)
    record = evidence.records.get(NodeKind.TABLE.value, {}).get(identity)
    assert record is None or isinstance(record, TableRecord)
    return assess(table, identity, snapshot, record)


def _keys(table: Table | None, snapshot: Snapshot, evidence: Evidence) -> frozenset[str]:
    with suppress(SpecError):
        if table is not None:
            before = _assess(table, snapshot, evidence)
            return covered_keys(frozenset(before.wanted))
    return frozenset()


def _missing_bytes(after: TableAssessment, fresh: Set[str], evidence: Evidence) -> int:
    if not fresh:
        return 0
    groups = [
        replace(group, fields=fields)
        for group in stored_groups(after)
        if (fields := group.fields & fresh)
    ]
    index = evidence.index(after.identity)
    fragments = {fragment.id: fragment for fragment in after.snapshot.fragments}
    bytes_read = ByteEstimator(after.snapshot.fields)
    return sum(
        bytes_read.estimate(fragments[group.fragment_id], field_keys(keys))
        for group, keys in cover(groups, index, ()).missing
    )
