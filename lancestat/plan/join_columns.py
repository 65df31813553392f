"""The columns that a side of a join names, against those that are there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lancestat.errors import UsageError, did_you_mean
from lancestat.lake.clean import clean
from lancestat.spec.model import KnnJoin, KnnSide

if TYPE_CHECKING:
    import pyarrow as pa

_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Place:
    """A side of a declared join, `left` or `right`, as errors call it."""

    join: KnnJoin
    side: str

    def __str__(self) -> str:
        return f"the {self.side} side of knn join '{self.join.name}'"

    def error(self, code: str, message: str, hint: str | None = None) -> UsageError:
        """An error about the side, where the join is declared."""
        return UsageError(code, message, location=self.join.location, hint=hint)


def check_columns(
    place: Place, side: KnnSide, uri: str, types: Mapping[str, pa.DataType]
) -> int | None:
    """See that what a side names is there; the vectors' length, None where rows may differ.

    Raises:
        UsageError: LS454 a column is missing, LS455 the vectors are none.
    """
    from lancestat.knn.vectors import dimension, is_vector

    for column in (side.vector, *(side.select or ())):
        if column not in types:
            known = ", ".join(list(types)[:_SHOWN]) + (", ..." if len(types) > _SHOWN else "")
            raise place.error(
                "LS454",
                f"{place} names column '{column}', which {clean(uri)} does not have",
                did_you_mean(column, types) or f"its columns: {known or 'none'}",
            )
    type = types[side.vector]
    if not is_vector(type):
        raise place.error(
            "LS455",
            f"{place} names '{side.vector}' as its vectors, which is of type {type}",
            "vectors are fixed-size or variable lists of float, double or halffloat",
        )
    return dimension(type)
