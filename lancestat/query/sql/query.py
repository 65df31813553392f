"""Runs a query, and returns its rows without loss, as values of Python.

PySpark's own conversion puts timestamps into the process's time zone, ends at the year 9999, widens
floats and knows no intervals of months.

Queries of one system view are answered by Polars, without Spark. These have the simple form that
scripts use: columns or aggregates of a view, a condition, groups, an order and a limit. They mean
what they mean in Spark, down to the order of nulls. Any other query, and any error in one, is left
to Spark.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

from lancestat.query.sql.statement import NO_CONTEXT, QueryContext, QueryText, explain_failure
from lancestat.spark.failure import silent_query_logger
from lancestat.spark.session import (
    VIEW_SCHEMA_SETTING,
    active,
    classic_session,
    optimizer_settings,
    running_session,
)
from lancestat.spark.versions import arrow_frame
from lancestat.spec.model import Target

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType


# The Python form of a value of Spark's: null, boolean and integer as they are, a list for an array,
# a tuple of its fields for a struct, a list of pairs for a map, and text for everything else.
ResultValue = bool | int | str | list["ResultValue"] | tuple["ResultValue", ...] | None

ARRAY, MAP, STRUCT = "array", "map", "struct"


@dataclass(frozen=True, slots=True)
class Shape:
    """How a value is made: `kind` is Spark's type name, such as `double`.

    `parts` are the element of an array, the key and the value of a map, the fields of a struct.
    """

    kind: str
    parts: tuple[Shape, ...] = ()
    names: tuple[str, ...] = ()

    @classmethod
    def of(cls, type: DataType) -> Shape:
        """Return the shape of values of a type."""
        from pyspark.sql.types import ArrayType, MapType, StructType

        if isinstance(type, ArrayType):
            return cls(ARRAY, (cls.of(type.elementType),))
        if isinstance(type, MapType):
            return cls(MAP, (cls.of(type.keyType), cls.of(type.valueType)))
        if isinstance(type, StructType):
            fields = type.fields
            return cls(STRUCT, tuple(cls.of(f.dataType) for f in fields), tuple(type.names))
        return cls(type.simpleString().partition("(")[0].partition(" ")[0])

    def decode(self, value: Any) -> Any:
        """Convert what `exact_column` gave in PySpark: rows to tuples of fields, maps to pairs."""
        if value is None or not self.parts:
            return value
        if self.kind == STRUCT:
            return tuple(part.decode(item) for item, part in zip(value, self.parts, strict=True))
        if self.kind == MAP:
            key, item = self.parts
            return [(key.decode(pair[0]), item.decode(pair[1])) for pair in value]
        return [self.parts[0].decode(item) for item in value]


_NUMBERS = frozenset({"tinyint", "smallint", "int", "bigint", "float", "double", "decimal"})


@dataclass(frozen=True, slots=True)
class ResultColumn:
    """A column; `type` is Spark's catalog string, `shape` says how values are to be read."""

    name: str
    type: str
    shape: Shape

    @property
    def is_number(self) -> bool:
        return self.shape.kind in _NUMBERS


def exact_column(column: Column, type: DataType, *, local_time: bool) -> Column:
    """Return an expression that gives a column's values in a form that PySpark does not change.

    With `local_time`, timestamps are formatted in the session's time zone, else they are
    microseconds since the epoch.
    """
    shape = Shape.of(type)
    return _exact(column.cast(_numbered(type)) if shape.parts else column, shape, local_time)


def _exact(column: Column, shape: Shape, local_time: bool) -> Column:
    from pyspark.sql import functions as f

    def part(index: int, value: Column) -> Column:
        return _exact(value, shape.parts[index], local_time)

    match shape.kind:
        case "array":
            return f.transform(column, lambda item: part(0, item))
        case "map":
            pairs = f.map_entries(column)
            return f.transform(
                pairs,
                lambda pair: f.struct(
                    part(0, pair["key"]).alias("_0"), part(1, pair["value"]).alias("_1")
                ),
            )
        case "struct":
            fields = [part(n, column[f"_{n}"]).alias(f"_{n}") for n in range(len(shape.parts))]
            return f.when(column.isNotNull(), f.struct(*fields))
        case "tinyint" | "smallint" | "int" | "bigint" | "boolean":
            return column
        case "binary":
            return f.hex(column)
        case "timestamp" if not local_time:
            return f.unix_micros(column)
    return column.cast("string")


def _numbered(type: DataType) -> DataType:
    """Return the type with its fields named by their places: names may be the same but for case."""
    from pyspark.sql.types import ArrayType, MapType, StructField, StructType

    if isinstance(type, ArrayType):
        return ArrayType(_numbered(type.elementType), type.containsNull)
    if isinstance(type, MapType):
        return MapType(_numbered(type.keyType), _numbered(type.valueType), type.valueContainsNull)
    if isinstance(type, StructType):
        return StructType(
            [
                StructField(f"_{index}", _numbered(field.dataType), field.nullable)
                for index, field in enumerate(type.fields)
            ]
        )
    return type


@dataclass(frozen=True, slots=True)
class QueryResult:
    """Columns and rows; rows are streamed and can be read once.

    There is one row more than `limit`, unless it is None, if there are more rows than that.
    """

    columns: tuple[ResultColumn, ...]
    rows: Iterator[tuple[ResultValue, ...]]
    limit: int | None


APP_NAME = "lancestat sql"


@contextmanager
def query_session(target: Target) -> Iterator[SparkSession]:
    """A session for queries, with the cost-based optimizer on unless the target decides otherwise.

    If the process has a session, a new one beside it is used, with its own views and settings, and
    Spark goes on running.

    Raises:
        SparkConnectSession: the target or the process has a session without a JVM.
        RunError: Spark does not start.
    """
    running = running_session()
    session = classic_session(target, APP_NAME)
    session = session.newSession() if running else session
    try:
        for key, value in optimizer_settings(target.spark_conf).items():
            session.conf.set(key, value)
        with silent_query_logger(), active(session):
            yield session
    finally:
        if running is None:
            session.stop()


def run_query(
    spark: SparkSession,
    text: QueryText,
    query_context: QueryContext = NO_CONTEXT,
    *,
    limit: int | None = None,
    local_time: bool = False,
) -> QueryResult:
    """Run a statement; without a limit, rows are computed as they are read.

    Args:
        spark: The session with what the statement names.
        text: What `parse` accepts.
        query_context: The tables and views that errors may name.
        limit: Compute one row more than this, which shows whether there are more.
        local_time: See `exact_column`.

    Raises:
        LancestatError: Spark refuses the query, here or when rows are read (see `explain_failure`).
    """
    try:
        rows = spark.sql(text.text)
        fields = rows.schema.fields
        # Columns of a result may share a name, which nothing but a place tells apart.
        names = [f"_{index}" for index in range(len(fields))]
        numbered = rows.toDF(*names)
        exact_rows = numbered.select(
            *[
                exact_column(numbered[name], field.dataType, local_time=local_time).alias(name)
                for name, field in zip(names, fields, strict=True)
            ]
        )
    except Exception as error:
        raise explain_failure(error, text, query_context) from None
    columns = tuple(
        ResultColumn(field.name, field.dataType.simpleString(), Shape.of(field.dataType))
        for field in fields
    )
    return QueryResult(columns, _rows(exact_rows, columns, text, limit, query_context), limit)


def _rows(
    rows: DataFrame,
    columns: tuple[ResultColumn, ...],
    text: QueryText,
    limit: int | None,
    query_context: QueryContext,
) -> Iterator[tuple[ResultValue, ...]]:
    if not columns:
        return
    try:
        result_rows: Iterable[Any] = (
            rows.limit(limit + 1).collect()
            if limit is not None
            else rows.toLocalIterator(prefetchPartitions=True)
        )
        for row in result_rows:
            yield tuple(
                column.shape.decode(value) for value, column in zip(row, columns, strict=True)
            )
    except GeneratorExit:
        raise
    except Exception as error:
        raise explain_failure(error, text, query_context) from None


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
_NAME = r"(?:[A-Za-z_]\w*|`\w+`)"
_LITERAL = re.compile(r"'[^'\\]*'")
# Over a text whose string literals are replaced by their numbers in quotes.
_QUERY = re.compile(
    r"""\s*select\s+(?P<distinct>distinct\b)?(?P<items>[^']+?)
    \s+from\s+(?P<schema>\w+)\s*\.\s*(?P<view>\w+)
    (?:\s+where\b(?P<where>.+?))?
    (?:\s+group\s+by\b(?P<groups>[^']+?))?
    (?:\s+order\s+by\b(?P<order>[^']+?))?
    (?:\s+limit\s+(?P<limit>\d+))?
    \s*;?\s*""",
    re.ASCII | re.IGNORECASE | re.VERBOSE,
)
_ITEM = re.compile(
    rf"""(?:(?P<function>count|min|max|sum)\s*\(\s*(?P<distinct>distinct\s)?\s*(?P<of>\*|{_NAME})\s*\)
    |(?P<column>{_NAME}))(?:\s*\bas\b\s*(?P<alias>{_NAME})|\s*(?P<bare>{_NAME}))?""",
    re.ASCII | re.IGNORECASE | re.VERBOSE,
)
_KEY = re.compile(
    rf"(?P<name>{_NAME})(?:\s+(?:asc|(?P<desc>desc)))?(?:\s+nulls\s+(?P<nulls>first|last))?",
    re.ASCII | re.IGNORECASE,
)
_VALUE = r"(?:'\d+'|\d+(?:\.\d+)?)"
_COMPARISON = re.compile(
    rf"""(?P<name>{_NAME})\s*(?:\bis\s+(?:not\s+)?null\b
    |\b(?:not\s+)?in\s*\(\s*(?P<members>{_VALUE}(?:\s*,\s*{_VALUE})*)\s*\)
    |\b(?:not\s+)?like\s*(?P<pattern>'\d+')
    |(?:<>|!=|<=|>=|[=<>])\s*(?P<value>{_VALUE}))""",
    re.ASCII | re.IGNORECASE | re.VERBOSE,
)
# What is left of a condition without its comparisons.
_CONNECTIVES = re.compile(r"(?:[\s()]|\band\b|\bor\b|\bnot\b)*", re.IGNORECASE)
# Words that end an item, and so are no names without backticks.
_KEYWORDS = frozenset(
    """
    all and as asc between by case desc distinct false first from group having in is join last like
    limit not null nulls offset on or order select true union where with
    """.split()  # noqa: SIM905
)


class _OtherFormError(Exception):
    """The query is of another form."""


# A column of the result: name, type, SQL, and the view's column where it is a plain one.
_Item = tuple[str, str, str, str | None]


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

    `tables` gathers views by their names. `limit` and `local_time` are as for `run_query`.

    Raises:
        StateError: the state cannot be reached.
    """
    try:
        view, items, sql = _translated(text, schema, views)
    except _OtherFormError:
        return None
    from lancestat.polars import pl

    frame = pl.from_arrow(tables([view])[view])
    try:
        rows = pl.SQLContext({view: frame}, eager=True).execute(sql)
    except pl.exceptions.PolarsError:
        # Connectives without operands, or parentheses that do not match.
        return None
    if limit is not None:
        rows = rows.head(limit + 1)
    columns = tuple(_column(name, type) for name, type, *_ in items)
    values = (tuple(_value(value, local_time) for value in row) for row in rows.iter_rows())
    return QueryResult(columns, values, limit)


def _column(name: str, type: str) -> ResultColumn:
    shape = Shape(ARRAY, (Shape(_TEXT),)) if type == _TEXTS else Shape(type)
    return ResultColumn(name, type, shape)


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


def _translated(text: str, schema: str, views: Views) -> tuple[str, list[_Item], str]:
    """Return the view of a query, the columns of its result, and the query in Polars' SQL.

    Raises:
        _OtherFormError: it is of another form.
    """
    literals: list[str] = []

    def numbered(literal: re.Match[str]) -> str:
        literals.append(literal[0])
        return f"'{len(literals) - 1}'"

    query = _QUERY.fullmatch(_LITERAL.sub(numbered, text))
    view = query["view"].lower() if query else ""
    if query is None or query["schema"].lower() != schema.lower() or view not in views:
        raise _OtherFormError
    columns = views[view]
    items = _items(query["items"].strip(), columns)
    groups = None if query["groups"] is None else _split(query["groups"])
    if groups is not None:
        groups = [_named(name, columns) for name in groups]
    _check_groups(items, groups, columns, is_distinct=query["distinct"] is not None)
    selected = ", ".join(f"{sql} AS _{index}" for index, (_, _, sql, _) in enumerate(items))
    parts = [f"SELECT {'DISTINCT ' if query['distinct'] else ''}{selected} FROM {view}"]
    if query["where"] is not None:
        _check_condition(query["where"], columns)
        parts.append("WHERE " + re.sub(r"'(\d+)'", lambda m: literals[int(m[1])], query["where"]))
    if groups is not None:
        parts.append(f"GROUP BY {', '.join(f'`{name}`' for name in groups)}")
    if query["order"] is not None:
        is_free = groups is None and query["distinct"] is None
        keys = [_key(key, items, columns if is_free else {}) for key in _split(query["order"])]
        parts.append(f"ORDER BY {', '.join(keys)}")
    if query["limit"] is not None:
        parts.append(f"LIMIT {query['limit']}")
    return view, items, " ".join(parts)


def _split(written: str) -> list[str]:
    return [part.strip() for part in written.split(",")]


def _identifier(written: str | None) -> str:
    if written is None or not re.fullmatch(_NAME, written, re.ASCII):
        raise _OtherFormError
    if written.lower() in _KEYWORDS:
        raise _OtherFormError
    return written.strip("`")


def _named(written: str | None, columns: Mapping[str, str]) -> str:
    name = _identifier(written)
    if name not in columns:
        raise _OtherFormError
    return name


def _items(written: str, columns: Mapping[str, str]) -> list[_Item]:
    if written == "*":
        return [(name, type, f"`{name}`", name) for name, type in columns.items()]
    return [_item(part, columns) for part in _split(written)]


def _item(written: str, columns: Mapping[str, str]) -> _Item:
    item = _ITEM.fullmatch(written)
    if item is None:
        raise _OtherFormError
    name, type, sql = _aggregate(item, columns) if item["function"] else _plain(item, columns)
    alias = item["alias"] or item["bare"]
    shown = name if alias is None else _identifier(alias)
    return shown, type, sql, None if item["function"] else name


def _plain(item: re.Match[str], columns: Mapping[str, str]) -> tuple[str, str, str]:
    name = _named(item["column"], columns)
    return name, columns[name], f"`{name}`"


def _aggregate(item: re.Match[str], columns: Mapping[str, str]) -> tuple[str, str, str]:
    """Return the name that Spark gives an aggregate, its type, and its SQL."""
    function, distinct = item["function"].lower(), "DISTINCT " if item["distinct"] else ""
    if item["of"] == "*":
        if function != "count" or distinct:
            raise _OtherFormError
        return "count(1)", _COUNT, "COUNT(*)"
    name = _named(item["of"], columns)
    type = columns[name]
    if (
        type == _TEXTS
        or (distinct and function != "count")
        or (function == "sum" and type != _COUNT)
    ):
        raise _OtherFormError
    sql = f"{function}({distinct}`{name}`)"
    return f"{function}({distinct}{name})", _COUNT if function == "count" else type, sql


def _check_groups(
    items: Sequence[_Item],
    groups: Sequence[str] | None,
    columns: Mapping[str, str],
    *,
    is_distinct: bool,
) -> None:
    """Refuse what Spark refuses, and what Polars cannot compare."""
    plain = {source for *_, source in items if source is not None}
    has_aggregates = any(source is None for *_, source in items)
    if groups is None:
        is_other = has_aggregates and bool(plain)
    else:
        is_other = not plain <= set(groups) or is_distinct
    uses_arrays = is_distinct and any(type == _TEXTS for _, type, *_ in items)
    if is_other or uses_arrays or any(columns[name] == _TEXTS for name in groups or ()):
        raise _OtherFormError


def _key(written: str, items: Sequence[_Item], columns: Mapping[str, str]) -> str:
    """Return the SQL of a key of the order: an item by its name, else a column."""
    key = _KEY.fullmatch(written)
    name = _identifier(key and key["name"])
    assert key is not None
    matching = [index for index, (shown, *_) in enumerate(items) if shown == name]
    if len(matching) == 1 and items[matching[0]][1] != _TEXTS:
        name = f"_{matching[0]}"
    elif matching or columns.get(name, _TEXTS) == _TEXTS or any(not source for *_, source in items):
        raise _OtherFormError
    nulls = key["nulls"] or ("last" if key["desc"] else "first")
    return f"`{name}` {key['desc'] or ''} NULLS {nulls}"


def _check_condition(written: str, columns: Mapping[str, str]) -> None:
    for comparison in _COMPARISON.finditer(written):
        type = columns[_named(comparison["name"], columns)]
        values = [comparison["value"], comparison["pattern"], *_split(comparison["members"] or "")]
        for value in filter(None, values):
            _check_value(value, type)
        if comparison["pattern"] and type != _TEXT:
            raise _OtherFormError
    if not _CONNECTIVES.fullmatch(_COMPARISON.sub(" ", written)):
        raise _OtherFormError


def _check_value(value: str, type: str) -> None:
    is_text = value.startswith("'")
    is_whole = value.isdecimal() and int(value) < 1 << 31
    if type == _TEXT:
        is_of_type = is_text
    elif type == _COUNT:
        is_of_type = is_whole
    else:
        is_of_type = type == _NUMBER and not is_text and (is_whole or "." in value)
    if not is_of_type:
        raise _OtherFormError


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
