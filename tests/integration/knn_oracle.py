"""Nearest neighbours by brute force in float64, and the sides that tests join."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa

from lancestat.joins.search.work import PinnedTable
from lancestat.lake.open import snapshot

Vector = Sequence[float | None] | None
# Number of the left row, of the right row, distance, rank; None where nothing matches.
Row = tuple[int, int | None, float | None, int | None]


def usable(vector: Vector, metric: str) -> bool:
    """Return whether a vector can match any other."""
    if vector is None or any(element is None for element in vector):
        return False
    with np.errstate(over="ignore"):
        values = np.array(vector, np.float64).astype(np.float32)
    return bool(np.isfinite(values).all() and (metric != "cosine" or values.any()))


def distances(left: np.ndarray, right: np.ndarray, metric: str) -> np.ndarray:
    """(left, right) in float64."""
    left, right = left.astype(np.float64), right.astype(np.float64)
    if metric == "l2":
        return ((left[:, None] - right[None]) ** 2).sum(axis=2)
    products = (left[:, None] * right[None]).sum(axis=2)
    if metric == "dot":
        return 1.0 - products
    lengths = np.linalg.norm(left, axis=1)[:, None] * np.linalg.norm(right, axis=1)[None]
    return 1.0 - products / lengths


def joined(
    left: Sequence[Vector], right: Sequence[Vector], k: int, metric: str, kind: str
) -> list[Row]:
    """The rows that a join has to have, in their order."""
    places = [place for place, vector in enumerate(right) if usable(vector, metric)]
    offered = np.array([right[place] for place in places], np.float64).astype(np.float32)
    rows: list[Row] = []
    for number, vector in enumerate(left):
        if not usable(vector, metric) or not places:
            rows += [(number, None, None, None)] if kind == "left_outer" else []
            continue
        asked = np.array([vector], np.float64).astype(np.float32)
        matrix = distances(asked, offered, metric)[0].astype(np.float32)
        order = np.argsort(matrix, kind="stable")[:k]
        rows += [(number, places[at], float(matrix[at]), rank + 1) for rank, at in enumerate(order)]
    return rows


def assert_same(actual: Sequence[Row], expected: Sequence[Row]) -> None:
    """The same neighbours in the same order, at distances equal within 1e-5."""
    assert [(a, b, d) for a, b, _, d in actual] == [(a, b, d) for a, b, _, d in expected]
    for (_, _, one, _), (_, _, other, _) in zip(actual, expected, strict=True):
        if one is None or other is None:
            assert one is other
        else:
            assert abs(one - other) <= 1e-5 * max(1e-6, abs(other)), (one, other)


def table(vectors: Sequence[Vector], type: pa.DataType, first: int = 0) -> pa.Table:
    """Numbered rows with vectors."""
    numbers = pa.array(range(first, first + len(vectors)), pa.int64())
    names = pa.array([f"row {number}" for number in numbers.to_pylist()], pa.string())
    column = pa.array([None if vector is None else list(vector) for vector in vectors], type)
    return pa.table({"id": numbers, "emb": column, "name": names})


def write(path: Path, vectors: Sequence[Vector], type: pa.DataType, files: int = 3) -> None:
    """A Lance dataset of several fragments."""
    rows = max(1, -(-len(vectors) // files))
    lance.write_dataset(
        table(vectors, type), str(path), max_rows_per_file=rows, mode="overwrite",
        data_storage_version="2.1",
    )  # fmt: skip


def pinned(path: Path) -> PinnedTable:
    """A dataset at its latest version."""
    return PinnedTable.at(snapshot(lance.dataset(str(path)), str(path), {}))


def awkward(
    rng: np.random.Generator, count: int, dimension: int, *, few: bool = True
) -> list[Vector]:
    """Vectors with ties, duplicates, nulls, NaN, infinities and zeros among them."""
    values = rng.integers(-2, 3, (count, dimension)).astype(np.float64)
    if not few:
        values = rng.standard_normal((count, dimension))
    vectors: list[Vector] = [list(row) for row in values.tolist()]
    for number in range(count):
        kind = rng.integers(0, 12)
        broken = list(values[number].tolist())
        place = int(rng.integers(0, dimension))
        if kind == 0:
            vectors[number] = None
        elif kind in (1, 2, 3):
            broken[place] = (None, float("nan"), float("inf"))[kind - 1]
            vectors[number] = broken
        elif kind == 4:
            vectors[number] = [0.0] * dimension
        elif kind == 5 and number:
            vectors[number] = vectors[number - 1]
    return vectors
