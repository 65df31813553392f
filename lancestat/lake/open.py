"""Opening datasets: one clear error each, and no waiting without end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from lancestat.errors import LakeError
from lancestat.lake.clean import secret_values
from lancestat.lake.refusal import refuse
from lancestat.lake.uri import local_path

if TYPE_CHECKING:
    import lance

# A store that does not answer must not hold a command for the three minutes that Lance would wait.
_PATIENCE = {
    "client_max_retries": "3",
    "client_retry_timeout": "15",
    "connect_timeout": "5s",
}
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
    given = dict(storage_options or {})
    set_already = {_plain(key) for key in given}
    patience = {key: value for key, value in _PATIENCE.items() if key not in set_already}
    return {**patience, **given}


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


def _plain(key: str) -> str:
    lowered = key.lower()
    return next((lowered[len(c) :] for c in _CLOUDS if lowered.startswith(c)), lowered)
