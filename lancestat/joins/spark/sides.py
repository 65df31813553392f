"""Opens the sides of a join: tables in place, queries and files by way of Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lancestat.errors import (
    LancestatError,
    NotPlainQuery,
    SideColumnMissing,
    SideUnreadable,
    SparkConnectSession,
    UnknownTable,
    UsageError,
    did_you_mean,
)
from lancestat.joins.search.metrics import L2
from lancestat.joins.search.vectors import vectors
from lancestat.joins.search.work import JoinRequest, PinnedTable, SideSource, VectorSide
from lancestat.joins.spark.job import grid
from lancestat.joins.spark.reader import ParquetScan, ParquetSide, Side, read_columns, select_rows
from lancestat.lake.open import pinned_reads
from lancestat.query.read.relation import Relation, relate
from lancestat.query.sql.proof import ParsedQuery, hidden_objection, parse_query, unproven
from lancestat.query.sql.statement import QueryContext, QueryText, explain_failure
from lancestat.query.table import open_pinned_table
from lancestat.redact import secret_values
from lancestat.spark.fragment_reader import pinned_dataset
from lancestat.spark.versions import is_connect
from lancestat.spec.catalog import UriOptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class QuerySide:
    """A side's query, in a session of its own, whose text Spark takes for one plain query.

    `name` is `left` or `right`, for errors.
    """

    name: str
    source: SideSource
    parsed: ParsedQuery

    @classmethod
    def parse(
        cls,
        spark: SparkSession,
        source: SideSource,
        options: UriOptions,
        name: str,
    ) -> QuerySide:
        """Read the query; nothing is resolved, and nothing runs."""
        assert source.sql is not None
        if is_connect(spark):
            raise SparkConnectSession(
                f"the {name} side is a query, whose check needs the driver's JVM, which a session "
                "of Spark Connect lacks",
                location=source.location,
                hint="declare a table or files for the side, or join DataFrames with knn_join",
            )
        try:
            parsed = parse_query(spark.newSession(), source.sql)
        except Exception as error:
            raise unreadable(error, source, options.default, name) from None
        if parsed.objection is not None:
            raise _not_plain(source, name, parsed.objection)
        return cls(name, source, parsed)

    def rows(self, options: UriOptions) -> tuple[DataFrame, tuple[str, ...]]:
        """Return the rows, nothing of which is computed yet, and `proof.unproven` about them."""
        source = self.source
        try:
            _attach(self.parsed.session, source.views, options)
            rows = self.parsed.rows()
            analyzed = self.parsed.analyzed(rows)
        except LancestatError:
            raise
        except Exception as error:
            raise unreadable(error, source, options.default, self.name) from None
        objection = hidden_objection(analyzed)
        if objection is not None:
            raise _not_plain(source, self.name, objection)
        names = [view.name for view in source.views]
        return rows, unproven(source.sql or "", self.parsed.facts, analyzed, names)


def unreadable(
    error: Exception, source: SideSource, storage_options: Mapping[str, str], name: str
) -> LancestatError:
    """The error for a side of which Spark can make no rows."""
    secrets = secret_values(storage_options) | secret_values(source.options)
    context = QueryContext({view.name: None for view in source.views}, secrets)
    failure = explain_failure(
        error, QueryText(source.sql or "", f"the {name} side's query"), context
    )
    hint = failure.hint
    if source.sql is not None and isinstance(failure, UnknownTable):
        hint = "a query names declared tables as {{ ref('name') }}"
    message = f"the {name} side cannot be read: {failure.message}"
    return SideUnreadable(message, location=source.location, hint=hint)


def _not_plain(source: SideSource, name: str, objection: str) -> UsageError:
    return NotPlainQuery(
        f"the query of the {name} side is not one plain query: it holds {objection}",
        location=source.location,
        hint="a side is one SELECT, which writes nothing and runs no program",
    )


def _attach(session: SparkSession, views: Sequence[PinnedTable], options: UriOptions) -> None:
    opened = [(view.name, open_pinned_table(view.pin, options.of(view.pin.uri))) for view in views]
    relate(session, [Relation(table, view=name) for name, table in opened])


# Compressed bytes of columns that are small enough to be read as a whole.
LIGHT_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class OpenedSide:
    """A side; `dimension` is None where no row has a vector.

    `excluded` rows have a vector that cannot match, were left out while the side was written to
    scratch, and are not among its rows.
    """

    side: Side
    dimension: int | None
    excluded: int = 0


def opened_table(
    table: PinnedTable,
    vector: str,
    select: Sequence[str],
    storage_options: Mapping[str, str],
    name: str,
    filter: str | None = None,
    *,
    has_bits: bool = False,
) -> OpenedSide:
    """Open a Lance table in place, and count the rows that pass a filter in Lance's SQL.

    `name` is `left` or `right`, for errors.
    """
    dataset = pinned_dataset(table.pin, storage_options)
    schema = dataset.schema
    for column in (vector, *select):
        if column not in schema.names:
            hint = did_you_mean(column, schema.names)
            raise SideColumnMissing(f"the {name} side has no column '{column}'", hint=hint)
    empty = schema.empty_table().column(vector)
    source = f"the {name} side"
    known = vectors(empty, None, L2, has_bits=has_bits, source=source).values.shape[1]
    fragments, selection = table.fragments, None
    if filter is not None:
        with pinned_reads(table.pin, storage_options):
            fragments, selection = select_rows(dataset, table.fragments, filter)
    side = VectorSide(
        pin=table.pin,
        vector=vector,
        columns=tuple(select),
        fragments=fragments,
        storage_options=storage_options,
        selection=selection,
        has_bits=has_bits,
    )
    return OpenedSide(side, known or first_dimension(side, name))


def with_keys(opened: OpenedSide, keys: Sequence[str]) -> OpenedSide:
    return replace(opened, side=replace(opened.side, keys=tuple(keys)))


def with_last_columns_as_keys(opened: OpenedSide, count: int) -> OpenedSide:
    """Return a side whose last columns are keys, which the output does not show."""
    side = opened.side
    shown = len(side.columns) - count
    keys = side.columns[shown:]
    return replace(opened, side=replace(side, columns=side.columns[:shown], keys=keys))


def first_dimension(side: Side, name: str) -> int | None:
    """Return the length of the first vector, where the type does not give it."""
    row = 0
    for batch in read_columns(side, side.all_rows, (side.vector,)):
        column, source = batch.column(0), f"the {name} side"
        read = vectors(column, None, L2, has_bits=side.has_bits, first_row=row, source=source)
        dimension = read.values.shape[1]
        if dimension:
            return int(dimension)
        row += len(column)
    return None


def read_in_place(
    scan: ParquetScan, request: JoinRequest, left: OpenedSide, cores: int
) -> OpenedSide | None:
    """Return Parquet files as a right side that is read in place, not by way of scratch.

    None where they would be read more than once: an approximate join, left rows that take several
    tasks, and selected columns that are heavier than the vectors, which only neighbours need.
    """
    columns = tuple(scan.schema.names[:-1])
    *selected, needed = scan.column_bytes
    if request.is_approximate or sum(selected) > max(needed, LIGHT_BYTES):
        return None
    side = ParquetSide(scan, scan.schema.names[-1], columns, has_bits=request.metric.has_bits)
    rows, dimension = left.side.all_rows, first_dimension(side, "right")
    shares = grid(rows, len(side.all_rows), dimension=dimension or 1, k=request.k, cores=cores)
    return OpenedSide(side, dimension) if len(shares.chunks) == 1 else None


def source_rows(
    spark: SparkSession, source: SideSource, storage_options: Mapping[str, str], name: str
) -> DataFrame:
    """Return the DataFrame of a side that is files of some format; nothing is computed yet."""
    assert source.format is not None
    try:
        reader = spark.read.format(source.format).options(**source.options)
        return reader.load(source.uri) if source.uri is not None else reader.load()
    except LancestatError:
        raise
    except Exception as error:
        raise unreadable(error, source, storage_options, name) from None
