"""Folds the partials of fragments into those of groups, where a target bounds its state's size.

Of folded fragments the state has one row. Where the content of one changes, the others are read
again with it, so that no more are folded than the bound asks for, and never more than a group of
the table's summary has.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from lancestat.errors import Location, StateTooSmall
from lancestat.formats import count, size
from lancestat.runs.actions import Action, Blocked, Skip
from lancestat.state.partials import MOST_GROUPS
from lancestat.state.store import LanceState
from lancestat.state.values import StoredPartials, weight
from lancestat.tables.action import FoldPartials, RecordStatistics, TableAction, TableVersion
from lancestat.tables.coverage import Fingerprints, Reuse
from lancestat.tables.statistics.partial import encode
from lancestat.tables.stored import TableRecord, read_partials
from lancestat.tables.summary import RunningMerge

# The most that a partial with nothing beyond takes in the state, see `state.values.weight`.
PARTIAL_BYTES = 1_600


def fold_to_fit(
    planned: Mapping[str, Action],
    budget: int,
    location: Location | None,
    records: Mapping[str, TableRecord],
) -> Mapping[str, Action]:
    """Return the actions of a plan, so that the partials of all tables fit a number of bytes.

    `location` is where the budget is declared, and `records` has those of the target's tables by
    name, of planned ones and others. As many fragments of each table are folded as of every other,
    of tables that are skipped as stored partials. Where even groups of their summaries, of which
    there are 512, do not fit, these are made, tables that are to be read are blocked, and others
    have a note.
    """
    demands = {name: _Demand.of_record(record) for name, record in records.items()}
    demands |= {
        name: _Demand.of_table(table)
        for name, action in planned.items()
        if (table := _recorded(action)) is not None
    }
    most = max((demand.most for demand in demands.values()), default=1)
    fold = 1
    while _bytes(demands.values(), fold) > budget and fold < most:
        fold *= 2
    least = _bytes(demands.values(), fold)
    folded = {
        name: _folded(action, fold, demands.get(name), records.get(name))
        for name, action in planned.items()
    }
    if least <= budget:
        return folded
    error = StateTooSmall(
        f"folded, the partials of the target's tables may still take {size(least)} in the state, "
        f"{size(least - budget)} more than its state_budget of {size(budget)}",
        location=location,
        hint="raise state_budget, or select fewer columns",
    )
    return {name: _refused(action, error) for name, action in folded.items()}


@dataclass(frozen=True, slots=True)
class _Demand:
    """What the state has of a table: `partials` for each range of fragments that has one row.

    `ranges` are the numbers of these by their width in ids: 1, 2, 4 and so on.
    """

    ranges: tuple[int, ...]
    partials: int

    @classmethod
    def of_table(cls, table: TableVersion) -> _Demand:
        return cls(count_ranges(table), weight(frozenset(table.needs)))

    @classmethod
    def of_record(cls, record: TableRecord) -> _Demand:
        # Records of few fragments, and those of earlier releases, have no ranges.
        ids = () if record.ranges else range(record.fragments)
        return cls(record.ranges or _ranges(ids), record.weight)

    @property
    def most(self) -> int:
        """The most ids of which fragments are folded into one row: a power of two."""
        return 1 << (len(self.ranges) - 1)

    def rows(self, fold: int) -> int:
        """Return the number of rows where fragments are folded that far, or as far as they may."""
        return self.ranges[min(fold, self.most).bit_length() - 1]


def _recorded(action: Action) -> TableVersion | None:
    """Return what an action makes the record of."""
    match action:
        case TableAction(table=table) | Skip(stages=(RecordStatistics(table),)):
            return table
    return None


def count_ranges(table: TableVersion) -> tuple[int, ...]:
    """Count the ranges of 1, 2, 4 and more ids in which a table has fragments, while too many."""
    return _ranges({group.fragment_id for group in table.groups})


def _ranges(ids: Collection[int]) -> tuple[int, ...]:
    counts = [len(ids)]
    while counts[-1] > MOST_GROUPS:
        ids = {number // 2 for number in ids}
        counts.append(len(ids))
    return tuple(counts)


def _bytes(demands: Iterable[_Demand], fold: int) -> int:
    return sum(demand.rows(fold) * demand.partials * PARTIAL_BYTES for demand in demands)


def _folded(
    action: Action, fold: int, demand: _Demand | None, record: TableRecord | None
) -> Action:
    if demand is None:
        return action
    fold, before = min(fold, demand.most), 1 if record is None else record.fold
    match action:
        case TableAction() if fold > 1:
            notes = action.notes
            if action.reading:
                notes = (*notes, _note("partials", fold, demand, action.table))
            elif fold > before:
                notes = (*notes, _note("stored partials", fold, demand, action.table))
            return replace(action, table=replace(action.table, fold=fold), notes=notes)
        case Skip(stages=(RecordStatistics(table),)) if fold > 1:
            notes = (*action.notes, _note("stored partials", fold, demand, table))
            recording = RecordStatistics(replace(table, fold=fold))
            return replace(action, stages=(recording,), notes=notes)
        case Skip(stages=()) if record is not None and fold > before:
            notes = (*action.notes, _note("stored partials", fold, demand, record))
            return replace(action, stages=(FoldPartials(fold),), notes=notes)
    return action


def _refused(action: Action, error: StateTooSmall) -> Action:
    """Return the action where the budget has no room: nothing is read, and the rest has a note."""
    if isinstance(action, TableAction) and action.reading:
        return Blocked(action.node, action.kind, error)
    if isinstance(action, TableAction | Skip):
        return replace(action, notes=(*action.notes, error.message))
    return action


def _note(what: str, fold: int, demand: _Demand, table: TableVersion | TableRecord) -> str:
    each = table.size_bytes // max(1, demand.rows(fold))
    return (
        f"the state_budget folds {what} of up to {count(fold, 'fragment')}: when rows of one "
        f"change, all of them are read again, about {size(each)}"
    )


# Partials that one run folds at most, so that none takes long, and those that are read at once.
_MOST_FOLDED = 65_536
_FOLDED_AT_ONCE = 8_192

# Stored rows that make up all of a range of fragments, and their fields.
_Rows = tuple[list[Fingerprints], frozenset[str]]


def fold_stored(state: LanceState, table: TableVersion, stored: Sequence[Reuse]) -> bool:
    """Fold stored partials of a table's fragments, the oldest first.

    What was folded expires at the end of the run.

    Returns:
        Whether all is folded; else later runs go on from there.
    """
    left, some, count = _MOST_FOLDED, list[_Rows](), 0
    ranges = _to_fold(table, stored)
    for rows in ranges:
        some.append(rows)
        count += len(rows[0]) * weight(rows[1])
        if count >= min(left, _FOLDED_AT_ONCE):
            _fold(state, table.identity, some)
            left, some, count = left - count, [], 0
            if left <= 0:
                return next(ranges, None) is None
    if some:
        _fold(state, table.identity, some)
    return True


def _fold(state: LanceState, table: str, groups: Sequence[_Rows]) -> None:
    merges = [{key: RunningMerge(len(rows)) for key in fields} for rows, fields in groups]
    keys: dict[Fingerprints, frozenset[str]] = {}
    homes: dict[Fingerprints, list[int]] = defaultdict(list)
    for number, (rows, fields) in enumerate(groups):
        for fingerprints in rows:
            keys[fingerprints] = keys.get(fingerprints, frozenset()) | fields
            homes[fingerprints].append(number)
    for stored in read_partials(state, table, keys):
        for number in homes[stored.fingerprints]:
            for key in groups[number][1] & stored.partials.keys():
                merges[number][key].add(stored.partials[key], 1)
    state.add_partials(
        table,
        [
            StoredPartials(
                tuple(sorted(chain.from_iterable(rows))),
                {key: encode(merge.partial) for key, merge in of_group.items() if merge.partial},
            )
            for (rows, _), of_group in zip(groups, merges, strict=True)
            # Of what is gone, nothing is folded.
            if not any(merge.left for merge in of_group.values())
        ],
    )


def _to_fold(table: TableVersion, stored: Sequence[Reuse]) -> Iterator[_Rows]:
    """Yield what is stored of each range of fragments in several rows, oldest first."""
    counts = Counter(group.fingerprint for group in table.groups)
    # Content that several fragments have is stored by itself.
    groups = [group for group in table.groups if counts[group.fingerprint] == 1]
    place = {group.fingerprint: group.fragment_id // table.fold for group in groups}
    fragments: dict[int, Counter[frozenset[str]]] = defaultdict(Counter)
    for group in groups:
        fragments[group.fragment_id // table.fold][group.fields] += 1
    rows: dict[int, list[Reuse]] = defaultdict(list)
    for item in stored:
        places = {place.get(fingerprint) for fingerprint in item.fingerprints}
        at = places.pop() if len(places) == 1 else None
        if at is not None:
            rows[at].append(item)
    for at, items in sorted(rows.items()):
        for fields, some in _by_fields(items):
            whole = sum(n for among, n in fragments[at].items() if fields <= among)
            if len(some) > 1 and sum(map(len, some)) == whole:
                yield some, fields


def _by_fields(items: Sequence[Reuse]) -> Iterator[tuple[frozenset[str], list[Fingerprints]]]:
    """Yield the rows of each field, of fields with the same rows together.

    Rows that were stored before a column was selected, or dropped, have not the fields of others.
    """
    by_fields: dict[frozenset[str], list[Fingerprints]] = defaultdict(list)
    for item in items:
        by_fields[item.fields].append(item.fingerprints)
    having: dict[str, list[frozenset[str]]] = defaultdict(list)
    for fields in by_fields:
        for key in fields:
            having[key].append(fields)
    alike: dict[tuple[frozenset[str], ...], set[str]] = defaultdict(set)
    for key, sets in having.items():
        alike[tuple(sets)].add(key)
    for owners, keys in alike.items():
        yield frozenset(keys), [row for fields in owners for row in by_fields[fields]]
