"""The sampled rows of a scan that conditions leave, and what they tell of its columns together."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lancestat.query.plans.frequencies import MOST_VALUES, Frequencies
from lancestat.query.predicates.filter import Filter
from lancestat.query.pruning import ColumnBounds, bound_values, may_match
from lancestat.query.sampler import BLOCKS, Memo
from lancestat.tables.statistics.column_type import ColumnType, Kind, column_type

Mask = npt.NDArray[np.bool_]
# Returns some columns of all rows of a sample, None where they cannot be read.
Columns = Callable[[Collection[str]], pa.Table | None]

# Fewer rows tell little of how many values there are, and of where they lie.
FEWEST = 20
# A value that is met so often, in so many blocks of rows, is frequent in the whole table, too.
_OFTEN, _SEVERAL = 4, 3
# Of fewer rows most values that are frequent in all are not seen often enough.
_THIN = 512
# No names of columns.
_BLOCK, _IS_CUT, _VALUE, _SIZE = "\0block", "\0is cut", "\0value", "\0size"


@dataclass(frozen=True, slots=True)
class SampledRows:
    """Rows of a sample that pass conditions, None for all of them.

    Attributes:
        columns: Returns columns of the whole sample.
        size: The rows of the whole sample.
        rows: How many rows of the scan those that pass stand for.
        is_whole: The sample has all rows of the scan.
        blocks: In how many blocks of rows that stand side by side the whole sample is.
        common: Of columns whose common values are kept, how often they occur in the scan.
        memo: What was made of the rows of the whole sample, by this plan or others.
    """

    columns: Columns = field(repr=False)
    size: int
    rows: float
    is_whole: bool = False
    blocks: int = BLOCKS
    passing: Mask | None = field(default=None, repr=False)
    common: Mapping[str, Frequencies] = field(default_factory=dict, repr=False)
    memo: Memo = field(default_factory=Memo, repr=False, compare=False)

    @property
    def count(self) -> int:
        """The sampled rows that pass."""
        return self.size if self.passing is None else int(self.passing.sum())

    @property
    def is_filtered(self) -> bool:
        """Whether conditions were applied."""
        return self.passing is not None

    def where(self, passing: Mask, rows: float) -> SampledRows:
        """Return those that pass one more condition, which stand for so many rows."""
        both = passing if self.passing is None else self.passing & passing
        # What is made of the same rows is made once.
        same: Mask = self._once("mask", np.packbits(both).tobytes(), None, lambda: both)
        return replace(self, passing=same, rows=rows)

    def part(self, passing: Mask) -> SampledRows:
        """Return some of those that pass, which stand for their share of the rows."""
        return self.where(passing, self.rows * int(passing.sum()) / max(1, self.count))

    def whole(self) -> SampledRows:
        """Return all rows of the sample."""
        rows = self.rows * self.size / max(1, self.count)
        return self if self.passing is None else replace(self, passing=None, rows=rows)

    def with_column(self, name: str, values: pa.Array) -> SampledRows:
        """Return the rows with one more column, of which there are values for the whole sample."""

        def columns(names: Collection[str]) -> pa.Table | None:
            others = [other for other in names if other != name]
            if len(others) == len(names):
                return self.columns(names)
            rows = self.columns(others) if others else None
            if rows is None:
                return None if others else pa.table({name: values})
            return rows.append_column(name, values)

        return replace(self, columns=columns, memo=Memo())

    def distinct(self, names: Collection[str]) -> float | None:
        """Return the distinct tuples in the rows that these stand for; null is a value, too.

        None where the sample tells too little. Rows come in blocks, in which the same values may
        stand side by side: how often a value is met is the number of blocks that have it. Those
        that are met often say nothing of how many are missed: one null in many blocks would hide
        thousands.

        Source: P. J. Haas, J. F. Naughton, S. Seshadri and L. Stokes, Sampling-based estimation of
            the number of distinct values of an attribute, VLDB 1995: the estimator "Duj1",
            stabilized as its "Duj2a" is.
        """
        what = "\0".join((*sorted(names), f"{self.rows:.6g}"))
        made: float | None = self._once(
            "distinct", what, self.passing, lambda: self._distinct(names)
        )
        return made

    def _distinct(self, names: Collection[str]) -> float | None:
        from lancestat.polars import pl

        rows = self._passing(names)
        if rows is None or not rows.num_rows or (rows.num_rows < FEWEST and not self.is_whole):
            return None
        table = pl.from_arrow(rows)
        assert isinstance(table, pl.DataFrame)
        if self.is_whole:
            return float(table.n_unique())
        numbered = table.with_columns(pl.Series(_BLOCK, self._blocks()))
        counted = numbered.group_by(table.columns).agg(pl.col(_BLOCK).n_unique())
        met = counted[_BLOCK]
        read = min(1.0, rows.num_rows / max(1.0, self.rows))
        is_null = counted.select(pl.all_horizontal(pl.col(table.columns).is_null())).to_series()
        rare = met.filter((met < _SEVERAL) & ~is_null)
        if not len(rare):
            return float(len(met))
        once = float((rare == 1).sum())
        missed = len(rare) / (1 - (1 - read) * once / float(rare.sum())) - len(rare)
        return float(len(met) + missed)

    def of_groups(
        self, keys: Collection[str], value: str | None, type: ColumnType | None, mean: float
    ) -> npt.NDArray[np.float64] | None:
        """Return the sums of a column in groups of rows, sorted; without a column, their sizes.

        They are of groups inside a block of the sample, if rows of a group stand side by side. None
        where they do not: where the groups there have less than half of the `mean` rows of all.
        Conditions that leave few groups leave them whole if they have as many rows as without.
        """
        found = self._of_groups(keys, value, type, mean)
        if found is not None or value is not None or self.passing is None:
            return found
        sizes = self._with_keys(keys)._of_groups(keys, None, None, mean)
        return sizes if sizes is not None and abs(float(sizes.mean()) - mean) <= mean / 4 else None

    def _with_keys(self, keys: Collection[str]) -> SampledRows:
        """Return all rows of the sample, without those with a null in a key if none passes."""
        passing, rows = self._passing(keys), self.columns(keys)
        if passing is None or rows is None or any(c.null_count for c in passing.columns):
            return self.whole()
        present = np.logical_and.reduce([pc.is_valid(column).to_numpy() for column in rows.columns])
        return self.whole().where(present, self.rows)

    def _of_groups(
        self, keys: Collection[str], value: str | None, type: ColumnType | None, mean: float
    ) -> npt.NDArray[np.float64] | None:
        from lancestat.polars import pl

        rows = self._passing(keys)
        numbers = None if value is None or type is None else self._values(value, type)
        if rows is None or not rows.num_rows or (value is not None and numbers is None):
            return None
        passing = slice(None) if self.passing is None else self.passing
        blocks = np.arange(self.size) * (1 if self.is_whole else self.blocks) // self.size
        ends = np.diff(blocks, prepend=-1) + np.diff(blocks, append=self.blocks)
        is_cut = np.zeros(self.size, np.bool_) if self.is_whole else ends > 0
        values = np.ones(self.size) if numbers is None else np.nan_to_num(numbers)
        table = pl.from_arrow(rows)
        assert isinstance(table, pl.DataFrame)
        groups = (
            table.with_columns(
                pl.Series(_BLOCK, blocks[passing]),
                pl.Series(_IS_CUT, is_cut[passing]),
                pl.Series(_VALUE, values[passing]),
            )
            .group_by(*table.columns, _BLOCK)
            .agg(pl.len().alias(_SIZE), pl.col(_VALUE).sum(), pl.col(_IS_CUT).any())
            .filter(~pl.col(_IS_CUT))
        )
        fewest = 1 if self.is_whole else FEWEST
        if len(groups) < fewest or float(groups[_SIZE].sum()) / len(groups) < mean / 2:
            return None
        made: npt.NDArray[np.float64] = groups[_VALUE].sort().to_numpy()
        return made

    def spread_of_groups(
        self, keys: Collection[str], value: str, type: ColumnType, groups: float
    ) -> tuple[float, float] | None:
        """Return the mean and the variance of the sums of a column in so many groups of rows.

        Two rows of one group in one block of the sample stand side by side, and are read together;
        others for as many pairs as the square of what is read. The variance is at least that of
        sums of a Poisson number of rows. None where the sample tells too little.
        """
        from lancestat.polars import pl

        rows, numbers = self._passing(keys), self._values(value, type)
        if rows is None or numbers is None or rows.num_rows < FEWEST:
            return None
        passing = slice(None) if self.passing is None else self.passing
        values = np.nan_to_num(numbers[passing])
        read = min(1.0, rows.num_rows / max(1.0, self.rows))
        table = pl.from_arrow(rows)
        assert isinstance(table, pl.DataFrame)
        numbered = table.with_columns(pl.Series(_VALUE, values), pl.Series(_BLOCK, self._blocks()))
        inside = numbered.group_by(*table.columns, _BLOCK).agg(pl.col(_VALUE).sum())
        sums = inside.group_by(table.columns).agg(pl.col(_VALUE).sum())
        squares = float((values**2).sum())
        near = float((inside[_VALUE] ** 2).sum()) - squares
        far = float((sums[_VALUE] ** 2).sum()) - squares - near
        mean = float(values.sum()) / read / groups
        alone = squares / read / groups
        pairs = (near / read + far / read**2) / groups
        return mean, max(alone, alone + pairs - mean**2)

    def within(self, name: str, type: ColumnType, low: float, high: float) -> float | None:
        """Return the share of values of a column, without nulls, that are between two bounds.

        None where the sample tells too little.
        """
        key = f"{name}\0{low}\0{high}"
        made: float | None = self._once(
            "within", key, self.passing, lambda: self._within(name, type, low, high)
        )
        return made

    def _within(self, name: str, type: ColumnType, low: float, high: float) -> float | None:
        values = self._values(name, type)
        if values is None:
            return None
        if self.passing is not None:
            values = values[self.passing]
        hits = int(((values >= low) & (values <= high)).sum())
        present = len(values) - int(np.isnan(values).sum())
        if not present or (hits < FEWEST and not self.is_whole):
            return None
        return hits / present

    def bounds(self, name: str, type: ColumnType) -> tuple[float, float] | None:
        """Return the least and the greatest value of a column; None unless all rows are known."""
        if not self.is_whole or self.passing is None or type.is_variable_width:
            return None
        made: tuple[float, float] | None = self._once(
            "bounds", name, self.passing, lambda: self._bounds(name, type)
        )
        return made

    def _bounds(self, name: str, type: ColumnType) -> tuple[float, float] | None:
        assert self.passing is not None
        values = self._values(name, type)
        present = None if values is None else values[self.passing & ~np.isnan(values)]
        if present is None or not len(present):
            return None
        return float(present.min()), float(present.max())

    def between(self, name: str, type: ColumnType, low: float, high: float) -> SampledRows | None:
        """Return the rows with values of a column between two bounds, None as `within`."""
        share, values = self.within(name, type, low, high), self._values(name, type)
        if share is None or values is None:
            return None
        return self.where((values >= low) & (values <= high), self.rows * share)

    def members(self, name: str) -> pa.Array | None:
        """Return the distinct values of a column, without null; None unless all rows are known."""
        if not self.is_whole:
            return None
        return self._once("members", name, self.passing, lambda: self._members(name))

    def _members(self, name: str) -> pa.Array | None:
        rows = self._passing([name])
        if rows is None or pa.types.is_dictionary(rows.schema.field(0).type):
            return None
        return pc.unique(rows.column(name)).drop_null()

    def matching(self, name: str, filters: Sequence[Filter]) -> Mask | None:
        """Return which rows of the whole sample pass filters on one column.

        None where the column cannot be read or compared.
        """
        rows = self.columns([name])
        type = None if rows is None else column_type(rows.schema.field(0).type)
        if rows is None or type is None or rows.num_rows != self.size:
            return None
        # Each value is compared once.
        column = rows.column(0)
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        encoded = column.combine_chunks().dictionary_encode(null_encoding="encode")
        bounds = ColumnBounds.of_rows(pa.chunked_array([encoded.dictionary]), type)
        passing = may_match(filters, lambda _: bounds, len(encoded.dictionary))
        found: Mask = passing[encoded.indices.to_numpy()]
        return found

    def having(self, name: str, values: pa.Array) -> tuple[Mask, int] | None:
        """Return which rows have one of some values in a column, and how many are not null.

        Both are of the rows that pass. None where the column cannot be read or compared.
        """
        found = self._once("having", name, values, lambda: self._having(name, values))
        if found is None:
            return None
        mask, present = found
        if self.passing is None:
            return mask, int(present.sum())
        return mask & self.passing, int((present & self.passing).sum())

    def _having(self, name: str, values: pa.Array) -> tuple[Mask, Mask] | None:
        rows = self.columns([name])
        if rows is None or rows.num_rows != self.size:
            return None
        column = rows.column(name)
        mask = is_among(column, values)
        return None if mask is None else (mask, pc.is_valid(column).to_numpy())

    def pairs(self, names: Sequence[str], other: SampledRows, others: Sequence[str]) -> int | None:
        """Return how many pairs of rows of two whole samples have the same values, without null.

        None where they cannot be read or compared.
        """
        key = "\0".join((*names, "", *others))
        # It stands for the other sample, which is not to be kept when its table has changed.
        sample = other._once("sample", "", None, object)
        made: int | None = self._once(
            "pairs", key, sample, lambda: self._pairs(names, other, others)
        )
        return made

    def _pairs(self, names: Sequence[str], other: SampledRows, others: Sequence[str]) -> int | None:
        from lancestat.polars import pl

        tables = self.columns(names), other.columns(others)
        if any(table is None or not table.num_rows for table in tables):
            return None
        one, two = (
            pl.DataFrame(pl.from_arrow(table)).lazy().group_by(table.column_names).len(_SIZE)
            for table in tables
            if table is not None
        )
        try:
            joined = one.join(two, left_on=list(names), right_on=list(others), suffix=_SIZE)
            rows = pl.col(_SIZE).cast(pl.Int64) * pl.col(_SIZE + _SIZE)
            return int(joined.select(rows.sum()).collect().item())
        except pl.exceptions.PolarsError:
            # As for keys of types that polars does not compare.
            return None

    @property
    def is_thin(self) -> bool:
        """Whether too few rows pass to tell which values occur more often than others."""
        return self.is_filtered and not self.is_whole and self.count < _THIN

    def frequencies(self, name: str) -> Frequencies | None:
        """Return how often the most frequent values of a column occur in rows without null in it.

        None where the sample tells too little.
        """
        if not self.is_filtered and name in self.common:
            return self.common[name]
        made: Frequencies | None = self._once(
            "frequencies", name, self.passing, lambda: self._frequencies(name)
        )
        return made

    def _frequencies(self, name: str) -> Frequencies | None:
        from lancestat.polars import pl

        rows = self._passing([name])
        if rows is None or not (rows.num_rows >= FEWEST or self.is_whole):
            return None
        values, blocks = pl.Series("value", rows.column(name)), pl.Series("block", self._blocks())
        counted = (
            pl.DataFrame((values, blocks))
            .drop_nulls()
            .group_by("value")
            .agg(pl.len().alias("rows"), pl.col("block").n_unique().alias("blocks"))
        )
        present = float(counted["rows"].sum())
        if not present:
            return None
        often, several = (2, 1) if self.is_whole else (_OFTEN, _SEVERAL)
        frequent = counted.filter((pl.col("rows") >= often) & (pl.col("blocks") >= several))
        found = frequent.top_k(MOST_VALUES, by="rows")
        return Frequencies.counted(found["value"].to_arrow(), found["rows"] / present)

    def _blocks(self) -> npt.NDArray[np.int64]:
        """Return the number of the block in which each row that passes is read."""
        blocks = np.arange(self.size) * self.blocks // max(1, self.size)
        return blocks if self.passing is None else blocks[self.passing]

    def _once(self, what: str, name: str | bytes, of: Any, make: Callable[[], Any]) -> Any:
        return self.memo.once((what, name), of, make)

    def _values(self, name: str, type: ColumnType) -> npt.NDArray[np.float64] | None:
        def values() -> npt.NDArray[np.float64] | None:
            rows = self.columns([name])
            if rows is None or rows.num_rows != self.size:
                return None
            return _numbers(rows.column(name), type)

        made: npt.NDArray[np.float64] | None = self._once("numbers", name, None, values)
        return made

    def _passing(self, names: Collection[str]) -> pa.Table | None:
        rows = self.columns(names)
        if rows is None or rows.num_rows != self.size:
            return None
        return rows if self.passing is None else rows.filter(pa.array(self.passing))


def is_among(column: pa.Array | pa.ChunkedArray, values: pa.Array) -> Mask | None:
    """Return which of a column's values are some of others; None if they cannot be compared."""
    if column.type != values.type:
        if not all(map(pa.types.is_signed_integer, (column.type, values.type))):
            return None
        column, values = column.cast(pa.int64()), values.cast(pa.int64())
    mask: Mask = pc.is_in(column, value_set=values, skip_nulls=True).to_numpy(zero_copy_only=False)
    return mask


def _numbers(column: pa.ChunkedArray, type: ColumnType) -> npt.NDArray[np.float64]:
    """Return values in the form of a column's bounds, NaN for null."""
    if type.kind in (Kind.INTEGER, Kind.FLOAT):
        numbers: npt.NDArray[np.float64] = column.cast(pa.float64(), safe=False).to_numpy()
        return numbers
    return np.array([np.nan if v is None else v for v in bound_values(column, type)], np.float64)
