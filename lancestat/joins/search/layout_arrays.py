"""The arrays of a kept layout, in a Lance dataset of their own."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, fields

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lancestat.joins.search.centroids import Centroids
from lancestat.joins.search.metrics import Metric
from lancestat.lake.open import open_pinned, store_options
from lancestat.lake.snapshot import Pin, pin_of

_SCHEMA = pa.schema(
    [
        pa.field("name", pa.string()),
        pa.field("type", pa.string()),
        pa.field("shape", pa.list_(pa.int64())),
        pa.field("values", pa.large_binary()),
    ]
)


@dataclass(frozen=True, slots=True)
class LayoutArrays:
    """What is needed to read the rows of a layout.

    `centroids` (lists, dimension) go with `frame`, their scale and length; `offsets` (fragments,
    lists + 1) are the rows at which lists start in the fragments of the numbers `fragment_ids`.
    `excluded` are the places of rows that cannot match, and `deleted` those of rows that were
    deleted when their fragment was laid out, ascending.
    """

    centroids: NDArray[np.float32]
    frame: NDArray[np.float64]
    offsets: NDArray[np.int64]
    fragment_ids: NDArray[np.int64]
    excluded: NDArray[np.int64]
    deleted: NDArray[np.int64]

    def centroids_of(self, metric: Metric) -> Centroids:
        """Return the centroids of lists."""
        return Centroids(self.centroids, metric, float(self.frame[0]), float(self.frame[1]))


def frame_of(centroids: Centroids) -> NDArray[np.float64]:
    """Return the scale and length of centroids."""
    return np.array([centroids.scale, centroids.length])


@dataclass(frozen=True, slots=True)
class WrittenArrays:
    """A dataset of arrays: its pin, its files below it with their sizes, a digest of its values."""

    pin: Pin
    files: Mapping[str, int]
    digest: str


def write_arrays(
    arrays: LayoutArrays, uri: str, storage_options: Mapping[str, str]
) -> WrittenArrays:
    """Write arrays as a new dataset."""
    import lance

    rows = [(part.name, getattr(arrays, part.name)) for part in fields(arrays)]
    table = pa.table(
        {
            "name": [name for name, _ in rows],
            "type": [array.dtype.str for _, array in rows],
            "shape": [list(array.shape) for _, array in rows],
            "values": pa.array([array.tobytes() for _, array in rows], pa.large_binary()),
        },
        schema=_SCHEMA,
    )
    options = store_options(uri, storage_options)
    dataset = lance.write_dataset(table, uri, mode="create", storage_options=options)
    return WrittenArrays(pin_of(dataset, uri), data_files(dataset), _digest(table))


def read_arrays(pin: Pin, digest: str, storage_options: Mapping[str, str]) -> LayoutArrays:
    """Return the arrays that were written.

    Raises:
        LakeError: the dataset cannot be opened.
        ValueError: its values are not those that were written.
    """
    table = open_pinned(pin, storage_options=storage_options).to_table()
    if table.schema != _SCHEMA or _digest(table) != digest:
        raise ValueError("the values of its arrays are not those that were written")
    arrays = {
        row["name"]: np.frombuffer(row["values"], row["type"]).reshape(row["shape"])
        for row in table.to_pylist()
    }
    return LayoutArrays(**arrays)


def data_files(dataset: object, ids: frozenset[int] | None = None) -> dict[str, int]:
    """Return the data files of a dataset's fragments, by their paths below it, with their sizes."""
    return {
        f"data/{file.path}": file.file_size_bytes or 0
        for fragment in dataset.get_fragments()  # type: ignore[attr-defined]
        if ids is None or fragment.fragment_id in ids
        for file in fragment.metadata.files
    }


def _digest(table: pa.Table) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for row in table.to_pylist():
        digest.update(f"{row['name']} {row['type']} {row['shape']}\0".encode())
        digest.update(row["values"])
    return digest.hexdigest()
