from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pytest
from numpy.typing import NDArray

from lancestat.errors import RunError
from lancestat.joins.search.centroids import Centroids, recall_curve, train
from lancestat.joins.search.ivf import (
    IvfLists,
    LiveRows,
    SampledResult,
    commit,
    read_lists,
    sample_lists,
    search_lists,
    write_groups,
    write_lists,
)
from lancestat.joins.search.metrics import L2, Metric
from lancestat.joins.search.neighbours import merge
from lancestat.joins.search.scratch_tables import SampledLists, WrittenBins
from lancestat.lake.snapshot import pin_of
from tests.joins.search.brute_force import FORMULAS, assert_same, clustered
from tests.joins.search.exact import search

Matrix = NDArray[np.float32]
K = 7
LISTS = 12


def blocks(
    rows: Matrix, places: NDArray[np.int64], size: int
) -> Iterator[tuple[NDArray[np.int64], Matrix]]:
    for start in range(0, len(rows), size):
        yield places[start : start + size], rows[start : start + size]


def sampled_in(parts: list[WrittenBins]) -> SampledLists:
    return SampledLists.merged([part.sampled for part in parts if part.sampled], K)


def read_only(matrix: Matrix) -> Matrix:
    matrix.flags.writeable = False
    return matrix


@pytest.fixture(scope="module")
def rows() -> Matrix:
    return read_only(clustered(1, 3000))


@pytest.fixture(scope="module")
def queries() -> Matrix:
    return read_only(clustered(2, 90))


def written(
    rows: Matrix, centroids: Centroids, sample: Matrix, uri: Path
) -> tuple[list[WrittenBins], IvfLists]:
    """Write the lists as two tasks do: odd places first, then even ones, in blocks of 400."""
    places = np.arange(len(rows), dtype=np.int64)
    parts = [
        write_lists(
            blocks(rows[first::2], places[first::2], 400), centroids, sample, K, str(uri), {}
        )
        for first in (1, 0)
    ]
    return parts, commit(parts, str(uri), rows.shape[1], {})


@dataclass(frozen=True)
class Laid:
    """The rows in lists by centroid, which tests of one metric share."""

    metric: Metric
    centroids: Centroids
    parts: list[WrittenBins]
    partitioned: IvfLists


@pytest.fixture(scope="module", params=FORMULAS, ids=str)
def laid(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    rows: Matrix,
    queries: Matrix,
) -> Laid:
    centroids = train(rows, LISTS, request.param)
    folder = tmp_path_factory.mktemp("lists")
    return Laid(request.param, centroids, *written(rows, centroids, queries, folder / "lists"))


def test_all_lists_together_are_the_whole_side(laid: Laid, rows: Matrix, queries: Matrix) -> None:
    np.testing.assert_array_equal(
        laid.partitioned.list_rows, np.bincount(laid.centroids.assign(rows), minlength=LISTS)
    )
    visits = laid.centroids.nearest_lists(queries, LISTS)
    found, pairs, _ = search_lists(laid.partitioned, queries, visits, range(LISTS), K, laid.metric)
    assert_same(found, search(queries, rows, K, laid.metric))
    assert pairs == len(rows) * len(queries)


@pytest.mark.parametrize("nprobes", [1, 3])
def test_queries_find_the_nearest_rows_of_visited_lists(
    laid: Laid, rows: Matrix, queries: Matrix, nprobes: int
) -> None:
    metric, visits = laid.metric, laid.centroids.nearest_lists(queries, nprobes)
    assigned = laid.centroids.assign(rows)
    visited = [np.flatnonzero(np.isin(assigned, lists)) for lists in visits]
    alone = [
        search(query[None], rows[places], K, metric, places)
        for query, places in zip(queries, visited, strict=True)
    ]
    for block_bytes in (2_000, 20_000, 1 << 26):
        parts = [
            search_lists(
                laid.partitioned, queries, visits, lists, K, metric, block_bytes=block_bytes
            )
            for lists in (range(5), range(5, LISTS))
        ]
        neighbours = merge([found for found, _, _ in parts], K)
        for number, expected in enumerate(alone):
            np.testing.assert_array_equal(neighbours.positions[number], expected.positions[0])
            np.testing.assert_array_equal(neighbours.distances[number], expected.distances[0])
        assert sum(pairs for _, pairs, _ in parts) == sum(map(len, visited))


def test_sampled_queries_have_their_true_neighbours_and_lists(
    laid: Laid, rows: Matrix, queries: Matrix
) -> None:
    centroids = laid.centroids
    sampled = sampled_in(laid.parts)
    lists = sampled.lists()
    truth = search(queries, rows, K, laid.metric)
    assert_same(sampled.nearest, truth)
    np.testing.assert_array_equal(lists, centroids.assign(rows)[truth.positions])
    curve = recall_curve(centroids.nearest_lists(queries, LISTS), lists)
    for nprobes in (1, 2, 5):
        visits = centroids.nearest_lists(queries, nprobes)
        result = search_lists(laid.partitioned, queries, visits, range(LISTS), K, laid.metric)[0]
        hits = [
            len(np.intersect1d(mine, true))
            for mine, true in zip(result.positions, truth.positions, strict=True)
        ]
        assert np.mean(hits) / K == pytest.approx(curve[0][nprobes - 1])


@pytest.mark.parametrize("first", [0, 1 << 49])
def test_sampled_neighbours_are_the_first_of_equally_near_rows(
    tmp_path: Path, rows: Matrix, queries: Matrix, first: int
) -> None:
    """Also in the last of many fragments, in lists in whatever order."""
    rows, queries = rows.round()[:, :2].copy(), queries.round()[:, :2].copy()
    centroids, places = train(rows, LISTS, L2), first + np.arange(len(rows))
    part = write_lists(blocks(rows, places, 700), centroids, queries, K, str(tmp_path / "x"), {})
    assert part.sampled is not None
    truth = search(queries, rows, K, L2, places)
    assert_same(part.sampled.nearest, truth)
    lists = centroids.assign(rows)[truth.positions - first]
    np.testing.assert_array_equal(part.sampled.lists(), lists)


def test_sampled_queries_are_searched_in_all_lists_as_well(
    laid: Laid, rows: Matrix, queries: Matrix
) -> None:
    """By two tasks with half of the lists each, whatever the other queries visit."""
    mine, sampled = queries[:50], queries[50:]
    visits = laid.centroids.nearest_lists(mine, 2)
    sample = sampled, laid.centroids.nearest_lists(sampled, 2)
    halves = (range(LISTS // 2), range(LISTS // 2, LISTS))
    arguments = (laid.partitioned,)
    done = [
        search_lists(*arguments, mine, visits, lists, K, laid.metric, sample=sample)
        for lists in halves
    ]
    parts = [part[2] for part in done]
    result = SampledResult(
        merge([part.found for part in parts if part], K),
        merge([part.true for part in parts if part], K),
    )
    assert_same(result.true, search(sampled, rows, K, laid.metric))
    alone = [
        search_lists(*arguments, sampled, sample[1], lists, K, laid.metric) for lists in halves
    ]
    assert_same(result.found, merge([part[0] for part in alone], K))
    hits = [
        len(set(true) & set(found))
        for true, found in zip(
            result.true.positions.tolist(), result.found.positions.tolist(), strict=True
        )
    ]
    assert result.recall() == pytest.approx(np.mean(hits) / K)
    plain = [search_lists(*arguments, mine, visits, lists, K, laid.metric) for lists in halves]
    for part, without in zip(done, plain, strict=True):
        assert_same(part[0], without[0])
        assert part[1] == without[1]


def counted_reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of rows of each read from now on."""
    from lancestat.joins.search import ivf

    read: list[int] = []
    scanned = ivf.scanned

    def counting(laid: Any, number: int, start: int, stop: int) -> Any:
        read.append(stop - start)
        return scanned(laid, number, start, stop)

    monkeypatch.setattr(ivf, "scanned", counting)
    return read


def grouped(rows: Matrix, groups: NDArray[np.int64], count: int, uri: Path) -> IvfLists:
    written = write_groups(groups, np.arange(len(rows)), rows, count, str(uri), {})
    return commit([written], str(uri), rows.shape[1], {})


def test_only_lists_that_are_visited_are_read(
    tmp_path: Path, rows: Matrix, queries: Matrix, monkeypatch: pytest.MonkeyPatch
) -> None:
    centroids = train(rows, LISTS, L2)
    _, partitioned = written(rows, centroids, queries, tmp_path / "lists")
    read = counted_reads(monkeypatch)
    monkeypatch.setattr("lancestat.joins.search.ivf._SKIPPED_BYTES", 0)
    visits = np.array([[2], [2], [9]], np.int32)
    search_lists(partitioned, queries[:3], visits, range(LISTS), K, L2)
    assert sum(read) == partitioned.list_rows[[2, 9]].sum()
    read.clear()
    search_lists(partitioned, queries[:3], visits, range(3, 9), K, L2)
    assert not read


def test_a_few_rows_that_nobody_visits_do_not_end_a_read(
    tmp_path: Path, rows: Matrix, queries: Matrix, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = np.sort(np.random.default_rng(5).integers(0, 4000, len(rows)))
    partitioned = grouped(rows, groups, 4000, tmp_path / "groups")
    random = np.random.default_rng(6)
    visits = np.array([random.permutation(4000)[:20] for _ in queries], np.int32)
    read = counted_reads(monkeypatch)
    result = search_lists(partitioned, queries, visits, range(4000), K, L2)
    assert len(read) == 1
    for number in range(len(queries)):
        among = np.flatnonzero(np.isin(groups, visits[number]))
        alone = search(queries[number][None], rows[among], K, L2, among)
        assert (result[0].positions[number] == alone.positions).all()


@pytest.mark.parametrize("counts", [[300, 0, 1], [300, 0], [0, 300], [0, 0], [299, 1, 0, 0, 1]])
def test_lists_without_rows_are_passed_over(
    counts: list[int], tmp_path: Path, rows: Matrix, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where they come after as many rows as are put together at a time."""
    monkeypatch.setattr("lancestat.joins.search.ivf._GATHERED_BYTES", 4 * 8 * 300)
    groups = np.repeat(np.arange(len(counts)), counts)
    partitioned = grouped(rows[: sum(counts)], groups, len(counts), tmp_path / "groups")
    found = [
        (number, read.positions[span].tolist())
        for read in read_lists(partitioned, range(len(counts)), 8, 10)
        for number, span in read.spans
        if span.stop > span.start
    ]
    assert found == [
        (number, np.flatnonzero(groups == number).tolist())
        for number, count in enumerate(counts)
        if count
    ]


def test_sides_with_fewer_rows_than_k_or_none_are_searched(tmp_path: Path, queries: Matrix) -> None:
    few = clustered(3, 3)
    centroids = train(few, LISTS, L2)
    parts, partitioned = written(few, centroids, queries, tmp_path / "few")
    visits = centroids.nearest_lists(queries, LISTS)
    result = search_lists(partitioned, queries, visits, range(LISTS), K, L2)[0]
    assert_same(result, search(queries, few, K, L2))
    assert (sampled_in(parts).lists()[:, 3:] == -1).all()
    none = few[:0]
    parts, partitioned = written(none, centroids, queries, tmp_path / "none")
    result = search_lists(partitioned, queries, visits, range(LISTS), K, L2)[0]
    assert (result.positions == -1).all()
    assert (sampled_in(parts).lists() == -1).all()


def test_scratch_that_cannot_be_written_is_one_error(
    tmp_path: Path, rows: Matrix, queries: Matrix
) -> None:
    (tmp_path / "file").write_text("")
    centroids = train(rows, LISTS, L2)
    with pytest.raises(RunError, match="cannot be laid out in scratch") as error:
        written(rows, centroids, queries, tmp_path / "file" / "lists")
    assert error.value.code == "LS583"


def test_scratch_that_has_lost_a_fragment_is_one_error(
    tmp_path: Path, rows: Matrix, queries: Matrix
) -> None:
    centroids = train(rows, LISTS, L2)
    _, partitioned = written(rows, centroids, queries, tmp_path / "lists")
    dataset = lance.dataset(partitioned.pin.uri)
    dataset.truncate_table()
    partitioned = replace(partitioned, pin=pin_of(dataset, dataset.uri))
    visits = centroids.nearest_lists(queries, 2)
    with pytest.raises(RunError, match="has lost fragment 0") as error:
        search_lists(partitioned, queries, visits, range(LISTS), K, L2)
    assert error.value.code == "LS587"


@pytest.mark.parametrize("shares", [1, 3])
@pytest.mark.parametrize("deleted", [0, 7])
@pytest.mark.parametrize("fragment", [0, 1 << 17, (1 << 31) - 1])
def test_a_pass_over_lists_finds_the_true_neighbours_of_live_rows(
    tmp_path: Path, rows: Matrix, queries: Matrix, shares: int, deleted: int, fragment: int
) -> None:
    centroids = train(rows, LISTS, L2)
    _, partitioned = written(rows, centroids, queries, tmp_path / "lists")
    live = np.arange(len(rows)) % deleted > 0 if deleted else np.ones(len(rows), np.bool_)
    # Places of one fragment are its positions.
    gone = {fragment: np.flatnonzero(~live).astype(np.uint32)}
    partitioned = replace(partitioned, live=LiveRows.of([fragment], gone))
    edges = [LISTS * number // shares for number in range(shares + 1)]
    parts = [sample_lists(partitioned, range(*lists), queries, K, L2) for lists in pairwise(edges)]
    found, positions = SampledLists.merged(parts, K), np.flatnonzero(live)
    truth = search(queries, rows[live], K, L2, positions)
    np.testing.assert_array_equal(found.nearest.distances, truth.distances)
    lists = found.lists()
    np.testing.assert_array_equal(lists, centroids.assign(rows)[truth.positions])
    counts = np.bincount(centroids.assign(rows[live]), minlength=LISTS)
    np.testing.assert_array_equal(partitioned.live_list_rows(), counts)
