"""Hashes of tuples whose columns depend on each other."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from lancestat.tables.statistics.hashing import SketchBuilder, hash_tuples, mix

Values = npt.NDArray[np.uint64]
ONE = np.arange(50_000, dtype=np.uint64)


@pytest.mark.parametrize(
    "columns",
    [
        (ONE, ONE),
        (ONE, ONE, ONE),
        (ONE, ONE + np.uint64(1)),
        (ONE, np.uint64(49_999) - ONE),
        (ONE, ONE // np.uint64(10)),
        (ONE % np.uint64(500), ONE // np.uint64(500)),
        (ONE % np.uint64(500), ONE // np.uint64(500), ONE % np.uint64(500)),
    ],
)
def test_tuples_of_dependent_columns_are_counted(columns: tuple[Values, ...]) -> None:
    hashes = hash_tuples([mix(column) for column in columns])
    assert len(np.unique(hashes)) == len(ONE)
    sketch = SketchBuilder()
    sketch.update(hashes)
    # Four standard errors of 4,096 registers.
    assert sketch.finish().estimate() == pytest.approx(len(ONE), rel=4 * 1.04 / 64)
