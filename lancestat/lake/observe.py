"""Snapshots of real datasets, many at a time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from lancestat.errors import LakeError
from lancestat.lake.manifest import committed_at, fragment_values
from lancestat.lake.open import observe_dataset, probe, readable
from lancestat.lake.snapshot import Field, Snapshot
from lancestat.lake.spark_type import spark_type
from lancestat.lake.uri import store_of

if TYPE_CHECKING:
    import lance


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
        return snapshot(observe_dataset(uri, storage_options=storage_options), uri, storage_options)
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
        return Snapshot(
            uri=place,
            version=dataset.version,
            fields=_fields(dataset),
            fragments=tuple(fragment_values(metadata, {})),
            config=dataset.config(),
            committed_at=committed_at(dataset),
        )


def snapshot_at(
    dataset: lance.LanceDataset,
    version: int,
    uri: str,
    storage_options: Mapping[str, str] | None = None,
) -> Snapshot | None:
    """As `snapshot`, of another version of an open dataset; None where that cannot be read."""
    try:
        with readable(uri, version=version, storage_options=storage_options):
            other = dataset.checkout_version(version)
        return snapshot(other, uri, storage_options)
    except LakeError:
        return None


def _fields(dataset: lance.LanceDataset) -> tuple[Field, ...]:
    ids = [field.id() for field in dataset.lance_schema.fields()]
    return tuple(
        Field(id, field.name, field.type, field.nullable, spark_type(field.type))
        for id, field in zip(ids, dataset.schema, strict=True)
    )
