"""Lance tables through Spark's own `spark.read.format("lancestat")`, without statistics."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from pyspark.sql import datasource as spark
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from lancestat.errors import (
    InvalidReadOption,
    PathMissing,
    ReadSchemaMismatch,
    did_you_mean,
)
from lancestat.lake.observe import observe_at, parse_version, snapshot
from lancestat.lake.open import open_pinned
from lancestat.lake.row_ranges import split_fragments
from lancestat.lake.snapshot import Field, Pin, Snapshot
from lancestat.query.predicates.filter import (
    DEEPEST,
    And,
    Comparison,
    Day,
    Filter,
    In,
    Instant,
    IsNull,
    Literal,
    LocalTime,
    Not,
    Operator,
    TextMatch,
    TextOperator,
)
from lancestat.query.predicates.filter_sql import exact_conjuncts
from lancestat.query.read.arrow_columns import read_part
from lancestat.query.table import QueryScan
from lancestat.spark.arrow_types import spark_schema
from lancestat.spark.python import prepare_worker
from lancestat.spark.versions import to_arrow_schema
from lancestat.tables.statistics.column_type import decoded_size

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import Filter as SparkFilter
    from pyspark.sql.types import StructType


_STORAGE = "storage."
_OPTIONS = ("path", "version", "tag", "pushdown")


class LanceDataSource(DataSource):  # type: ignore[misc]
    """A Lance table at one version, which is chosen when it is loaded.

    Options: `path`, which `load` sets; `version` or `tag`; `storage.<key>` for each storage option;
    and `pushdown`. Spark cannot prune its columns nor ask it for statistics: `lancestat.read_table`
    can.

    With `pushdown` true, and `spark.sql.python.filterPushdown.enabled`, filters reach Lance, since
    Spark 4.1. That
    is for a DataFrame that is read once: Spark, at least up to 4.3, keeps one plan for all scans of
    a loaded Python source, and with it the filters of one query for those after it. A query that
    compares with a date before the year 1 or after 9999 then fails, since PySpark hands literals
    over as Python's dates.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(dict(options))
        given = _checked(options)
        self._storage_options = {
            key.removeprefix(_STORAGE): text
            for key, text in given.items()
            if key.startswith(_STORAGE)
        }
        version = given.get("version")
        self._uri, self._tag = given["path"], given.get("tag")
        self._version = None if version is None else parse_version(version)
        self._pushes_down = given.get("pushdown") == "true"
        # Once the dataset was observed.
        self._pin: Pin | None = None

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "lancestat"

    def schema(self) -> StructType:
        """Return the columns that Spark can read."""
        return spark_schema(self._pinned().fields)

    def reader(self, schema: StructType) -> LanceReader:
        """Return a reader of the columns of `schema`.

        Raises:
            ReadSchemaMismatch: the table has no such column, or of another type.
        """
        observed = self._pinned()
        own = {field.name: field for field in spark_schema(observed.fields).fields}
        for asked in schema.fields:
            if asked.name not in own:
                what = f"{observed.uri} has no column '{asked.name}' at version {observed.version}"
                raise ReadSchemaMismatch(what, hint=did_you_mean(asked.name, own))
            if asked.dataType != own[asked.name].dataType:
                expected = own[asked.name].dataType.simpleString()
                raise ReadSchemaMismatch(
                    f"column '{asked.name}' of {observed.uri} is {expected}, "
                    f"not {asked.dataType.simpleString()}",
                    hint="leave the schema out, and cast the column",
                )
        kind = PushingReader if self._pushes_down else LanceReader
        return kind(observed, schema, self._storage_options)

    def _pinned(self) -> Snapshot:
        options = self._storage_options
        if self._pin is not None:
            return snapshot(open_pinned(self._pin, storage_options=options), self._uri, options)
        opened = observe_at(self._uri, self._version, self._tag, options)
        observed = snapshot(opened, self._uri, options)
        # Spark pickles this source on its way from process to process.
        self._pin = observed.pin
        return observed


def _checked(options: Mapping[str, str]) -> dict[str, str]:
    given = {key.lower(): value for key, value in options.items()}
    unknown = [key for key in given if key not in _OPTIONS and not key.startswith(_STORAGE)]
    if unknown:
        raise InvalidReadOption(
            f"the format lancestat has no option '{unknown[0]}'",
            hint=did_you_mean(unknown[0], _OPTIONS)
            or "options: path, version, tag, pushdown, and storage.<key> for storage options",
        )
    if not given.get("path"):
        hint = 'name it: spark.read.format("lancestat").load("warehouse/orders.lance")'
        raise PathMissing("no path of a Lance table is given", hint=hint)
    pushdown = given.get("pushdown", "false").lower()
    if pushdown not in ("true", "false"):
        raise InvalidReadOption(f"option pushdown is '{pushdown}', not true or false")
    return {**given, "pushdown": pushdown}


class LanceReader(DataSourceReader):  # type: ignore[misc]
    """Plans and reads one scan."""

    def __init__(
        self, table: Snapshot, schema: StructType, storage_options: Mapping[str, str]
    ) -> None:
        self._pin = table.pin
        self._schema = schema
        self._storage_options = dict(storage_options)
        self._filter: str | None = None

    def partitions(self) -> Sequence[InputPartition]:
        """Split the scan: small fragments together, large ones in row ranges."""
        table = self._table()
        width = decoded_size(
            1, [field for field in table.fields if field.name in self._names()], {}
        )
        parts = split_fragments(
            table.fragments,
            row_bytes=width,
            cores=os.cpu_count() or 1,
            is_filtered=self._filter is not None,
        )
        return [InputPartition(part) for part in parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one partition, in Spark's Arrow types.

        Raises:
            LancestatError: what cannot be read, and why.
        """
        import pyarrow as pa

        # For a table without partitions, Spark before 4.2 asks for one, which is None.
        part = getattr(partition, "value", None)
        if part is None:
            return
        prepare_worker(1)
        target = to_arrow_schema(self._schema, "UTC")
        scan = QueryScan(self._pin, self._names(), self._filter)
        for batch in read_part(scan, part, self._storage_options):
            columns = [
                column if column.type == expected.type else column.cast(expected.type)
                for column, expected in zip(batch.columns, target, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=target)

    def _names(self) -> tuple[str, ...]:
        return tuple(self._schema.fieldNames())

    def _table(self) -> Snapshot:
        opened = open_pinned(self._pin, storage_options=self._storage_options)
        return snapshot(opened, self._pin.uri, self._storage_options)


class PushingReader(LanceReader):
    """Leaves to Spark only the filters that Lance does not apply exactly.

    Spark 4.0 hands over none.
    """

    def pushFilters(  # noqa: N802 - Spark's name
        self, filters: list[SparkFilter]
    ) -> Iterable[SparkFilter]:
        """Push filters down, and return those that stay with Spark."""
        fields = {field.name: field for field in self._table().fields}
        self._filter, left = pushed_filters(filters, fields)
        return left


# By the names of Spark's classes, which Spark 4.0 does not have.
_OPERATORS = {
    "EqualTo": Operator.EQUAL,
    "EqualNullSafe": Operator.NULL_SAFE,
    "LessThan": Operator.LESS,
    "LessThanOrEqual": Operator.LESS_OR_EQUAL,
    "GreaterThan": Operator.GREATER,
    "GreaterThanOrEqual": Operator.GREATER_OR_EQUAL,
}
_TEXT_OPERATORS = {
    "StringStartsWith": TextOperator.STARTS_WITH,
    "StringEndsWith": TextOperator.ENDS_WITH,
    "StringContains": TextOperator.CONTAINS,
}
# PySpark multiplies decimals in Python's default context: longer ones arrive rounded.
_EXACT_DIGITS = 27
# Java's replacement where a string is not Unicode: the literal may stand for other bytes.
_REPLACEMENT = "\ufffd"
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_EPOCH = datetime(1970, 1, 1)
_DAY_MICROS = 86_400_000_000
# On its way a date or an instant is a `java.sql` object. Such objects lack the ten days that the
# calendar of 1582 left out, and the days that a time zone skipped when it changed sides of the date
# line, so a literal arrives as a neighbour.
_GREGORIAN_SINCE = (date(1583, 1, 1).toordinal() - _EPOCH_DAY) * _DAY_MICROS
_SHIFT_BEFORE = 12 * _DAY_MICROS
_SHIFT_SINCE = 2 * _DAY_MICROS


class _Unknown(Exception):  # noqa: N818 - no error: the filter stays with Spark
    """No filter that is known here."""


def pushed_filters(
    filters: Iterable[spark.Filter], fields: Mapping[str, Field]
) -> tuple[str | None, list[spark.Filter]]:
    """Return the SQL of the filters that Lance applies, and the filters that stay with Spark.

    Lance applies exactly those filters that do not stay with Spark. A comparison with a date or an
    instant does stay, and Lance applies a wider one, since the literal may have been shifted on its
    way.

    Args:
        filters: A conjunction.
        fields: The columns of the table by name.
    """
    taken: list[Filter] = []
    left: list[spark.Filter] = []
    for filter in filters:
        try:
            known = _filter(filter, fields, 0)
        except _Unknown:
            left.append(filter)
            continue
        wider = _widened(known)
        if exact_conjuncts([wider], fields)[1]:
            left.append(filter)
            continue
        taken.append(wider)
        if wider is not known:
            left.append(filter)
    return exact_conjuncts(taken, fields)[0], left


def _filter(filter: spark.Filter, fields: Mapping[str, Field], depth: int) -> Filter:
    if depth > DEEPEST:
        raise _Unknown
    name = type(filter).__name__
    match filter:
        case spark.Not(child):
            operand = _filter(child, fields, depth + 1)
            if _widened(operand) is not operand:
                raise _Unknown
            return Not(operand)
        case spark.IsNull((column,)):
            return IsNull(column)
        case spark.IsNotNull((column,)):
            return Not(IsNull(column))
        case _ if name in _TEXT_OPERATORS and len(filter.attribute) == 1:
            (column,) = filter.attribute
            text = _literal(filter.value, _type(column, fields))
            if not isinstance(text, str):
                raise _Unknown
            return TextMatch(column, _TEXT_OPERATORS[name], text)
        case spark.In((column,), values):
            kind = _type(column, fields)
            return In(column, tuple(_literal(value, kind) for value in values))
        case _ if name in _OPERATORS and len(filter.attribute) == 1:
            (column,) = filter.attribute
            literal = _literal(filter.value, _type(column, fields))
            return Comparison(column, _OPERATORS[name], literal)
    raise _Unknown


def _type(column: str, fields: Mapping[str, Field]) -> str:
    field = fields.get(column)
    if field is None or field.spark_type is None:
        raise _Unknown
    return field.spark_type


def _literal(value: Any, kind: str) -> Literal | None:
    match value:
        case datetime() if value.tzinfo is not None:
            local = value.astimezone(timezone.utc).replace(tzinfo=None)
            return Instant((local - _EPOCH) // timedelta(microseconds=1))
        case datetime():
            return LocalTime((value - _EPOCH) // timedelta(microseconds=1))
        case date():
            return Day(value.toordinal() - _EPOCH_DAY)
        case int() | Decimal() if kind.startswith("decimal("):
            number = Decimal(value)
            if len(number.as_tuple().digits) > _EXACT_DIGITS:
                raise _Unknown
            return number
        case str() if _REPLACEMENT in value:
            raise _Unknown
    if value is None or isinstance(value, Literal):
        return value
    raise _Unknown


def _widened(filter: Filter) -> Filter:
    """Return the filter, or one that is true for every literal that may have been shifted to it."""
    match filter:
        case Comparison(column, operator, Day() | Instant() as literal):
            low, high = _shifted(literal, -1), _shifted(literal, 1)
            if operator in (Operator.GREATER, Operator.GREATER_OR_EQUAL):
                return Comparison(column, Operator.GREATER_OR_EQUAL, low)
            if operator in (Operator.LESS, Operator.LESS_OR_EQUAL):
                return Comparison(column, Operator.LESS_OR_EQUAL, high)
            return _between(column, low, high)
        case In(column, literals):
            dates = [value for value in literals if isinstance(value, Day | Instant)]
            if dates:
                low = min((_shifted(value, -1) for value in dates), key=_count)
                high = max((_shifted(value, 1) for value in dates), key=_count)
                return _between(column, low, high)
    return filter


def _between(column: str, low: Day | Instant, high: Day | Instant) -> Filter:
    return And(
        Comparison(column, Operator.GREATER_OR_EQUAL, low),
        Comparison(column, Operator.LESS_OR_EQUAL, high),
    )


def _shifted(literal: Day | Instant, sign: int) -> Day | Instant:
    """Return the furthest value of a literal before Java's calendar may have shifted it."""
    is_day = isinstance(literal, Day)
    micros = _count(literal) * (_DAY_MICROS if is_day else 1)
    micros += sign * (_SHIFT_SINCE if micros >= _GREGORIAN_SINCE else _SHIFT_BEFORE)
    return Day(micros // _DAY_MICROS) if is_day else Instant(micros)


def _count(literal: Day | Instant) -> int:
    return literal.days if isinstance(literal, Day) else literal.micros
