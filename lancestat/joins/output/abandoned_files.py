"""Removes the files that runs of joins have written to a dataset's folder and not committed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

from lancestat.errors import DatasetMissing, VersionMissing
from lancestat.joins.output.write_intents import WriteIntents, remove_intents
from lancestat.lake.catalogs import CatalogOptions
from lancestat.lake.open import observe_dataset
from lancestat.lake.storage import storage_at

if TYPE_CHECKING:
    from lance import LanceDataset

# Clocks of those who commit to one dataset differ by less.
_CLOCK_SKEW = timedelta(hours=1)


def clean_up(uri: str, intents: WriteIntents, options: Mapping[str, str]) -> None:
    """Remove the files of a run that no version has, and its intents."""
    dataset = existing(uri, options)
    # A commit whose answer got lost, or after which the run was killed, has been made all the same.
    since = intents.since - _CLOCK_SKEW
    committed = set() if dataset is None else set(_files_since(dataset, since, options))
    unannounced = set() if dataset is None else _unannounced_since(dataset, since, options)
    storage = storage_at(uri, options)
    for path in sorted(intents.files - committed - unannounced):
        storage.remove_file(f"data/{path}")
    if intents.files & unannounced - committed:
        # The catalog may take that version on, or its manifest is removed: a later run sees.
        return
    remove_intents(uri, intents.run, options)
    if dataset is None:
        # The folders of a dataset that was never committed.
        storage.remove_empty("data")
        storage.remove_empty("")


def _files_since(
    dataset: LanceDataset, since: datetime, options: Mapping[str, str]
) -> Iterator[str]:
    """Yield data files of the latest version and of all that were committed since some time.

    Of a dataset whose versions a catalog owns, those that the catalog does not know are left out.
    """
    for number in _versions_since(dataset, since):
        try:
            other = observe_dataset(dataset.uri, version=number, storage_options=options)
        except VersionMissing:
            if not is_managed(options):
                raise
            continue
        yield from _files_of(other)


def _unannounced_since(
    dataset: LanceDataset, since: datetime, options: Mapping[str, str]
) -> set[str]:
    """Return data files of versions that lie in the folder, whether the catalog knows them or not.

    There are none where no catalog owns the versions.
    """
    if not is_managed(options):
        return set()
    past_catalog = dict(options)
    files: set[str] = set()
    for number in _versions_since(dataset, since):
        with suppress(VersionMissing, DatasetMissing):
            other = observe_dataset(dataset.uri, version=number, storage_options=past_catalog)
            files.update(_files_of(other))
    return files


def _versions_since(dataset: LanceDataset, since: datetime) -> Iterator[int]:
    for version in dataset.versions():
        number, committed_at = version["version"], version["timestamp"].astimezone(timezone.utc)
        if number == dataset.version or committed_at >= since:
            yield number


def _files_of(dataset: LanceDataset) -> Iterator[str]:
    for fragment in dataset.get_fragments():
        yield from (file.path for file in fragment.metadata.files)


def is_managed(options: Mapping[str, str]) -> bool:
    """Return whether a catalog owns the versions of the dataset that options open."""
    return isinstance(options, CatalogOptions) and options.is_managed


def existing(uri: str, options: Mapping[str, str]) -> LanceDataset | None:
    """Open the dataset at a place, None where there is none."""
    try:
        return observe_dataset(uri, storage_options=options)
    except DatasetMissing:
        return None
