"""The partials of one column, group by group, laid out for merging many at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from lancestat.read.column_bounds import Bounds, ColumnBounds, Counts, Mask, fits_spark
from lancestat.stats.column_type import ColumnType
from lancestat.stats.partial import EMPTY_PARTIAL, ColumnPartial, merge
from lancestat.stats.quantiles import QuantileSketch
from lancestat.stats.sketch import REGISTERS, Sketch


@dataclass(frozen=True, slots=True)
class GroupColumn:
    """Struct of arrays; `registers` is groups x 4,096, `quantiles` by group where there are any."""

    bounds: ColumnBounds
    total_bytes: Counts
    max_bytes: Counts
    total_characters: Counts
    max_characters: Counts
    registers: npt.NDArray[np.uint8]
    quantiles: Sequence[QuantileSketch | None]

    @classmethod
    def of(cls, partials: Sequence[ColumnPartial | None], type: ColumnType) -> GroupColumn:
        """Lay partials out; None is what is not known, as are values that Spark cannot hold."""
        partials = [
            each if each is not None and fits_spark(each.maximum, type) else None
            for each in partials
        ]
        found = [EMPTY_PARTIAL if each is None else each for each in partials]
        joined = b"".join(each.sketch.registers for each in found)
        return cls(
            bounds=ColumnBounds(
                type=type,
                known=np.array([each is not None for each in partials], np.bool_),
                rows=_counts(each.rows for each in found),
                nulls=_counts(each.nulls for each in found),
                nans=_counts(each.nans for each in found),
                lower=Bounds.of([each.minimum for each in found], type),
                upper=Bounds.of([each.maximum for each in found], type),
            ),
            total_bytes=_counts(each.total_bytes for each in found),
            max_bytes=_counts(each.max_bytes for each in found),
            total_characters=_counts(each.total_characters for each in found),
            max_characters=_counts(each.max_characters for each in found),
            registers=np.frombuffer(joined, np.uint8).reshape(-1, REGISTERS),
            quantiles=[each.quantiles for each in found],
        )

    def merged(self, groups: Mask) -> ColumnPartial:
        """What `stats.partial.merge` makes of the chosen groups, all of which must be known."""
        bounds = self.bounds
        if not groups.any():
            return EMPTY_PARTIAL
        lower, upper = bounds.lower, bounds.upper
        unbounded = groups & lower.exists & ~upper.exists
        merged = ColumnPartial(
            rows=int(bounds.rows[groups].sum()),
            nulls=int(bounds.nulls[groups].sum()),
            nans=int(bounds.nans[groups].sum()),
            minimum=lower.least(groups),
            maximum=None if unbounded.any() else upper.greatest(groups),
            total_bytes=int(self.total_bytes[groups].sum()),
            max_bytes=int(self.max_bytes[groups].max()),
            sketch=Sketch(self.registers[groups].max(axis=0).tobytes()),
            total_characters=int(self.total_characters[groups].sum()),
            max_characters=int(self.max_characters[groups].max()),
        )
        return replace(merged, quantiles=self._merged_quantiles(groups))

    def _merged_quantiles(self, groups: Mask) -> QuantileSketch | None:
        """By the rule of `merge`, of partials that have nothing else."""
        if not any(self.quantiles):
            return None
        return merge(
            replace(EMPTY_PARTIAL, rows=int(self.bounds.rows[place]), quantiles=sketch)
            for place, sketch in enumerate(self.quantiles)
            if groups[place]
        ).quantiles


def _counts(numbers: object) -> Counts:
    return np.fromiter(numbers, np.int64)  # type: ignore[call-overload,no-any-return]
