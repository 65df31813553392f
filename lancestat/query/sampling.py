"""Estimates from a sample how many rows pass a filter that Spark does not estimate.

Spark's `FilterEstimation` takes conditions such as `contains` for true of every row, and all of
columns whose statistics it does not get (`ColumnType.is_published`). Joins are then ordered as if
the filter were not there. These conditions are counted in a sample instead.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING

from typing_extensions import assert_never

from lancestat.lake.error_mapping import is_error_or_panic
from lancestat.lake.row_counts import count_rows
from lancestat.query.predicates.filter import (
    And,
    Comparison,
    Filter,
    In,
    IsNull,
    Leaf,
    Literal,
    Not,
    Operator,
    Or,
    TextMatch,
    TextOperator,
    Unread,
    leaves,
)
from lancestat.tables.statistics.column_type import TO_MICROSECONDS

if TYPE_CHECKING:
    import lance
    import pyarrow as pa

# Rows come in blocks at even distances: single ones cost a request each to an object store, and on
# a local disk ten times as long.
BLOCKS = 8
SAMPLE_ROWS = 4_096
# Reading a sample is not worth it where the whole table is small.
LEAST_ROWS = 20_000

_log = logging.getLogger("lancestat.read")


# Conditions, and the fragments whose rows are meant.
_SampleKey = tuple[tuple[Filter, ...], tuple[int, ...] | None]


@dataclass(frozen=True, slots=True)
class Sampler:
    """Counts matches in a sample of one table at one version; answers are cached.

    Args:
        open: Opens the dataset at that version.
        rows: Its live rows.
        unreported: The columns of which Spark knows nothing (`conditions`).
    """

    open: Callable[[], lance.LanceDataset]
    rows: int
    unreported: frozenset[str] = frozenset()
    _shares: dict[_SampleKey, float | None] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def share(
        self, filters: Sequence[Filter], fragment_ids: Sequence[int] | None = None
    ) -> float | None:
        """Return the share of rows that pass those filters which Spark does not estimate.

        It is of the rows in which the filtered texts are not null, since Spark estimates
        those nulls. None when there are no such filters, when the table is small, or when it cannot
        be read.

        Args:
            filters: A conjunction.
            fragment_ids: The fragments whose rows are meant, all when None.
        """
        unestimated = tuple(sorted(conditions(filters, self.unreported), key=repr))
        if not unestimated or self.rows < LEAST_ROWS:
            return None
        key = unestimated, None if fragment_ids is None else tuple(fragment_ids)
        with self._lock:
            if key not in self._shares:
                self._shares[key] = self._counted(*key)
            return self._shares[key]

    def _counted(
        self, unestimated: Sequence[Filter], fragment_ids: Sequence[int] | None
    ) -> float | None:
        columns = sorted({leaf.column for condition in unestimated for leaf in leaves(condition)})
        try:
            dataset = self.open()
            if fragment_ids is None:
                sample = dataset.take(_row_positions(self.rows, BLOCKS), columns=columns)
            else:
                sample = _taken(dataset, fragment_ids, columns)
        except BaseException as error:
            if not is_error_or_panic(error):
                raise
            _log.warning("no sample could be read: %s", type(error).__name__)
            return None
        return _share(sample, unestimated)


def conditions(filters: Sequence[Filter], unreported: Collection[str] = ()) -> list[Filter]:
    """Return the conditions of a conjunction that Spark takes for true of every row.

    Args:
        filters: The conjunction.
        unreported: The columns of which it knows nothing: of types that are not published.
    """
    unestimated: list[Filter] = []
    waiting = list(filters)
    while waiting:
        part = waiting.pop()
        if isinstance(part, And):
            waiting += [part.left, part.right]
        elif not isinstance(part, Unread) and all(
            _is_unestimated(leaf, unreported) for leaf in leaves(part)
        ):
            unestimated.append(part)
    return unestimated


def _is_unestimated(leaf: Leaf, unreported: Collection[str]) -> bool:
    return isinstance(leaf, TextMatch) or leaf.column in unreported


def _taken(
    dataset: lance.LanceDataset, fragment_ids: Sequence[int], columns: list[str]
) -> pa.Table | None:
    """Sample some fragments, as many of them as there are blocks."""
    import pyarrow as pa

    if not fragment_ids:
        return None
    count = min(BLOCKS, len(fragment_ids))
    ids = [fragment_ids[index * len(fragment_ids) // count] for index in range(count)]
    fragments = [dataset.get_fragment(id) for id in ids]
    blocks = -(-BLOCKS // count)
    return pa.concat_tables(
        fragment.take(_row_positions(count_rows(fragment), blocks), columns=columns)
        for fragment in fragments
    )


def _row_positions(rows: int, blocks: int) -> list[int]:
    """Return the rows to take, ascending: blocks at even distances."""
    size = min(SAMPLE_ROWS // BLOCKS, -(-rows // blocks))
    starts = [block * rows // blocks for block in range(blocks)]
    return sorted({row for start in starts for row in range(start, min(start + size, rows))})


def _share(sample: pa.Table | None, unestimated: Sequence[Filter]) -> float | None:
    import pyarrow as pa
    import pyarrow.compute as pc

    if sample is None:
        return None
    passing = valid = pa.repeat(True, sample.num_rows)
    for condition in unestimated:
        passing = pc.and_kleene(passing, _outcome(condition, sample))
        match condition:
            case TextMatch(column) | Not(TextMatch(column)):
                # Spark knows how many rows hold null there.
                valid = pc.and_(valid, pc.is_valid(sample.column(column)))
    counted = pc.sum(valid).as_py() or 0
    if not counted:
        return None
    # No match in the sample does not prove that there is none: it counts as half a row.
    return max(0.5, pc.sum(pc.fill_null(passing, False)).as_py() or 0) / counted


def _outcome(condition: Filter, sample: pa.Table) -> pa.ChunkedArray:
    """Return whether each row passes, null where that is unknown."""
    import pyarrow as pa
    import pyarrow.compute as pc

    match condition:
        case Not(operand):
            return pc.invert(_outcome(operand, sample))
        case And(left, right):
            return pc.and_kleene(_outcome(left, sample), _outcome(right, sample))
        case Or(left, right):
            return pc.or_kleene(_outcome(left, sample), _outcome(right, sample))
        case IsNull(column):
            return pc.is_null(sample.column(column))
        case TextMatch(column):
            return _matched(sample.column(column), condition)
        case Comparison(column, operator, literal):
            return _compared(_micros(sample.column(column)), operator, literal)
        case In(column, literals):
            micros = _micros(sample.column(column))
            equal = (_compared(micros, Operator.EQUAL, literal) for literal in literals)
            return reduce(pc.or_kleene, equal, pa.repeat(False, sample.num_rows))
        case Unread():
            return pa.nulls(sample.num_rows, pa.bool_())
        case _:
            assert_never(condition)


def _compared(
    micros: pa.ChunkedArray, operator: Operator, literal: Literal | None
) -> pa.ChunkedArray:
    import pyarrow as pa
    import pyarrow.compute as pc

    point = pa.scalar(getattr(literal, "micros", None), pa.int64())
    if operator is Operator.NULL_SAFE:
        if not point.is_valid:
            return pc.is_null(micros)
        return pc.fill_null(pc.equal(micros, point), False)
    compare = {
        Operator.EQUAL: pc.equal,
        Operator.LESS: pc.less,
        Operator.LESS_OR_EQUAL: pc.less_equal,
        Operator.GREATER: pc.greater,
        Operator.GREATER_OR_EQUAL: pc.greater_equal,
    }
    return compare[operator](micros, point)


def _micros(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return timestamps or times of day as Spark counts them."""
    import numpy as np
    import pyarrow as pa

    divisor, factor = TO_MICROSECONDS[column.type.unit]
    stored = column.cast(pa.int32() if column.type.bit_width == 32 else pa.int64())
    values = stored.cast(pa.int64()).fill_null(0).to_numpy()
    return pa.array(np.floor_divide(values, divisor) * factor, mask=column.is_null().to_numpy())


def _matched(column: pa.ChunkedArray, match: TextMatch) -> pa.ChunkedArray:
    import pyarrow as pa
    import pyarrow.compute as pc

    text = column.cast(pa.string())
    match match.operator:
        case TextOperator.STARTS_WITH:
            return pc.starts_with(text, match.text)
        case TextOperator.ENDS_WITH:
            return pc.ends_with(text, match.text)
        case TextOperator.CONTAINS:
            return pc.match_substring(text, match.text)
