"""Exceptions as Lance raises them, and messages of object stores."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from lance.file import LanceFileSession

from lancestat.errors import StateError
from lancestat.state.store import open_state
from lancestat.state.stored_table import (
    Failure,
    StateFolder,
    failure_of,
    is_lance_failure,
    message_of,
)
from lancestat.tables.stored import table_records

NOBODY = {
    "aws_access_key_id": "AKIAIOSFODNN7EXAMPLE",
    "aws_secret_access_key": "wJalrXUtnFEMIbPxRfiCYEXAMPLEKEY",
    "aws_endpoint": "http://127.0.0.1:9",
    "aws_region": "us-east-1",
    "allow_http": "true",
    "client_max_retries": "0",
}


def raised(action: Callable[[], object]) -> BaseException:
    with pytest.raises((ValueError, OSError, RuntimeError)) as caught:
        action()
    return caught.value


def test_a_missing_dataset_is_absent(tmp_path: Path) -> None:
    error = raised(lambda: lance.dataset(str(tmp_path / "none.lance")))
    assert failure_of(error) is Failure.ABSENT


def test_creating_twice_has_its_own_error(tmp_path: Path) -> None:
    table = pa.table({"a": [1]})
    lance.write_dataset(table, tmp_path / "t.lance")
    error = raised(lambda: lance.write_dataset(table, tmp_path / "t.lance", mode="create"))
    assert failure_of(error) is Failure.EXISTS


def test_a_file_in_the_place_of_a_dataset_is_not_damage(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    error = raised(lambda: lance.dataset(str(tmp_path / "file" / "t.lance")))
    assert failure_of(error) is Failure.UNREACHABLE


def test_a_server_that_does_not_answer_is_not_damage() -> None:
    for action in (
        lambda: lance.dataset("s3://bucket/t.lance", storage_options=NOBODY),
        lambda: LanceFileSession("s3://bucket", storage_options=NOBODY).list_with_delimiter(),
    ):
        assert failure_of(raised(action)) is Failure.UNREACHABLE


def test_an_unknown_scheme_is_not_damage() -> None:
    assert failure_of(raised(lambda: lance.dataset("nope://x/t.lance"))) is Failure.UNREACHABLE


@pytest.mark.parametrize(
    "text",
    [
        "LanceError(IO): Generic LocalFileSystem error: Permission denied (os error 13)",
        "LanceError(IO): Generic S3 error: Client error with status 403 Forbidden: AccessDenied",
        "LanceError(IO): Generic S3 error: NoSuchBucket: The specified bucket does not exist",
        "LanceError(IO): Generic GCS error: error sending request",
        "LanceError(IO): Generic MicrosoftAzure error: after 3 retries",
        "LanceError(IO): No space left on device (os error 28)",
        "LanceError(IO): the credential provider was not enabled",
        "Error performing GET https://h/b in 1s: <Error><Code>AccessDenied</Code></Error>",
        "Generic S3 error: Server returned non-2xx status code: 501 Not Implemented",
        "LanceError(IO): Generic S3 error: Error performing GET: 404 Not Found: NoSuchBucket",
        'Generic Config error: failed to parse "abc" as Duration',
        "LanceError(IO): Input/output error (os error 5)",
    ],
)
def test_denied_and_unreachable_uris_are_not_damage(text: str) -> None:
    assert failure_of(OSError(text)) is Failure.UNREACHABLE


@pytest.mark.parametrize(
    "text",
    [
        "LanceError(IO): does not have sufficient data, len: 7",
        "External error: Invalid user input: file does not appear to be a Lance file",
        "External error: Generic N/A error: Not found: /s/v2/partials-1.lance/data/01.lance",
        "Generic S3 error: 416 Range Not Satisfiable: InvalidRange",
        "No such file or directory (os error 2)",
        "Not supported: Please upgrade Lance to read this. Flags: 64",
        "LanceError(IO): file size is too small: s3://forbidden/timeout/connection/1.lance",
    ],
)
def test_damage_is_classified_as_damage(text: str) -> None:
    assert failure_of(OSError(text)) is Failure.CORRUPT


def test_internal_errors_are_never_classified_as_damage() -> None:
    assert not is_lance_failure(TypeError("missing argument"))
    assert not is_lance_failure(KeyboardInterrupt())
    assert is_lance_failure(pa.ArrowKeyError("x"))


def test_errors_show_no_secret_and_no_source_location() -> None:
    error = raised(lambda: lance.dataset("s3://bucket/t.lance", storage_options=NOBODY))
    secret = NOBODY["aws_secret_access_key"]
    message = message_of(ValueError(f"{error} {secret}"), NOBODY)
    assert secret not in message
    assert ".rs:" not in message


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        OSError("LanceError(IO): Unable to copy data to file: No space left on device"),
        OSError("LanceError(IO): Disk quota exceeded (os error 122)"),
        OSError("LanceError(IO): File too large (os error 27)"),
    ],
)
def test_a_full_disk_is_one_clear_error(error: OSError, tmp_path: Path) -> None:
    with pytest.raises(StateError) as caught, StateFolder(str(tmp_path)).reached():
        raise error
    assert caught.value.code == "LS301"
    assert caught.value.message == f"no space is left for the state at {tmp_path}"
    assert caught.value.hint is not None
    assert caught.value.hint.startswith("make room there, and run again")


def test_an_unreachable_state_is_one_clear_error() -> None:
    state = open_state("s3://user:pass@bucket/state", NOBODY)
    for action in (
        lambda: table_records(state),
        lambda: state.runs(1),
        lambda: state.partial_index("t"),
    ):
        with pytest.raises(StateError) as caught:
            action()
        assert caught.value.code == "LS301"
        text = f"{caught.value}{caught.value!r}{state.folder!r}{vars(state)!r}"
        assert "s3://bucket/state" in str(caught.value)
        for secret in ("pass", NOBODY["aws_secret_access_key"], NOBODY["aws_access_key_id"]):
            assert secret not in text
