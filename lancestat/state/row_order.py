"""Ids of rows, which tell in which order the rows were committed.

Places do not tell it: a compaction that races with an append moves older rows behind newer ones.
Times do not either, because clocks differ. So an id begins with the version of the dataset that its
writer saw: whoever saw a row has seen a later version than the row's writer. Rows whose writers
saw the same version were written at the same time, and of them the later in place counts as newer.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

# Earlier releases gave ids at random from 0 on; ids that tell an order lie below 0.
_FIRST = -(1 << 63)
_NAME_BITS = 36
_NAMES = 1 << _NAME_BITS
_LAST_VERSION = (1 << (63 - _NAME_BITS)) - 1


def row_ids(version: int) -> Iterator[int]:
    """Ids for the rows of one append, whose writer saw this version of the dataset."""
    start = _FIRST + (min(version, _LAST_VERSION) << _NAME_BITS)
    name = secrets.randbits(_NAME_BITS)
    return (start + (name + number) % _NAMES for number in count())


def commit_order(ids: pa.ChunkedArray) -> NDArray[np.int64]:
    """Positions of rows in the order of their commits, given their ids in the order of places."""
    import numpy as np

    given = ids.to_numpy()
    versions = np.where(given < 0, (given - _FIRST) >> _NAME_BITS, -1)
    return np.argsort(versions, kind="stable")
