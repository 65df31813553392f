"""Neighbours merged, against Python's own sort."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lancestat.errors import ListsLost, ScratchUnusable
from lancestat.joins.search.neighbours import Neighbours, merge, share_found
from lancestat.joins.search.scratch_tables import Pairs, PairStore, write_pairs
from tests.examples import examples

# Few values, so that there are ties; a distance of infinity is one, and a zero may be negative.
_DISTANCES = st.sampled_from([-1.5, -0.0, 0.0, 1e-45, 0.25, 0.5, 3e38, float("inf")])


@st.composite
def sides(draw: Any) -> tuple[list[list[list[tuple[float, int]]]], list[int]]:
    """Neighbours (part, query) as sorted pairs of distance and position, and the parts' widths."""
    widths = draw(st.lists(st.integers(1, 8), min_size=1, max_size=4))
    queries = draw(st.integers(0, 4))
    parts: list[list[list[tuple[float, int]]]] = [[] for _ in widths]
    for _ in range(queries):
        places = iter(draw(st.permutations(range(sum(widths)))))
        for part, width in zip(parts, widths, strict=True):
            some = draw(st.lists(_DISTANCES, max_size=width))
            part.append(sorted((distance, next(places)) for distance in some))
    return parts, widths


def neighbours(lines: list[list[tuple[float, int]]], width: int) -> Neighbours:
    result = Neighbours(
        np.full((len(lines), width), -1, np.int64), np.full((len(lines), width), np.inf, np.float32)
    )
    for number, line in enumerate(lines):
        for rank, (distance, position) in enumerate(line):
            result.distances[number, rank], result.positions[number, rank] = distance, position
    return result


@settings(max_examples=examples(300))
@given(sides(), st.integers(1, 20))
def test_merged_neighbours_are_the_nearest_of_all(
    drawn: tuple[list[list[list[tuple[float, int]]]], list[int]], k: int
) -> None:
    parts, widths = drawn
    merged = merge([neighbours(part, width) for part, width in zip(parts, widths, strict=True)], k)
    together = [sorted(chain.from_iterable(lines))[:k] for lines in zip(*parts, strict=True)]
    expected = neighbours(together, k)
    np.testing.assert_array_equal(merged.positions, expected.positions)
    np.testing.assert_array_equal(merged.distances, expected.distances)


def test_the_share_of_true_neighbours_in_visited_lists() -> None:
    visits = np.array([[2, 0], [0, -1]], np.int32)
    true = np.array([[2, 2, 1, 0], [2, 0, -1, -1]], np.int32)
    assert share_found(true, visits) == pytest.approx(4 / 6)
    assert share_found(np.full((2, 4), -1, np.int32), visits) is None
    assert share_found(true[:0], visits[:0]) is None


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


@pytest.mark.parametrize("are_apart", [True, False])
@pytest.mark.parametrize("most", [1, 40, 10_000])
@pytest.mark.parametrize("fragment_pairs", [7, 1000])
def test_pairs_come_in_the_order_of_left_rows(
    tmp_path: Path, most: int, fragment_pairs: int, are_apart: bool
) -> None:
    """Also where the pairs of a left row come from several tasks, and parts of one."""
    edges = np.array([100, 110, 125, 126, 160])
    rows = np.random.default_rng(fragment_pairs).permutation(np.arange(100, 160)).reshape(4, 15)
    if not are_apart:
        rows[:] = rows[0]
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
    with pytest.raises(ListsLost, match=r"pairs\.lance cannot be read"):
        list(store.neighbours())
    (tmp_path / "file").write_text("")
    with pytest.raises(ScratchUnusable):
        write_pairs([some_pairs(60, range(50), 0)], edges, str(tmp_path / "file" / "x.lance"), {})
