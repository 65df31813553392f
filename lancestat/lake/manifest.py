"""What a manifest says, as values: no data file is touched."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from lancestat.lake.pin import Pin, manifest_identity
from lancestat.lake.snapshot import DataFile, Fragment, Overlay

if TYPE_CHECKING:
    import lance
    from lance.bitmap import Bitmap

# Field ids by themselves: the one tuple that stands for all equal ones.
FieldIds = dict[tuple[int, ...], tuple[int, ...]]


def pin_of(dataset: lance.LanceDataset, uri: str | None = None) -> Pin:
    """The pin of an open dataset at its version.

    Args:
        dataset: An open dataset.
        uri: How the project names it; the dataset's own URI when None.
    """
    ids = dataset.fragment_ids()
    newest = dataset.get_fragment(max(ids)) if ids else None
    fragment = None if newest is None else next(fragment_values([newest.metadata], {}))
    identity = manifest_identity(committed_at(dataset), fragment)
    return Pin(dataset.uri if uri is None else uri, dataset.version, identity)


def committed_at(dataset: lance.LanceDataset) -> datetime:
    """When the version that is open was committed, by the clock of whoever made it, in UTC."""
    at: datetime = dataset.get_version()["timestamp"]
    return at.astimezone(timezone.utc)


def fragment_values(
    metadata: Iterable[lance.FragmentMetadata], shared: FieldIds
) -> Iterator[Fragment]:
    """Fragments as values, one at a time, with the field ids of like files shared.

    A manifest of 100,000 fragments of 200 columns names twenty million ids; shared, they are 200.
    """
    return (_fragment(each, shared) for each in metadata)


def _fragment(metadata: lance.FragmentMetadata, shared: FieldIds) -> Fragment:
    deletion = metadata.deletion_file
    return Fragment(
        id=metadata.id,
        physical_rows=metadata.physical_rows,
        deleted_rows=metadata.num_deletions,
        files=tuple(_data_file(file, shared) for file in metadata.files),
        deletion_file=None if deletion is None else _deletion_file(deletion),
        overlays=tuple(
            Overlay(_data_file(each.data_file, shared), _coverage(each.offsets))
            for each in metadata.overlays
        ),
    )


def _deletion_file(deletion: lance.fragment.DeletionFile) -> str:
    # The parts of its file name, which Lance makes from the commit and a random number.
    return f"{deletion.read_version}-{deletion.id}-{deletion.file_type}-{deletion.base_id}"


def _data_file(file: lance.fragment.DataFile, shared: FieldIds) -> DataFile:
    field_ids = tuple(file.fields)
    return DataFile(
        # `path` would wrap the string in a class of its own, for every file.
        path=file._path,
        field_ids=shared.setdefault(field_ids, field_ids),
        size_bytes=file.file_size_bytes,
        base_id=file.base_id,
    )


def _coverage(offsets: Bitmap | Sequence[Iterable[int]]) -> str:
    """A digest of the cells that an overlay covers: rows for all its fields, or for each."""
    import numpy as np
    from lance.bitmap import Bitmap

    each = [offsets] if isinstance(offsets, Bitmap) else offsets
    digest = hashlib.blake2b(digest_size=16)
    for rows in each:
        cells = np.sort(np.fromiter(rows, dtype="<u8"))
        digest.update(len(cells).to_bytes(8, "little") + cells.tobytes())
    return digest.hexdigest()
