"""Statistics of a table's fragments from Lance's own zone maps, where there is no state.

A zone map is a scalar index (`create_scalar_index(column, "ZONEMAP")`): the file `zonemap.lance` in
the folder of each of its segments has a row per zone, a range of rows of one fragment, with `min`
and `max` in the column's type, `null_count`, `nan_count`, `fragment_id`, `zone_start` and
`zone_length`. With NaN in a zone, `max` is NaN. The manifest lists the fragments that a segment
still covers, which excludes those whose values of the column were replaced. Later deletions only
remove rows, so bounds still rule out the same fragments.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from lancestat.lake.files import store_options
from lancestat.lake.open import portable
from lancestat.lake.snapshot import Field, Snapshot
from lancestat.query.pruning import (
    Bounds,
    ColumnBounds,
    ColumnRange,
    FragmentStatistics,
    Mask,
    NoFragmentStatistics,
    fits_spark,
    literal_bound,
)
from lancestat.redact import redact_line, secret_values
from lancestat.tables.statistics.column_type import TO_MICROSECONDS, ColumnType, Kind, column_type
from lancestat.tables.statistics.partial import Bound

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

    `dataset` is open at the snapshot's version.
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
            (
                f"{dataset.uri.rstrip('/')}/_indices/{segment.uuid}",
                frozenset(segment.fragment_ids),
            )
            for segment in index.segments
            if segment.base_id is None
        )
    if not any(segments.values()):
        return NoFragmentStatistics()
    return ZoneMapStatistics(snapshot, segments, portable(storage_options))


# A part of an index: the folder of its file, and the fragments that it still holds for.
_Segment = tuple[str, frozenset[int]]


@dataclass(slots=True)
class _Zones:
    """All zones of one column in one fragment together; bounds None where one is missing."""

    rows: int = 0
    nulls: int = 0
    nans: int = 0
    lows: list[Bound | None] = field(default_factory=list)
    highs: list[Bound | None] = field(default_factory=list)


class ZoneMapStatistics(FragmentStatistics):
    """Statistics by fragment from zone maps: only bounds and counts of nulls and NaN."""

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
        super().__init__(snapshot, [(fragment.id,) for fragment in self._fragments])
        self._columns: dict[str, ColumnBounds | None] = {}
        self._lock = threading.Lock()

    def range_of(self, column: str, groups: Mask) -> ColumnRange | None:
        bounds = self.bounds(column)
        if bounds is None or not bounds.known[groups].all():
            return None
        valued = groups & (bounds.ordered > 0)
        has_both = bool((bounds.lower.exists & bounds.upper.exists)[valued].all())
        # As in `column_statistics_of`: bounds of numbers would leave NaN out.
        has_both = has_both and not bounds.nans[groups].any()
        return ColumnRange(
            minimum=bounds.lower.least(valued) if has_both else None,
            maximum=bounds.upper.greatest(valued) if has_both else None,
            nulls=int(bounds.nulls[groups].sum()),
        )

    def bounds(self, column: str) -> ColumnBounds | None:
        with self._lock:
            if column not in self._columns:
                field = self._snapshot.field(column)
                self._columns[column] = None if field is None else self._load(field)
            return self._columns[column]

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
            for folder, fragments in segments:
                _collect(self._read(folder), type, fragments & trusted, zones)
        except Exception as error:
            _give_up(self._snapshot.uri, error, self._options)
            return None
        by_fragment = [zones.get(fragment.id) for fragment in self._fragments]
        # The last group is that of fragments without statistics.
        return _column_bounds(type, [*by_fragment, None])

    def _read(self, folder: str) -> pa.Table:
        from lance.file import LanceFileReader

        path = f"{folder}/{_FILE}"
        options = store_options(self._snapshot.uri, self._options)
        reader = LanceFileReader(path, storage_options=options, columns=_COLUMNS)
        return reader.read_all().to_table()


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
        known=np.array([_are_known(zones, type) for zones in fragments], np.bool_),
        rows=np.array([zones.rows for zones in all_zones], np.int64),
        nulls=np.array([zones.nulls for zones in all_zones], np.int64),
        nans=np.array([zones.nans for zones in all_zones], np.int64),
        lower=Bounds.of([_bound(min, zones.lows) for zones in all_zones], type),
        upper=Bounds.of([_bound(max, zones.highs) for zones in all_zones], type),
    )


def _are_known(zones: _Zones | None, type: ColumnType) -> bool:
    return zones is not None and all(fits_spark(high, type) for high in zones.highs)


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
