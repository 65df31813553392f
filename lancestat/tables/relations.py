"""What is known of a table's groups, keys, references and common values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lancestat.formats import StringEnum, count
from lancestat.spec.model import Reference
from lancestat.spec.relations import relation_name
from lancestat.tables.statistics.bounds import Bound
from lancestat.tables.statistics.column_type import ColumnType, Kind, format_bound, shown_bound
from lancestat.tables.statistics.common_values import CommonValues
from lancestat.tables.statistics.partial import ColumnPartial
from lancestat.tables.wire import JointStatistics


class KeyStatus(StringEnum):
    """What is known of a declared key; the spelling is a contract."""

    PROVEN = "proven"
    REFUTED = "refuted"
    UNPROVEN = "unproven"


@dataclass(frozen=True, slots=True)
class KeyResult:
    """What is known of a declared key, and why; `columns` are in the order of their field ids."""

    columns: tuple[str, ...]
    status: KeyStatus
    reason: str

    @property
    def name(self) -> str:
        """The key as people read it: `(o_orderkey)`."""
        return f"({', '.join(self.columns)})"


def key_result(columns: tuple[str, ...], partial: ColumnPartial) -> KeyResult:
    """Return what the merged partial of a key's columns proves; exact, whatever it says.

    Within a fragment rows are compared by their hashes, and by value where those are equal. Rows of
    different fragments differ where the ranges of one of the columns do not overlap; in tables of
    up to 131,072 rows, 128-bit hashes of all rows are compared.
    """
    status, reason = _judged(partial)
    return KeyResult(columns, status, reason)


def _judged(partial: ColumnPartial) -> tuple[KeyStatus, str]:
    if not partial.rows:
        return KeyStatus.PROVEN, "there are no rows"
    if partial.nulls:
        return KeyStatus.REFUTED, f"{count(partial.nulls, 'row has', 'rows have')} a null in it"
    proof = partial.key
    if proof is None:
        return KeyStatus.UNPROVEN, "some of the rows were not looked at"
    if proof.is_repeated:
        return KeyStatus.REFUTED, "at least two rows are equal in it"
    if proof.is_proven:
        in_ranges = "those of a fragment differ, and the ranges of fragments do not overlap"
        how = in_ranges if any(proof.ranges) else "all hashes differ"
        return KeyStatus.PROVEN, f"no two rows are equal: {how}"
    return (
        KeyStatus.UNPROVEN,
        "ranges of fragments overlap, and the rows are too many to compare",
    )


@dataclass(frozen=True, slots=True)
class Containment:
    """Whether every row of a reference has its row in the other table: None where not known.

    `reason` says why in words, without values. Rows with a null in a column refer to nothing.
    """

    contained: bool | None
    reason: str


@dataclass(frozen=True, slots=True)
class ShownValue:
    """A common value as people read it, by column; `lower` to `upper` rows hold it."""

    texts: tuple[str, ...]
    lower: int
    upper: int


@dataclass(frozen=True, slots=True)
class ShownValues:
    """The common values of a column or a group that people may see, the most common first.

    No other value has more than `unlisted` rows.
    """

    columns: tuple[str, ...]
    values: tuple[ShownValue, ...]
    unlisted: int

    @property
    def is_exact(self) -> bool:
        """Whether these are all values, with exact counts."""
        return not self.unlisted

    @property
    def name(self) -> str:
        """The column, or the group in parentheses."""
        return relation_name(self.columns)


@dataclass(frozen=True, slots=True)
class Relations:
    """What is known of the groups, keys, references and common values of a table."""

    groups: tuple[JointStatistics, ...] = ()
    keys: tuple[KeyResult, ...] = ()
    references: tuple[tuple[Reference, Containment], ...] = ()
    common_values: tuple[ShownValues, ...] = ()


NO_RELATIONS = Relations()


def shown_values(
    columns: tuple[str, ...],
    common: CommonValues,
    types: Mapping[str, ColumnType],
    limit: int,
    *,
    with_texts: bool,
) -> ShownValues | None:
    """Return common values for people, None where they are not to see them.

    `limit` is how many are wanted, and `with_texts` allows values of strings and binary.
    """
    of_columns = [types[name] for name in columns]
    if not with_texts and any(type.is_variable_width for type in of_columns):
        return None
    shown = tuple(
        ShownValue(tuple(map(_text, one.values, of_columns)), one.lower, one.upper)
        for one in common.listed[:limit]
    )
    # More values are kept than are wanted.
    left_out = (one.upper for one in common.listed[limit:])
    return ShownValues(columns, shown, max(common.unlisted, *left_out, 0))


def _text(value: Bound, type: ColumnType) -> str:
    if isinstance(value, bytes):
        return shown_bound(value, type)
    text = format_bound(value, type) or ("NaN" if isinstance(value, float) else str(value))
    return f"{text}Z" if type.kind is Kind.TIMESTAMP else text
