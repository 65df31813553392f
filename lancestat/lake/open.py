"""Opening datasets: one clear error each, and no waiting without end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from lancestat.errors import LakeError
from lancestat.lake.clean import secret_values
from lancestat.lake.refusal import Refusal, refuse
from lancestat.lake.uri import local_path

if TYPE_CHECKING:
    import lance

# A store that does not answer must not hold a command for the three minutes that Lance would wait.
_PATIENCE = {
    "client_max_retries": "3",
    "client_retry_timeout": "15",
    "connect_timeout": "5s",
}
# For a single question. Lance repeats a listing five times, whatever the options say.
_IMPATIENCE = {"client_max_retries": "1", "connect_timeout": "3s", "timeout": "10s"}
_CLOUDS = ("aws_", "azure_", "google_")


def open_dataset(
    uri: str, *, version: int | None = None, storage_options: Mapping[str, str] | None = None
) -> lance.LanceDataset:
    """Open a dataset at its latest version, or at `version`.

    Args:
        uri: A path or an object-store URI.
        version: A manifest version, None for the latest.
        storage_options: Used for object stores only; timeouts they leave open are kept short.

    Raises:
        LakeError: LS201 missing, LS202 denied, LS203 unsupported, LS204 corrupt, LS205 unreachable,
            LS206 version gone, LS207 misconfigured; no message holds a secret.
    """
    import lance

    with readable(uri, version=version, storage_options=storage_options):
        return lance.dataset(
            uri, version=version, storage_options=store_options(uri, storage_options)
        )


def store_options(uri: str, storage_options: Mapping[str, str] | None) -> dict[str, str] | None:
    """The options to hand to Lance: none for local paths, with bounded patience for stores."""
    if local_path(uri) is not None:
        return None
    return _with_defaults(_PATIENCE, storage_options)


def probe(store: str, storage_options: Mapping[str, str] | None = None) -> None:
    """Ask an object store one question, to learn in seconds whether it answers at all.

    Opening a dataset in a store that is away takes minutes, because Lance repeats what it asks.

    Args:
        store: Scheme and bucket, as `uri.store_of` gives them.
        storage_options: As for opening.

    Raises:
        LakeError: LS205 unreachable. Whatever else is wrong is for opening to say.
    """
    from lance.file import LanceFileSession

    try:
        with readable(store, storage_options=storage_options):
            options = _with_defaults({**_PATIENCE, **_IMPATIENCE}, storage_options)
            LanceFileSession(store, storage_options=options).contains("_versions")
    except LakeError as error:
        if error.code == Refusal.UNREACHABLE.value:
            raise


@contextmanager
def readable(
    uri: str,
    *,
    version: int | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> Iterator[None]:
    """Turn whatever Lance raises inside the block into the LakeError that says why."""
    try:
        yield
    except LakeError:
        raise
    except BaseException as error:
        if not is_failure(error):
            raise
        secrets = secret_values(storage_options)
        raise refuse(error, uri, version=version, secrets=secrets) from None


def is_failure(error: BaseException) -> bool:
    """Whether Lance failed: an Exception, or a panic of its Rust code, which is none in Python."""
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"


def _with_defaults(
    defaults: Mapping[str, str], storage_options: Mapping[str, str] | None
) -> dict[str, str]:
    given = dict(storage_options or {})
    set_already = {_plain(key) for key in given}
    return {**{k: v for k, v in defaults.items() if k not in set_already}, **given}


def _plain(key: str) -> str:
    lowered = key.lower()
    return next((lowered[len(c) :] for c in _CLOUDS if lowered.startswith(c)), lowered)
