"""Pairs in scratch, against sorting all of them in NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from lancestat.errors import PartitionsLost, ScratchUnusable
from lancestat.joins.search.scratch_tables import Pairs, PairStore, write_pairs


def some_pairs(count: int, rows: Sequence[int], seed: int) -> Pairs:
    """Every other one of them is of one left row, and many are equally far."""
    random = np.random.default_rng(seed)
    left = random.permutation(np.array(rows))[random.integers(0, len(rows), count)]
    left[::2] = rows[3]
    right = random.permutation(10 * count)[:count]
    distances = random.integers(0, 5, count).astype(np.float32)
    # Those of a row are sorted, and rows come in some order.
    order = np.lexsort((right, distances, left * 7 % 11, left % 5))
    return Pairs(left[order], right[order], distances[order])


@pytest.mark.parametrize("most", [1, 40, 10_000])
@pytest.mark.parametrize("fragment_pairs", [7, 1000])
def test_pairs_come_in_the_order_of_left_rows(
    tmp_path: Path, most: int, fragment_pairs: int
) -> None:
    edges = np.array([100, 110, 125, 126, 160])
    rows = np.random.default_rng(fragment_pairs).permutation(np.arange(100, 160)).reshape(4, 15)
    parts = [
        [some_pairs(60, rows[0].tolist(), 0), some_pairs(1, rows[1].tolist(), 1)],
        [some_pairs(50, rows[2].tolist(), 2), some_pairs(9, rows[3].tolist(), 3)],
    ]
    uri = str(tmp_path / "pairs.lance")
    written = [write_pairs(task, edges, uri, {}, fragment_pairs) for task in parts]
    written.append(write_pairs([], edges, uri, {}))
    store = PairStore.of(written, edges, uri, {})
    wanted = sorted(
        zip(*(np.concatenate([getattr(p, c) for task in parts for p in task])
              for c in ("left", "distances", "right")), strict=True)
    )  # fmt: skip
    for first, last in ((0, 4), (1, 3)):
        found, place = [], int(edges[first])
        some = store.of_bins(first, last)
        for part, neighbours in some.neighbours(most):
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
    store = PairStore.of([written], edges, uri, {})
    [file] = Path(uri, "data").iterdir()
    file.unlink()
    with pytest.raises(PartitionsLost, match=r"pairs\.lance cannot be read"):
        list(store.neighbours())
    (tmp_path / "file").write_text("")
    with pytest.raises(ScratchUnusable):
        write_pairs([some_pairs(60, range(50), 0)], edges, str(tmp_path / "file" / "x.lance"), {})
