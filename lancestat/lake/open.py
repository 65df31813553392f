"""Opening datasets: one clear error each, and no waiting without end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from lancestat.errors import (
    CatalogTableMissing,
    DatasetDamaged,
    DatasetMissing,
    DatasetReplaced,
    LakeError,
    StoreUnreachable,
    VersionMissing,
)
from lancestat.lake.catalogs import CatalogOptions
from lancestat.lake.error_mapping import RESTORE, is_error_or_panic, lake_error
from lancestat.lake.files import local_path
from lancestat.lake.snapshot import Pin, pin_of
from lancestat.redact import RenewedOptions, redact_line, secret_values
from lancestat.spec.catalog import table_name_of

if TYPE_CHECKING:
    import lance


# With Lance's own timeouts a store that does not answer would hold a command for three minutes.
_STORE_TIMEOUTS = {
    "client_max_retries": "3",
    "client_retry_timeout": "15",
    "connect_timeout": "5s",
}
# For a single request. Lance repeats a listing five times, whatever the options are.
_PROBE_TIMEOUTS = {"client_max_retries": "1", "connect_timeout": "3s", "timeout": "10s"}
# Codes of errors by which an opening says that the version that was observed is gone.
REPLACED = (DatasetReplaced, VersionMissing)
_LOOK_AGAIN = "attach or read the table again, to see it as it is now"
_CLOUDS = ("aws_", "azure_", "google_")


def observe_dataset(
    uri: str, *, version: int | None = None, storage_options: Mapping[str, str] | None = None
) -> lance.LanceDataset:
    """Open a dataset for the first time, at its latest version or at `version`.

    Whoever keeps anything of it also keeps its pin (`Snapshot.pin`, `pin_of`) and opens it with
    `open_pinned` from then on.

    Args:
        uri: A path or an object-store URI.
        version: A manifest version, None for the latest.
        storage_options: Used for object stores only; unset timeouts are kept short.

    Raises:
        LakeError: The dataset cannot be opened. The message holds no secret.
    """
    return _open(uri, version, storage_options, None)


def open_pinned(
    pin: Pin,
    *,
    storage_options: Mapping[str, str] | None = None,
    session: lance.Session | None = None,
) -> lance.LanceDataset:
    """Open the dataset and version that a pin names.

    Args:
        pin: What was observed.
        storage_options: As for `observe_dataset`.
        session: The caches to use. No other pin of the same URI may have used it, since Lance
            takes a manifest from the cache without checking that it still exists.

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


@contextmanager
def pinned_reads(pin: Pin, storage_options: Mapping[str, str] | None = None) -> Iterator[None]:
    """Raise whatever Lance raises while a pinned dataset is read as the LakeError that says why.

    Raises:
        LakeError: As `read_failure` says.
    """
    try:
        yield
    except LakeError:
        raise
    except BaseException as error:
        if not is_error_or_panic(error):
            raise
        raise read_failure(error, pin, storage_options) from None


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
    """Open a dataset to read its earlier versions, and see afterwards that they were its own.

    Raises:
        LakeError: As `open_pinned`, before or after the block.
    """
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
    """Return arguments for Lance with which a catalog has its part in what is opened or committed.

    There are none for a dataset in which no catalog has a part.
    """
    return storage_options.committing if isinstance(storage_options, CatalogOptions) else {}


def renewed_by_catalog(storage_options: Mapping[str, str] | None) -> dict[str, Any]:
    """Return arguments for Lance with which a catalog renews credentials during a write."""
    return storage_options.renewing if isinstance(storage_options, CatalogOptions) else {}


def store_options(uri: str, storage_options: Mapping[str, str] | None) -> dict[str, str] | None:
    """Return the options for Lance: none for local paths, with bounded patience for stores."""
    if local_path(uri) is not None:
        return None
    return _with_defaults(_STORE_TIMEOUTS, storage_options)


def probe(store: str, storage_options: Mapping[str, str] | None = None) -> None:
    """Send an object store one request, to learn in seconds whether it can be reached.

    Opening a dataset in an unreachable store takes minutes, because Lance retries its requests.

    Args:
        store: Scheme and bucket, as `files.store_of` returns them.
        storage_options: As for opening.

    Raises:
        StoreUnreachable: it does not answer. Any other problem is left to opening.
    """
    from lance.file import LanceFileSession

    try:
        with readable(store, storage_options=storage_options):
            options = _with_defaults({**_STORE_TIMEOUTS, **_PROBE_TIMEOUTS}, storage_options)
            LanceFileSession(store, storage_options=options).contains("_versions")
    except StoreUnreachable:
        raise
    except LakeError:
        pass


@contextmanager
def readable(
    uri: str,
    *,
    version: int | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> Iterator[None]:
    """Raise whatever Lance raises inside the block as the LakeError that says why."""
    try:
        yield
    except LakeError:
        raise
    except BaseException as error:
        if not is_error_or_panic(error):
            raise
        secrets = secret_values(storage_options)
        raise lake_error(error, uri, version=version, secrets=secrets) from None


def _with_defaults(
    defaults: Mapping[str, str], storage_options: Mapping[str, str] | None
) -> dict[str, str]:
    if isinstance(storage_options, RenewedOptions):
        given = storage_options.current()
    else:
        given = dict(storage_options or {})
    set_already = {_without_cloud(key) for key in given}
    return {**{k: v for k, v in defaults.items() if k not in set_already}, **given}


def _without_cloud(key: str) -> str:
    lowered = key.lower()
    return next((lowered[len(c) :] for c in _CLOUDS if lowered.startswith(c)), lowered)
