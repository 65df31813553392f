"""Reads the members of groups from the table that was joined, and writes the result."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lancestat.joins.duplicates.grouping import Groups, Ints, Members, first_of_each
from lancestat.joins.output.lance_output import LanceOutput
from lancestat.joins.record import OutputState
from lancestat.joins.search.groups import compared_key_types, key_table
from lancestat.joins.search.metrics import Metric
from lancestat.joins.search.neighbours import Floats
from lancestat.joins.search.vectors import vectors
from lancestat.joins.search.work import DISTANCE, ROW, SUFFIX, VectorSide
from lancestat.joins.spark.reader import positions_at, read_schema, take
from lancestat.lake.open import observe_dataset, readable
from lancestat.spark.fragment_reader import PROBE_ROWS, fitting_rows
from lancestat.spec.duplicates import Order
from lancestat.tables.statistics.hashing import hash_bytes, hash_tuples

if TYPE_CHECKING:
    from lance import LanceDataset

GROUP_ID, IS_KEPT, ROW_HASH = "group_id", "is_kept", "_row_hash"
# The columns that a result has besides the selected ones.
RESULT_COLUMNS = (GROUP_ID, IS_KEPT, DISTANCE, ROW_HASH)
# Where the metadata of a result's schema has the highest id that any of its groups has ever had.
_IDS = b"lancestat.duplicates"
_FORMAT_VERSION = 1

# Vectors that are compared at a time.
_COMPARED_BYTES = 32 << 20
_FIRST_ROWS = 1024


def read_pairs(
    pairs: OutputState, side: VectorSide, uri: str, options: Mapping[str, str]
) -> tuple[Ints, Ints]:
    """Return the rows of all pairs, by their positions in the table that was joined."""
    dataset = observe_dataset(uri, version=pairs.version, storage_options=options)
    with readable(uri, version=pairs.version, storage_options=options):
        table = dataset.to_table(columns=[ROW, ROW + SUFFIX])
    left, right = (
        positions_at(side, column.to_numpy().astype(np.int64)) for column in table.columns
    )
    return left, right


def read_members(output: LanceOutput, dataset: LanceDataset | None) -> tuple[Members, int]:
    """Return the members of an open result, and its highest id; none where there is no result."""
    none = np.empty(0, np.int64)
    if dataset is None:
        return Members(none, none, none.astype(np.bool_)), 0
    version = dataset.version
    with readable(output.uri, version=version, storage_options=output.options):
        table = dataset.to_table(columns=[ROW_HASH, GROUP_ID, IS_KEPT])
    hashes, groups, is_kept = (column.to_numpy() for column in table.columns)
    highest = _highest_id((dataset.schema.metadata or {}).get(_IDS, b""))
    return Members(hashes, groups, is_kept), max(highest, int(groups.max(initial=0)))


def _highest_id(stored: bytes) -> int:
    """Return the highest id that metadata has, 0 where it is damaged: the state knows it, too."""
    try:
        return int(json.loads(stored)["highest_id"])
    except (ValueError, KeyError, TypeError):
        return 0


@dataclass(frozen=True, slots=True)
class GroupedRows:
    """Members of groups and the table that they are in, read by position.

    `kept` is the index of the member that is kept of each group.
    """

    side: VectorSide
    metric: Metric
    groups: Groups
    kept: Ints

    @classmethod
    def of(
        cls, side: VectorSide, metric: Metric, groups: Groups, order_by: Sequence[Order]
    ) -> GroupedRows:
        """Choose the member of each group that comes first in an order, or else in the table."""
        ranks: list[Ints] = []
        if order_by and len(groups.rows):
            names = tuple(dict.fromkeys(order.column for order in order_by))
            columns = take(side, groups.rows, names)
            ranks = [ranked(columns.column(order.column), order) for order in order_by]
        return cls(side, metric, groups, first_of_each(groups.labels, ranks))

    @property
    def is_kept(self) -> NDArray[np.bool_]:
        is_kept = np.zeros(len(self.groups.rows), np.bool_)
        is_kept[self.kept] = True
        return is_kept

    def compared(self) -> tuple[Ints, Floats]:
        """Return the hash of each member, and its distance to the one that is kept.

        The hash is that of the keys and the vector. Distances are computed in float64, as those of
        pairs, and are NaN for the rows that are kept.
        """
        rows, labels = self.groups.rows, self.groups.labels
        order = np.argsort(labels, kind="stable")
        hashes, distances = np.empty(len(rows), np.int64), np.empty(len(rows), np.float32)
        start, step = 0, _FIRST_ROWS
        while start < len(order):
            here = order[start : start + step]
            kept = rows[self.kept[labels[here]]]
            read, places = np.unique(np.concatenate([rows[here], kept]), return_inverse=True)
            table = take(self.side, read, (self.side.vector, *self.side.keys))
            column = table.column(0)
            values = vectors(column, None, self.metric, has_bits=self.side.has_bits).values
            own, other = places[: len(here)], places[len(here) :]
            hashes[here] = row_hashes(table.columns[1:], values)[own]
            distances[here] = self.metric.distances(values[own], values[other])
            start, step = start + step, max(1, _COMPARED_BYTES // (8 * values.shape[1]))
        distances[self.kept] = np.nan
        return hashes, distances

    def batches(
        self, ids: Ints, hashes: Ints, distances: Floats, schema: pa.Schema
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the result by group, those that are kept first, others in row order."""
        rows, is_kept = self.groups.rows, self.is_kept
        of_row = ids[self.groups.labels]
        order = np.lexsort((rows, ~is_kept, of_row))
        start, step = 0, PROBE_ROWS
        while start < len(order):
            here = order[start : start + step]
            read, places = np.unique(rows[here], return_inverse=True)
            arrays = []
            if self.side.columns:
                table = take(self.side, read, self.side.columns).take(pa.array(places))
                arrays += [column.combine_chunks() for column in table.columns]
            is_first = is_kept[here]
            arrays += [
                pa.array(of_row[here]),
                pa.array(is_first),
                pa.array(distances[here], mask=is_first),
                pa.array(hashes[here]),
            ]
            table = pa.Table.from_arrays(arrays, names=schema.names).cast(schema).combine_chunks()
            yield from table.to_batches()
            start, step = start + step, fitting_rows(table.to_batches()[0])


def result_schema(side: VectorSide, highest: int) -> pa.Schema:
    """Return the schema of a result, whose metadata has the highest id."""
    table = read_schema(side)
    selected = (table.field(name) for name in side.columns)
    types = (pa.int64(), pa.bool_(), pa.float32(), pa.int64())
    own = zip(RESULT_COLUMNS, types, strict=True)
    ids = json.dumps({"format_version": _FORMAT_VERSION, "highest_id": highest})
    return pa.schema(
        [
            *(pa.field(field.name, field.type, field.nullable) for field in selected),
            *(pa.field(name, type, name == DISTANCE) for name, type in own),
        ],
        {_IDS: ids.encode()},
    )


def is_sortable(type: pa.DataType) -> bool:
    """Whether rows can be ordered by a column of a type."""
    types = pa.types
    if types.is_dictionary(type):
        return is_sortable(type.value_type)
    return bool(
        types.is_integer(type)
        or types.is_floating(type)
        or types.is_decimal(type)
        or types.is_boolean(type)
        or types.is_temporal(type)
        or types.is_string(type)
        or types.is_large_string(type)
        or types.is_binary(type)
        or types.is_large_binary(type)
        or types.is_fixed_size_binary(type)
    )


def ranked(column: pa.ChunkedArray, order: Order) -> Ints:
    """Return ranks of values, smaller for what comes first; NaN is greater than any number."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_float16(column.type):
        column = column.cast(pa.float32())
    ranks: Ints = pc.rank(column, tiebreaker="dense").to_numpy().astype(np.int64)
    is_null = column.is_null().to_numpy()
    if order.is_descending:
        ranks = -ranks
    bound = np.iinfo(np.int64)
    ranks[is_null] = bound.min if order.nulls_first else bound.max
    return ranks


def row_hashes(keys: Sequence[pa.ChunkedArray], values: Floats) -> Ints:
    """Return hashes of rows by their keys and their vectors (n, dim)."""
    # Both zeros are one value.
    normal = np.ascontiguousarray(values + np.float32(0))
    width = normal.itemsize * normal.shape[1]
    buffers = [None, pa.py_buffer(normal)]
    texts = [pa.FixedSizeBinaryArray.from_buffers(pa.binary(width), len(normal), buffers)]
    types = [column.type for column in keys]
    names = [str(number) for number in range(len(keys))]
    compared = key_table(keys, compared_key_types(names, names, types, types))
    for column in compared.columns:
        is_bytes = pa.types.is_large_binary(column.type)
        text = column if is_bytes else column.cast(pa.string())
        texts.append(text.combine_chunks())
    hashed = [hash_bytes(text.cast(pa.binary()).cast(pa.binary_view())) for text in texts]
    hashes: Ints = hash_tuples(hashed).view(np.int64)
    return hashes
