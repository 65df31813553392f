"""Snapshots of real datasets, many at a time."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timezone
from typing import TYPE_CHECKING

from lancestat.errors import LakeError
from lancestat.lake.open import open_dataset, probe, readable
from lancestat.lake.snapshot import DataFile, Field, Fragment, Overlay, Snapshot
from lancestat.lake.spark_type import spark_type
from lancestat.lake.uri import store_of

if TYPE_CHECKING:
    import lance
    from lance.bitmap import Bitmap


def observe_snapshots(
    requests: Iterable[tuple[str, str]],
    storage_options: Mapping[str, str] | None = None,
    threads: int = 8,
) -> dict[str, Snapshot | LakeError]:
    """Open datasets in parallel; one that cannot be read gets its error and stops no other.

    Every object store is asked once whether it answers; all tables of one that does not get that
    error at once.

    Args:
        requests: Pairs of a name, which becomes the key of the result, and a URI.
        storage_options: For all of them.
        threads: How many are opened at once.
    """
    wanted = dict(requests)
    if not wanted:
        return {}
    stores = sorted({store for store in map(store_of, wanted.values()) if store is not None})
    with ThreadPoolExecutor(max_workers=max(1, min(threads, len(wanted)))) as pool:
        asked = pool.map(lambda store: _silence(store, storage_options), stores)
        silent = dict(zip(stores, asked, strict=True))
        opened = pool.map(
            lambda uri: silent.get(store_of(uri) or "") or _observe(uri, storage_options),
            wanted.values(),
        )
        return dict(zip(wanted, opened, strict=True))


def _silence(store: str, storage_options: Mapping[str, str] | None) -> LakeError | None:
    try:
        probe(store, storage_options)
    except LakeError as error:
        return error
    return None


def _observe(uri: str, storage_options: Mapping[str, str] | None) -> Snapshot | LakeError:
    try:
        return snapshot(open_dataset(uri, storage_options=storage_options), uri, storage_options)
    except LakeError as error:
        return error


def snapshot(
    dataset: lance.LanceDataset,
    uri: str | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> Snapshot:
    """What an open dataset is at its version, from its manifest alone: no data file is touched.

    Args:
        dataset: An open dataset.
        uri: How the project names it; the dataset's own URI when None.
        storage_options: Whose values no error may show.

    Raises:
        LakeError: When the manifest holds what cannot be read.
    """
    place = uri if uri is not None else dataset.uri
    with readable(place, storage_options=storage_options):
        metadata = (each.metadata for each in dataset.get_fragments())
        committed_at = dataset.get_version()["timestamp"]
        return Snapshot(
            uri=place,
            version=dataset.version,
            fields=_fields(dataset),
            fragments=tuple(fragment_values(metadata, {})),
            config=dataset.config(),
            committed_at=committed_at.astimezone(timezone.utc),
        )


# Field ids by themselves: the one tuple that stands for all equal ones.
FieldIds = dict[tuple[int, ...], tuple[int, ...]]


def fragment_values(
    metadata: Iterable[lance.FragmentMetadata], shared: FieldIds
) -> Iterator[Fragment]:
    """Fragments as values, one at a time, with the field ids of like files shared.

    A manifest of 100,000 fragments of 200 columns names twenty million ids; shared, they are 200.
    """
    return (_fragment(each, shared) for each in metadata)


def _fields(dataset: lance.LanceDataset) -> tuple[Field, ...]:
    ids = [field.id() for field in dataset.lance_schema.fields()]
    return tuple(
        Field(id, field.name, field.type, field.nullable, spark_type(field.type))
        for id, field in zip(ids, dataset.schema, strict=True)
    )


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
