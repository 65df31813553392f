"""Statistics of a table's fragments from Lance's own zone maps, where there is no state.

A zone map is a scalar index (`create_scalar_index(column, "ZONEMAP")`): the file `zonemap.lance`
in the folder of each of its segments has a row per zone, a range of rows of one fragment: `min` and
`max` in the column's type, `null_count`, `nan_count`, `fragment_id`, `zone_start` and
`zone_length`. With NaN in a zone, `max` is NaN. The manifest tells which fragments a segment still
covers: Lance takes those out whose values of the column were replaced. Later deletions only
make rows fewer, so bounds still rule out the same fragments.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from lancestat.lake.open import portable, store_options
from lancestat.lake.snapshot import Field, Snapshot
from lancestat.query.predicates.filter import Filter, columns_of
from lancestat.query.pruning import (
    Bounds,
    ColumnBounds,
    ColumnRange,
    FragmentStatistics,
    Mask,
    NoFragmentStatistics,
    RemainingFragments,
    fits_spark,
    literal_bound,
    may_match,
    must_match,
)
from lancestat.redact import redact_line, secret_values
from lancestat.tables.statistics.bounds import Bound
from lancestat.tables.statistics.column_type import TO_MICROSECONDS, ColumnType, Kind, column_type
from lancestat.tables.statistics.partial import ColumnPartial

if TYPE_CHECKING:
    import lance
    import pyarrow as pa

_log = logging.getLogger("lancestat.read")

_FILE = "zonemap.lance"
_INDEX_TYPE = "ZoneMap"
_COLUMNS = ["min", "max", "null_count", "nan_count", "fragment_id", "zone_length"]
_DAY_MILLISECONDS = 86_400_000


def load_zone_maps(
    dataset: lance.LanceDataset,
    snapshot: Snapshot,
    storage_options: Mapping[str, str] | None = None,
) -> FragmentStatistics:
    """Return zone maps of the fragments of `snapshot`, read when a filter needs a column.

    Args:
        dataset: Open at the snapshot's version.
        snapshot: The fragments.
        storage_options: How to reach the index files.
    """
    try:
        described = dataset.describe_indices()
    except Exception as error:
        _give_up(snapshot.uri, error, storage_options)
        return NoFragmentStatistics()
    by_id = {field.id: field for field in snapshot.fields}
    segments: dict[str, list[_Segment]] = {}
    for index in described:
        if index.index_type != _INDEX_TYPE or len(index.fields) != 1:
            continue
        column = by_id.get(index.fields[0])
        if column is None or column_type(column.type) is None:
            continue
        segments.setdefault(column.name, []).extend(
            # A clone's index lies with the table that it was cloned from.
            _Segment(
                f"{dataset.uri.rstrip('/')}/_indices/{segment.uuid}",
                frozenset(segment.fragment_ids),
            )
            for segment in index.segments
            if segment.base_id is None
        )
    if not any(segments.values()):
        return NoFragmentStatistics()
    return ZoneMapStatistics(snapshot, segments, portable(storage_options))


@dataclass(frozen=True, slots=True)
class _Segment:
    """A part of an index: where its file is, and the fragments that it still holds for."""

    folder: str
    fragments: frozenset[int]


@dataclass(slots=True)
class _Zones:
    """All zones of one column in one fragment together; bounds None where one is missing."""

    rows: int = 0
    nulls: int = 0
    nans: int = 0
    lows: list[Bound | None] = field(default_factory=list)
    highs: list[Bound | None] = field(default_factory=list)


class ZoneMapStatistics:
    """`FragmentStatistics` from zone maps, which have only bounds and counts of nulls and NaN."""

    def __init__(
        self,
        snapshot: Snapshot,
        segments: Mapping[str, Sequence[_Segment]],
        storage_options: Mapping[str, str],
    ) -> None:
        self._snapshot = snapshot
        self._segments = segments
        self._options = storage_options
        self._fragments = sorted(snapshot.fragments, key=lambda fragment: fragment.id)
        self._columns: dict[str, ColumnBounds | None] = {}
        self._lock = threading.Lock()

    def prune(self, filters: Sequence[Filter]) -> RemainingFragments | None:
        """Return the fragments that a conjunction of filters leaves; None when it leaves all."""
        try:
            columns = set().union(*map(columns_of, filters))
            matching = may_match(filters, self._bounds, len(self._fragments))
        except RecursionError:
            return None
        if matching.all():
            return None
        left = [
            fragment for fragment, matches in zip(self._fragments, matching, strict=True) if matches
        ]
        bounds = [self._bounds(name) for name in columns]
        return _ZoneMapFragments(
            self,
            matching,
            tuple(fragment.id for fragment in left),
            sum(fragment.rows for fragment in left),
            all(
                column_bounds is not None and bool(column_bounds.known[matching].all())
                for column_bounds in bounds
            ),
        )

    def covers(self, filters: Sequence[Filter]) -> bool:
        """Whether every row of the fragments that `prune` leaves is known to pass the filters."""
        groups = len(self._fragments)
        try:
            left = may_match(filters, self._bounds, groups)
            passing = must_match(filters, self._bounds, groups)
        except RecursionError:
            return False
        return bool(passing[left].all())

    def knows(self, column: str) -> bool:
        """Whether the bounds of a column are known in some fragment."""
        bounds = self._bounds(column)
        return bounds is not None and bool(bounds.known.any())

    def load(self, columns: Iterable[str]) -> None:
        """Load nothing: the columns of filters are read one by one."""

    def partial(self, column: str) -> ColumnPartial | None:
        """Return None: a zone map has no sketch, so there is no partial."""
        return None

    def range_of(self, column: str, fragments: Mask) -> ColumnRange | None:
        """Return the range of a column over some fragments, None where a zone is unknown."""
        bounds = self._bounds(column)
        if bounds is None or not bounds.known[fragments].all():
            return None
        valued = fragments & (bounds.ordered > 0)
        has_both = bool((bounds.lower.exists & bounds.upper.exists)[valued].all())
        # As in `column_statistics_of`: bounds of numbers would leave NaN out.
        has_both = has_both and not bounds.nans[fragments].any()
        return ColumnRange(
            minimum=bounds.lower.least(valued) if has_both else None,
            maximum=bounds.upper.greatest(valued) if has_both else None,
            nulls=int(bounds.nulls[fragments].sum()),
        )

    def _bounds(self, name: str) -> ColumnBounds | None:
        with self._lock:
            if name not in self._columns:
                column = self._snapshot.field(name)
                self._columns[name] = None if column is None else self._load(column)
            return self._columns[name]

    def _load(self, column: Field) -> ColumnBounds | None:
        type = column_type(column.type)
        segments = self._segments.get(column.name)
        if type is None or not segments:
            return None
        trusted = {
            fragment.id
            for fragment in self._fragments
            if not any(column.id in overlay.file.field_ids for overlay in fragment.overlays)
        }
        zones: dict[int, _Zones] = {}
        try:
            for segment in segments:
                _collect(self._read(segment), type, segment.fragments & trusted, zones)
        except Exception as error:
            _give_up(self._snapshot.uri, error, self._options)
            return None
        return _column_bounds(type, [zones.get(fragment.id) for fragment in self._fragments])

    def _read(self, segment: _Segment) -> pa.Table:
        from lance.file import LanceFileReader

        path = f"{segment.folder}/{_FILE}"
        options = store_options(self._snapshot.uri, self._options)
        reader = LanceFileReader(path, storage_options=options, columns=_COLUMNS)
        return reader.read_all().to_table()


@dataclass(frozen=True, slots=True)
class _ZoneMapFragments:
    """The fragments that are left; at most bounds and nulls of their columns are known."""

    statistics: ZoneMapStatistics
    fragments: Mask
    fragment_ids: Sequence[int]
    rows: int
    is_known: bool

    def partial(self, column: str) -> ColumnPartial | None:
        """Return None: a zone map has no sketch, so there is no partial."""
        return None

    def range(self, column: str) -> ColumnRange | None:
        """Return the range of a column over these fragments, None where a zone is unknown."""
        return self.statistics.range_of(column, self.fragments)


def _collect(
    table: pa.Table, type: ColumnType, fragments: Iterable[int], zones: dict[int, _Zones]
) -> None:
    fragment_ids = set(fragments)
    columns = (
        _bound_values(table.column("min"), type),
        _bound_values(table.column("max"), type),
        *(table.column(name).to_pylist() for name in _COLUMNS[2:]),
    )
    for low, high, nulls, nans, fragment, rows in zip(*columns, strict=True):
        if fragment not in fragment_ids:
            continue
        fragment_zones = zones.setdefault(fragment, _Zones())
        fragment_zones.rows += rows
        fragment_zones.nulls += nulls
        fragment_zones.nans += nans
        if nulls + nans < rows:
            fragment_zones.lows.append(low)
            fragment_zones.highs.append(high)


def _bound_values(column: pa.ChunkedArray, type: ColumnType) -> list[Bound | None]:
    """Convert zone bounds to those of `ColumnPartial`; None for none, NaN and other types."""
    import pyarrow as pa

    if type.kind in (Kind.TIMESTAMP, Kind.TIMESTAMP_NTZ, Kind.TIME):
        divisor, factor = TO_MICROSECONDS[column.type.unit]
        width = pa.int32() if column.type.bit_width == 32 else pa.int64()
        stored = column.cast(width).to_pylist()
        return [None if value is None else value // divisor * factor for value in stored]
    if type.kind is Kind.DATE:
        is_days = pa.types.is_date32(column.type)
        stored = column.cast(pa.int32() if is_days else pa.int64()).to_pylist()
        divisor = 1 if is_days else _DAY_MILLISECONDS
        return [None if value is None else value // divisor for value in stored]
    bounds: list[Bound | None] = []
    for value in column.to_pylist():
        bound: Any = None if value is None else literal_bound(value, type)
        is_nan = isinstance(bound, float) and math.isnan(bound)
        bounds.append(None if is_nan else bound)
    return bounds


def _column_bounds(type: ColumnType, fragments: Sequence[_Zones | None]) -> ColumnBounds:
    all_zones = [zones or _Zones() for zones in fragments]
    return ColumnBounds(
        type=type,
        known=np.array([zones is not None and _fits(zones, type) for zones in fragments], np.bool_),
        rows=np.array([zones.rows for zones in all_zones], np.int64),
        nulls=np.array([zones.nulls for zones in all_zones], np.int64),
        nans=np.array([zones.nans for zones in all_zones], np.int64),
        lower=Bounds.of([_bound(min, zones.lows) for zones in all_zones], type),
        upper=Bounds.of([_bound(max, zones.highs) for zones in all_zones], type),
    )


def _fits(zones: _Zones, type: ColumnType) -> bool:
    return all(fits_spark(high, type) for high in zones.highs)


def _bound(extreme: Any, bounds: Sequence[Bound | None]) -> Bound | None:
    bound: Bound | None = None if None in bounds else extreme(bounds, default=None)
    return bound


def _give_up(uri: str, error: Exception, options: Mapping[str, str] | None) -> None:
    secrets = secret_values(options)
    _log.warning(
        "zone maps of %s are not used: %s",
        redact_line(uri, secrets),
        redact_line(str(error), secrets),
    )
