"""Distribution of the pairs of a join among tasks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancestat.joins.search.work import Rows
from lancestat.joins.spark.job import CHUNK_BYTES, Grid, cut, cut_by_pairs, grid, list_grid


@given(
    st.integers(0, 1000),
    st.integers(0, 10_000_000),
    st.integers(0, 10_000_000),
    st.integers(1, 4096),
    st.integers(1, 100_000),
    st.integers(1, 64),
)
def test_every_left_row_is_in_one_chunk_that_fits_a_task(
    start: int, left: int, right: int, dimension: int, k: int, cores: int
) -> None:
    cells = grid(Rows(start, start + left), right, dimension=dimension, k=k, cores=cores)

    edges = [chunk.start for chunk in cells.chunks] + [cells.chunks[-1].stop]
    assert edges == sorted(edges)
    assert (edges[0], edges[-1]) == (start, start + left)
    held = 4 * dimension + 24 * min(k, max(1, right))
    assert all(len(chunk) == 1 or len(chunk) * held <= 2 * CHUNK_BYTES for chunk in cells.chunks)
    assert 1 <= cells.parts <= max(1, right)


@pytest.mark.parametrize(
    ("left", "right", "chunks", "parts"),
    [
        (100_000, 1_000_000, 2, 1),
        (1_024, 1_000_000, 2, 1),
        (1_000, 1_000_000, 1, 2),
        (10, 10_000_000, 1, 2),
        (100, 100_000, 1, 2),
        (100, 10_000, 1, 1),
        (500, 60_000, 1, 1),
        (0, 0, 1, 1),
    ],
)
def test_all_cores_are_busy_where_a_join_takes_long(
    left: int, right: int, chunks: int, parts: int
) -> None:
    cells = grid(Rows(0, left), right, dimension=128, k=10, cores=2)

    assert (len(cells.chunks), cells.parts) == (chunks, parts)


def test_many_chunks_come_in_whole_rounds() -> None:
    cells = grid(Rows(0, 10_000_000), 1000, dimension=768, k=10, cores=8)

    assert len(cells.chunks) > 8
    assert len(cells.chunks) % 8 == 0


def test_without_parts_the_left_side_is_cut_instead() -> None:
    cells = grid(Rows(5, 505), 10_000_000, dimension=128, k=10, cores=2)
    assert cells.parts == 2

    whole = cells.without_parts(2)

    assert (whole.chunks, whole.parts) == ((Rows(5, 255), Rows(255, 505)), 1)


@given(st.integers(0, 100), st.integers(0, 1000), st.integers(1, 50))
def test_cuts_differ_by_one_row_at_most(start: int, count: int, parts: int) -> None:
    lengths = [len(part) for part in cut(Rows(start, start + count), parts)]

    assert sum(lengths) == count
    assert max(lengths) - min(lengths) <= 1


@given(st.integers(0, 1000), st.integers(1, 100_000), st.integers(1, 50))
def test_cuts_by_pairs_have_as_many_rows_after_theirs(start: int, count: int, parts: int) -> None:
    cuts = cut_by_pairs(Rows(start, start + count), parts)
    edges = [cut.start for cut in cuts] + [cuts[-1].stop]
    assert edges == sorted(set(edges)) and (edges[0], edges[-1]) == (start, start + count)
    assert len(cuts) <= parts
    stop = start + count
    pairs = [sum(range(stop - cut.stop, stop - cut.start)) for cut in cuts]
    # An edge is off by half a row, which has up to `count` pairs.
    assert len(cuts) < parts or max(pairs) - min(pairs) <= 3 * count


def test_no_rows_are_one_cut_by_pairs() -> None:
    assert cut_by_pairs(Rows(7, 7), 4) == [Rows(7, 7)]


def test_lists_are_split_where_chunks_would_read_them_again() -> None:
    left = Rows(5, 10_005)
    many = grid(left, 1_000_000, dimension=128, k=10, cores=2)
    assert (len(many.chunks), many.parts) == (2, 1)
    lists = list_grid(left, 1_000_000, many, dimension=128, k=10, cores=2)
    assert lists == Grid((left,), 2)
    # Little is spared by merging, the left rows do not fit into fewer chunks, or lists are split.
    assert list_grid(left, 10_000, many, dimension=128, k=10, cores=2) is many
    heavy = grid(left, 1_000_000, dimension=8192, k=10, cores=2)
    assert list_grid(left, 1_000_000, heavy, dimension=8192, k=10, cores=2) is heavy
    assert list_grid(left, 1_000_000, lists, dimension=128, k=10, cores=2) is lists
