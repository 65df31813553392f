"""Vectors of an Arrow column as one float32 matrix, and which of them can match."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lancestat.errors import RunError
from lancestat.knn.metric import Metric


@dataclass(frozen=True, slots=True)
class Vectors:
    """Vectors of consecutive rows.

    `values` is (rows, dimension) float32, of zeros where a vector cannot match; `valid` is (rows,).
    """

    values: NDArray[np.float32]
    valid: NDArray[np.bool_]


def is_vector(type: pa.DataType) -> bool:
    """Whether a column of this type holds vectors: lists of float16, float32 or float64."""
    is_list = (
        pa.types.is_fixed_size_list(type) or pa.types.is_list(type) or pa.types.is_large_list(type)
    )
    return bool(is_list and pa.types.is_floating(type.value_type))


def dimension(type: pa.DataType) -> int | None:
    """How many elements the type gives each vector; None where rows may differ."""
    return int(type.list_size) if pa.types.is_fixed_size_list(type) else None


def vectors(
    array: pa.Array | pa.ChunkedArray,
    dimension: int | None,
    metric: Metric,
    *,
    first_row: int = 0,
    place: str = "the column",
) -> Vectors:
    """Read vectors and find those that cannot match.

    A null, or one with an element that is null, NaN or infinite, matches nothing, and neither does
    under cosine one of zeros alone. Elements count as float32: a float64 beyond its range is
    infinite, one below it is zero. Without a copy where the column is float32 of fixed size and
    every vector can match.

    Args:
        array: Fixed-size or variable lists of float16, float32 or float64.
        dimension: The length that vectors have to have; None for that of the type or the first.
        metric: Decides about zeros.
        first_row: The number of the first row, for errors.
        place: What holds the rows, for errors.

    Returns:
        Of dimension 0 when no row has a vector and neither argument nor type tells.

    Raises:
        RunError: LS550 a vector of another length or without elements, LS551 no vectors.
    """
    if not is_vector(array.type):
        raise RunError(
            "LS551",
            f"{place} holds no vectors but values of type {array.type}",
            hint="vectors are fixed-size or variable lists of float, double or halffloat",
        )
    chunks = array.chunks if isinstance(array, pa.ChunkedArray) else [array]
    parts = []
    for chunk in chunks:
        values, valid = _elements(chunk, dimension, first_row, place)
        dimension = dimension or values.shape[1] or None
        first_row += len(chunk)
        parts.append(_judged(values, valid, metric))
    return parts[0] if len(parts) == 1 else _together(parts, dimension or 0)


def _elements(
    array: pa.Array, expected: int | None, first_row: int, place: str
) -> tuple[NDArray[np.floating], NDArray[np.bool_]]:
    """The elements as they are, nulls as NaN, and which rows are there."""
    valid = _is_there(array)
    starts, lengths = _spans(array)
    if expected is None:
        expected = dimension(array.type) or (int(lengths[valid][0]) if valid.any() else 0)
    wrong = valid & ((lengths != expected) | (lengths == 0))
    if wrong.any():
        row = int(np.argmax(wrong))
        raise RunError(
            "LS550",
            f"{place} has a vector of {int(lengths[row])} elements in row {first_row + row}, "
            + (f"where {expected} are expected" if expected else "which is no vector"),
            hint="a row without a vector has null there, not an empty list" if not lengths[row]
            else None,
        )  # fmt: skip
    flat = _floats(array.values)
    whole = (
        slice(int(starts[0]), int(starts[0]) + len(array) * expected) if len(array) else slice(0)
    )
    if bool((lengths == expected).all()):
        return flat[whole].reshape(len(array), expected), valid
    values = np.zeros((len(array), expected), flat.dtype)
    places = starts[valid][:, None] + np.arange(expected)
    values[valid] = flat[places]
    return values, valid


def _is_there(array: pa.Array) -> NDArray[np.bool_]:
    if not array.null_count:
        return np.ones(len(array), np.bool_)
    there: NDArray[np.bool_] = array.is_valid().to_numpy(zero_copy_only=False)
    return there


def _spans(array: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where among the elements each row starts, and how many it has."""
    if pa.types.is_fixed_size_list(array.type):
        size = array.type.list_size
        starts = (np.arange(len(array), dtype=np.int64) + array.offset) * size
        return starts, np.full(len(array), size, np.int64)
    offsets = array.offsets.to_numpy().astype(np.int64)
    return offsets[:-1], np.diff(offsets)


def _floats(elements: pa.Array) -> NDArray[np.floating]:
    # Under nulls a buffer may hold anything; to NumPy they become NaN.
    floats: NDArray[np.floating] = elements.to_numpy(zero_copy_only=not elements.null_count)
    return floats


def _judged(elements: NDArray[np.floating], valid: NDArray[np.bool_], metric: Metric) -> Vectors:
    with np.errstate(over="ignore", under="ignore"):
        values: NDArray[np.float32] = np.asarray(elements, np.float32, order="C")
    can_match = valid & _are_finite(values)
    if metric is Metric.COSINE:
        can_match &= values.any(axis=1)
    if not can_match.all():
        values = np.where(can_match[:, None], values, np.float32(0))
    return Vectors(values, can_match)


def _are_finite(values: NDArray[np.float32]) -> NDArray[np.bool_]:
    with np.errstate(invalid="ignore", over="ignore"):
        finite: NDArray[np.bool_] = np.isfinite(values.sum(axis=1))
    # Large elements may add up to infinity.
    suspects = np.flatnonzero(~finite)
    finite[suspects] = np.isfinite(values[suspects]).all(axis=1)
    return finite


def _together(parts: list[Vectors], dimension: int) -> Vectors:
    values = np.concatenate(
        [_widened(part.values, dimension) for part in parts]
        or [np.zeros((0, dimension), np.float32)]
    )
    return Vectors(
        values, np.concatenate([part.valid for part in parts] or [np.zeros(0, np.bool_)])
    )


def _widened(values: NDArray[np.float32], dimension: int) -> NDArray[np.float32]:
    # Chunks before the first vector could not know how long it is.
    if values.shape[1] == dimension:
        return values
    return np.zeros((len(values), dimension), np.float32)
