"""Reads columns of vectors, and prepares them for products of matrices in float32."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lancestat.errors import NotVectors, VectorLengthMismatch
from lancestat.knn.request import Metric

# Unit roundoff of float32 and float64.
_U32 = 2.0**-24
_U64 = 2.0**-53
# The extension type of Lance, and the bits of a byte.
_BFLOAT16 = "lance.bfloat16"
_BYTE = 8
Number = np.floating | np.integer

# Rows that a centre is taken from.
_SAMPLE = 4096
# Rows are copied to move their centre when that takes so much off their mean square length.
_WORTH_CENTRING = 0.25
# Lengths within these need no scaling: their squares neither overflow nor vanish.
_SHORT, _LONG = 2.0**-30, 2.0**30
# Rows so much longer than the middle one would spoil the bound for all others.
_OUTLIER = 8.0


@dataclass(frozen=True, slots=True)
class PreparedQueries:
    """Queries in a frame: `values` (n, dim), `lengths`, and the `offset` to add to scores."""

    values: NDArray[np.float32]
    lengths: NDArray[np.float64]
    offset: NDArray[np.float64]

    def some(self, which: NDArray[np.int64] | slice) -> PreparedQueries:
        """Return some of the queries."""
        return PreparedQueries(self.values[which], self.lengths[which], self.offset[which])


@dataclass(frozen=True, slots=True)
class PreparedRows:
    """Rows in a frame: `values` (m, dim), none longer than `longest`.

    `halves` are half their squares. `outliers` are far longer than most, or too long for the frame;
    None where there are none.
    """

    values: NDArray[np.float32]
    halves: NDArray[np.float32]
    longest: float
    outliers: NDArray[np.bool_] | None


@dataclass(frozen=True, slots=True)
class Frame:
    """The coordinates in which products are taken.

    Distances do not change with the origin, and products only by what depends on the query alone,
    so vectors that lie far from the origin are moved to it, where float32 resolves them better.
    `scale` is a power of two, which rounds nothing. Under cosine vectors have length 1 first.
    """

    metric: Metric
    centre: NDArray[np.float32] | None
    scale: float

    @classmethod
    def around(
        cls, queries: NDArray[np.float32], rows: NDArray[np.float32], metric: Metric
    ) -> Frame:
        """Choose a frame that suits these queries and rows like these."""
        sample = rows[:: max(1, len(rows) // _SAMPLE)].astype(np.float64)
        if metric is Metric.COSINE:
            sample = _unit(sample)
        squares = np.einsum("nd,nd->n", sample, sample)
        usual = squares <= _OUTLIER**2 * np.median(squares)
        centre, square = sample[usual].mean(axis=0), float(squares[usual].mean())
        is_far = centre @ centre > _WORTH_CENTRING * square
        longest = max(float(np.max(_lengths(queries), initial=0.0)), float(np.sqrt(square)))
        scale = 1.0
        if metric is not Metric.COSINE and longest and not _SHORT < longest < _LONG:
            scale = 2.0 ** int(np.clip(-np.floor(np.log2(longest)), -120, 100))
        return cls(metric, centre.astype(np.float32) if is_far else None, scale)

    def prepare_queries(self, queries: NDArray[np.float32]) -> PreparedQueries:
        """Convert queries to this frame."""
        with np.errstate(over="ignore"):
            values = self._transformed(queries, moved=self.metric is Metric.L2)
        offset = np.zeros(len(queries))
        if self.centre is not None and self.metric is not Metric.L2:
            centre = self.centre.astype(np.float64)
            for start in range(0, len(queries), _SAMPLE):
                some = slice(start, start + _SAMPLE)
                wide = queries[some].astype(np.float64)
                offset[some] = (_unit(wide) if self.metric is Metric.COSINE else wide) @ centre
        return PreparedQueries(values, _lengths(values), offset)

    def prepare_rows(self, rows: NDArray[np.float32]) -> PreparedRows:
        """Convert rows to this frame."""
        with np.errstate(over="ignore"):
            values = self._transformed(rows, moved=True)
            squares = np.einsum("nd,nd->n", values, values)
        longest, outliers = float(squares.max(initial=0.0)), None
        limit = min(max(_OUTLIER**2 * float(np.median(squares)), _SHORT**2), _LONG**4)
        if not longest <= limit:
            outliers = ~(squares <= limit)
        return PreparedRows(
            values, squares / 2, np.sqrt(longest) * (1 + (rows.shape[1] + 2) * _U32), outliers
        )

    def error(self, queries: PreparedQueries, rows: PreparedRows) -> NDArray[np.float64]:
        """Return a bound on the error of distances by products, for each query.

        A product of n terms in any order is off by at most n u / (1 - n u) times that of the
        absolute values (Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., section
        3.1), u = 2^-24. What moving, scaling and normalising round comes on top.
        """
        dimension = queries.values.shape[1]
        share = (dimension + 12) * _U32 / (1 - min(0.5, dimension * _U32))
        # Products may vanish below the smallest normal number.
        vanished = dimension * 2.0**-120
        if self.metric is Metric.L2:
            return self._unscaled(share * (queries.lengths + rows.longest) ** 2 + vanished)
        far = 0.0 if self.centre is None else float(np.linalg.norm(self.centre.astype(np.float64)))
        wide = 4 * dimension * _U64 * (far * self.scale + rows.longest)
        if self.metric is Metric.COSINE:
            # Normalising rounds relative to length 1, whatever is left of it around the centre.
            wide += 6 * _U32
        products = (share * rows.longest + wide) * queries.lengths + vanished
        return self._unscaled(products) + 8 * _U64

    def distance_lower_bounds(
        self, scores: NDArray[np.float32], queries: PreparedQueries, error: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Return lower bounds of distances from scores of `search.best`, (n, m)."""
        distances = self._unscaled(scores.astype(np.float64))
        if self.metric is not Metric.L2:
            distances = (1.0 - queries.offset)[:, None] - distances
        return self._above_zero(distances - error[:, None])

    def nearness(
        self, queries: PreparedQueries, rows: PreparedRows, which: slice
    ) -> NDArray[np.float32]:
        """Return products (n, m) with some of the rows, the larger the nearer."""
        near: NDArray[np.float32] = queries.values @ rows.values[which].T
        if self.metric is Metric.L2:
            near -= rows.halves[which]
        return near

    def pair_lower_bounds(
        self,
        near: NDArray[np.float32],
        query: NDArray[np.int64],
        queries: PreparedQueries,
        error: NDArray[np.float64],
    ) -> NDArray[np.float64]:
        """Return lower bounds of the distances of pairs from their nearness (p,) and query (p,)."""
        wide = near.astype(np.float64)
        if self.metric is Metric.L2:
            distances = self._unscaled(queries.lengths[query] ** 2 - 2 * wide)
        else:
            distances = (1.0 - queries.offset)[query] - self._unscaled(wide)
        return self._above_zero(distances - error[query])

    def nearness_threshold(
        self, limit: NDArray[np.float32], queries: PreparedQueries, error: NDArray[np.float64]
    ) -> NDArray[np.float32]:
        """Return the least nearness of rows whose float32 distance may be within a limit (n,)."""
        with np.errstate(over="ignore"):
            reach = np.nextafter(limit, np.float32(np.inf)).astype(np.float64) + error
            if self.metric is Metric.L2:
                threshold = (queries.lengths**2 - reach * self.scale * self.scale) / 2
            else:
                threshold = (1.0 - queries.offset - reach) * self.scale * self.scale
            narrow: NDArray[np.float32] = np.nextafter(
                threshold.astype(np.float32), np.float32(-np.inf)
            )
            return narrow

    def _above_zero(self, least: NDArray[np.float64]) -> NDArray[np.float64]:
        return least if self.metric is Metric.DOT else np.maximum(least, 0.0, out=least)

    def _unscaled(self, scaled: NDArray[np.float64]) -> NDArray[np.float64]:
        if self.scale == 1.0:
            return scaled
        return scaled / self.scale / self.scale

    def _transformed(self, vectors: NDArray[np.float32], *, moved: bool) -> NDArray[np.float32]:
        transformed = directions(vectors) if self.metric is Metric.COSINE else vectors
        if self.scale != 1.0:
            transformed = transformed * np.float32(self.scale)
        if moved and self.centre is not None:
            transformed = transformed - self.centre * np.float32(self.scale)
        return np.ascontiguousarray(transformed)


def directions(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Scale vectors that are not zero to length 1, rounded to float32."""
    lengths = _lengths(vectors)
    with np.errstate(over="ignore", invalid="ignore"):
        units = vectors * (1.0 / lengths).astype(np.float32)[:, None]
    # Float32 has no inverse of these.
    extreme = np.flatnonzero(~((lengths > 2.0**-100) & (lengths < 2.0**100)))
    units[extreme] = _unit(vectors[extreme].astype(np.float64))
    return units


def _unit(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    lengths: NDArray[np.float64] = np.sqrt(np.einsum("nd,nd->n", vectors, vectors))
    return vectors / lengths[:, None]


def _lengths(vectors: NDArray[np.float32]) -> NDArray[np.float64]:
    lengths: NDArray[np.float64] = np.sqrt(
        np.einsum("nd,nd->n", vectors, vectors, dtype=np.float64)
    )
    return lengths


def outlier_queries(queries: NDArray[np.float32]) -> NDArray[np.bool_]:
    """Return a mask of the queries that are too long for a frame that suits the others."""
    lengths = _lengths(queries)
    limit = _LONG * float(np.median(lengths[lengths > 0])) if lengths.any() else np.inf
    return lengths > limit


@dataclass(frozen=True, slots=True)
class Vectors:
    """Vectors of consecutive rows.

    `values` is (rows, dimension) float32, of zeros where a vector cannot match; `valid` is (rows,).
    """

    values: NDArray[np.float32]
    valid: NDArray[np.bool_]


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


def _is_bfloat16(element: pa.Field) -> bool:
    """Whether elements are bfloat16: a type of Lance's, which not every process has registered."""
    if isinstance(element.type, pa.BaseExtensionType):
        return bool(element.type.extension_name == _BFLOAT16)
    named = (element.metadata or {}).get(b"ARROW:extension:name", b"").decode(errors="replace")
    return named == _BFLOAT16 and bool(element.type == pa.binary(2))


def dimension(type: pa.DataType, *, has_bits: bool = False) -> int | None:
    """Return the number of elements of each vector by the type; None where rows may differ."""
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
    """Read vectors and find those that cannot match.

    A null, or one with an element that is null, NaN or infinite, matches nothing, and neither does
    under cosine one of zeros alone. Elements count as float32: a float64 beyond its range is
    infinite, one below it is zero. Without a copy where the column is float32 of fixed size and
    every vector can match.

    Args:
        array: Fixed-size or variable lists of float16, float32, float64, bfloat16, int8 or uint8.
        dimension: The length that vectors have to have; None for that of the type or the first.
        metric: Under cosine a vector of zeros matches nothing.
        has_bits: The elements are the bits of int8 or uint8, the highest first, as 0 and 1.
        first_row: The number of the first row, for errors.
        source: What holds the rows, for errors.

    Returns:
        Of dimension 0 when no row has a vector and neither argument nor type tells.

    Raises:
        VectorLengthMismatch: a vector of another length or without elements.
        NotVectors: no vectors.
    """
    if not is_vector(array.type, has_bits=has_bits):
        raise NotVectors(
            f"{source} holds no vectors {'of bits ' if has_bits else ''}"
            f"but values of type {array.type}",
            hint=BIT_TYPES if has_bits else VECTOR_TYPES,
        )
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
    return parts[0] if len(parts) == 1 else _concatenated(parts, dimension or 0)


def _elements(
    array: pa.Array, expected: int | None, first_row: int, source: str
) -> tuple[NDArray[Number], NDArray[np.bool_]]:
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
    whole = (
        slice(int(starts[0]), int(starts[0]) + len(array) * expected) if len(array) else slice(0)
    )
    if bool((lengths == expected).all()):
        return flat[whole].reshape(len(array), expected), valid
    values = np.zeros((len(array), expected), flat.dtype)
    elements = starts[valid][:, None] + np.arange(expected)
    values[valid] = flat[elements]
    return values, valid


def _is_there(array: pa.Array) -> NDArray[np.bool_]:
    if not array.null_count:
        return np.ones(len(array), np.bool_)
    there: NDArray[np.bool_] = array.is_valid().to_numpy(zero_copy_only=False)
    return there


def _spans(array: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
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


def _from_bfloat16(elements: pa.Array) -> NDArray[np.float32]:
    """Return bfloat16 as float32, of which it is the first half."""
    if not len(elements):
        return np.zeros(0, np.float32)
    halves = np.frombuffer(elements.buffers()[1], "<u2", len(elements), 2 * elements.offset)
    floats = (halves.astype(np.uint32) << 16).view(np.float32)
    floats[~_is_there(elements)] = np.nan
    return floats


def _unpacked(
    numbers: NDArray[Number], valid: NDArray[np.bool_]
) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
    """Return the bits of bytes; a row with a byte that is null is no valid one."""
    is_null = np.isnan(numbers)
    octets = np.where(is_null, 0, numbers).astype(np.int16).astype(np.uint8)
    return np.unpackbits(octets, axis=1), valid & ~is_null.any(axis=1)


def _checked(elements: NDArray[Number], valid: NDArray[np.bool_], metric: Metric) -> Vectors:
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


def _concatenated(parts: list[Vectors], dimension: int) -> Vectors:
    values = np.concatenate(
        [_widened(part.values, dimension) for part in parts]
        or [np.zeros((0, dimension), np.float32)]
    )
    return Vectors(
        values, np.concatenate([part.valid for part in parts] or [np.zeros(0, np.bool_)])
    )


def _widened(values: NDArray[np.float32], dimension: int) -> NDArray[np.float32]:
    # The length of vectors is unknown in chunks before the first one.
    if values.shape[1] == dimension:
        return values
    return np.zeros((len(values), dimension), np.float32)
