"""Operators of a logical plan, as Spark's optimizer describes them (`PlanQuestion.java`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from lancestat import codec

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Condition:
    """One part of a conjunction; columns have the numbers of Spark's attributes.

    `filter` is one for `read_filters` where columns are compared with literals. Where two columns
    are compared, `compares` is the operator between `left` and `right`; without `right`, the other
    side is one value that only the query finds out, as that of a subquery. Else it is only known
    which columns it needs, and whether it `rejects_nulls` in all of these. `is_shifted` is whether
    a constant is added to a side.
    """

    columns: tuple[str, ...]
    filter: Json | None = None
    compares: str = ""
    left: str = ""
    right: str = ""
    is_shifted: bool = False
    rejects_nulls: bool = False

    @property
    def is_equality(self) -> bool:
        """Whether it is an equality of two columns, such as the keys of a join."""
        return self.compares in ("=", "<=>") and bool(self.right) and not self.is_shifted

    @property
    def is_open(self) -> bool:
        """Whether it bounds a column by a value that only the query finds out."""
        return self.compares in ("<", "<=", ">", ">=") and not self.right


@dataclass(frozen=True, slots=True)
class OutputColumn:
    """A column that an operator computes.

    `of` is the column that it is, under another number. `sources` are all that it is computed from
    otherwise. `key` is the index of the grouping expression that it is. `is_count` is whether it is
    the number of rows of a group; else it may be the sum, of a Spark type, of the column `sum_of`
    or of values that have the moments `added` in a sample, or the least or greatest value of the
    column `extreme_of`. `values` numbers the values of a key that is computed of a scan's columns,
    in the rows of its sample.
    """

    id: str | None = None
    of: str | None = None
    sources: tuple[str, ...] = ()
    key: int | None = None
    is_count: bool = False
    values: Json | None = None
    sum_of: str | None = None
    type: str = ""
    extreme_of: str | None = None
    added: Json | None = None


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator; `inputs` are the indexes of those that it reads.

    `rows` are what Spark itself expects, None where unknown; they are true where `is_exact`:
    adaptive execution has counted them. `details` has what its kind has besides.
    """

    kind: str
    name: str
    inputs: tuple[int, ...]
    output: tuple[str, ...]
    rows: float | None = None
    is_exact: bool = False
    details: Json = field(default_factory=dict)

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """The conjunction of a filter or join."""
        return codec.convert(self.details.get("conditions", ()), tuple[Condition, ...])

    @property
    def columns(self) -> Sequence[OutputColumn]:
        """What a projection or an aggregate computes."""
        return codec.convert(self.details["columns"], list[OutputColumn])

    @property
    def keys(self) -> Sequence[OutputColumn]:
        """What an aggregate groups by."""
        return codec.convert(self.details["keys"], list[OutputColumn])


def read_operators(messages: Sequence[Json]) -> list[Operator]:
    """Return the operators of a plan, each after those that it reads."""
    return [replace(codec.convert(message, Operator), details=message) for message in messages]
