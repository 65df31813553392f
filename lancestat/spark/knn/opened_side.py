"""A side as the search reads it: a Lance table where it is, anything else from scratch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lancestat.errors import LancestatError, RunError, did_you_mean
from lancestat.knn.metric import Metric
from lancestat.knn.request import JoinRequest, Mode
from lancestat.knn.side import VectorSide
from lancestat.knn.vectors import vectors
from lancestat.knn.work import PinnedTable, SideWork
from lancestat.spark.fragment_reader import pinned_dataset
from lancestat.spark.knn.grid import grid
from lancestat.spark.knn.parquet_side import ParquetScan, ParquetSide
from lancestat.spark.knn.query_side import unreadable
from lancestat.spark.knn.reader import Side, read_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


# Columns that are read as a whole without a second thought, compressed.
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
) -> OpenedSide:
    """A Lance table as it is; `name` is `left` or `right`, for errors.

    Raises:
        LakeError: the table cannot be opened.
        RunError: LS554 a column is missing, LS551 the vector column holds none.
    """
    schema = pinned_dataset(table.pin, storage_options).schema
    for column in (vector, *select):
        if column not in schema.names:
            hint = did_you_mean(column, schema.names)
            raise RunError("LS554", f"the {name} side has no column '{column}'", hint=hint)
    empty = schema.empty_table().column(vector)
    known = vectors(empty, None, Metric.L2, place=f"the {name} side").values.shape[1]
    side = VectorSide(
        pin=table.pin,
        vector=vector,
        columns=tuple(select),
        fragments=table.fragments,
        storage_options=storage_options,
    )
    return OpenedSide(side, known or first_dimension(side, name))


def first_dimension(side: Side, name: str) -> int | None:
    """The length of the first vector, where the type leaves it to the rows."""
    row = 0
    for batch in read_columns(side, side.all_rows, (side.vector,)):
        column, place = batch.column(0), f"the {name} side"
        found = vectors(column, None, Metric.L2, first_row=row, place=place).values.shape[1]
        if found:
            return int(found)
        row += len(column)
    return None


def read_in_place(
    scan: ParquetScan, request: JoinRequest, left: OpenedSide, cores: int
) -> OpenedSide | None:
    """Parquet files as a right side that a join goes through where they are, not by way of scratch.

    None where they would be read more than once: an approximate join, left rows that take several
    tasks, and selected columns that are heavier than the vectors, which only neighbours need.
    """
    columns = tuple(scan.schema.names[:-1])
    *selected, needed = scan.column_bytes
    if request.mode is not Mode.EXACT or sum(selected) > max(needed, LIGHT_BYTES):
        return None
    side = ParquetSide(scan, scan.schema.names[-1], columns)
    rows, dimension = left.side.all_rows, first_dimension(side, "right")
    shares = grid(rows, len(side.all_rows), dimension=dimension or 1, k=request.k, cores=cores)
    return OpenedSide(side, dimension) if len(shares.chunks) == 1 else None


def source_rows(
    spark: SparkSession, source: SideWork, storage_options: Mapping[str, str], name: str
) -> DataFrame:
    """The DataFrame of a side that is files of some format; nothing is computed yet.

    Raises:
        RunError: LS555 Spark cannot make it, such as of a format that it does not know.
    """
    assert source.format is not None
    try:
        reader = spark.read.format(source.format).options(**source.options)
        return reader.load(source.uri) if source.uri is not None else reader.load()
    except LancestatError:
        raise
    except Exception as error:
        raise unreadable(error, source, storage_options, name) from None
