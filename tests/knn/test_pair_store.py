"""Pairs in scratch, against sorting all of them in NumPy."""

from __future__ import annotations

from pathlib import Path

import lance
import numpy as np
import pytest

from lancestat.errors import PartitionsLost, ScratchUnusable
from lancestat.knn.pair_store import Pairs, PairStore, write_pairs


def some_pairs(count: int, rows: range, seed: int) -> Pairs:
    """Every other one of them is of one left row, and many are equally far."""
    random = np.random.default_rng(seed)
    left = random.integers(rows.start, rows.stop, count)
    left[::2] = rows.start + 3
    right = random.permutation(10 * count)[:count]
    return Pairs(left, right, random.integers(0, 5, count).astype(np.float32))


@pytest.mark.parametrize("most", [1, 40, 10_000])
@pytest.mark.parametrize("fragment_pairs", [7, 1000])
def test_pairs_come_in_the_order_of_left_rows(
    tmp_path: Path, most: int, fragment_pairs: int
) -> None:
    rows, edges = range(100, 160), np.array([100, 110, 125, 126, 160])
    parts = [[some_pairs(60, rows, 2 * task), some_pairs(1, rows, 2 * task + 1)] for task in (0, 1)]
    parts[1][0].right[:] += 1000
    uri = str(tmp_path / "pairs.lance")
    written = [write_pairs(task, edges, uri, {}, fragment_pairs) for task in parts]
    written.append(write_pairs([], edges, uri, {}))
    store = PairStore.commit(written, edges, uri, {})
    wanted = sorted(
        zip(*(np.concatenate([getattr(p, c) for task in parts for p in task])
              for c in ("left", "distances", "right")), strict=True)
    )  # fmt: skip
    for first, last in ((0, 4), (1, 3)):
        found, place = [], int(edges[first])
        some = store.of_bins(first, last)
        for part, neighbours in some.neighbours(lance.dataset(uri), most):
            assert part.start == place
            place = part.stop
            assert len(part) == 1 or neighbours.positions.size <= max(most, len(part))
            for number, (at, distances) in enumerate(
                zip(neighbours.positions, neighbours.distances, strict=True)
            ):
                is_there = at >= 0
                assert is_there[: is_there.sum()].all()
                assert np.isinf(distances[~is_there]).all()
                pairs = zip(distances[is_there], at[is_there], strict=True)
                found += [(part.start + number, *pair) for pair in pairs]
        assert place == edges[last]
        assert found == [line for line in wanted if edges[first] <= line[0] < edges[last]]


def test_files_that_are_gone_or_cannot_be_written_are_errors(tmp_path: Path) -> None:
    edges, uri = np.array([0, 50]), str(tmp_path / "pairs.lance")
    written = write_pairs([some_pairs(60, range(50), 0)], edges, uri, {})
    store, dataset = PairStore.commit([written], edges, uri, {}), lance.dataset(uri)
    [file] = Path(uri, "data").iterdir()
    file.unlink()
    with pytest.raises(PartitionsLost, match=r"pairs\.lance cannot be read"):
        list(store.neighbours(dataset))
    (tmp_path / "file").write_text("")
    with pytest.raises(ScratchUnusable):
        write_pairs([some_pairs(60, range(50), 0)], edges, str(tmp_path / "file" / "x.lance"), {})
