"""Vectors that are to be compared as Spark's functions compare them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from lancestat.errors import VectorLeftToSpark
from lancestat.joins.search.metrics import DOT
from lancestat.joins.search.search import search
from lancestat.joins.search.vectors import enlarged, require_plain

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
