"""Reads columns of vectors, of whatever type, as matrices of float32."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lancestat.errors import NotVectors, VectorLeftToSpark, VectorLengthMismatch
from lancestat.joins.search.metrics import Metric
from lancestat.joins.search.neighbours import Floats, Ints, Mask

# The extension type of Lance, and the bits of a byte.
_BFLOAT16 = "lance.bfloat16"
_BYTE = 8
Number = np.floating | np.integer


@dataclass(frozen=True, slots=True)
class Vectors:
    """Vectors of consecutive rows.

    `values` is (rows, dimension) float32, of zeros where a vector cannot match; `valid` is (rows,).
    """

    values: Floats
    valid: Mask


VECTOR_TYPES = (
    "vectors are fixed-size or variable lists of float, double, halffloat, bfloat16, int8 or uint8"
)
BIT_TYPES = "vectors of bits are fixed-size or variable lists of uint8 or int8, eight bits in each"


def is_vector(type: pa.DataType, *, has_bits: bool = False) -> bool:
    """Whether a column of this type holds vectors: lists of floats, int8 or uint8.

    With `has_bits` they have to be bytes.
    """
    is_list = (
        pa.types.is_fixed_size_list(type) or pa.types.is_list(type) or pa.types.is_large_list(type)
    )
    if not is_list:
        return False
    element = type.value_type
    if pa.types.is_int8(element) or pa.types.is_uint8(element):
        return True
    return not has_bits and bool(pa.types.is_floating(element) or _is_bfloat16(type.value_field))


def check_type(type: pa.DataType, *, has_bits: bool, source: str) -> None:
    """Raise `NotVectors` unless a column of this type holds vectors; `source` names it."""
    if not is_vector(type, has_bits=has_bits):
        raise NotVectors(
            f"{source} holds no vectors {'of bits ' if has_bits else ''}but values of type {type}",
            hint=BIT_TYPES if has_bits else VECTOR_TYPES,
        )


def _is_bfloat16(element: pa.Field) -> bool:
    """Whether elements are bfloat16: a type of Lance's, which not every process has registered."""
    if isinstance(element.type, pa.BaseExtensionType):
        return bool(element.type.extension_name == _BFLOAT16)
    named = (element.metadata or {}).get(b"ARROW:extension:name", b"").decode(errors="replace")
    return named == _BFLOAT16 and bool(element.type == pa.binary(2))


def dimension(type: pa.DataType, *, has_bits: bool = False) -> int | None:
    if not pa.types.is_fixed_size_list(type):
        return None
    return int(type.list_size) * (_BYTE if has_bits else 1)


def vectors(
    array: pa.Array | pa.ChunkedArray,
    dimension: int | None,
    metric: Metric,
    *,
    has_bits: bool = False,
    first_row: int = 0,
    source: str = "the column",
) -> Vectors:
    """Read vectors as float32 and find those that cannot match.

    A null, or one with an element that is null, NaN or infinite, matches nothing, and neither does
    under cosine one of zeros alone. A float64 beyond the range of float32 is infinite, one below it
    is zero. Without a copy where the column is float32 of fixed size and every vector can match.

    `dimension` is the length that vectors have to have, None for that of the type or of the first;
    it is 0 in the end where nothing tells. With `has_bits` elements are the bits of bytes, the
    highest first, as 0 and 1. `first_row` and `source` are for errors.
    """
    check_type(array.type, has_bits=has_bits, source=source)
    bits = _BYTE if has_bits else 1
    chunks = array.chunks if isinstance(array, pa.ChunkedArray) else [array]
    parts = []
    for chunk in chunks:
        length = None if dimension is None else dimension // bits
        values, valid = _elements(chunk, length, first_row, source)
        if has_bits:
            values, valid = _unpacked(values, valid)
        dimension = dimension or values.shape[1] or None
        first_row += len(chunk)
        parts.append(_checked(values, valid, metric))
    if len(parts) == 1:
        return parts[0]
    # The length of vectors is unknown in chunks before the first one.
    width = dimension or 0
    rows = [np.zeros((0, width), np.float32)]
    for part in parts:
        is_wide = part.values.shape[1] == width
        rows.append(part.values if is_wide else np.zeros((len(part.valid), width), np.float32))
    masks = [np.zeros(0, np.bool_), *(part.valid for part in parts)]
    return Vectors(np.concatenate(rows), np.concatenate(masks))


def _elements(
    array: pa.Array, expected: int | None, first_row: int, source: str
) -> tuple[NDArray[Number], Mask]:
    """Return the elements, nulls as NaN, and a mask of the rows that are not null."""
    valid = _is_there(array)
    starts, lengths = _spans(array)
    if expected is None:
        expected = dimension(array.type) or (int(lengths[valid][0]) if valid.any() else 0)
    wrong = valid & ((lengths != expected) | (lengths == 0))
    if wrong.any():
        row = int(np.argmax(wrong))
        raise VectorLengthMismatch(
            f"{source} has a vector of {int(lengths[row])} elements in row {first_row + row}, "
            + (f"where {expected} are expected" if expected else "which is no vector"),
            hint="a row without a vector has null there, not an empty list" if not lengths[row]
            else None,
        )  # fmt: skip
    flat = _numbers(array.values)
    if bool((lengths == expected).all()):
        start = int(starts[0]) if len(array) else 0
        return flat[start : start + len(array) * expected].reshape(len(array), expected), valid
    values = np.zeros((len(array), expected), flat.dtype)
    elements = starts[valid][:, None] + np.arange(expected)
    values[valid] = flat[elements]
    return values, valid


def _is_there(array: pa.Array) -> Mask:
    if not array.null_count:
        return np.ones(len(array), np.bool_)
    there: Mask = array.is_valid().to_numpy(zero_copy_only=False)
    return there


def _spans(array: pa.Array) -> tuple[Ints, Ints]:
    """Return the first element of each row, and the number of its elements."""
    if pa.types.is_fixed_size_list(array.type):
        size = array.type.list_size
        starts = (np.arange(len(array), dtype=np.int64) + array.offset) * size
        return starts, np.full(len(array), size, np.int64)
    offsets = array.offsets.to_numpy().astype(np.int64)
    return offsets[:-1], np.diff(offsets)


def _numbers(elements: pa.Array) -> NDArray[Number]:
    if isinstance(elements, pa.ExtensionArray):
        elements = elements.storage
    if pa.types.is_fixed_size_binary(elements.type):
        return _from_bfloat16(elements)
    # Under nulls a buffer may hold anything; to NumPy they become NaN.
    numbers: NDArray[Number] = elements.to_numpy(zero_copy_only=not elements.null_count)
    return numbers


def _from_bfloat16(elements: pa.Array) -> Floats:
    """Return bfloat16 as float32, of which it is the first half."""
    if not len(elements):
        return np.zeros(0, np.float32)
    halves = np.frombuffer(elements.buffers()[1], "<u2", len(elements), 2 * elements.offset)
    floats = (halves.astype(np.uint32) << 16).view(np.float32)
    floats[~_is_there(elements)] = np.nan
    return floats


def _unpacked(numbers: NDArray[Number], valid: Mask) -> tuple[NDArray[np.uint8], Mask]:
    """Return the bits of bytes; a row with a byte that is null is no valid one."""
    is_null = np.isnan(numbers)
    octets = np.where(is_null, 0, numbers).astype(np.int16).astype(np.uint8)
    return np.unpackbits(octets, axis=1), valid & ~is_null.any(axis=1)


def _checked(elements: NDArray[Number], valid: Mask, metric: Metric) -> Vectors:
    with np.errstate(over="ignore", under="ignore"):
        values: Floats = np.asarray(elements, np.float32, order="C")
    can_match = valid & _are_finite(values)
    if metric.normalizes:
        can_match &= values.any(axis=1)
    if not can_match.all():
        values = np.where(can_match[:, None], values, np.float32(0))
    return Vectors(values, can_match)


def _are_finite(values: Floats) -> Mask:
    with np.errstate(invalid="ignore", over="ignore"):
        finite: Mask = np.isfinite(values.sum(axis=1))
    # Large elements may add up to infinity.
    suspects = np.flatnonzero(~finite)
    finite[suspects] = np.isfinite(values[suspects]).all(axis=1)
    return finite


# Squares of such elements, and products with enlarged ones, add up to a float in any dimension.
_LARGEST_PLAIN = 2.0**48
_ENLARGED = 44


def require_plain(array: pa.Array, source: str) -> None:
    """Refuse vectors that Spark's functions compare in another way than the search does.

    To Spark a distance from NaN or infinity is a number, and squares of large elements are no
    infinity, since it takes their root before it rounds to float.
    """
    elements = array.flatten().drop_null().to_numpy(zero_copy_only=False)
    # Nothing compares with NaN.
    if not bool((np.abs(elements) <= _LARGEST_PLAIN).all()):
        raise VectorLeftToSpark(f"{source} has a vector with NaN, infinity or very large elements")


def enlarged(values: Floats) -> Floats:
    """Scale queries (n, dim) by powers of two, so that their largest elements are near 2^44.

    Each query has its products in the same order then, and as 1 - product in float32 they are told
    apart as well as they are themselves.
    """
    _, exponents = np.frexp(np.abs(values).max(axis=1, initial=0.0))
    scaled: Floats = np.ldexp(values, (_ENLARGED - exponents)[:, None])
    return scaled
