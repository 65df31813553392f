"""What a table's rows are expected to be."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field, replace
from typing import Any, ClassVar, get_args

from lancestat.errors import Location
from lancestat.formats import StringEnum, share
from lancestat.spec.declaration import (
    AT_LEAST_0,
    PUBLIC,
    SHARE,
    Either,
    Key,
    Listed,
    Nested,
    Resource,
    Shape,
    Text,
    key,
    keys,
    resource,
    words,
)
from lancestat.spec.relations import COLUMNS, Columns, Reference, relation_name

# A value of a column in YAML: dates and times are texts.
Scalar = bool | int | float | str


class Severity(StringEnum):
    """What it is where an expectation does not hold."""

    WARN = "warn"
    ERROR = "error"


COLUMN = Text(title="the name of a column", keywords={"minLength": 1}, is_public=True)
_VALUE = Shape(
    title="a number, a text, true or false",
    definition="value",
    keywords={"type": ["number", "string", "boolean"]},
)
SEVERITY = words(Severity, "'warn' or 'error'")
_ABOUT_COLUMN = "The column."
_ABOUT_SEVERITY = "Whether it is a warning or an error where it does not hold."


class _OfColumn:
    """What expectations of one column have in common with those of several."""

    __slots__ = ()
    column: str

    @property
    def columns(self) -> Columns:
        return (self.column,)


@resource
class NotNull(_OfColumn):
    """No row has a null in a column."""

    name: ClassVar[str] = "not_null"
    column: str = key(COLUMN, _ABOUT_COLUMN)
    severity: Severity = key(SEVERITY, _ABOUT_SEVERITY, default=Severity.ERROR)

    declares: ClassVar[Resource] = Resource("a mapping with 'column' and 'severity'")


@resource
class Unique:
    """No two rows are equal in columns; rows with a null in one of them equal none."""

    name: ClassVar[str] = "unique"
    columns: Columns = key(COLUMNS, "The columns.")
    severity: Severity = key(SEVERITY, _ABOUT_SEVERITY, default=Severity.ERROR)

    declares: ClassVar[Resource] = Resource("a mapping with 'columns' and 'severity'")


@resource
class Between(_OfColumn):
    """No value of a column is below `min` or above `max`."""

    name: ClassVar[str] = "between"
    column: str = key(COLUMN, _ABOUT_COLUMN)
    min: Scalar | None = key(_VALUE, "The least value that there may be.", default=None)
    max: Scalar | None = key(_VALUE, "The greatest value that there may be.", default=None)
    severity: Severity = key(SEVERITY, _ABOUT_SEVERITY, default=Severity.ERROR)

    declares: ClassVar[Resource] = Resource("a mapping with 'column', 'min' and 'max'")


@resource
class AcceptedValues(_OfColumn):
    """All values of a column are among some."""

    name: ClassVar[str] = "accepted_values"
    column: str = key(COLUMN, _ABOUT_COLUMN)
    values: tuple[Scalar, ...] = key(
        Listed(title="a list of values", items=_VALUE, is_filled=True, is_unique=True),
        "The values that there may be. A null is none.",
    )
    severity: Severity = key(SEVERITY, _ABOUT_SEVERITY, default=Severity.ERROR)

    declares: ClassVar[Resource] = Resource("a mapping with 'column' and 'values'")


@resource
class RowCount:
    """The table has at least `min` and at most `max` rows."""

    name: ClassVar[str] = "row_count"
    columns: ClassVar[Columns] = ()
    min: int | None = key(AT_LEAST_0, "The fewest rows.", default=None)
    max: int | None = key(AT_LEAST_0, "The most rows.", default=None)
    severity: Severity = key(SEVERITY, _ABOUT_SEVERITY, default=Severity.ERROR)

    declares: ClassVar[Resource] = Resource("a mapping with 'min' and 'max'")


@resource
class MaxNullShare(_OfColumn):
    """At most a share of the rows has a null in a column."""

    name: ClassVar[str] = "max_null_share"
    column: str = key(COLUMN, _ABOUT_COLUMN)
    share: float = key(SHARE, "The greatest share of the rows.")
    severity: Severity = key(SEVERITY, _ABOUT_SEVERITY, default=Severity.ERROR)

    declares: ClassVar[Resource] = Resource("a mapping with 'column' and 'share'")


@resource
class DistinctBetween(_OfColumn):
    """A column has at least `min` and at most `max` distinct values, nulls aside."""

    name: ClassVar[str] = "distinct_between"
    column: str = key(COLUMN, _ABOUT_COLUMN)
    min: int | None = key(AT_LEAST_0, "The fewest distinct values.", default=None)
    max: int | None = key(AT_LEAST_0, "The most distinct values.", default=None)
    severity: Severity = key(SEVERITY, _ABOUT_SEVERITY, default=Severity.ERROR)

    declares: ClassVar[Resource] = Resource("a mapping with 'column', 'min' and 'max'")


@resource
class References:
    """Every row has its row in another table, unless it has a null in one of the columns."""

    name: ClassVar[str] = "references"
    columns: Columns = key(COLUMNS, "Columns of this table.")
    table: str = key(PUBLIC, "The table that they refer to, which may be this one.")
    to: Columns = key(COLUMNS, "The columns there, one for each of 'columns', in the same order.")
    severity: Severity = key(SEVERITY, _ABOUT_SEVERITY, default=Severity.ERROR)

    declares: ClassVar[Resource] = Resource("a mapping with 'columns', 'table' and 'to'")

    @property
    def reference(self) -> Reference:
        """What is expected to hold."""
        return Reference(self.columns, self.table, self.to)


Check = (
    NotNull
    | Unique
    | Between
    | AcceptedValues
    | RowCount
    | MaxNullShare
    | DistinctBetween
    | References
)


CHECKS: tuple[type[Any], ...] = get_args(Check)

_NOT_NULL = Either(
    title=f"{COLUMN.title}, or {NotNull.declares.title}",
    shapes=(
        replace(COLUMN, read=lambda column: NotNull(column=column)),
        Nested(resource=NotNull),
    ),
)
_UNIQUE = Either(
    title=f"{COLUMN.title}, a list of columns, or {Unique.declares.title}",
    shapes=(
        replace(COLUMN, read=lambda column: Unique(columns=(column,))),
        COLUMNS,
        Nested(resource=Unique),
    ),
)


@resource
class Expectation:
    """One expectation of a table's rows."""

    check: Check = keys(
        Key(("not_null",), _NOT_NULL, "No row has a null in the column."),
        Key(
            ("unique",),
            _UNIQUE,
            "No two rows are equal in the columns. Rows with a null in one of them are left out.",
        ),
        Key(("between",), Nested(resource=Between), "No value of the column is outside a range."),
        Key(
            ("accepted_values",),
            Nested(resource=AcceptedValues),
            "All values of the column are among these.",
        ),
        Key(("row_count",), Nested(resource=RowCount), "The number of rows is in a range."),
        Key(
            ("max_null_share",),
            Nested(resource=MaxNullShare),
            "No more than a share of the rows has a null in the column.",
        ),
        Key(
            ("distinct_between",),
            Nested(resource=DistinctBetween),
            "The number of distinct values of the column is in a range.",
        ),
        Key(
            ("references",),
            Nested(resource=References),
            "Every row has its row in another table. Rows with a null are left out.",
        ),
    )
    location: Location | None = field(default=None, compare=False)

    declares: ClassVar[Resource] = Resource(
        "a mapping with one expectation",
        "What the rows of a table are expected to be.",
        noun="expectation",
        definition="expectation",
        one_of=tuple(check.name for check in CHECKS),
    )

    @property
    def name(self) -> str:
        """What names it among those of its table: `between(o_totalprice)`."""
        about = ", ".join(self.check.columns)
        if isinstance(self.check, References):
            about = f"{about} to {self.check.table}"
        return f"{self.check.name}({about})" if about else self.check.name

    def __str__(self) -> str:
        return check_text(self.check)


def referred(expectations: Iterable[Expectation]) -> Iterator[Reference]:
    """Yield the references among expectations."""
    checks = (expectation.check for expectation in expectations)
    return (check.reference for check in checks if isinstance(check, References))


EXPECT = Listed(title="a list of expectations", items=Nested(resource=Expectation))


def check_text(check: Check) -> str:
    """Return an expectation as people read it: `o_totalprice is from 0 to 1000000`."""
    columns = relation_name(check.columns) if check.columns else ""
    match check:
        case NotNull():
            return f"{columns} is not null"
        case Unique():
            return f"{columns} is unique"
        case Between(min=low, max=high):
            return f"{columns} is {range_text(low, high)}"
        case AcceptedValues(values=values):
            return f"{columns} is one of {', '.join(map(scalar_text, values))}"
        case RowCount(min=low, max=high):
            return f"the number of rows is {range_text(low, high)}"
        case MaxNullShare(share=most):
            return f"at most {share(most)} of {columns} is null"
        case DistinctBetween(min=low, max=high):
            return f"the number of distinct values of {columns} is {range_text(low, high)}"
        case References():
            return f"the reference {check.reference} holds"


def scalar_text(value: Scalar) -> str:
    """Return a value as YAML writes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def range_text(low: Scalar | None, high: Scalar | None) -> str:
    """Return a range as people read it: `from 1 to 9`, `at least 1`, `at most 9`."""
    if low is None or low == high:
        return f"at most {high}" if low is None else f"{low}"
    return f"at least {low}" if high is None else f"from {low} to {high}"


def expectations_text(expectations: Sequence[Expectation]) -> str:
    """Return expectations as a diff shows them."""
    return "; ".join(
        f"{each} ({each.check.severity.value})"
        if each.check.severity is Severity.WARN
        else str(each)
        for each in expectations
    )


def canonical_expectations(expectations: Sequence[Expectation]) -> tuple[str, ...]:
    """Return expectations where their order means nothing."""
    return tuple(sorted(map(repr, expectations)))


def expectation_objections(
    expectations: Sequence[Expectation],
) -> Iterator[tuple[str, tuple[str | int, ...]]]:
    """Yield what is wrong with expectations of one table, with the path of each below `expect`."""
    seen: dict[str, int] = {}
    for index, expectation in enumerate(expectations):
        check, name = expectation.check, expectation.name
        if seen.setdefault(name, index) != index:
            yield f"{name} is expected twice: put both into one", (index,)
        if not isinstance(check, Between | RowCount | DistinctBetween):
            continue
        low, high = check.min, check.max
        if low is None and high is None:
            yield f"'{check.name}' needs 'min', 'max' or both", (index, check.name)
        elif _is_reversed(low, high):
            yield f"'min' is greater than 'max': {low} and {high}", (index, check.name, "max")


def _is_reversed(low: Scalar | None, high: Scalar | None) -> bool:
    if isinstance(low, str) or isinstance(high, str):
        # Numbers and dates of a form order as texts only if they are as long.
        return False
    return low is not None and high is not None and low > high
