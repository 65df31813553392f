"""Metrics: the distance of each, its error bound in float32, and how centroids are trained for it.

A metric is one instance, and a class where its formulas are its own. Another one is added here, and
its name to `spec.knn_join.MetricName`. NumPy is imported inside functions: planning goes without.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, TypeVar

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from pyspark.sql import Column

    from lancestat.joins.search.neighbours import Floats, Reals

Real = TypeVar("Real", bound="np.floating")

# Unit roundoff of float32 and float64.
U32 = 2.0**-24
U64 = 2.0**-53

# Cosines in float64 are off by about 2^-52. Distances below that are noise, and rounding it away
# makes vectors of one direction equally near.
_COSINE_STEPS = float(1 << 46)


@dataclass(frozen=True, slots=True)
class Metric(ABC):
    """A distance between vectors; the smaller, the nearer. Instances are pickled.

    The search takes inner products of prepared vectors by GEMM (`prefilter.Scaling`). Such a
    product is the *nearness* of a query and a row: a row is `slope` farther for each unit of
    nearness that it has less.

    Attributes:
        name: As YAML spells it.
        spark_function: Spark's function by which `NEAREST BY` ranks, None where it has none.
        index_name: What Lance calls a vector index of this metric, None where none is searched.
        has_bits: Vectors are bytes, whose bits are their elements.
        slope: See above.
        least: No distance is below it.
        translates: Distances stay the same when all vectors are translated, so that both sides are
            centred before GEMM.
        normalizes: Only directions are compared, so that vectors are scaled to length 1 first; one
            of zeros has no direction and matches nothing.
        grows_with_query: Distances grow with the query, and float32 resolves those of longer ones
            better, while their order is the same.
        pads: For centroids, rows are padded to one length.
    """

    name: str
    spark_function: str | None = None
    index_name: str | None = None
    has_bits: bool = False

    slope: ClassVar[float] = 1.0
    least: ClassVar[float] = 0.0
    translates: ClassVar[bool] = False
    normalizes: ClassVar[bool] = False
    grows_with_query: ClassVar[bool] = False
    pads: ClassVar[bool] = False

    def __str__(self) -> str:
        return self.name

    @abstractmethod
    def distances(self, queries: Floats, rows: Floats) -> Reals:
        """Return distances (n,) of pairs in float64, without the cancellation of GEMM.

        The distance of a pair depends on nothing but its two vectors, rows of (n, dim) each.
        """

    @abstractmethod
    def spark_distance(self, left: Column, right: Column) -> Column:
        """Return `distances` of two arrays in Spark: in double, element by element, as a float."""

    def row_term(self, squares: Reals) -> Reals | float:
        """Return what is added to the nearness of rows of these squared lengths."""
        return 0.0

    @abstractmethod
    def zero_nearness(self, squares: Reals, offsets: Reals, slope: float) -> Reals:
        """Return the nearness (n,) of distance zero for each query.

        `squares` are the squared lengths of prepared queries, `offsets` their products with the
        centre that rows were moved by; `slope` is that of the metric, in the scale of prepared
        vectors.
        """

    @abstractmethod
    def error_bound(
        self, lengths: Reals, longest: float, dimension: int, centre: float, slope: float
    ) -> Reals:
        """Return a bound (n,) on the error of distances that are computed from nearness.

        A nearness is a sum of dim + 2 products, in any order. Such a sum of n products is off by at
        most n u / (1 - n u) times that of their absolute values (Higham, Accuracy and Stability of
        Numerical Algorithms, 2nd ed., section 3.1), u = 2^-24. What preparing rounds comes on top.
        `lengths` are of prepared queries, `longest` that of the longest prepared row, `centre` the
        scaled one of the centre that rows were moved by.
        """

    @abstractmethod
    def list_errors(self, scores: Reals, length: float) -> Reals:
        """Return how far rows are from their centroids, by FAISS's scores of these."""


class SquaredEuclidean(Metric):
    """The squared Euclidean distance; nearness is qy - |y|^2 / 2, the distance |q|^2 less twice."""

    __slots__ = ()
    slope = 2.0
    translates = True

    def distances(self, queries: Floats, rows: Floats) -> Reals:
        left, right = _wide(queries), _wide(rows)
        right -= left
        return _products(right, right)

    def spark_distance(self, left: Column, right: Column) -> Column:
        from pyspark.sql.functions import zip_with

        squares = zip_with(left, right, lambda a, b: _square(_double(a) - _double(b)))
        return _sum(squares).cast("float")

    def row_term(self, squares: Reals) -> Reals | float:
        return -squares / 2

    def zero_nearness(self, squares: Reals, offsets: Reals, slope: float) -> Reals:
        return squares / 2

    def error_bound(
        self, lengths: Reals, longest: float, dimension: int, centre: float, slope: float
    ) -> Reals:
        # The sum of absolute values, twice, is up to 2 |q| |y| + |y|^2, at most (|q| + |y|)^2.
        reach = lengths + longest
        squares = rounding(dimension) * reach**2
        bound: Reals = (squares + _vanished(dimension, reach)) * (slope / 2)
        return bound

    def list_errors(self, scores: Reals, length: float) -> Reals:
        return scores


class InnerProduct(Metric):
    """1 less the inner product, which is the nearness.

    For centroids, rows get one more element that pads them to one length, so that the row of the
    greatest product is that of the smallest angle (Bachrach et al., Speeding Up the Xbox
    Recommender System Using a Euclidean Transformation for Inner-Product Spaces, RecSys 2014).
    """

    __slots__ = ()
    least = -float("inf")
    grows_with_query = True
    pads = True

    def distances(self, queries: Floats, rows: Floats) -> Reals:
        return 1.0 - _products(_wide(queries), _wide(rows))

    def spark_distance(self, left: Column, right: Column) -> Column:
        return (1.0 - _spark_product(left, right)).cast("float")

    def zero_nearness(self, squares: Reals, offsets: Reals, slope: float) -> Reals:
        return (1.0 - offsets) / slope

    def error_bound(
        self, lengths: Reals, longest: float, dimension: int, centre: float, slope: float
    ) -> Reals:
        vanished = _vanished(dimension, lengths + longest)
        wide = 4 * dimension * U64 * (centre + longest)
        if self.normalizes:
            # Normalising rounds relative to length 1, whatever is left of it around the centre.
            wide += 6 * U32
        products = (rounding(dimension) * longest + wide) * lengths + vanished
        bound: Reals = products * slope + 8 * U64
        return bound

    def list_errors(self, scores: Reals, length: float) -> Reals:
        return 1.0 - scores / (length or 1.0)


class Cosine(InnerProduct):
    """1 less the cosine of the angle: a multiple of 2^-46 from 0 to 2."""

    __slots__ = ()
    least = 0.0
    normalizes = True
    grows_with_query = False
    pads = False

    def distances(self, queries: Floats, rows: Floats) -> Reals:
        import numpy as np

        left, right = _wide(queries), _wide(rows)
        lengths = np.sqrt(_products(left, left)) * np.sqrt(_products(right, right))
        steps = np.rint((1.0 - _products(left, right) / lengths) * _COSINE_STEPS)
        rounded: Reals = np.clip(steps / _COSINE_STEPS, 0.0, 2.0)
        return rounded

    def spark_distance(self, left: Column, right: Column) -> Column:
        from pyspark.sql.functions import sqrt, transform

        lengths = [
            sqrt(_sum(transform(vector, lambda a: _square(_double(a))))) for vector in (left, right)
        ]
        product = _spark_product(left, right) / (lengths[0] * lengths[1])
        return (1.0 - product).cast("float")


L2 = SquaredEuclidean("l2", "vector_l2_distance", "l2")
COSINE = Cosine("cosine", "vector_cosine_similarity", "cosine")
DOT = InnerProduct("dot", "vector_inner_product", "dot")
# The number of bits that differ.
HAMMING = SquaredEuclidean("hamming", has_bits=True)
METRICS: tuple[Metric, ...] = (L2, COSINE, DOT, HAMMING)
_BY_NAME = {metric.name: metric for metric in METRICS}
_BY_SPARK_FUNCTION = {metric.spark_function: metric for metric in METRICS}


def metric_named(name: str) -> Metric:
    return _BY_NAME[name]


def metric_of_spark(function: str) -> Metric:
    """Return the metric by which a function of Spark's ranks."""
    return _BY_SPARK_FUNCTION[function]


def rounding(dimension: int) -> float:
    """Return the share by which a nearness of vectors of this length is off, at most."""
    return (dimension + 12) * U32 / (1 - min(0.5, 2 * dimension * U32))


def _vanished(dimension: int, reach: Reals) -> Reals:
    # Products and prepared values may vanish below the smallest normal number.
    return dimension * (2.0**-120 + 2.0**-126 * reach)


def _wide(vectors: Floats) -> Reals:
    # In one memory order, which decides the order of sums.
    return vectors.astype("f8", order="C")


def _products(left: NDArray[Real], right: NDArray[Real]) -> NDArray[Real]:
    import numpy as np

    products: NDArray[Real] = np.einsum("nd,nd->n", left, right)
    return products


def _spark_product(left: Column, right: Column) -> Column:
    from pyspark.sql.functions import zip_with

    return _sum(zip_with(left, right, lambda a, b: _double(a) * _double(b)))


def _sum(values: Column) -> Column:
    from pyspark.sql.functions import aggregate, lit

    return aggregate(values, lit(0.0), lambda total, value: total + value)


def _double(value: Column) -> Column:
    return value.cast("double")


def _square(value: Column) -> Column:
    return value * value
