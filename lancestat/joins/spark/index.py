"""Search through a vector index of Lance, whose proposals are compared anew."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lancestat.errors import (
    AccessDenied,
    DatasetReplaced,
    IndexMissing,
    IndexUnreadable,
    StoreUnreachable,
)
from lancestat.joins.search.centroids import mean_and_lower
from lancestat.joins.search.cost_model import SAMPLE_ROWS
from lancestat.joins.search.neighbours import (
    Floats,
    Ints,
    Neighbours,
    Reals,
    merge,
    nearest_pairs,
    nothing,
    share_found,
    within,
)
from lancestat.joins.search.search import ExactSearch
from lancestat.joins.search.work import JoinRequest, Rows, VectorSide
from lancestat.joins.spark.cells import CellResult, ChunkCell, ChunkSearch, LeftRows, cut
from lancestat.joins.spark.job import run_each
from lancestat.joins.spark.reader import VectorReader, positions_at
from lancestat.lake.open import read_failure
from lancestat.redact import redact_line, secret_values
from lancestat.spark.fragment_reader import ROW_BITS, pinned_dataset
from lancestat.spark.jobs import Jobs

if TYPE_CHECKING:
    import lance

# Proposals that are fetched and compared at a time, in bytes of their vectors.
_FETCHED_BYTES = 64 << 20
# Queries that are handed to Lance at a time; they share what it reads of the index.
_BATCH = 256
# Lance's column for the number of a query in a batch; a dataset with such a column has no batches.
_QUERY = "query_index"


@dataclass(frozen=True, slots=True)
class SearchParameters:
    """Parameters of a search: partitions to probe, and proposals for each neighbour wanted."""

    nprobes: int
    proposals: int = 4


class IndexedSide:
    """A right side with a vector index of the requested metric."""

    def __init__(self, reader: VectorReader) -> None:
        assert isinstance(reader.side, VectorSide), "the right side is a table"
        self._reader = reader
        self._side = reader.side
        self._dataset = pinned_dataset(self._side.pin, self._side.storage_options)
        self._partitions: int | None = None

    @property
    def partitions(self) -> int:
        """The number of partitions of the index; the most that a query can visit."""
        if self._partitions is None:
            with self._readable():
                self._partitions = _partitions(self._dataset, self._side.vector)
        if self._partitions is None:
            message = f"{self._side.pin.uri} has no vector index on '{self._side.vector}'"
            raise IndexMissing(message)
        return self._partitions

    def search(self, queries: Floats, k: int, parameters: SearchParameters) -> Neighbours:
        """Return neighbours of queries (n, dim) that the index proposes, with exact distances.

        A query with fewer than k proposals is searched again in more partitions, and at last
        compared with every row.
        """
        neighbours = nothing(len(queries), k)
        short = np.arange(len(queries))
        most = self.partitions
        while len(short) and k < len(self._side.all_rows):
            self._search(queries, short, k, parameters, neighbours)
            short = short[neighbours.positions[short, -1] < 0]
            if parameters.nprobes >= most:
                break
            parameters = SearchParameters(min(most, 4 * parameters.nprobes), parameters.proposals)
        if len(short):
            everything = self._side.all_rows
            found, _ = true_neighbours(self._reader, queries[short], k, everything)
            neighbours.put(short, found)
        return neighbours

    def measure(
        self, queries: Floats, truth: Neighbours, recall: float
    ) -> tuple[SearchParameters, float] | None:
        """Find the cheapest parameters that reach a recall on a sample, and the recall they reach.

        None where none do. Every other query serves to choose, so that the lower bound of its
        confidence interval reaches the recall; the others measure the recall that is reached.
        """
        k, most = truth.positions.shape[1], self.partitions
        for proposals in (4, 16):
            nprobes = 1
            while nprobes <= most:
                parameters = SearchParameters(nprobes, proposals)
                shares = _shares(self.search(queries, k, parameters), truth)
                if mean_and_lower(shares[::2, None])[1][0] >= recall:
                    return parameters, float(shares[1::2].mean())
                nprobes = min(2 * nprobes, most) if nprobes < most else most + 1
        return None

    def _search(
        self,
        queries: Floats,
        which: Ints,
        k: int,
        parameters: SearchParameters,
        neighbours: Neighbours,
    ) -> None:
        row_bytes = 4 * max(1, queries.shape[1])
        step = max(1, min(_BATCH, _FETCHED_BYTES // (row_bytes * k * parameters.proposals)))
        for start in range(0, len(which), step):
            some = which[start : start + step]
            query, addresses = self._proposed(
                queries[some], k * parameters.proposals, parameters.nprobes
            )
            neighbours.put(some, self._compared(queries[some], query, addresses, k))

    def _proposed(self, queries: Floats, count: int, nprobes: int) -> tuple[Ints, Ints]:
        """Return numbers of queries, and addresses of rows that the index proposes for them."""
        if _QUERY not in self._dataset.schema.names:
            table = self._propose_batch(queries, count, nprobes)
            return _numbers(table, _QUERY), _numbers(table, "_rowaddr")
        tables = [self._propose_batch(query, count, nprobes) for query in queries]
        numbers = np.repeat(np.arange(len(queries)), [len(table) for table in tables])
        return numbers, np.concatenate([_numbers(table, "_rowaddr") for table in tables])

    def _propose_batch(self, queries: Floats, count: int, nprobes: int) -> pa.Table:
        nearest = {
            "column": self._side.vector,
            "q": queries,
            "k": count,
            "nprobes": nprobes,
            "metric": self._reader.metric.index_name,
        }
        with self._readable():
            return self._dataset.scanner(
                columns=[],
                nearest=nearest,
                with_row_address=True,
                disable_scoring_autoprojection=True,
            ).to_table()

    @contextmanager
    def _readable(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            options = self._side.storage_options
            failure = read_failure(error, self._side.pin, options)
            if isinstance(failure, AccessDenied | StoreUnreachable | DatasetReplaced):
                raise failure from error
            secrets = secret_values(options)
            reason = redact_line(f"{type(error).__name__}: {error}", secrets)
            message = f"the vector index of {self._side.pin.uri} cannot be searched: {reason}"
            raise IndexUnreadable(message) from error

    def _compared(self, queries: Floats, query: Ints, addresses: Ints, k: int) -> Neighbours:
        """Return the nearest of the proposed rows that take part, by their vectors."""
        found = nothing(len(queries), k)
        takes_part = np.isin(addresses >> ROW_BITS, [part.id for part in self._side.fragments])
        query, addresses = query[takes_part], addresses[takes_part]
        taken, at = np.unique(positions_at(self._side, addresses), return_inverse=True)
        if not len(taken):
            return found
        rows = self._reader.look_up(taken)
        # A row that was found twice counts once.
        query, at = np.divmod(np.unique(query * len(taken) + at), len(taken))
        is_known = rows.valid[at]
        query, at = query[is_known], at[is_known]
        with np.errstate(over="ignore"):
            distances = self._reader.metric.distances(queries[query], rows.values[at])
            exact = distances.astype(np.float32)
        found.put(*nearest_pairs(query, exact, taken[at], k))
        return found


def true_neighbours(
    reader: VectorReader, queries: Floats, k: int, rows: Rows
) -> tuple[Neighbours, int]:
    """Compare queries with all of some rows; return how many of these cannot match, too."""
    nearest, excluded = ExactSearch(queries, k, reader.metric), 0
    for block in reader.blocks(rows):
        nearest.add(block.rows, block.positions)
        excluded += block.excluded
    return nearest.neighbours(), excluded


@dataclass(frozen=True, slots=True)
class IndexCells(ChunkSearch):
    """Searches the index; `recall` was measured on a sample, and `excluded` right rows cannot
    match.
    """

    right: VectorReader = field(kw_only=True)
    parameters: SearchParameters = field(kw_only=True)
    recall: float | None = field(kw_only=True)
    excluded: int = field(kw_only=True)

    def nearest(self, cell: ChunkCell, rows: LeftRows, k: int, *, is_first: bool) -> CellResult:
        nearest = IndexedSide(self.right).search(rows.vectors, k, self.parameters)
        neighbours = within(nearest, self.request.limit)
        pairs = len(rows) * k * self.parameters.proposals
        return CellResult(rows.positions, neighbours, self.excluded, pairs)


def tuned_index(
    jobs: Jobs, left: VectorReader, right: VectorReader, request: JoinRequest, threads: int
) -> IndexCells | None:
    """Find how far the index has to be searched for the recall, on a sample of left rows.

    One pass over the right side finds their true neighbours. None where no search reaches it.
    """
    queries = left.sample(SAMPLE_ROWS)
    parts, options = cut(right.side.all_rows, jobs.cores), right.side.storage_options
    compare = partial(true_neighbours, right, queries, request.k)
    done = run_each(jobs, compare, parts, options, "sampling the recall", threads)
    truth = merge([neighbours for neighbours, _ in done], request.k)
    excluded = sum(rows for _, rows in done)
    side = IndexedSide(right)
    recall: float | None
    if request.nprobes is not None:
        parameters = SearchParameters(request.nprobes)
        found = side.search(queries, request.k, parameters)
        recall = share_found(truth.positions, found.positions)
    else:
        assert request.recall is not None
        measured = side.measure(queries, truth, request.recall) if len(queries) > 1 else None
        if measured is None:
            return None
        parameters, recall = measured
    return IndexCells(
        left, request, right=right, parameters=parameters, recall=recall, excluded=excluded
    )


def _partitions(dataset: lance.LanceDataset, column: str) -> int | None:
    for index in dataset.describe_indices():
        if index.field_names == [column] and "VectorIndex" in index.type_url:
            segments = dataset.stats.index_stats(index.name)["indices"]
            return max(int(segment.get("num_partitions", 1)) for segment in segments)
    return None


def _numbers(table: pa.Table, column: str) -> Ints:
    numbers: Ints = table.column(column).to_numpy().astype(np.int64)
    return numbers


def _shares(neighbours: Neighbours, truth: Neighbours) -> Reals:
    shares = [
        np.isin(true[true >= 0], mine).mean() if (true >= 0).any() else 1.0
        for mine, true in zip(neighbours.positions, truth.positions, strict=True)
    ]
    return np.array(shares)
