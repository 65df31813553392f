from __future__ import annotations

from itertools import accumulate
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from lancestat.errors import RunError, StoreUnreachable
from lancestat.joins.search.metrics import COSINE, L2, Metric
from lancestat.joins.search.neighbours import Neighbours, nothing
from lancestat.joins.search.work import FragmentRows, VectorSide
from lancestat.joins.spark.index import IndexedSide, SearchParameters
from lancestat.joins.spark.reader import VectorReader
from lancestat.lake.snapshot import pin_of
from tests.joins.search.brute_force import FORMULAS, assert_same, clustered
from tests.joins.search.exact import search

Matrix = NDArray[np.float32]
ALL = SearchParameters(nprobes=6, proposals=16)


def table(rows: Matrix, name: str = "id") -> pa.Table:
    column = pa.FixedSizeListArray.from_arrays(pa.array(rows.reshape(-1)), 8)
    return pa.table({name: pa.array(range(len(rows)), pa.int32()), "emb": column})


def indexed(
    uri: Path,
    rows: Matrix,
    metric: Metric,
    *,
    stable: bool = False,
    kind: str = "IVF_PQ",
    name: str = "id",
) -> lance.LanceDataset:
    """A table of three fragments, with an index."""
    dataset = lance.write_dataset(
        table(rows, name),
        str(uri),
        max_rows_per_file=-(-len(rows) // 3),
        enable_stable_row_ids=stable,
    )
    options = {"num_sub_vectors": 4} if kind == "IVF_PQ" else {}
    dataset.create_index("emb", kind, metric=metric.name, num_partitions=6, **options)
    return lance.dataset(str(uri))


def side_of(dataset: lance.LanceDataset) -> VectorSide:
    fragments = dataset.get_fragments()
    counts = [fragment.count_rows() for fragment in fragments]
    starts = accumulate(counts, initial=0)
    return VectorSide(
        pin=pin_of(dataset),
        vector="emb",
        columns=("id",),
        fragments=tuple(
            FragmentRows(fragment.fragment_id, start, count)
            for fragment, start, count in zip(fragments, starts, counts, strict=False)
        ),
        storage_options={},
    )


def indexed_side(side: VectorSide, metric: Metric) -> IndexedSide:
    return IndexedSide(VectorReader(side, 8, metric, "right"))


def recall(neighbours: Neighbours, truth: Neighbours) -> float:
    pairs = zip(neighbours.positions, truth.positions, strict=True)
    return float(np.mean([np.isin(true, mine).mean() for mine, true in pairs]))


def assert_proven(neighbours: Neighbours, queries: Matrix, rows: Matrix, metric: Metric) -> None:
    """Check that rows have the distances and the order of an exact search."""
    for number, query in enumerate(queries):
        places = np.sort(neighbours.positions[number])
        alone = search(query[None], rows[places], len(places), metric, places)
        np.testing.assert_array_equal(neighbours.positions[number], alone.positions[0])
        np.testing.assert_array_equal(neighbours.distances[number], alone.distances[0])


@pytest.mark.parametrize("stable", [False, True], ids=["addresses", "stable row ids"])
@pytest.mark.parametrize("metric", [metric for metric in FORMULAS if metric.index_name], ids=str)
def test_places_are_correct_with_deletions_and_unindexed_rows(
    tmp_path: Path, metric: Metric, stable: bool
) -> None:
    dataset = indexed(tmp_path / "right", clustered(1, 3000), metric, stable=stable)
    dataset.delete("id % 7 = 3 and id < 2500 or id between 990 and 1015")
    dataset = lance.write_dataset(table(clustered(4, 400)), dataset.uri, mode="append")
    live = dataset.to_table(columns=["emb"]).column("emb").combine_chunks()
    rows = live.flatten().to_numpy().reshape(-1, 8)
    queries = clustered(2, 100)
    neighbours = indexed_side(side_of(dataset), metric).search(queries, 5, ALL)
    assert_proven(neighbours, queries, rows, metric)
    assert recall(neighbours, search(queries, rows, 5, metric)) > 0.95


def test_a_full_search_without_compression_is_exact(tmp_path: Path) -> None:
    rows, queries = clustered(1, 3000), clustered(2, 50)
    dataset = indexed(tmp_path / "right", rows, L2, kind="IVF_FLAT")
    side = indexed_side(side_of(dataset), L2)
    assert side.partitions == 6
    assert_same(side.search(queries, 9, ALL), search(queries, rows, 9, L2))


def test_few_probes_that_lead_to_few_rows_are_followed_by_more(tmp_path: Path) -> None:
    rows, queries = clustered(1, 600), clustered(2, 40)
    dataset = indexed(tmp_path / "right", rows, L2)
    side = indexed_side(side_of(dataset), L2)
    neighbours = side.search(queries, 400, SearchParameters(nprobes=1, proposals=1))
    assert (neighbours.positions >= 0).all()
    assert_proven(neighbours, queries, rows, L2)


@pytest.mark.parametrize("k", [600, 700])
def test_k_equal_to_the_number_of_rows_is_searched_exactly(tmp_path: Path, k: int) -> None:
    rows, queries = clustered(1, 600), clustered(2, 10)
    dataset = indexed(tmp_path / "right", rows, COSINE)
    side = indexed_side(side_of(dataset), COSINE)
    neighbours = side.search(queries, k, SearchParameters(nprobes=1))
    assert_same(neighbours, search(queries, rows, k, COSINE))


def test_rows_that_cannot_match_are_not_found(tmp_path: Path) -> None:
    dataset = indexed(tmp_path / "right", clustered(1, 1000), L2)
    awkward = pa.array(
        [None, [0.0] * 7 + [None], [float("nan")] * 8, [float("inf")] + [0.0] * 7, [0.5] * 8],
        pa.list_(pa.float32(), 8),
    )
    more = pa.table({"id": pa.array(range(5), pa.int32()), "emb": awkward})
    dataset = lance.write_dataset(more, dataset.uri, mode="append")
    side = indexed_side(side_of(dataset), L2)
    neighbours = side.search(np.full((3, 8), 0.5, np.float32), 20, ALL)
    assert (neighbours.positions[:, 0] == 1004).all()
    assert not np.isin(neighbours.positions, [1000, 1001, 1002, 1003]).any()
    assert (neighbours.positions >= 0).all()
    assert np.isfinite(neighbours.distances).all()


def test_rows_outside_the_part_are_not_found(tmp_path: Path) -> None:
    rows, queries = clustered(1, 3000), clustered(2, 20)
    dataset = indexed(tmp_path / "right", rows, L2)
    whole = side_of(dataset)
    part = VectorSide(whole.pin, "emb", (), whole.fragments[1:2], storage_options={})
    neighbours = indexed_side(part, L2).search(queries, 5, ALL)
    assert ((neighbours.positions >= 1000) & (neighbours.positions < 2000)).all()
    assert_proven(neighbours, queries, rows, L2)


def test_columns_named_like_those_of_lance_are_searched(tmp_path: Path) -> None:
    rows, queries = clustered(1, 1000), clustered(2, 20)
    dataset = indexed(tmp_path / "right", rows, L2, kind="IVF_FLAT", name="query_index")
    neighbours = indexed_side(side_of(dataset), L2).search(queries, 5, ALL)
    assert_same(neighbours, search(queries, rows, 5, L2))


def test_the_effort_for_a_recall_is_measured(tmp_path: Path) -> None:
    random = np.random.default_rng(5)
    rows = random.standard_normal((4000, 8)).astype(np.float32)
    queries = random.standard_normal((100, 8)).astype(np.float32)
    dataset = indexed(tmp_path / "right", rows, L2)
    side = indexed_side(side_of(dataset), L2)
    truth = search(queries, rows, 10, L2)
    little, much = side.measure(queries, truth, 0.3), side.measure(queries, truth, 0.97)
    assert little is not None and much is not None
    parameters, reached = much
    assert (little[0].proposals, little[0].nprobes) < (parameters.proposals, parameters.nprobes)
    assert recall(
        side.search(queries[1::2], 10, parameters),
        Neighbours(truth.positions[1::2], truth.distances[1::2]),
    ) == pytest.approx(reached)
    elsewhere = Neighbours(truth.positions + len(rows), truth.distances)
    assert side.measure(queries, elsewhere, 0.5) is None
    unfound = side.measure(queries, nothing(100, 10), 0.5)
    assert unfound is not None and unfound[1] == 1


def test_a_table_without_an_index_is_refused(tmp_path: Path) -> None:
    dataset = lance.write_dataset(table(clustered(1, 100)), str(tmp_path / "right"))
    side = indexed_side(side_of(dataset), L2)
    with pytest.raises(RunError, match="has no vector index on 'emb'") as error:
        side.search(clustered(2, 3), 2, SearchParameters(1))
    assert error.value.code == "LS566"


def test_a_store_that_does_not_answer_is_no_error_of_the_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: object, **options: object) -> object:
        raise OSError("LanceError(IO): Generic S3 error: error sending request for url")

    dataset = indexed(tmp_path / "right", clustered(1, 1000), L2)
    side = indexed_side(side_of(dataset), L2)
    monkeypatch.setattr(lance.LanceDataset, "scanner", fail)
    with pytest.raises(StoreUnreachable, match="does not answer"):
        side.search(clustered(2, 3), 2, SearchParameters(1))


def test_an_index_that_cannot_be_read_is_one_error(tmp_path: Path) -> None:
    dataset = indexed(tmp_path / "right", clustered(1, 1000), L2)
    for file in (tmp_path / "right" / "_indices").rglob("*"):
        if file.is_file():
            file.write_bytes(b"nothing")
    dataset = lance.dataset(dataset.uri)
    side = indexed_side(side_of(dataset), L2)
    with pytest.raises(RunError) as error:
        side.search(clustered(2, 3), 2, SearchParameters(1))
    assert error.value.code == "LS565"
