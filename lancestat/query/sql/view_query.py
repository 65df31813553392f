"""System views, and queries of one of them that are answered without Spark.

Such queries are of the simple form that scripts write: columns or aggregates of a view, a
condition, groups, an order and a limit. They mean here what they mean in Spark, down to where nulls
are sorted. Everything else, and whatever is wrong in a query, is left to Spark.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

from lancestat.interrupts import keep_interrupts
from lancestat.query.sql.query import Array, QueryResult, ResultColumn, ResultValue, Scalar
from lancestat.spark.start import VIEW_SCHEMA_SETTING
from lancestat.spark.versions import arrow_frame

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa
    from pyspark.sql import SparkSession


# The types of the views' columns, spelled as in Spark.
_TEXT, _TEXTS, _COUNT, _NUMBER, _INSTANT = (
    "string",
    "array<string>",
    "bigint",
    "double",
    "timestamp",
)
# The columns of views by the names of the views, each with its type.
Views = Mapping[str, Mapping[str, str]]
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_TOKEN = re.compile(
    r"""\s*(?:(?P<word>[A-Za-z_]\w*)|(?P<quoted>`\w+`)|(?P<number>\d+(?:\.\d+)?)"""
    r"""|(?P<text>'[^'\\]*')|(?P<sign><>|!=|<=|>=|[=<>(),.*;]))""",
    re.ASCII,
)
# Words that end an item, and so are no names without backticks.
_KEYWORDS = frozenset(
    """
    all and as asc between by case desc distinct false first from group having in is join last like
    limit not null nulls offset on or order select true union where with
    """.split()  # noqa: SIM905
)


class _OtherFormError(Exception):
    """The query is of another form."""


@dataclass(frozen=True, slots=True)
class _Item:
    """A column of the result: an expression by its name and type; `source` is a plain column."""

    name: str
    type: str
    value: pl.Expr
    source: str | None = None


def answer(
    text: str,
    views: Views,
    tables: Callable[[Collection[str]], Mapping[str, pa.Table]],
    *,
    schema: str,
    limit: int | None = None,
    local_time: bool = False,
) -> QueryResult | None:
    """Return the result of a query of one system view, None where it is for Spark.

    Args:
        text: The query.
        views: The views that there are.
        tables: Gathers views by their names.
        schema: Of the views.
        limit: As of `run_query`.
        local_time: As of `run_query`.

    Raises:
        StateError: the state cannot be reached.
    """
    try:
        query = _Query(text, schema, views)
    except _OtherFormError:
        # Spark takes its time, and Polars has been loaded.
        keep_interrupts()
        return None
    import polars as pl

    frame = pl.from_arrow(tables([query.view])[query.view])
    assert isinstance(frame, pl.DataFrame)
    rows = query.run(frame)
    if limit is not None:
        rows = rows.head(limit + 1)
    columns = tuple(_column(item) for item in query.items)
    values = (tuple(_value(value, local_time) for value in row) for row in rows.iter_rows())
    return QueryResult(columns, values, limit)


def _column(item: _Item) -> ResultColumn:
    is_array = item.type == _TEXTS
    shape = Array(Scalar("string")) if is_array else Scalar(item.type)
    return ResultColumn(item.name, item.type, shape)


def _value(value: object, local_time: bool) -> ResultValue:
    if value is None:
        return None
    if isinstance(value, float):
        return _double(value)
    if isinstance(value, datetime):
        return _local(value) if local_time else _microseconds(value)
    return value  # type: ignore[return-value]


def _microseconds(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(microseconds=1)


def _local(moment: datetime) -> str:
    """A timestamp as Spark casts it to a string in the time zone of this machine."""
    text = moment.astimezone().replace(tzinfo=None).isoformat(" ")
    return text.rstrip("0") if moment.microsecond else text


def _double(number: float) -> str:
    """A number as Java writes it."""
    if number == 0 or 1e-3 <= abs(number) < 1e7:
        return repr(number)
    # As many digits as it takes to tell the number from others.
    texts = (f"{number:.{digits}e}" for digits in range(1, 18))
    mantissa, _, exponent = next(text for text in texts if float(text) == number).partition("e")
    return f"{mantissa}E{int(exponent)}"


class _Query:
    """A query of the form that is understood.

    Raises:
        _OtherFormError: it is of another one.
    """

    def __init__(self, text: str, schema: str, views: Views) -> None:
        self._tokens = _tokens(text)
        self._position = 0
        self._schema = schema
        self._views = views
        # What is selected has types only once the view is known.
        begin = self._find_from()
        self.view = self._from(begin)
        self._columns = views[self.view]
        after_view, self._position = self._position, 0
        self._expect("select")
        self._is_distinct = self._take("distinct")
        self.items = self._items()
        if self._position != begin:
            raise _OtherFormError
        self._position = after_view
        self._condition = self._or() if self._take("where") else None
        self._groups = self._names() if self._take("group", "by") else None
        self._order = self._keys() if self._take("order", "by") else []
        self._limit = int(self._next("number")) if self._take("limit") else None
        self._take(";")
        if self._position != len(self._tokens):
            raise _OtherFormError
        self._check_groups()

    def run(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Return the rows of the result, with a column for each item."""
        if self._condition is not None:
            frame = frame.filter(self._condition)
        # Places, since columns of a result may share a name.
        items = [item.value.alias(f"_{index}") for index, item in enumerate(self.items)]
        names = [f"_{index}" for index in range(len(items))]
        if self._groups:
            rows = frame.group_by(self._groups, maintain_order=True).agg(
                *[each for each, item in zip(items, self.items, strict=True) if not item.source]
            )
            plain = [each for each, item in zip(items, self.items, strict=True) if item.source]
            rows = rows.with_columns(plain)
        elif any(item.source is None for item in self.items):
            rows = frame.select(items)
        else:
            rows = frame.with_columns(items)
        if self._is_distinct:
            rows = rows.select(names).unique(maintain_order=True)
        if self._order:
            rows = rows.sort(
                [key for key, _, _ in self._order],
                descending=[descending for _, descending, _ in self._order],
                nulls_last=[last for _, _, last in self._order],
                maintain_order=True,
            )
        rows = rows.select(names)
        return rows if self._limit is None else rows.head(self._limit)

    # Parts of a query.

    def _find_from(self) -> int:
        words = [token.lower() if kind == "word" else "" for kind, token in self._tokens]
        if words.count("from") != 1:
            raise _OtherFormError
        return words.index("from")

    def _from(self, begin: int) -> str:
        self._position = begin
        self._expect("from")
        if self._next("word").lower() != self._schema.lower():
            raise _OtherFormError
        self._expect(".")
        view = self._next("word").lower()
        if view not in self._views:
            raise _OtherFormError
        return view

    def _items(self) -> list[_Item]:
        import polars as pl

        if self._take("*"):
            return [_Item(name, type, pl.col(name), name) for name, type in self._columns.items()]
        items = [self._item()]
        while self._take(","):
            items.append(self._item())
        return items

    def _item(self) -> _Item:
        import polars as pl

        function = self._peek(1) == ("sign", "(") and self._tokens[self._position][1].lower()
        if function:
            item = self._aggregate(function)
        else:
            name = self._name()
            item = _Item(name, self._columns[name], pl.col(name), name)
        kind, token = self._peek()
        is_alias = self._take("as")
        if is_alias or kind == "quoted" or (kind == "word" and token.lower() not in _KEYWORDS):
            alias = self._identifier()
            item = _Item(alias, item.type, item.value, item.source)
        return item

    def _aggregate(self, function: str) -> _Item:
        import polars as pl

        self._position += 2
        if function == "count" and self._take("*"):
            self._expect(")")
            return _Item("count(1)", _COUNT, pl.len().cast(pl.Int64))
        is_distinct = function == "count" and self._take("distinct")
        name = self._name()
        self._expect(")")
        type, column = self._columns[name], pl.col(name)
        shown = f"{function}({'DISTINCT ' if is_distinct else ''}{name})"
        if type == _TEXTS:
            raise _OtherFormError
        match function:
            case "count" if is_distinct:
                value = column.drop_nulls().n_unique().cast(pl.Int64)
                return _Item(shown, _COUNT, value)
            case "count":
                return _Item(shown, _COUNT, column.count().cast(pl.Int64))
            case "min":
                return _Item(shown, type, column.min())
            case "max":
                return _Item(shown, type, column.max())
            case "sum" if type == _COUNT:
                # Of nothing but nulls Spark's is null.
                value = pl.when(column.count() > 0).then(column.sum())
                return _Item(shown, type, value)
        raise _OtherFormError

    def _check_groups(self) -> None:
        """Refuse what Spark refuses, or orders by what is no part of the result."""
        plain = {item.source for item in self.items if item.source is not None}
        has_aggregates = any(item.source is None for item in self.items)
        if self._groups is None:
            if has_aggregates and (plain or self._order):
                raise _OtherFormError
        elif not plain <= set(self._groups) or self._is_distinct:
            raise _OtherFormError
        uses_arrays = self._is_distinct and any(i.type == _TEXTS for i in self.items)
        if uses_arrays or any(self._columns[name] == _TEXTS for name in self._groups or ()):
            raise _OtherFormError

    def _keys(self) -> list[tuple[str, bool, bool]]:
        keys = [self._key()]
        while self._take(","):
            keys.append(self._key())
        return keys

    def _key(self) -> tuple[str, bool, bool]:
        name = self._identifier()
        matching = [index for index, item in enumerate(self.items) if item.name == name]
        if len(matching) == 1 and self.items[matching[0]].type is not _TEXTS:
            key = f"_{matching[0]}"
        elif not matching and not self._is_distinct and self._groups is None:
            if self._columns.get(name, _TEXTS) == _TEXTS:
                raise _OtherFormError
            key = name
        else:
            raise _OtherFormError
        descending = self._take("desc")
        if not descending:
            self._take("asc")
        nulls_last = descending
        if self._take("nulls"):
            nulls_last = self._take("last")
            if not nulls_last:
                self._expect("first")
        return key, descending, nulls_last

    def _names(self) -> list[str]:
        names = [self._name()]
        while self._take(","):
            names.append(self._name())
        return names

    # Conditions.

    def _or(self) -> pl.Expr:
        condition = self._and()
        while self._take("or"):
            condition = condition | self._and()
        return condition

    def _and(self) -> pl.Expr:
        condition = self._not()
        while self._take("and"):
            condition = condition & self._not()
        return condition

    def _not(self) -> pl.Expr:
        if self._take("not"):
            return ~self._not()
        if self._take("("):
            condition = self._or()
            self._expect(")")
            return condition
        return self._comparison()

    def _comparison(self) -> pl.Expr:
        import polars as pl

        name = self._name()
        type, column = self._columns[name], pl.col(name)
        if self._take("is"):
            is_not = self._take("not")
            self._expect("null")
            return column.is_not_null() if is_not else column.is_null()
        if type not in (_TEXT, _COUNT, _NUMBER):
            raise _OtherFormError
        is_not = self._take("not")
        condition: pl.Expr
        if self._take("in"):
            self._expect("(")
            values = [self._literal(type)]
            while self._take(","):
                values.append(self._literal(type))
            self._expect(")")
            condition = column.is_in(values)
            return ~condition if is_not else condition
        if self._take("like") and type == _TEXT:
            condition = column.str.contains(_like(str(self._literal(type))))
            return ~condition if is_not else condition
        if is_not:
            raise _OtherFormError
        sign = self._next("sign")
        value = self._literal(type)
        match sign:
            case "=":
                return column == value
            case "<>" | "!=":
                return column != value
            case "<":
                return column < value
            case "<=":
                return column <= value
            case ">":
                return column > value
            case ">=":
                return column >= value
        raise _OtherFormError

    def _literal(self, type: str) -> str | int | float:
        if type == _TEXT:
            return self._next("text")[1:-1]
        number = self._next("number")
        if "." in number:
            if type == _COUNT:
                raise _OtherFormError
            return float(number)
        value = int(number)
        if value >= 1 << 31:
            raise _OtherFormError
        return value

    # Tokens.

    def _name(self) -> str:
        name = self._identifier()
        if name not in self._columns:
            raise _OtherFormError
        return name

    def _identifier(self) -> str:
        kind, token = self._peek()
        self._position += 1
        if kind == "quoted":
            return token[1:-1]
        if kind != "word" or token.lower() in _KEYWORDS:
            raise _OtherFormError
        return token

    def _peek(self, ahead: int = 0) -> tuple[str, str]:
        position = self._position + ahead
        return self._tokens[position] if position < len(self._tokens) else ("end", "")

    def _take(self, *words: str) -> bool:
        for ahead, word in enumerate(words):
            kind, token = self._peek(ahead)
            if kind not in ("word", "sign") or token.lower() != word:
                return False
        self._position += len(words)
        return True

    def _expect(self, word: str) -> None:
        if not self._take(word):
            raise _OtherFormError

    def _next(self, kind: str) -> str:
        found, token = self._peek()
        if found != kind:
            raise _OtherFormError
        self._position += 1
        return token


def _tokens(text: str) -> list[tuple[str, str]]:
    tokens, position = [], 0
    text = text.rstrip()
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None or match.lastgroup is None:
            raise _OtherFormError
        tokens.append((match.lastgroup, match[match.lastgroup]))
        position = match.end()
    return tokens


def _like(pattern: str) -> str:
    parts = (".*" if part == "%" else "." if part == "_" else re.escape(part) for part in pattern)
    return f"(?s)^{''.join(parts)}$"


def view_schema(spark: SparkSession) -> str:
    """Return the schema of a session's views: `lancestat`, unless others started Spark."""
    return str(spark.conf.get(VIEW_SCHEMA_SETTING))


def mentioned_views(text: str, schema: str, names: Sequence[str]) -> tuple[str, ...]:
    """Return the views of `names` that a query may read: none unless it names the schema.

    A query that names the schema and no view, as one that lists views, may read all.
    """
    if not re.search(rf"(?<!\w){re.escape(schema)}(?!\w)", text, re.IGNORECASE):
        return ()
    lowered = text.lower()
    return tuple(name for name in names if name.lower() in lowered) or tuple(names)


@contextmanager
def system_views(spark: SparkSession, tables: Mapping[str, pa.Table]) -> Iterator[None]:
    """Make views of Arrow tables by their names, and drop them in the end."""
    made = []
    try:
        for name, rows in tables.items():
            arrow_frame(spark, rows).createOrReplaceGlobalTempView(name)
            made.append(name)
        yield
    finally:
        for name in made:
            spark.catalog.dropGlobalTempView(name)
