"""Whether a table's rows are as expected, as far as partials of them tell."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol

from lancestat.errors import Location, did_you_mean
from lancestat.formats import StringEnum, count, quoted, share
from lancestat.spec.expectations import (
    AcceptedValues,
    Between,
    DistinctBetween,
    Expectation,
    MaxNullShare,
    NotNull,
    References,
    RowCount,
    Scalar,
    Severity,
    Unique,
    scalar_text,
)
from lancestat.spec.model import Reference
from lancestat.tables.relations import Containment
from lancestat.tables.statistics.bounds import BOUND_BYTES, Bound
from lancestat.tables.statistics.column_type import (
    ColumnType,
    Kind,
    format_bound,
    parse_bound,
    shown_bound,
)
from lancestat.tables.statistics.partial import ColumnPartial


class CheckVerdict(StringEnum):
    """Whether an expectation holds; the spelling is a contract."""

    PROVED = "proved"
    REFUTED = "refuted"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class CheckResult:
    """Whether what is expected of a table holds, and why.

    `check` is the name of the expectation or the monitor, which `location` has declared. Reading
    rows may decide what is unknown of one that `is_provable`.
    """

    check: str
    verdict: CheckVerdict
    severity: Severity
    detail: str
    location: Location | None = None
    is_provable: bool = True

    def to_json(self) -> dict[str, object]:
        """Return the members of the check in JSON."""
        return {
            "check": self.check,
            "verdict": self.verdict.value,
            "severity": self.severity.value,
            "detail": self.detail,
            "location": None if self.location is None else str(self.location),
        }

    @property
    def is_failed(self) -> bool:
        """Whether it is refuted, and that is an error."""
        return self.verdict is CheckVerdict.REFUTED and self.severity is Severity.ERROR


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a column or a group: the partial of all rows, or of some of them."""

    partial: ColumnPartial
    is_whole: bool

    def distinct_bounds(self) -> tuple[int, int | None]:
        """Return the fewest and the most distinct values; no sketch counts exactly."""
        partial, common = self.partial, self.partial.common
        bounds = {bound for bound in (partial.minimum, partial.maximum) if _is_exact(bound)}
        fewest = max(len(bounds) + (partial.nans > 0), partial.values > 0)
        if common is not None:
            fewest = max(fewest, sum(one.lower > 0 for one in common.listed))
        if partial.key is not None and partial.key.is_proven:
            fewest = partial.values
        if not self.is_whole:
            return fewest, None
        if common is not None and common.is_exact:
            return fewest, fewest
        room = _room(partial)
        return fewest, partial.values if room is None else min(partial.values, room)


class Facts(Protocol):
    """What is known of a table's rows as they are.

    `shows_values` allows values of strings in words, `shows_common` also values that are no bounds
    of their column, and `proven_keys` are columns in which no two rows are equal, without nulls.
    """

    @property
    def rows(self) -> int: ...
    @property
    def types(self) -> Mapping[str, ColumnType]: ...
    @property
    def column_names(self) -> Collection[str]: ...
    @property
    def shows_values(self) -> bool: ...
    @property
    def shows_common(self) -> bool: ...
    @property
    def proven_keys(self) -> Collection[frozenset[str]]: ...

    def known(self, columns: Sequence[str]) -> Known | None:
        """Return what is known of a column, or of the tuples of several; None for nothing."""

    def contained(self, reference: Reference) -> Containment:
        """Return what is known of a reference."""


_Judged = tuple[CheckVerdict, str]
_PROVED, _REFUTED, _UNKNOWN = CheckVerdict.PROVED, CheckVerdict.REFUTED, CheckVerdict.UNKNOWN


def judge(expectation: Expectation, facts: Facts) -> CheckResult:
    """Return whether an expectation holds; exact where the verdict is not `unknown`."""
    check = expectation.check
    objection = next(_misfits(expectation, facts), None)
    verdict, detail = (_REFUTED, objection) if objection else _judged(expectation, facts)
    return CheckResult(expectation.name, verdict, check.severity, detail, expectation.location)


def _judged(expectation: Expectation, facts: Facts) -> _Judged:
    check = expectation.check
    match check:
        case RowCount(min=low, max=high):
            verdict = _PROVED if is_within(facts.rows, low, high) else _REFUTED
            verb = "is" if facts.rows == 1 else "are"
            return verdict, f"there {verb} {count(facts.rows, 'row')}"
        case References():
            held = facts.contained(check.reference)
            if held.contained is None:
                return _UNKNOWN, held.reason
            return (_PROVED if held.contained else _REFUTED), held.reason
    if not facts.rows:
        is_empty_enough = not isinstance(check, DistinctBetween) or not check.min
        return (_PROVED if is_empty_enough else _REFUTED), "there are no rows"
    if isinstance(check, Unique) and any(key <= {*check.columns} for key in facts.proven_keys):
        return _PROVED, "no two rows are equal in a declared key"
    found = facts.known(check.columns)
    if found is None:
        return _UNKNOWN, "nothing is known of the rows as they are"
    judged = _of_partial(check, found, facts)
    if judged is not None:
        return judged
    if not found.is_whole:
        known = share(found.partial.rows / facts.rows)
        return _UNKNOWN, f"only {known} of the rows are known as they are"
    return _UNKNOWN, _why_unknown(check, found.partial)


def _of_partial(check: object, found: Known, facts: Facts) -> _Judged | None:
    """Return what a partial decides, None for nothing."""
    partial = found.partial
    match check:
        case NotNull():
            return _by_nulls(partial, found.is_whole)
        case MaxNullShare(share=most):
            return _by_null_share(partial, most, facts.rows, found.is_whole)
        case Between(column=name):
            return _by_range(check, found, _Column(name, facts))
        case AcceptedValues(column=name):
            return _by_values(check, found, _Column(name, facts))
        case DistinctBetween():
            return _by_distinct(check, found)
        case Unique():
            return _by_repetition(found)
    raise AssertionError(f"no expectation of columns: {check}")


def _by_nulls(partial: ColumnPartial, is_whole: bool) -> _Judged | None:
    if partial.nulls:
        return _REFUTED, f"{count(partial.nulls, 'row has', 'rows have')} a null"
    return (_PROVED, "no row has a null") if is_whole else None


def _by_null_share(
    partial: ColumnPartial, most: float, rows: int, is_whole: bool
) -> _Judged | None:
    # As a fraction of what was written: 5 % of 20 rows is one row.
    allowed = Fraction(str(most)) * rows
    at_least = "" if is_whole else "at least "
    if partial.nulls > allowed or is_whole:
        verdict = _REFUTED if partial.nulls > allowed else _PROVED
        part = f"{count(partial.nulls)} of {count(rows, 'row')}"
        return verdict, f"{at_least}{part} have a null ({share(partial.nulls / rows)})"
    if rows - partial.values <= allowed:
        return _PROVED, f"{at_least}{share(partial.values / rows)} of the rows have no null"
    return None


_HIDDEN = "one that is not shown"


@dataclass(frozen=True, slots=True)
class _Column:
    """A column whose values are compared with declared ones."""

    name: str
    facts: Facts

    @property
    def type(self) -> ColumnType:
        return self.facts.types[self.name]

    def text(self, bound: Bound) -> str:
        """Return a value as people may see it."""
        if isinstance(bound, bytes):
            shown = shown_bound(bound, self.type)
            return quoted(shown) if self.facts.shows_values else _HIDDEN
        return format_bound(bound, self.type) or str(bound)

    def span(self, low: Bound, high: Bound | None) -> str:
        """Return a range of values as people may see it."""
        if isinstance(low, bytes) and not self.facts.shows_values:
            return "all in it"
        return f"from {self.text(low)}" + ("" if high is None else f" to {self.text(high)}")


def _by_range(check: Between, found: Known, column: _Column) -> _Judged | None:
    partial = found.partial
    low: Any = None if check.min is None else comparable(check.min, column.type)
    high: Any = None if check.max is None else comparable(check.max, column.type)
    least: Any = partial.minimum
    greatest: Any = partial.maximum
    if partial.nans:
        return _REFUTED, f"{count(partial.nans, 'value is', 'values are')} NaN"
    if least is None:
        return (_PROVED, "there are no values") if found.is_whole else None
    if low is not None and _is_exact(least) and least < low:
        return _REFUTED, f"the least value is {column.text(least)}"
    if high is not None and _is_exact(greatest) and greatest > high:
        return _REFUTED, f"the greatest value is {column.text(greatest)}"
    is_above = low is None or least >= low
    is_below = high is None or (greatest is not None and greatest <= high)
    if not (found.is_whole and is_above and is_below):
        return None
    return _PROVED, f"values are {column.span(least, greatest)}"


def _is_exact(bound: Bound | None) -> bool:
    """Whether a bound is a value of the column: long texts are shortened."""
    return bound is not None and (not isinstance(bound, bytes) or len(bound) < BOUND_BYTES)


def _by_values(check: AcceptedValues, found: Known, column: _Column) -> _Judged | None:
    partial, common = found.partial, found.partial.common
    accepted = {comparable(value, column.type) for value in check.values}
    if partial.nans:
        return _REFUTED, f"{count(partial.nans, 'value is', 'values are')} NaN"
    if not partial.values:
        return (_PROVED, "there are no values") if found.is_whole else None
    ends = partial.minimum, partial.maximum
    held = [end for end in ends if end is not None and _is_exact(end)]
    held += [one.values[0] for one in (common.listed if common else ()) if one.lower]
    for value in held:
        if value not in accepted:
            is_shown = value in ends or column.facts.shows_common
            return _REFUTED, f"{column.text(value) if is_shown else _HIDDEN} is a value"
    if not found.is_whole:
        return None
    if common is not None and common.is_exact:
        values = count(len(common.listed), "value is", "values are")
        return _PROVED, f"{values} there, all accepted"
    low, room = partial.minimum, _room(partial)
    if isinstance(low, int) and room is not None and room <= len(accepted):
        others = [value for value in range(low, low + room) if value not in accepted]
        return None if others else (_PROVED, f"values are {column.span(low, partial.maximum)}")
    return None


def _room(partial: ColumnPartial) -> int | None:
    """Return how many values there may be between the bounds, None where there is no limit."""
    low, high = partial.minimum, partial.maximum
    return high - low + 1 if isinstance(low, int) and isinstance(high, int) else None


def _by_distinct(check: DistinctBetween, found: Known) -> _Judged | None:
    fewest, most = found.distinct_bounds()
    noun = "distinct value is", "distinct values are"
    if check.max is not None and fewest > check.max:
        at_least = "" if fewest == most else "at least "
        return _REFUTED, f"{at_least}{count(fewest, *noun)} there"
    if most is None:
        return None
    if check.min is not None and most < check.min:
        at_most = "" if fewest == most else "at most "
        return _REFUTED, f"{at_most}{count(most, *noun)} there"
    if fewest < (check.min or 0) or (check.max is not None and most > check.max):
        return None
    from_fewest = "" if fewest == most else f"{count(fewest)} to "
    return _PROVED, f"{from_fewest}{count(most, *noun)} there"


def _by_repetition(found: Known) -> _Judged | None:
    partial, common, room = found.partial, found.partial.common, _room(found.partial)
    if partial.key is not None and partial.key.is_repeated:
        return _REFUTED, "at least two rows are equal"
    if common is not None and any(one.lower > 1 for one in common.listed):
        return _REFUTED, "at least two rows are equal"
    if room is not None and partial.values > room:
        rows = count(partial.values, "row")
        return _REFUTED, f"{rows}, and only {count(room, 'value')} from the least to the greatest"
    if not found.is_whole:
        return None
    if partial.values < 2:
        return _PROVED, f"{'one row has' if partial.values else 'no row has'} a value"
    is_key = partial.key is not None and partial.key.is_proven
    if is_key or (common is not None and common.is_exact):
        return _PROVED, "no two rows are equal"
    return None


def _why_unknown(check: object, partial: ColumnPartial) -> str:
    if isinstance(check, Unique | DistinctBetween):
        about = count(partial.distinct, "distinct value")
        return f"about {about} in {count(partial.values, 'row')}, by a sketch, which proves nothing"
    return "no statistic that is kept decides it"


def _misfits(expectation: Expectation, facts: Facts) -> Iterator[str]:
    """Yield why no rows of the table can be as expected."""
    check = expectation.check
    for name in check.columns:
        if name not in facts.column_names:
            hint = did_you_mean(name, sorted(facts.column_names))
            yield f"the table has no column {quoted(name)}" + (f"; {hint}" if hint else "")
            return
    declared: Sequence[Scalar | None] = ()
    match check:
        case Between(column=name, min=low, max=high):
            declared = low, high
        case AcceptedValues(column=name, values=values):
            declared = values
        case _:
            return
    if name not in facts.types:
        yield f"values of column {quoted(name)} cannot be compared"
        return
    type = facts.types[name]
    for value in declared:
        if value is not None:
            try:
                comparable(value, type)
            except ValueError as error:
                yield f"column {quoted(name)} is of type {type.spark_type}: {error}"


def comparable(value: Scalar, type: ColumnType) -> Bound | Fraction:
    """Return what a declared value is compared as with the values of a column (`bounds`).

    Raises:
        ValueError: it is no value of the type.
    """
    if type.kind is Kind.STRING and isinstance(value, str):
        return value.encode()
    if type.kind is Kind.BOOLEAN and isinstance(value, bool):
        return int(value)
    if isinstance(value, str) and type.kind in _TIMES:
        found = parse_bound(_TIMES[type.kind](value), type)
        assert found is not None
        return found
    if isinstance(value, int | float) and not isinstance(value, bool):
        if type.kind is Kind.FLOAT:
            return parse_bound(repr(float(value)), type) or 0.0
        if type.kind in (Kind.INTEGER, Kind.DECIMAL):
            unscaled: Fraction = Fraction(str(value)) * 10**type.scale
            return unscaled
    raise ValueError(f"{quoted(scalar_text(value))} is no value of it")


def _with_time(text: str) -> str:
    """Return a moment in the form of bounds: `1995-01-01` and `1995-01-01T12:00:00Z`, too."""
    day, _, time = text.replace("T", " ").removesuffix("Z").partition(" ")
    return f"{day} {_with_fraction(time or '00:00:00')}"


def _with_fraction(time: str) -> str:
    return time if "." in time else f"{time}.0"


_TIMES: Mapping[Kind, Callable[[str], str]] = {
    Kind.DATE: str,
    Kind.TIMESTAMP: _with_time,
    Kind.TIMESTAMP_NTZ: _with_time,
    Kind.TIME: _with_fraction,
}


def is_within(number: int, low: int | None, high: int | None) -> bool:
    """Whether a number is in a range, whose ends may be open."""
    return (low is None or number >= low) and (high is None or number <= high)
