"""`lancestat.knn_join`: joins of DataFrames."""

from __future__ import annotations

import atexit
import threading
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import zip_longest
from typing import TYPE_CHECKING

import pyarrow as pa

from lancestat.arguments import check, is_number, is_whole
from lancestat.errors.base import did_you_mean
from lancestat.errors.codes import InvalidArgument, SidesDiffer
from lancestat.joins.planner import plan_join
from lancestat.joins.record import OutputFormat
from lancestat.joins.run import JoinEvaluation
from lancestat.joins.scratch.folder import scratch as scratch_folder
from lancestat.joins.scratch.folder import scratch_root
from lancestat.joins.search.cost_model import JoinSize
from lancestat.joins.search.metrics import metric_named
from lancestat.joins.search.work import (
    MOST_NEIGHBOURS,
    RANGE_NEIGHBOURS,
    JoinKind,
    JoinOutcome,
    JoinRequest,
    JoinWork,
    Mode,
    OutputNames,
    SideSource,
    output_names,
    self_pairs,
)
from lancestat.joins.spark.engine import Engine
from lancestat.joins.spark.sides import column_index
from lancestat.lake.open import observe_dataset, snapshot
from lancestat.lake.snapshot import Fragment, RowRange, ScanPartition, Snapshot
from lancestat.query.read.arrow_columns import QueryScan, read_part
from lancestat.query.read.relation import read_table
from lancestat.spark.jobs import jobs_of
from lancestat.spark.versions import arrow_frame, is_connect, own_python, spark_schema
from lancestat.spec.catalog import UriOptions
from lancestat.spec.knn_join import ALL, MOST_PAIRS, MetricName, Pairs, distance_objection

if TYPE_CHECKING:
    from enum import Enum
    from typing import TypeVar

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType

    Word = TypeVar("Word", bound=Enum)

# Results that Spark gets as they are, sooner than a job that reads them would start.
LOCAL_BYTES = 1 << 20


def rows_and_place(
    spark: SparkSession, uri: str, storage_options: Mapping[str, str]
) -> tuple[DataFrame, bool]:
    """Return the rows of a Lance dataset that was just written, in their order.

    Also whether Spark has got the rows, and needs the dataset no more.

    Raises:
        LancestatError: it cannot be read.
    """
    dataset = observe_dataset(uri, storage_options=storage_options)
    written = snapshot(dataset, uri, storage_options)
    sizes = [file.size_bytes for fragment in written.fragments for file in fragment.files]
    if sum(LOCAL_BYTES + 1 if size is None else size for size in sizes) > LOCAL_BYTES:
        if is_connect(spark):
            return _remote_rows(spark, written, storage_options), False
        return read_table(spark, uri, storage_options=storage_options), False
    schema = spark_schema(written.fields)
    batches = [rows for part in written.fragments for rows in _rows(written, part, storage_options)]
    if not batches:
        return spark.createDataFrame([], schema), True
    return arrow_frame(spark, pa.Table.from_batches(batches), schema), True


def _rows(
    written: Snapshot, fragment: Fragment, storage_options: Mapping[str, str]
) -> Iterator[pa.RecordBatch]:
    names = spark_schema(written.fields).names
    part = ScanPartition((RowRange(fragment.id, 0, fragment.rows),))
    for rows in read_part(QueryScan(written.pin, tuple(names)), part, storage_options):
        yield rows.rename_columns(names)


def _remote_rows(
    spark: SparkSession, written: Snapshot, storage_options: Mapping[str, str]
) -> DataFrame:
    """Rows that workers read, a partition for each fragment; nothing of how shows in plans."""
    fragments = written.fragments

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from _rows(written, fragments[number], storage_options)

    numbers = spark.range(0, len(fragments), 1, len(fragments))
    with own_python(spark):
        return numbers.mapInArrow(read, spark_schema(written.fields))


def knn_join(
    left: DataFrame,
    right: DataFrame,
    *,
    left_vector: str,
    right_vector: str,
    k: int | str,
    on: Sequence[str | tuple[str, str]] = (),
    metric: str = "l2",
    join: str = "inner",
    mode: str = "exact",
    nprobes: int | None = None,
    recall: float | None = None,
    max_distance: float | None = None,
    max_pairs: int = MOST_PAIRS,
    exclude_self: bool = False,
    pairs: str = "ordered",
    select_left: Sequence[str] | None = None,
    select_right: Sequence[str] | None = None,
    rank: bool = False,
    min_right_rows: int = 10_000,
    scratch: str | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> DataFrame:
    """Find, for each left row, the k nearest right rows by the distance of their vectors.

    The call runs the join and keeps its result in scratch until the process ends, so that using the
    result several times does not join again. Rows are in the order of the left rows, nearest first;
    ties are in the order of the right rows. A vector that is null, or has an element that is null,
    NaN or infinite, matches nothing; with `cosine`, neither does a vector of zeros.

    Args:
        left: The rows to find neighbours for.
        right: The rows to search.
        left_vector: The column of vectors in `left`: arrays of float, double or byte.
        right_vector: The column of vectors in `right`. All vectors must have the same length.
        k: The number of neighbours of each left row, 1 to 100,000, or as many as there are. `"all"`
            finds every right row within `max_distance`.
        on: Columns that must be equal: names that both sides have, or pairs of a left and a right
            name. Null equals nothing.
        metric: `l2` (squared Euclidean), `cosine` (1 - cos), `dot` (1 - dot product), or for bytes
            `hamming` (the number of differing bits).
        join: `inner` drops left rows that match nothing; `left_outer` keeps them, with nulls.
        mode: `exact`, or `approx` for a search that may miss some neighbours.
        nprobes: With `approx`, the number of IVF lists that each left row visits.
        recall: With `approx`, the share of true neighbours to find; 0.95 without `nprobes`.
        max_distance: The maximum `_distance` of a neighbour, in the units of `_distance`.
        max_pairs: With `k="all"`, the maximum number of rows of the result.
        exclude_self: Whether to exclude each row from its own neighbours. `left` and `right` must
            be one DataFrame, with one column of vectors.
        pairs: `unordered` returns each pair of rows of one DataFrame once: a row is compared with
            the rows after it, and so never with itself.
        select_left: The left columns of the result; None selects all. Others are never read.
        select_right: The right columns of the result. A name that the left side has too gets the
            suffix `_right`.
        rank: Whether to add a column `_rank`, starting at 1.
        min_right_rows: With fewer right rows, Spark's own `nearestByJoin` does the work, except
            over Spark Connect.
        scratch: Temporary storage that all executors share. The default is a folder on this
            machine, which suffices for a local master; over Spark Connect it is required.
        storage_options: Options for `scratch` in an object store.

    Returns:
        The selected columns of both sides, `_distance` (float) and, with `rank`, `_rank` (int).

    Raises:
        InvalidArgument: An argument is invalid.
        UsageError: Column names clash, a column is missing or does not hold vectors, vectors
            differ in length, keys cannot be compared, or both sides must be the same rows and
            are not.
        RunError: There is no scratch, or Spark failed.
    """
    _check_sides(left, right, select_left, select_right)
    keys = _keys(on)
    request = _request(
        k, metric, join, mode, nprobes, recall, max_distance, max_pairs, min_right_rows, rank
    )
    asked = self_pairs(_word(Pairs, "pairs", pairs).value, excludes_self=exclude_self)
    if asked is not None:
        _check_same(left, right, left_vector, right_vector, exclude_self=exclude_self)
    request = replace(request, has_keys=bool(keys), self_pairs=asked)
    on_left = tuple(left.columns if select_left is None else select_left)
    on_right = tuple(right.columns if select_right is None else select_right)
    sides = (
        SideSource(left_vector, on_left, keys=tuple(key for key, _ in keys)),
        SideSource(right_vector, on_right, keys=tuple(key for _, key in keys)),
    )
    return _joined(left, right, request, sides, scratch, dict(storage_options or {}))


def _joined(
    left: DataFrame,
    right: DataFrame,
    request: JoinRequest,
    sides: tuple[SideSource, SideSource],
    scratch: str | None,
    options: Mapping[str, str],
) -> DataFrame:
    """Run a join, and return its result with the names and types of the sides' columns."""
    on_left, on_right = (side.select or () for side in sides)
    names = output_names(on_left, on_right, with_rank=request.with_rank)
    types = [*_types(left, on_left, "left"), *_types(right, on_right, "right")]
    spark = left.sparkSession
    engine = Engine(spark, scratch_root(scratch, spark), uuid.uuid4().hex, UriOptions(options))
    uri = f"{_results(spark, engine.scratch_root, options)}/{uuid.uuid4().hex}.lance"
    work = JoinWork("knn_join", request, *sides, OutputFormat.LANCE, uri)
    run_join(engine, work, {"left": left, "right": right}, _numbered(names))
    rows, _ = rows_and_place(spark, uri, options)
    return _typed(rows, names.all, types)


def run_join(
    engine: Engine,
    work: JoinWork,
    frames: Mapping[str, DataFrame] | None = None,
    names: OutputNames | None = None,
) -> JoinOutcome:
    """Run a join of which nothing is known, and commit its result.

    Args:
        engine: Where it runs.
        work: The rows to compare, and the place of the result.
        frames: DataFrames of the sides `left` and `right`, where they are no declared ones.
        names: The names of the columns of the result, where not as `output_names` has it.

    Raises:
        LancestatError: it cannot be done; readers of the output see what they saw before.
    """
    evaluation = JoinEvaluation(
        lambda work, on_stage: engine.open(work, frames, names), engine.on_stage
    )
    _, outcome = evaluation.run(plan_join(work, JoinSize(None, None, None)))
    return outcome


def _types(rows: DataFrame, select: Sequence[str], side: str) -> list[DataType]:
    columns = rows.columns
    return [rows.schema.fields[column_index(columns, name, side)].dataType for name in select]


def _numbered(names: OutputNames) -> OutputNames:
    """Names for the result in Lance, which cannot hold every name that Spark can."""
    left, right = (
        tuple(f"{side}{number}" for number in range(len(columns)))
        for side, columns in (("left", names.left), ("right", names.right))
    )
    return replace(names, left=left, right=right)


def _request(
    k: int | str,
    metric: str,
    join: str,
    mode: str,
    nprobes: int | None,
    recall: float | None,
    max_distance: float | None,
    max_pairs: int,
    min_right_rows: int,
    rank: bool,
) -> JoinRequest:
    is_radius = k == ALL
    if isinstance(k, str) and not is_radius:
        raise InvalidArgument(f"k is {k!r}; expected a number, or 'all'")
    most = RANGE_NEIGHBOURS if isinstance(k, str) else k
    expected = f"a whole number from 1 to {MOST_NEIGHBOURS:,}"
    check("k", most, is_whole(most, 1, MOST_NEIGHBOURS), expected)
    is_right = is_whole(min_right_rows, 0)
    check("min_right_rows", min_right_rows, is_right, "a whole number, 0 or more")
    recall = _recall(_word(Mode, "mode", mode), nprobes, recall)
    if max_distance is not None:
        check("max_distance", max_distance, is_number(max_distance), "a number")
        reason = distance_objection(max_distance, metric)
        if reason is not None:
            raise InvalidArgument(f"max_distance is {max_distance}; it {reason}")
    request = JoinRequest(
        k=most,
        metric=metric_named(_one_of([name.value for name in MetricName], "metric", metric)),
        kind=_word(JoinKind, "join", join),
        nprobes=nprobes,
        recall=recall,
        min_right_rows=min_right_rows,
        with_rank=rank,
        max_distance=max_distance,
    )
    if not is_radius:
        return request
    if max_distance is None:
        raise InvalidArgument("k is 'all'; expected max_distance with it")
    check("max_pairs", max_pairs, is_whole(max_pairs, 0), "a whole number, 0 or more")
    return replace(request, max_pairs=max_pairs)


def _recall(mode: Mode, nprobes: int | None, recall: float | None) -> float | None:
    """Return the recall to reach, None where that does not matter."""
    if mode is Mode.EXACT and (nprobes is not None or recall is not None):
        given = "nprobes" if nprobes is not None else "recall"
        raise InvalidArgument(f"{given} goes with mode='approx', but mode is 'exact'")
    if mode is Mode.APPROX and nprobes is None and recall is None:
        recall = 0.95
    if nprobes is not None:
        is_right = is_whole(nprobes, 1) and recall is None
        check("nprobes", nprobes, is_right, "a whole number, 1 or more, and no recall")
    if recall is not None:
        is_right = is_number(recall) and 0 < recall <= 1
        check("recall", recall, is_right, "a number above 0 and at most 1")
    return recall


def _check_sides(left: DataFrame, right: DataFrame, *selected: Sequence[str] | None) -> None:
    for name, side in (("left", left), ("right", right)):
        check(name, side, hasattr(side, "sparkSession"), "a DataFrame")
    for name, columns in zip(("select_left", "select_right"), selected, strict=True):
        check(name, columns, not isinstance(columns, str), "a list of names")


def _check_same(
    left: DataFrame, right: DataFrame, left_vector: str, right_vector: str, *, exclude_self: bool
) -> None:
    asked = "exclude_self=True" if exclude_self else "pairs='unordered'"
    if left is not right:
        raise SidesDiffer(
            f"{asked} needs one DataFrame on both sides",
            hint="pass the same object as left and right",
        )
    if left_vector != right_vector:
        raise SidesDiffer(
            f"{asked} needs one column of vectors, found '{left_vector}' and '{right_vector}'"
        )


def _keys(on: Sequence[str | tuple[str, str]]) -> list[tuple[str, str]]:
    if isinstance(on, str):
        raise InvalidArgument(f"on is {on!r}; expected a list", hint=f"on=[{on!r}]")
    pairs = [(key, key) if isinstance(key, str) else tuple(key) for key in on]
    for pair in pairs:
        if len(pair) != 2 or not all(isinstance(name, str) for name in pair):
            raise InvalidArgument(f"on has {pair!r}; expected a column, or a left and a right one")
    return [(left, right) for left, right in pairs]


def _word(kind: type[Word], name: str, value: str) -> Word:
    return kind(_one_of([member.value for member in kind], name, value))


def _one_of(words: Sequence[str], name: str, value: str) -> str:
    if value not in words:
        hint = did_you_mean(str(value), words)
        raise InvalidArgument(
            f"{name} is {value!r}; expected one of: {', '.join(words)}", hint=hint
        )
    return value


_folders: dict[tuple[str, str], str] = {}
_stack = ExitStack()
_lock = threading.Lock()


def _results(spark: SparkSession, root: str, options: Mapping[str, str]) -> str:
    """The folder of an application's results, which is removed when the process ends."""
    application = jobs_of(spark).application
    with _lock:
        if not _folders:
            atexit.register(_stack.close)
        key = (root, application)
        if key not in _folders:
            _folders[key] = _stack.enter_context(scratch_folder(root, application, options))
        return _folders[key]


def _typed(rows: DataFrame, names: Sequence[str], types: Sequence[DataType]) -> DataFrame:
    """The result with the names and types that its columns are to have."""
    columns = []
    for field, name, type in zip_longest(rows.schema.fields, names, types):
        column = rows[field.name]
        if type is not None and type != field.dataType:
            column = column.cast(type)
        columns.append(column.alias(name))
    return rows.select(columns)
