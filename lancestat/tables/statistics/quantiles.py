"""Mergeable quantiles of a column's values: a KLL sketch of Apache DataSketches.

Source: Z. Karnin, K. Lang, E. Liberty, "Optimal quantile approximation in streams", FOCS 2016,
https://arxiv.org/abs/1603.05346, as https://datasketches.apache.org/docs/KLL/KLLSketch.html has it.

The sketch is randomized: two sketches of the same values differ within their error, once there are
more than `K` values. Up to that many are all kept.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from datasketches import kll_doubles_sketch

# Values at once from which on it costs less to thin them out than to have the library take each.
_MANY = 4096
_LARGEST_STORED = 1 << 20


@dataclass(frozen=True, slots=True)
class QuantileSketch:
    """An immutable sketch of finite values, as the library serializes it.

    Values are float64: integers beyond 2^53 are rounded.
    """

    serialized: bytes

    @property
    def count(self) -> int:
        """The number of values that it has seen."""
        return int(_open(self.serialized).n)

    def quantiles(self, ranks: Sequence[float]) -> list[float]:
        """Return the least seen value whose share of values up to it is each rank, within error.

        Ranks are from 0 to 1; those of 0 and 1 need not be the extremes. Of no values there are
        none.
        """
        sketch = _open(self.serialized)
        if sketch.is_empty():
            return []
        return list(sketch.get_quantiles(list(ranks), inclusive=True))

    def samples(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Return the values that it kept, in no order, and how many seen values each stands for."""
        from lancestat.tables.statistics.kll import kept_values

        return kept_values(self.serialized)

    def encode(self) -> bytes:
        """Return the stored form, compressed."""
        return zlib.compress(self.serialized)

    @classmethod
    def decode(cls, stored: bytes) -> QuantileSketch:
        """Invert `encode`; raises ValueError on anything else."""
        inflate = zlib.decompressobj()
        try:
            serialized = inflate.decompress(stored, _LARGEST_STORED)
        except zlib.error as error:
            raise ValueError(f"a quantile sketch does not decompress: {error}") from None
        if not inflate.eof or inflate.unused_data:
            raise ValueError("a quantile sketch is cut, or larger than any that is made")
        from lancestat.tables.statistics.kll import is_sound

        if not is_sound(serialized):
            raise ValueError("a quantile sketch is malformed")
        return cls(serialized)


class QuantileBuilder:
    """A sketch while it grows."""

    __slots__ = ("_sketch",)

    def __init__(self) -> None:
        self._sketch = _new()

    def update(self, values: npt.NDArray[np.float64]) -> None:
        """Add values; NaN and infinities are ignored."""
        import numpy as np

        from lancestat.tables.statistics.kll import thinned

        # The library takes no views of read-only memory, so that a copy is needed in any case.
        finite = values[np.isfinite(values)]
        if len(finite) < _MANY:
            self._sketch.update(finite)
        else:
            self._sketch.merge(_open(thinned(finite)))

    def finish(self) -> QuantileSketch:
        """Return the sketch of all values so far."""
        return QuantileSketch(self._sketch.serialize())


def union(sketches: Iterable[QuantileSketch]) -> QuantileSketch:
    """Return the sketch of all their values together; that of no sketches is empty."""
    total = _new()
    for sketch in sketches:
        total.merge(_open(sketch.serialized))
    return QuantileSketch(total.serialize())


def _new() -> kll_doubles_sketch:
    from datasketches import kll_doubles_sketch

    from lancestat.tables.statistics.kll import K

    return kll_doubles_sketch(K)


def _open(serialized: bytes) -> kll_doubles_sketch:
    from datasketches import kll_doubles_sketch

    return kll_doubles_sketch.deserialize(serialized)
