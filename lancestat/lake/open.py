"""Opening and observing datasets: one clear error each, and no waiting without end."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lancestat.errors import (
    CatalogTableMissing,
    DatasetDamaged,
    DatasetMissing,
    DatasetReplaced,
    InvalidVersion,
    LakeError,
    StoreUnreachable,
    UnknownTag,
    UsageError,
    VersionAndTag,
    VersionMissing,
    did_you_mean,
)
from lancestat.lake.catalog_tables import CatalogOptions
from lancestat.lake.error_mapping import RESTORE, explained, lake_error
from lancestat.lake.files import (
    STORE_TIMEOUTS,
    local_path,
    store_of,
    store_options,
    with_store_defaults,
)
from lancestat.lake.snapshot import (
    Field,
    Pin,
    Snapshot,
    committed_at,
    fragment_values,
    pin_of,
    spark_type,
)
from lancestat.redact import redact_line, secret_values
from lancestat.spec.catalog import UriOptions, table_name_of

if TYPE_CHECKING:
    import lance


# For a single request. Lance repeats a listing five times, whatever the options are.
_PROBE_TIMEOUTS = {"client_max_retries": "1", "connect_timeout": "3s", "timeout": "10s"}
# Codes of errors by which an opening says that the version that was observed is gone.
REPLACED = (DatasetReplaced, VersionMissing)
_LOOK_AGAIN = "attach or read the table again, to see it as it is now"


def observe_dataset(
    uri: str, *, version: int | None = None, storage_options: Mapping[str, str] | None = None
) -> lance.LanceDataset:
    """Open a dataset for the first time, at its latest version or at `version`.

    Whoever keeps anything of it also keeps its pin (`Snapshot.pin`, `pin_of`) and opens it with
    `open_pinned` from then on. LakeError, without secrets, if it cannot be opened.
    """
    return _open(uri, version, storage_options, None)


class LatestVersions:
    """The latest versions of datasets, for one request each once they have been opened.

    Those in local folders are not opened: Lance, too, lists their manifests. `datasets` are their
    storage options by URI.
    """

    def __init__(self, datasets: Mapping[str, Mapping[str, str]]) -> None:
        self._options = dict(datasets)
        self._folders = {
            uri: folder
            for uri, options in datasets.items()
            if (folder := local_path(uri)) and not isinstance(options, CatalogOptions)
        }
        self._opened: dict[str, lance.LanceDataset] = {}

    def get(self) -> Mapping[str, int | None]:
        """Return the versions by URI, None of datasets that cannot be opened."""
        listed = {uri: _listed_version(folder) for uri, folder in self._folders.items()}
        asked = [uri for uri in self._options if uri not in listed]
        with ThreadPoolExecutor(_ASKED_AT_ONCE) as pool:
            return {**listed, **dict(zip(asked, pool.map(self._version, asked), strict=True))}

    def _version(self, uri: str) -> int | None:
        options = self._options[uri]
        try:
            if uri not in self._opened:
                self._opened[uri] = observe_dataset(uri, storage_options=options)
            with readable(uri, storage_options=options):
                latest: int = self._opened[uri].latest_version
            return latest
        except LakeError:
            self._opened.pop(uri, None)
            return None


_ASKED_AT_ONCE = 16
_MANIFEST = re.compile(r"(\d+)\.manifest")
# Newer manifests come first by name: so many digits are those of what a version lacks of the last.
_DIGITS, _LAST = 20, 2**64 - 1


def _listed_version(folder: Path) -> int | None:
    """Return the latest version of a dataset in a local folder; None where there is none."""
    try:
        with os.scandir(folder / "_versions") as files:
            names = [name for file in files if (name := _MANIFEST.fullmatch(file.name))]
    except OSError:
        return None
    numbers = ((int(name[1]), len(name[1])) for name in names)
    return max((_LAST - n if digits == _DIGITS else n for n, digits in numbers), default=None)


def open_pinned(
    pin: Pin,
    *,
    storage_options: Mapping[str, str] | None = None,
    session: lance.Session | None = None,
) -> lance.LanceDataset:
    """Open the dataset and version that a pin names.

    No other pin of the same URI may have used `session`, since Lance takes a manifest from its
    caches without checking that it still exists.

    Raises:
        DatasetReplaced: another dataset has taken its place.
        VersionMissing: the version is gone; and as `observe_dataset`.
    """
    try:
        dataset = _open(pin.uri, pin.version, storage_options, session)
        with readable(pin.uri, version=pin.version, storage_options=storage_options):
            opened = pin_of(dataset, pin.uri)
    except VersionMissing as error:
        raise VersionMissing(error.message, hint=_LOOK_AGAIN) from None
    if opened != pin:
        redacted_uri = redact_line(pin.uri, secret_values(storage_options))
        raise DatasetReplaced(
            f"{redacted_uri} has been replaced: its version {pin.version} is not the one that was "
            "looked at before",
            hint=_LOOK_AGAIN,
        )
    return dataset


def pinned_reads(
    pin: Pin, storage_options: Mapping[str, str] | None = None
) -> AbstractContextManager[None]:
    """Raise whatever Lance raises while a pinned dataset is read as its `read_failure`."""
    return explained(lambda error: read_failure(error, pin, storage_options))


def read_failure(
    error: BaseException, pin: Pin, storage_options: Mapping[str, str] | None = None
) -> LakeError:
    """Return the error for a pinned dataset that was opened and could not be read.

    The pin is checked again: the files of a dataset that was dropped look damaged.
    """
    replaced = replacement(pin, storage_options)
    if replaced is not None:
        return replaced
    secrets = secret_values(storage_options)
    failure = lake_error(error, pin.uri, secrets=secrets)
    if not isinstance(failure, DatasetMissing):
        return failure
    uri, cause = redact_line(pin.uri, secrets), redact_line(str(error), secrets)
    return DatasetDamaged(f"a data file of {uri} is missing ({cause})", hint=RESTORE)


@contextmanager
def pinned_history(
    pin: Pin, storage_options: Mapping[str, str] | None = None
) -> Iterator[lance.LanceDataset]:
    """Open a dataset to read its earlier versions, and see afterwards that they were its own."""
    dataset = open_pinned(pin, storage_options=storage_options)
    with pinned_reads(pin, storage_options):
        yield dataset
    open_pinned(pin, storage_options=storage_options)


def replacement(pin: Pin, storage_options: Mapping[str, str] | None = None) -> LakeError | None:
    """Return the error for a pinned dataset that is no longer there; None where it may be."""
    try:
        open_pinned(pin, storage_options=storage_options)
    except LakeError as error:
        return error if isinstance(error, REPLACED) else None
    return None


def _open(
    uri: str,
    version: int | None,
    storage_options: Mapping[str, str] | None,
    session: lance.Session | None,
) -> lance.LanceDataset:
    import lance

    name = table_name_of(uri)
    if name is not None:
        raise CatalogTableMissing(f"the catalog '{name.catalog}' has no table {name}")
    with readable(uri, version=version, storage_options=storage_options):
        options = store_options(uri, storage_options)
        if isinstance(storage_options, CatalogOptions):
            # `lance.dataset` would ask the catalog again where the dataset is.
            return lance.LanceDataset(
                uri,
                version,
                storage_options=options,
                session=session,
                **storage_options.committing,
            )
        return lance.dataset(uri, version=version, storage_options=options, session=session)


def portable(storage_options: Mapping[str, str] | None) -> Mapping[str, str]:
    """Return storage options that can be sent to workers, and still renew what expires."""
    if isinstance(storage_options, CatalogOptions):
        return storage_options
    return dict(storage_options or {})


def by_catalog(storage_options: Mapping[str, str] | None) -> dict[str, Any]:
    """Return arguments for Lance by which a catalog has its part in opening or committing."""
    return storage_options.committing if isinstance(storage_options, CatalogOptions) else {}


def renewed_by_catalog(storage_options: Mapping[str, str] | None) -> dict[str, Any]:
    """Return arguments for Lance with which a catalog renews credentials during a write."""
    return storage_options.renewing if isinstance(storage_options, CatalogOptions) else {}


def probe(store: str, storage_options: Mapping[str, str] | None = None) -> None:
    """Send an object store one request, to learn in seconds whether it can be reached.

    Opening a dataset in an unreachable store takes minutes, because Lance retries its requests.
    StoreUnreachable if it does not answer; any other problem is left to opening.
    """
    from lance.file import LanceFileSession

    try:
        with readable(store, storage_options=storage_options):
            options = with_store_defaults({**STORE_TIMEOUTS, **_PROBE_TIMEOUTS}, storage_options)
            LanceFileSession(store, storage_options=options).contains("_versions")
    except StoreUnreachable:
        raise
    except LakeError:
        pass


def readable(
    uri: str,
    *,
    version: int | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> AbstractContextManager[None]:
    """Raise whatever Lance raises inside the block as the LakeError that says why."""
    return explained(
        lambda error: lake_error(
            error, uri, version=version, secrets=secret_values(storage_options)
        )
    )


def observe_snapshots(
    requests: Iterable[tuple[str, str]],
    storage_options: Mapping[str, str] | UriOptions | None = None,
    threads: int = 8,
) -> dict[str, Snapshot | LakeError]:
    """Open datasets concurrently, by name and URI; one that cannot be read becomes its error.

    Every object store is probed once. If it does not answer, all its tables get that error.
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
    """Take a snapshot of an open dataset, which the project may call `uri`, from its manifest."""
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
        LakeError: The dataset was replaced since the tag was looked up, or as `observe_dataset`.
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
    """Return the version that was the latest at an instant; VersionMissing if none is left."""
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
    """Return the version that an option's text means; InvalidVersion if there is none."""
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
