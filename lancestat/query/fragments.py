"""Statistics of a table's fragments: from the state, group by group, or from Lance's zone maps.

A zone map is a scalar index (`create_scalar_index(column, "ZONEMAP")`): the file `zonemap.lance` in
the folder of each of its segments has a row per zone, a range of rows of one fragment, with `min`
and `max` in the column's type, `null_count`, `nan_count`, `fragment_id`, `zone_start` and
`zone_length`. With NaN in a zone, `max` is NaN. The manifest lists the fragments that a segment
still covers, which excludes those whose values of the column were replaced. Later deletions only
remove rows, so bounds still rule out the same fragments.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from lancestat.errors.base import StateError
from lancestat.lake.files import store_options
from lancestat.lake.fingerprint import column_groups, field_key, with_joint
from lancestat.lake.open import portable
from lancestat.lake.snapshot import Field, Fragment, Snapshot
from lancestat.query.predicates.filter import Filter, columns_of
from lancestat.query.pruning import ColumnBounds, Mask, bound_values, may_match, must_match
from lancestat.redact import redact_line, secret_values
from lancestat.state.partials import block_digest, contents, group_digest, slices
from lancestat.state.store import StateReader
from lancestat.state.values import BlockKey, TableSummary, joint_key, partial_key, plain_key
from lancestat.tables.expectations import Known
from lancestat.tables.statistics.bounds import Bound
from lancestat.tables.statistics.column_type import ColumnType, column_type
from lancestat.tables.statistics.partial import ColumnPartial, decode, merge
from lancestat.tables.statistics.sketches import EMPTY_SKETCH
from lancestat.tables.stored import read_blocks

if TYPE_CHECKING:
    import lance
    import pyarrow as pa


_log = logging.getLogger("lancestat.read")

# The least value, the greatest one, and the nulls of some rows; both bounds or none.
ColumnRange = tuple[Bound | None, Bound | None, int]
Partials = Sequence[ColumnPartial | None]

# So many filters are remembered, each with the fragments that it leaves.
_MOST_PRUNED = 64


class FragmentStatistics:
    """Statistics of a table's fragments at one version, by groups of them; none in this base class.

    Fragments of groups that are no longer whole, and those of no group, are one last group of which
    nothing is known. A column is read once, when a filter or an estimate needs it.

    Args:
        fragments: The fragments.
        fields: The columns.
        groups: Ids of fragments, each in one group.
    """

    # Whether partials have sketches, and not only bounds and counts of nulls and NaN.
    has_sketches = False

    def __init__(
        self,
        fragments: Sequence[Fragment] = (),
        fields: Sequence[Field] = (),
        groups: Sequence[Sequence[int]] = (),
    ) -> None:
        rest = len(groups)
        sizes = np.array([len(group) for group in groups], np.int64)
        home = {id: index for index, group in enumerate(groups) for id in group}
        ordered = sorted(fragments, key=lambda fragment: fragment.id)
        group_of = np.array([home.get(fragment.id, rest) for fragment in ordered], np.int64)
        present = np.bincount(group_of, minlength=rest + 1)
        self._is_whole: Mask = np.append(present[:rest] == sizes, False)
        self._group_of = np.where(self._is_whole[group_of], group_of, rest)
        self._ids = np.array([fragment.id for fragment in ordered], np.int64)
        rows = np.array([fragment.rows for fragment in ordered], np.int64)
        self._rows = np.bincount(self._group_of, rows, rest + 1).astype(np.int64)
        self._is_present: Mask = np.bincount(self._group_of, minlength=rest + 1) > 0
        self._fields = {field.name: field for field in fields}
        self._columns: dict[str, ColumnBounds | None] = {}
        # Every plan of a query over the whole table asks for them, and merging takes milliseconds.
        self._merged: dict[str, ColumnPartial | None] = {}
        # Planning one query asks several times for the same filters.
        self._pruned: dict[tuple[Filter, ...], RemainingFragments | None] = {}
        self._lock = threading.Lock()

    @property
    def is_empty(self) -> bool:
        """Whether neither a state nor an index has any of the fragments."""
        return not self._ids.size

    def load(self, columns: Iterable[str]) -> None:
        """Load columns together, which takes less time than one by one."""
        with self._lock:
            missing = [name for name in dict.fromkeys(columns) if name not in self._columns]
            self._columns.update(dict.fromkeys(missing))
            types = {
                name: type
                for name in missing
                if name in self._fields and (type := column_type(self._fields[name].type))
            }
            partials = self._read([self._fields[name] for name in types]) if types else {}
            for name, by_group in partials.items():
                self._columns[name] = ColumnBounds.of([*by_group, None], types[name])

    def _read(self, fields: Sequence[Field]) -> Mapping[str, Partials]:
        """Return the partials of analyzable columns by group, None where one is not known."""
        return {}

    def bounds(self, column: str) -> ColumnBounds | None:
        """Return the bounds of a column by group, None where none is known."""
        self.load([column])
        return self._columns[column]

    def partial_of(self, column: str, groups: Mask) -> ColumnPartial | None:
        """Return the partial of a column over some groups, None where one is unknown."""
        bounds = self.bounds(column)
        if bounds is None or not self.has_sketches or not bounds.known[groups].all():
            return None
        return merge(bounds.partials[index] for index in np.flatnonzero(groups).tolist())

    def range_of(self, column: str, groups: Mask) -> ColumnRange | None:
        """Return the range of a column over some groups, None where one is unknown."""
        bounds = self.bounds(column)
        if bounds is None or not bounds.known[groups].all():
            return None
        nulls = int(bounds.nulls[groups].sum())
        valued = np.flatnonzero(groups & (bounds.ordered > 0)).tolist()
        lower, upper = ([some[index] for index in valued] for some in (bounds.lower, bounds.upper))
        # As in `column_statistics_of`: bounds of numbers would leave NaN out.
        if None in lower or None in upper or not valued or bounds.nans[groups].any():
            return None, None, nulls
        low: Any = lower
        high: Any = upper
        return min(low), max(high), nulls

    def partial(self, column: str) -> ColumnPartial | None:
        """Return the partial of a column over the whole table, None where a group is unknown."""
        if column not in self._merged:
            self._merged[column] = self.partial_of(column, self._is_present)
        return self._merged[column]

    def known(self, column: str) -> Known | None:
        """Return the partial of a column over all groups, or those that are known."""
        whole = self.partial(column)
        if whole is not None:
            return Known(whole, is_whole=True)
        bounds = self.bounds(column)
        if bounds is None or not self.has_sketches:
            return None
        groups = np.flatnonzero(bounds.known & self._is_present).tolist()
        some = merge(bounds.partials[index] for index in groups)
        return Known(some, is_whole=False) if some.rows else None

    def group_partial(self, columns: frozenset[str]) -> ColumnPartial | None:
        """Return the partial of a group of columns over the whole table, None where not known."""
        return None

    def tuple_order(self, columns: Iterable[str]) -> list[str]:
        """Return the columns of a group in the order of its tuples: that of their field ids."""
        return sorted(columns, key=lambda name: self._fields[name].id)

    def knows(self, column: str) -> bool:
        """Whether the bounds of a column are known in some fragment."""
        bounds = self.bounds(column)
        return bounds is not None and bool(bounds.known.any())

    def prune(self, filters: Sequence[Filter]) -> RemainingFragments | None:
        """Return the fragments that a conjunction of filters leaves; None when it leaves all."""
        key = tuple(filters)
        try:
            if key in self._pruned:
                return self._pruned[key]
            left = self._prune(key)
        except RecursionError:
            return None
        if len(self._pruned) >= _MOST_PRUNED:
            self._pruned = {}
        self._pruned[key] = left
        return left

    def _prune(self, filters: Sequence[Filter]) -> RemainingFragments | None:
        matching = self._matching(filters)
        if matching[self._is_present].all():
            return None
        alive = matching & self._is_present
        bounds = [self.bounds(name) for name in set().union(*map(columns_of, filters))]
        return RemainingFragments(
            self,
            alive,
            fragment_ids=tuple(self._ids[alive[self._group_of]].tolist()),
            rows=int(self._rows[alive].sum()),
            is_known=all(
                column is not None and bool(column.known[alive].all()) for column in bounds
            ),
        )

    def covers(self, filters: Sequence[Filter]) -> bool:
        """Whether every row of the fragments that `prune` leaves is known to pass the filters."""
        try:
            left = self._matching(filters) & self._is_present
            passing = must_match(filters, self.bounds, len(left)) & self._is_whole
        except RecursionError:
            return False
        return bool(self._is_present.any() and passing[left].all())

    def _matching(self, filters: Sequence[Filter]) -> Mask:
        self.load(set().union(*map(columns_of, filters)))
        return may_match(filters, self.bounds, len(self._rows)) | ~self._is_whole


@dataclass(frozen=True, slots=True)
class RemainingFragments:
    """The fragments of a table that are left after pruning: their ids, ascending, and live rows.

    `is_known` says whether the bounds of every filtered column are known in all of them. Only then
    may an estimate start from these fragments: Spark applies the filter once more, to bounds that
    must be theirs.
    """

    statistics: FragmentStatistics
    groups: Mask
    fragment_ids: Sequence[int]
    rows: int
    is_known: bool
    _merged: dict[str, ColumnPartial | None] = field(default_factory=dict, init=False, repr=False)

    def partial(self, column: str) -> ColumnPartial | None:
        """Return the partial of a column over these fragments, None where one is unknown."""
        if column not in self._merged:
            self._merged[column] = self.statistics.partial_of(column, self.groups)
        return self._merged[column]

    def range(self, column: str) -> ColumnRange | None:
        """Return the range of a column over these fragments, None where one is unknown."""
        return self.statistics.range_of(column, self.groups)


def load_groups(state: StateReader, identity: str, snapshot: Snapshot) -> FragmentStatistics:
    """Return the state's statistics of the fragments of `snapshot`.

    Only partials of content that the snapshot has are used. An unreachable state has none.
    """
    try:
        summary = state.summary(identity)
    except StateError as error:
        _unreached(error)
        summary = None
    return _grouped(state, identity, snapshot, summary)


def _grouped(
    state: StateReader, identity: str, snapshot: Snapshot, summary: TableSummary | None
) -> FragmentStatistics:
    if summary is None or not summary.groups or not snapshot.fragments:
        return FragmentStatistics()
    return GroupedStatistics(state, identity, snapshot, summary)


def _unreached(error: StateError) -> None:
    _log.warning("fragments are pruned without the state: %s", error.message)


# Partials of 4 kB that are held at once so that several tables are read in one pass.
_MOST_TOGETHER = 16_384


def load_groups_of_tables(
    state: StateReader, tables: Mapping[str, tuple[Snapshot, Collection[str]]]
) -> Mapping[str, FragmentStatistics]:
    """As `load_groups`, of some tables by identity, with the columns that are named loaded.

    The state is read once for all of them. Columns of tables that are too large to be held together
    with others are read when they are needed.
    """
    try:
        summaries = state.summaries_of_tables(tables)
    except StateError as error:
        _unreached(error)
        summaries = {}
    loaded = {
        identity: _grouped(state, identity, snapshot, summaries.get(identity))
        for identity, (snapshot, _) in tables.items()
    }
    together: dict[str, tuple[GroupedStatistics, Collection[str]]] = {}
    room = _MOST_TOGETHER
    for identity, statistics in loaded.items():
        _, columns = tables[identity]
        if isinstance(statistics, GroupedStatistics):
            held = len(summaries[identity].groups) * len(columns)
            if held <= room:
                room -= held
                together[identity] = statistics, columns
    _load_together(state, together)
    return loaded


def _load_together(
    state: StateReader, tables: Mapping[str, tuple[GroupedStatistics, Collection[str]]]
) -> None:
    blocks = {identity: some.blocks_of(columns) for identity, (some, columns) in tables.items()}
    found: dict[str, dict[BlockKey, Partials]] = {identity: {} for identity in tables}
    try:
        for identity, (block, partials) in state.blocks_of_tables(blocks, decode):
            found[identity][block] = partials
    except StateError as error:
        _log.warning("columns are not known by group: %s", error.message)
    for identity, (some, columns) in tables.items():
        some.load_from(found[identity], columns)


class GroupedStatistics(FragmentStatistics):
    """Statistics by the groups of a stored summary; a query costs groups, not files.

    A loaded column takes up to 4 kB per group.
    """

    has_sketches = True

    def __init__(
        self, state: StateReader, identity: str, snapshot: Snapshot, summary: TableSummary
    ) -> None:
        super().__init__(snapshot.fragments, snapshot.fields, summary.groups)
        self._state, self._identity = state, identity
        self._snapshot, self._summary = snapshot, summary
        self._joint: dict[str, ColumnPartial | None] = {}
        self._at_hand: Mapping[BlockKey, Partials] = {}

    def _read(self, fields: Sequence[Field]) -> Mapping[str, Partials]:
        return self._read_keys({field.name: field_key(field) for field in fields})

    def group_partial(self, columns: frozenset[str]) -> ColumnPartial | None:
        if not columns <= self._fields.keys():
            return None
        key = joint_key(field_key(self._fields[name]) for name in columns)
        with self._lock:
            if key not in self._joint:
                # The last group, of which nothing is known, may be the only one.
                partials = dict(enumerate(self._read_keys({key: key}).get(key, ())))
                present = [
                    partials.get(group) for group in np.flatnonzero(self._is_present).tolist()
                ]
                known = [partial for partial in present if partial is not None]
                self._joint[key] = merge(known) if len(known) == len(present) else None
        return self._joint[key]

    def _read_keys(self, keys: Mapping[str, str]) -> Mapping[str, Partials]:
        """Return partials by group, of columns and groups by any names and their plain keys."""
        held = {name: self._held(key) for name, key in keys.items()}
        groups_by_block = self._groups_by_block(held)
        partials: dict[str, list[ColumnPartial | None]] = {
            name: [None] * len(is_held) for name, (_, is_held) in held.items() if any(is_held)
        }
        try:
            for block, stored in self._blocks(list(groups_by_block)):
                for name, groups in groups_by_block[block]:
                    if len(stored) == len(partials[name][groups]):
                        partials[name][groups] = stored
        except StateError as error:
            _log.warning("columns are not known by group: %s", error.message)
        return {name: self._sound(some, held[name][1]) for name, some in partials.items()}

    def _groups_by_block(
        self, held: Mapping[str, tuple[str, Sequence[bool]]]
    ) -> dict[BlockKey, list[tuple[str, slice]]]:
        """Return the blocks to read, each with the names whose groups it has."""
        groups_by_block: dict[BlockKey, list[tuple[str, slice]]] = {}
        for name, (key, is_held) in held.items():
            for groups in slices(self._summary.blocks):
                if any(is_held[groups]):
                    digests = self._summary.contents[key][groups]
                    block = (key, block_digest(digests))
                    groups_by_block.setdefault(block, []).append((name, groups))
        return groups_by_block

    def blocks_of(self, columns: Iterable[str]) -> Collection[BlockKey]:
        """Return the blocks that columns are read from."""
        fields = [self._fields[name] for name in columns if name in self._fields]
        return self._groups_by_block({f.name: self._held(field_key(f)) for f in fields})

    def load_from(self, blocks: Mapping[BlockKey, Partials], columns: Iterable[str]) -> None:
        """Load columns from their blocks, as far as these were read with those of other tables."""
        self._at_hand = blocks
        self.load(columns)
        self._at_hand = {}

    def _blocks(self, keys: Collection[BlockKey]) -> Iterator[tuple[BlockKey, Partials]]:
        yield from ((key, self._at_hand[key]) for key in keys if key in self._at_hand)
        others = [key for key in keys if key not in self._at_hand]
        if others:
            yield from read_blocks(self._state, self._identity, others)

    def _sound(self, partials: Partials, is_held: Sequence[bool]) -> Partials:
        """Leave out partials of other content, and those of other row counts than the manifest."""
        rows, whole = self._rows.tolist(), self._is_whole.tolist()
        return [
            partial if partial is not None and held and is_whole and partial.rows == count else None
            for partial, held, is_whole, count in zip(partials, is_held, whole, rows, strict=False)
        ]

    def _held(self, plain: str) -> tuple[str, list[bool]]:
        """Return the key of a summary's partials, and which groups have the snapshot's content."""
        stored, key = self._summary.contents, self._stored_keys.get(plain)
        if key is None:
            return plain, []
        pin = self._snapshot.pin
        if (self._summary.version, self._summary.manifest) == (pin.version, pin.manifest):
            return key, [bool(digest) for digest in stored[key]]
        now = self._digests[plain]
        return key, [bool(a) and a == b for a, b in zip(stored[key], now, strict=True)]

    @cached_property
    def _stored_keys(self) -> Mapping[str, str]:
        """The stored key by plain key: of several that with the most marks."""
        return {plain_key(key): key for key in sorted(self._summary.contents, key=len)}

    @cached_property
    def _digests(self) -> Mapping[str, Sequence[bytes | None]]:
        """What the groups hold of each analyzable column in this version."""
        fields = [field for field in self._snapshot.fields if column_type(field.type)]
        parts = {plain: partial_key(plain) for plain in self._stored_keys}
        joint = {plain: part.fields for plain, part in parts.items() if part.is_joint}
        groups = with_joint(column_groups(self._snapshot, fields), joint)
        digests: dict[str, Sequence[bytes | None]] = {}
        for keys, by_fragment in contents(groups).items():
            of_groups = [group_digest(group, by_fragment) for group in self._summary.groups]
            digests.update(dict.fromkeys(keys, of_groups))
        return digests


_FILE = "zonemap.lance"
_INDEX_TYPE = "ZoneMap"
_COLUMNS = ["min", "max", "null_count", "nan_count", "fragment_id", "zone_length"]

# A part of an index: the folder of its file, and the fragments that it still holds for.
_Segment = tuple[str, frozenset[int]]


def load_zone_maps(
    dataset: lance.LanceDataset,
    snapshot: Snapshot,
    storage_options: Mapping[str, str] | None = None,
) -> FragmentStatistics:
    """Return zone maps of the fragments of `snapshot`.

    `dataset` is open at the snapshot's version.
    """
    try:
        described = dataset.describe_indices()
    except Exception as error:
        _give_up(snapshot.uri, error, storage_options)
        return FragmentStatistics()
    by_id = {field.id: field for field in snapshot.fields}
    segments: dict[str, list[_Segment]] = {}
    for index in described:
        column = by_id.get(index.fields[0]) if len(index.fields) == 1 else None
        if index.index_type != _INDEX_TYPE or column is None:
            continue
        segments.setdefault(column.name, []).extend(
            # A clone's index lies with the table that it was cloned from.
            (
                f"{dataset.uri.rstrip('/')}/_indices/{segment.uuid}",
                frozenset(segment.fragment_ids),
            )
            for segment in index.segments
            if segment.base_id is None
        )
    if not any(segments.values()):
        return FragmentStatistics()
    return ZoneMapStatistics(snapshot, segments, portable(storage_options))


class ZoneMapStatistics(FragmentStatistics):
    """Statistics by fragment from zone maps: only bounds and counts of nulls and NaN."""

    def __init__(
        self,
        snapshot: Snapshot,
        segments: Mapping[str, Sequence[_Segment]],
        storage_options: Mapping[str, str],
    ) -> None:
        groups = [(id,) for id in sorted(fragment.id for fragment in snapshot.fragments)]
        super().__init__(snapshot.fragments, snapshot.fields, groups)
        self._snapshot, self._segments, self._options = snapshot, segments, storage_options

    def _read(self, fields: Sequence[Field]) -> Mapping[str, Partials]:
        partials = {}
        for column in fields:
            zones: dict[int, list[_Zone]] = {}
            type = column_type(column.type)
            assert type is not None
            trusted = {
                fragment.id
                for fragment in self._snapshot.fragments
                if not any(column.id in overlay.file.field_ids for overlay in fragment.overlays)
            }
            try:
                for folder, fragments in self._segments.get(column.name, ()):
                    _collect(self._zones(folder), type, fragments & trusted, zones)
            except Exception as error:
                _give_up(self._snapshot.uri, error, self._options)
                continue
            partials[column.name] = [_partial(zones.get(id)) for id in self._ids.tolist()]
        return partials

    def _zones(self, folder: str) -> pa.Table:
        from lance.file import LanceFileReader

        path = f"{folder}/{_FILE}"
        options = store_options(self._snapshot.uri, self._options)
        reader = LanceFileReader(path, storage_options=options, columns=_COLUMNS)
        return reader.read_all().to_table()


# Bounds of a zone, its nulls, NaN and rows.
_Zone = tuple[Bound | None, Bound | None, int, int, int]


def _collect(
    table: pa.Table, type: ColumnType, fragments: frozenset[int], zones: dict[int, list[_Zone]]
) -> None:
    columns = (
        bound_values(table.column("min"), type),
        bound_values(table.column("max"), type),
        *(table.column(name).to_pylist() for name in _COLUMNS[2:]),
    )
    for low, high, nulls, nans, fragment, rows in zip(*columns, strict=True):
        if fragment in fragments:
            zones.setdefault(fragment, []).append((low, high, nulls, nans, rows))


def _partial(zones: Sequence[_Zone] | None) -> ColumnPartial | None:
    """Merge the zones of a fragment; a bound that one of them lacks is not known."""
    if zones is None:
        return None
    valued = [zone for zone in zones if zone[2] + zone[3] < zone[4]]
    lows, highs = ([zone[index] for zone in valued] for index in (0, 1))
    nulls, nans, rows = (sum(zone[index] for zone in zones) for index in (2, 3, 4))  # type: ignore[misc]
    return ColumnPartial(
        rows, nulls, nans, _bound(min, lows), _bound(max, highs), 0, 0, EMPTY_SKETCH
    )


def _bound(extreme: Callable[..., Any], bounds: Sequence[Bound | None]) -> Bound | None:
    bound: Bound | None = None if None in bounds else extreme(bounds, default=None)
    return bound


def _give_up(uri: str, error: Exception, options: Mapping[str, str] | None) -> None:
    secrets = secret_values(options)
    _log.warning(
        "zone maps of %s are not used: %s",
        redact_line(uri, secrets),
        redact_line(str(error), secrets),
    )
