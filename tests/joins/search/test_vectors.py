from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancestat.errors import NotVectors, VectorLeftToSpark, VectorLengthMismatch
from lancestat.joins.search.metrics import COSINE, DOT, L2, Metric
from lancestat.joins.search.vectors import dimension, enlarged, is_vector, require_plain, vectors
from tests.joins.search.brute_force import FORMULAS
from tests.joins.search.exact import search

ELEMENTS = (pa.float16(), pa.float32(), pa.float64())
LISTS = (pa.list_, pa.large_list, lambda type: pa.list_(type, 2))
NAN, INFINITY = math.nan, math.inf

Row = list[Any] | None


def expected(rows: list[Row], metric: Metric) -> list[list[float] | None]:
    """Each row's vector in float32, None where it cannot match."""

    def one(row: Row) -> list[float] | None:
        if row is None or None in row:
            return None
        with np.errstate(over="ignore", under="ignore"):
            narrow = [float(np.float32(value)) for value in row]
        if not all(map(math.isfinite, narrow)):
            return None
        return None if metric is COSINE and not any(narrow) else narrow

    return [one(row) for row in rows]


def assert_read(array: pa.Array | pa.ChunkedArray, rows: list[Row], metric: Metric) -> None:
    read = vectors(array, None, metric)
    wanted = expected(rows, metric)
    assert read.values.dtype == np.float32
    assert read.valid.tolist() == [row is not None for row in wanted]
    width = read.values.shape[1]
    assert read.values.tolist() == [row or [0.0] * width for row in wanted]


def typed(rows: list[Row], list_type: Any, element: pa.DataType) -> pa.Array:
    if pa.types.is_float16(element):
        rows = [
            row and [None if value is None else np.float16(value) for value in row] for row in rows
        ]
    return pa.array(rows, list_type(element))


AWKWARD: list[Row] = [
    [1.0, 2.0],
    None,
    [3.0, NAN],
    [0.0, 0.0],
    [None, 4.0],
    [INFINITY, 1.0],
    [-INFINITY, INFINITY],
    [-0.0, 0.5],
    [-3.0, 3.0],
]


@pytest.mark.parametrize("metric", FORMULAS, ids=str)
@pytest.mark.parametrize("element", ELEMENTS, ids=str)
@pytest.mark.parametrize("list_type", LISTS, ids=["list", "large_list", "fixed_size_list"])
def test_awkward_rows_of_every_type_are_read(
    list_type: Any, element: pa.DataType, metric: Metric
) -> None:
    array = typed(AWKWARD, list_type, element)
    assert_read(array, AWKWARD, metric)
    for start in range(len(AWKWARD)):
        for stop in range(start, len(AWKWARD) + 1):
            assert_read(array.slice(start, stop - start), AWKWARD[start:stop], metric)


@given(
    st.lists(
        st.one_of(
            st.none(),
            st.lists(st.one_of(st.none(), st.floats()), min_size=3, max_size=3),
            st.lists(st.floats(-2, 2), min_size=3, max_size=3),
        )
    ),
    st.lists(st.integers(0, 20)),
    st.sampled_from(FORMULAS),
    st.sampled_from([pa.list_(pa.float64()), pa.list_(pa.float64(), 3)]),
)
def test_chunked_rows_are_read(rows: list[Row], cuts: list[int], metric: Metric, type: Any) -> None:
    edges = [0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)]
    chunks = [pa.array(rows[start:stop], type) for start, stop in pairwise(edges)]
    assert_read(pa.chunked_array(chunks, type), rows, metric)


def test_a_double_beyond_float_is_infinite_and_one_below_it_is_zero() -> None:
    array = pa.array([[1e300, 1.0], [1e-300, 0.0], [3.0e38, 1.0]], pa.list_(pa.float64()))
    assert vectors(array, None, L2).valid.tolist() == [False, True, True]
    assert vectors(array, None, COSINE).valid.tolist() == [False, False, True]


def test_large_elements_that_add_up_to_infinity_can_match() -> None:
    array = pa.array([[3e38, 3e38], [3e38, -INFINITY]], pa.list_(pa.float32(), 2))
    assert vectors(array, None, L2).valid.tolist() == [True, False]


def test_values_under_null_are_ignored() -> None:
    values = pa.array([1, 2, NAN, INFINITY, 5, 6], pa.float32())
    fixed = pa.FixedSizeListArray.from_arrays(values, 2, mask=pa.array([False, True, False]))
    ragged = pa.ListArray.from_arrays(
        pa.array([0, 2, 5, 7], pa.int32()),
        pa.array([1, 2, 7, 7, 7, 5, 6], pa.float32()),
        mask=pa.array([False, True, False]),
    )
    for array in (fixed, ragged):
        read = vectors(array, 2, L2)
        assert read.valid.tolist() == [True, False, True]
        assert read.values.tolist() == [[1, 2], [0, 0], [5, 6]]


def test_float32_of_fixed_size_is_not_copied() -> None:
    matrix = np.ones((100, 4), np.float32)
    array = pa.FixedSizeListArray.from_arrays(matrix.reshape(-1), 4)
    for metric in FORMULAS:
        assert np.shares_memory(vectors(array, 4, metric).values, matrix)
        assert np.shares_memory(vectors(array.slice(10, 5), 4, metric).values, matrix)


@pytest.mark.parametrize(
    ("rows", "length", "row"),
    [
        ([[1.0, 2.0], None, [1.0]], None, 12),
        ([[1.0], [1.0, 2.0]], None, 11),
        ([[1.0, 2.0]], 3, 10),
        ([None, [1.0, 2.0], []], None, 12),
    ],
)
def test_vectors_of_other_lengths_are_refused_by_row(
    rows: list[Row], length: int | None, row: int
) -> None:
    array = pa.array(rows, pa.list_(pa.float32()))
    with pytest.raises(
        VectorLengthMismatch, match=f"the left side has a vector .* in row {row}, "
    ) as error:
        vectors(array, length, L2, first_row=10, source="the left side")
    assert error.value.code == "LS456"


def test_later_chunks_are_held_to_the_first_ones_length() -> None:
    chunks = pa.chunked_array([[None], [[1.0, 2.0]], [None, [1.0]]], pa.list_(pa.float32()))
    with pytest.raises(
        VectorLengthMismatch, match=r"a vector of 1 elements in row 3, where 2 are expected"
    ):
        vectors(chunks, None, L2)


def test_a_type_of_another_length_is_refused_where_it_has_vectors() -> None:
    type = pa.list_(pa.float32(), 3)
    with pytest.raises(
        VectorLengthMismatch, match="a vector of 3 elements in row 1, where 2 are expected"
    ):
        vectors(pa.array([None, [1, 2, 3]], type), 2, L2)


@pytest.mark.parametrize("list_type", [pa.list_, lambda type: pa.list_(type, 0)])
def test_lists_without_elements_are_not_vectors(list_type: Any) -> None:
    with pytest.raises(
        VectorLengthMismatch, match="a vector of 0 elements in row 0, which is no vector"
    ):
        vectors(pa.array([[]], list_type(pa.float32())), None, L2)


@pytest.mark.parametrize(
    "type",
    [
        pa.int32(),
        pa.string(),
        pa.list_(pa.int32()),
        pa.list_(pa.binary(2)),
        pa.list_(pa.list_(pa.float32())),
    ],
    ids=str,
)
def test_other_types_are_not_vectors(type: pa.DataType) -> None:
    assert not is_vector(type)
    with pytest.raises(
        NotVectors, match="the right side holds no vectors but values of type"
    ) as error:
        vectors(pa.array([], type), None, L2, source="the right side")
    assert error.value.code == "LS455"


@pytest.mark.parametrize("element", ELEMENTS, ids=str)
def test_dimensions_of_types(element: pa.DataType) -> None:
    assert is_vector(pa.list_(element, 5)) and dimension(pa.list_(element, 5)) == 5
    assert is_vector(pa.large_list(element)) and dimension(pa.large_list(element)) is None


def test_an_empty_column_has_the_known_dimension() -> None:
    nothing = pa.chunked_array([], pa.list_(pa.float32()))
    assert vectors(nothing, None, L2).values.shape == (0, 0)
    assert vectors(nothing, 7, L2).values.shape == (0, 7)
    none = pa.array([None, None], pa.list_(pa.float32()))
    assert vectors(none, 7, L2).values.shape == (2, 7)
    assert vectors(pa.array([], pa.list_(pa.float32(), 4)), None, L2).values.shape == (0, 4)


LISTS = pa.list_(pa.float32())


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf, 2.0**49, -3e38])
def test_elements_that_spark_compares_otherwise_are_refused(odd: float) -> None:
    column = pa.array([None, [1.0, None], [2.0, odd]], LISTS)
    with pytest.raises(VectorLeftToSpark, match="the side has a vector with NaN, infinity or"):
        require_plain(column, "the side")
    # What a slice leaves out does not count.
    require_plain(column[:2], "the side")


def test_plain_vectors_pass() -> None:
    require_plain(pa.array([[], None, [0.0, -0.0, 1e-40, None, 2.0**48]], LISTS), "the side")
    require_plain(pa.array([], LISTS), "the side")


def test_enlarged_queries_have_the_order_of_products_in_any_size() -> None:
    rng = np.random.default_rng(3)
    queries = (rng.standard_normal((20, 16)) * 10.0 ** rng.integers(-20, 3, (20, 1))).astype(
        np.float32
    )
    queries[0] = 0
    rows = (rng.standard_normal((400, 16)) * 1e-4).astype(np.float32)
    products = queries.astype(np.float64) @ rows.astype(np.float64).T

    nearest = search(enlarged(queries), rows, 5, DOT).positions

    expected = np.argsort(-products, axis=1, kind="stable")[:, :5]
    assert (np.sort(nearest, axis=1) == np.sort(expected, axis=1)).all()
    assert (np.abs(enlarged(queries)).max(axis=1)[1:] >= 2.0**43).all()


FLOATS = st.floats(-100, 100, width=32)
PAIRS = st.integers(1, 6).flatmap(
    lambda size: st.tuples(
        st.lists(FLOATS, min_size=size, max_size=size),
        st.lists(FLOATS, min_size=size, max_size=size),
    )
)


def one(left: list[float], right: list[float], metric: Metric) -> float:
    pair = np.array([left], np.float32), np.array([right], np.float32)
    return float(metric.distances(*pair)[0])


@given(PAIRS)
def test_l2_and_dot_are_those_of_exact_arithmetic(pair: tuple[list[float], list[float]]) -> None:
    left, right = ([Fraction(value) for value in side] for side in pair)
    square = sum((a - b) ** 2 for a, b in zip(left, right, strict=True))
    product = sum(a * b for a, b in zip(left, right, strict=True))
    assert one(*pair, L2) == pytest.approx(float(square), rel=1e-14, abs=1e-300)
    size = sum(abs(a * b) for a, b in zip(left, right, strict=True))
    assert one(*pair, DOT) == pytest.approx(float(1 - product), abs=1e-15 * float(1 + size))


def test_cosine_is_one_minus_the_cosine_of_the_angle() -> None:
    for angle in np.linspace(0, np.pi, 30):
        distance = one([3, 0], [2 * np.cos(angle), 2 * np.sin(angle)], COSINE)
        assert distance == pytest.approx(1 - np.cos(angle), abs=1e-7)


@given(st.lists(FLOATS, min_size=1, max_size=300), st.integers(1, 1000))
def test_vectors_of_one_direction_are_at_cosine_distance_zero(
    vector: list[float], factor: int
) -> None:
    whole = [float(round(value)) for value in vector]
    if any(whole):
        assert one(whole, [value * factor for value in whole], COSINE) == 0.0


@pytest.mark.parametrize("metric", FORMULAS, ids=str)
def test_a_distance_depends_only_on_its_two_vectors(metric: Metric) -> None:
    random = np.random.default_rng(1)
    for size in (1, 3, 8, 17, 128, 300, 1537):
        left = random.standard_normal((200, size)).astype(np.float32)
        right = random.standard_normal((200, size)).astype(np.float32)
        together = metric.distances(left, right)
        for row in range(0, 200, 7):
            alone = metric.distances(left[row : row + 1], right[row : row + 1])
            padded = np.concatenate([left[:3], left[row : row + 1]]), right[[0, 1, 2, row]]
            assert alone[0] == together[row] == metric.distances(*padded)[-1]
            spread = np.broadcast_to(left[row], right.shape), np.asfortranarray(right)
            assert metric.distances(*spread)[row] == alone[0]


def test_the_largest_and_smallest_floats_have_distances() -> None:
    big, tiny = 3.0e38, 1e-45
    assert one([big], [-big], L2) == pytest.approx(3.6e77, rel=1e-6)
    assert one([big, 0], [big, big], COSINE) == pytest.approx(1 - 2**-0.5, rel=1e-6)
    assert one([tiny, 0], [tiny, tiny], COSINE) == pytest.approx(1 - 2**-0.5, rel=1e-6)
