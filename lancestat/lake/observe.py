"""Takes snapshots of datasets, many at a time, at any version or instant."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import TYPE_CHECKING

from lancestat.errors import (
    InvalidVersion,
    LakeError,
    UnknownTag,
    UsageError,
    VersionAndTag,
    VersionMissing,
    did_you_mean,
)
from lancestat.lake.files import store_of
from lancestat.lake.open import observe_dataset, open_pinned, pinned_history, probe, readable
from lancestat.lake.snapshot import (
    Field,
    Pin,
    Snapshot,
    committed_at,
    fragment_values,
    pin_of,
    spark_type,
)
from lancestat.spec.catalog import UriOptions, table_name_of

if TYPE_CHECKING:
    import lance


def observe_snapshots(
    requests: Iterable[tuple[str, str]],
    storage_options: Mapping[str, str] | UriOptions | None = None,
    threads: int = 8,
) -> dict[str, Snapshot | LakeError]:
    """Open datasets in parallel; one that cannot be read becomes its error.

    Every object store is probed once. If it does not answer, all its tables get that error.

    Args:
        requests: Pairs of a name, which becomes the key of the result, and a URI.
        storage_options: For all of them, or for each by its URI.
        threads: How many are opened concurrently.
    """
    uris = dict(requests)
    if not uris:
        return {}
    given = storage_options
    options = given if isinstance(given, UriOptions) else UriOptions(given or {})
    # A store is asked with the options of one of its tables.
    asked_with = {
        store: uri
        for uri in sorted(uris.values(), reverse=True)
        if (store := store_of(uri)) is not None and table_name_of(uri) is None
    }
    with ThreadPoolExecutor(max_workers=max(1, min(threads, len(uris)))) as pool:
        asked = pool.map(lambda item: _store_failure(item[0], item[1], options), asked_with.items())
        silent = dict(zip(asked_with, asked, strict=True))
        opened = pool.map(
            lambda uri: silent.get(store_of(uri) or "") or _observe(uri, options), uris.values()
        )
        return dict(zip(uris, opened, strict=True))


def _store_failure(store: str, uri: str, options: UriOptions) -> LakeError | None:
    try:
        probe(store, options.of(uri))
    except LakeError as error:
        return error
    return None


def _observe(uri: str, options: UriOptions) -> Snapshot | LakeError:
    try:
        given = options.of(uri)
        return snapshot(observe_dataset(uri, storage_options=given), uri, given)
    except LakeError as error:
        return error


def snapshot(
    dataset: lance.LanceDataset,
    uri: str | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> Snapshot:
    """Take a snapshot of an open dataset from its manifest alone: no data file is touched.

    Args:
        dataset: An open dataset.
        uri: How the project names it; the dataset's own URI when None.
        storage_options: The secrets in them are kept out of errors.

    Raises:
        LakeError: When the manifest cannot be read.
    """
    uri = dataset.uri if uri is None else uri
    with readable(uri, storage_options=storage_options):
        metadata = (fragment.metadata for fragment in dataset.get_fragments())
        return Snapshot(
            uri=uri,
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
    """Take a snapshot of another version of an open dataset; None where it cannot be read."""
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


_LARGEST_VERSION = 2**63 - 1
_TAGS_SHOWN = 10


def observe_at(
    uri: str,
    version: int | None,
    tag: str | None,
    storage_options: Mapping[str, str] | None = None,
) -> lance.LanceDataset:
    """Open a dataset for the first time, at a version, at a tag, or at the latest version.

    Raises:
        VersionAndTag: Both were given.
        InvalidVersion: The version cannot be one.
        UnknownTag: There is no such tag.
        LakeError: The dataset was replaced since the tag was looked up, or as
            `lake.open.observe_dataset`.
    """
    if version is not None and tag is not None:
        raise VersionAndTag(
            f"both version {version} and tag '{tag}' are given for {uri}",
            hint="a table is read at one version: leave one of them out",
        )
    if tag is not None:
        return open_pinned(_tagged(uri, tag, storage_options), storage_options=storage_options)
    if version is not None:
        _checked(version)
    return observe_dataset(uri, version=version, storage_options=storage_options)


def version_at(uri: str, moment: datetime, storage_options: Mapping[str, str] | None = None) -> int:
    """Return the version of a dataset that was the latest at an instant, by its writers' clocks.

    Raises:
        VersionMissing: Every version that is left was committed later.
        LakeError: As `lake.open.observe_dataset`.
    """
    observed = observe_dataset(uri, storage_options=storage_options)
    with pinned_history(pin_of(observed, uri), storage_options) as dataset:
        versions = dataset.versions()
    earlier = [one["version"] for one in versions if one["timestamp"].astimezone() <= moment]
    if not earlier:
        raise VersionMissing(
            f"{uri} has no version from {moment.isoformat()} or before",
            hint="name a version or a later time",
        )
    return int(max(earlier))


def parse_version(text: str) -> int:
    """Return the version that an option's text means.

    Raises:
        InvalidVersion: It is not a whole number from 1 on.
    """
    digits = text.strip()
    if not (digits.isascii() and digits.isdecimal() and len(digits) <= len(str(_LARGEST_VERSION))):
        raise _not_a_version(text)
    return _checked(int(digits))


def _checked(version: object) -> int:
    if type(version) is not int or not 1 <= version <= _LARGEST_VERSION:
        raise _not_a_version(str(version))
    return version


def _not_a_version(text: str) -> UsageError:
    return InvalidVersion(
        f"'{text}' is no version of a dataset",
        hint="versions are whole numbers from 1 on; a tag is given as tag",
    )


def _tagged(uri: str, tag: str, storage_options: Mapping[str, str] | None) -> Pin:
    observed = observe_dataset(uri, storage_options=storage_options)
    with pinned_history(pin_of(observed, uri), storage_options) as dataset:
        version = _tagged_version(dataset, uri, tag)
        with readable(uri, version=version, storage_options=storage_options):
            return pin_of(dataset.checkout_version(version), uri)


def _tagged_version(dataset: lance.LanceDataset, uri: str, tag: str) -> int:
    tags: Mapping[str, lance.Tag] = dataset.tags.list()
    if tag not in tags:
        raise UnknownTag(f"{uri} has no tag '{tag}'", hint=_known(tag, sorted(tags)))
    branch = tags[tag]["branch"]
    if branch is not None:
        raise UnknownTag(
            f"tag '{tag}' of {uri} is on branch '{branch}', not on the main line of versions",
            hint="read the branch by a URI of its own",
        )
    return int(tags[tag]["version"])


def _known(tag: str, tags: list[str]) -> str:
    if not tags:
        return "the dataset has no tags"
    listed = ", ".join(tags[:_TAGS_SHOWN])
    more = f" and {len(tags) - _TAGS_SHOWN} more" if len(tags) > _TAGS_SHOWN else ""
    near = did_you_mean(tag, tags)
    return f"{near + ' ' if near else ''}tags: {listed}{more}"
