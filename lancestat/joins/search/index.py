"""Search through a vector index of Lance, whose proposals are compared anew."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
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
from lancestat.joins.search.metrics import Metric
from lancestat.joins.search.neighbours import (
    Floats,
    Ints,
    Neighbours,
    Reals,
    nearest_pairs,
    nothing,
)
from lancestat.joins.search.search import ExactSearch
from lancestat.joins.search.vectors import vectors
from lancestat.joins.search.work import VectorSide
from lancestat.lake.open import read_failure
from lancestat.redact import redact_line, secret_values

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

    def __init__(self, dataset: lance.LanceDataset, side: VectorSide, metric: Metric) -> None:
        self._dataset = dataset
        self._side = side
        self._metric = metric
        self._starts = np.array([fragment.start for fragment in side.fragments], np.int64)
        self._ids = np.array([fragment.id for fragment in side.fragments], np.int64)
        self._partitions: int | None = None
        self._live: dict[int, Ints | None] = {}

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
            neighbours.put(short, self._compare_all(queries[short], k))
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
            query, positions = self._positions_of(query, addresses)
            neighbours.put(some, self._compared(queries[some], query, positions, k))

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
            "metric": self._metric.index_name,
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

    def _positions_of(self, query: Ints, addresses: Ints) -> tuple[Ints, Ints]:
        """Convert addresses to positions, for rows that take part."""
        ids, offsets = addresses >> 32, addresses & 0xFFFFFFFF
        at = np.minimum(np.searchsorted(self._ids, ids), len(self._ids) - 1)
        takes_part = self._ids[at] == ids
        query, at, offsets = query[takes_part], at[takes_part], offsets[takes_part]
        for number in np.unique(at).tolist():
            live = self._live_offsets(int(self._ids[number]))
            if live is not None:
                here = at == number
                offsets[here] = np.searchsorted(live, offsets[here])
        return query, self._starts[at] + offsets

    def _live_offsets(self, fragment_id: int) -> Ints | None:
        """Return offsets of a fragment's live rows; None where all are live."""
        if fragment_id not in self._live:
            fragment = self._dataset.get_fragment(fragment_id)
            live = None
            if fragment.metadata.deletion_file is not None:
                table = fragment.scanner(columns=[], with_row_address=True).to_table()
                live = _numbers(table, "_rowaddr") & 0xFFFFFFFF
            self._live[fragment_id] = live
        return self._live[fragment_id]

    def _compared(self, queries: Floats, query: Ints, positions: Ints, k: int) -> Neighbours:
        """Return the nearest of the proposed rows, by their vectors."""
        found = nothing(len(queries), k)
        taken, at = np.unique(positions, return_inverse=True)
        if not len(taken):
            return found
        column = self._dataset.take(taken, columns=[self._side.vector]).column(0)
        rows = vectors(column, queries.shape[1], self._metric, source="the right side")
        # A row that was found twice counts once.
        query, at = np.divmod(np.unique(query * len(taken) + at), len(taken))
        is_known = rows.valid[at]
        query, at = query[is_known], at[is_known]
        with np.errstate(over="ignore"):
            exact = self._metric.distances(queries[query], rows.values[at]).astype(np.float32)
        found.put(*nearest_pairs(query, exact, taken[at], k))
        return found

    def _compare_all(self, queries: Floats, k: int) -> Neighbours:
        nearest = ExactSearch(queries, k, self._metric)
        for start, column in self._blocks():
            rows = vectors(
                column, queries.shape[1], self._metric, first_row=start, source="the right side"
            )
            positions = np.arange(start, start + len(rows.valid))
            nearest.add(rows.values[rows.valid], positions[rows.valid])
        return nearest.neighbours()

    def _blocks(self) -> Iterator[tuple[int, pa.Array]]:
        for fragment_rows in self._side.fragments:
            start = fragment_rows.start
            fragment = self._dataset.get_fragment(fragment_rows.id)
            for batch in fragment.scanner(columns=[self._side.vector]).to_batches():
                yield start, batch.column(0)
                start += batch.num_rows


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
