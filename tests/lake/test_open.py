from __future__ import annotations

import shutil
import struct
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from lancestat.errors import LakeError
from lancestat.lake.error_mapping import lake_error
from lancestat.lake.files import store_options
from lancestat.lake.open import (
    observe_dataset,
    open_pinned,
    pinned_history,
    pinned_reads,
    replacement,
    snapshot,
)
from lancestat.lake.snapshot import manifest_identity, pin_of
from tests.pins import pinned


def refused(uri: str | Path, **options: object) -> LakeError:
    with pytest.raises(LakeError) as caught:
        observe_dataset(str(uri), **options)  # type: ignore[arg-type]
    return caught.value


def manifest(dataset: lance.LanceDataset) -> Path:
    (path,) = Path(dataset.uri, "_versions").glob("*.manifest")
    return path


def test_opens_the_latest_version_and_any_other(
    orders: lance.LanceDataset, rows: Callable[[int, int], pa.Table]
) -> None:
    orders.insert(rows(100, 101))
    assert observe_dataset(orders.uri).count_rows() == 101
    assert observe_dataset(orders.uri, version=1).count_rows() == 100


def test_a_missing_dataset_names_the_nearest_sibling(orders: lance.LanceDataset) -> None:
    place = Path(orders.uri).with_name("ordesr.lance")
    error = refused(place)
    assert error.code == "LS201"
    assert str(place) in error.message
    assert error.hint == "did you mean 'orders.lance'?"


def test_a_missing_dataset_without_a_similar_sibling_has_no_suggestion(tmp_path: Path) -> None:
    none_near = "the folder above it holds no dataset of a similar name"
    assert refused(tmp_path / "a.lance").hint == none_near
    assert refused(tmp_path / "b" / "c" / "a.lance").hint == "the folder above it does not exist"


def test_a_folder_that_is_not_a_dataset_is_refused(tmp_path: Path) -> None:
    error = refused(tmp_path)
    assert error.code == "LS201"
    assert error.hint == "the folder exists, but holds no Lance versions"


def test_a_version_that_is_gone_is_an_error(orders: lance.LanceDataset) -> None:
    error = refused(orders.uri, version=7)
    assert (error.code, error.message) == ("LS206", f"{orders.uri} has no version 7")


@pytest.mark.parametrize("length", [0, 7, 100])
def test_a_damaged_manifest_is_an_error(orders: lance.LanceDataset, length: int) -> None:
    path = manifest(orders)
    path.write_bytes(path.read_bytes()[:length])
    error = refused(orders.uri)
    assert error.code == "LS204"
    assert ".rs:" not in str(error)


def test_a_manifest_of_random_bytes_is_an_error(orders: lance.LanceDataset) -> None:
    path = manifest(orders)
    content = path.read_bytes()
    path.write_bytes(bytes(255 - byte for byte in content[:-16]) + content[-16:])
    assert refused(orders.uri).code == "LS204"


def test_an_unknown_reader_feature_flag_is_an_error(orders: lance.LanceDataset) -> None:
    """Flags are field 9 of the manifest message; of two occurrences the last one counts."""
    path = manifest(orders)
    content = path.read_bytes()
    (place,) = struct.unpack("<Q", content[-16:-8])
    (length,) = struct.unpack("<I", content[place : place + 4])
    message = content[place + 4 : place + 4 + length] + bytes([9 << 3]) + varint(1 << 40)
    changed = content[:place] + struct.pack("<I", len(message)) + message + content[-16:]
    path.write_bytes(changed)
    error = refused(orders.uri)
    assert error.code == "LS203"
    assert error.hint is not None
    assert "pylance" in error.hint


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def test_an_unknown_scheme_is_an_error() -> None:
    error = refused("gopher://bucket/t.lance")
    assert error.code == "LS207"
    assert "gopher" in error.message


def test_secrets_in_a_uri_are_masked() -> None:
    error = refused("gopher://me:hunter2@bucket/t.lance?token=hunter3")
    assert "hunter" not in str(error)
    assert "hunter" not in repr(error)


@pytest.mark.parametrize("value", ["soon", 3])
def test_an_invalid_option_is_an_error(value: object) -> None:
    options = {"timeout": value, "aws_region": "r", "aws_secret_access_key": "hunter2"}
    error = refused("s3://bucket/t.lance", storage_options=options)
    assert error.code == "LS207"
    assert "hunter2" not in str(error)


def test_local_paths_get_no_store_options(tmp_path: Path) -> None:
    options = {"aws_region": "r", "timeout": "nonsense"}
    assert store_options(str(tmp_path), options) is None
    assert store_options(f"file://{tmp_path}", options) is None


def test_timeouts_of_stores_are_defaults() -> None:
    default = store_options("s3://bucket/t", None)
    assert default is not None
    assert set(default) == {"client_max_retries", "client_retry_timeout", "connect_timeout"}
    options = {"CLIENT_MAX_RETRIES": "9", "aws_connect_timeout": "60s"}
    assert store_options("s3://bucket/t", options) == {
        **options,
        "client_retry_timeout": default["client_retry_timeout"],
    }


def test_a_file_uri_is_opened(orders: lance.LanceDataset) -> None:
    assert observe_dataset(f"file://{orders.uri}").count_rows() == 100
    shutil.rmtree(orders.uri)
    assert refused(f"file://{orders.uri}").code == "LS201"


S3 = "LanceError(IO): Generic S3 error: Error performing list request: Error performing GET "
URL = "http://127.0.0.1:9/b?list-type=2&prefix=t.lance%2F_versions%2F in 1ms"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        ("Dataset at path t.lance was not found: Not found: t.lance/_versions", "LS201"),
        (f"{S3}{URL} - Server returned non-2xx status code: 404 Not Found: ", "LS201"),
        (f"{S3}{URL} - Server returned non-2xx status code: 403 Forbidden: ", "LS202"),
        (f"{S3}{URL} - Server returned non-2xx status code: 401 : <Code>x</Code>", "LS202"),
        ("LanceError(IO): The provided token has expired: ExpiredToken", "LS202"),
        ("LanceError(IO): no providers in chain provided credentials", "LS202"),
        ("IO error for operation on t: Permission denied (os error 13)", "LS202"),
        (f"{S3}{URL}, after 3 retries, max_retries: 3 - HTTP error: x", "LS205"),
        (f"{S3}{URL} - Server returned non-2xx status code: 503 Slow Down", "LS205"),
        ("LanceError(IO): operation timed out", "LS205"),
        ("Not supported: Please upgrade Lance to read this. Flags: 64", "LS203"),
        ("Invalid user input: No object store provider found for scheme", "LS207"),
        ('Generic Config error: failed to parse "abc" as Duration', "LS207"),
        (f"{S3}{URL} - HTTP error: builder error", "LS207"),
        ("LanceError(IO): does not have sufficient data, len: 7", "LS204"),
        ("failed to decode Protobuf message: invalid tag value: 0", "LS204"),
        ("called `Option::unwrap()` on a `None` value", "LS220"),
        ("Invalid user input: Duplicate column name: a", "LS220"),
        ("Invalid user input: Schema error: No field named x.", "LS220"),
        ("out of memory", "LS220"),
        ("Namespace error: Internal error: Failed to execute request", "LS211"),
        ("Invalid user input: the file has no magic number", "LS204"),
        ("LanceError(IO): protobuf error: failed to decode Protobuf message", "LS204"),
        # As Lance says it of files that were cut, zeroed or changed bit by bit.
        ("LanceError(Arrow): Parser error: Arrow file does not contain correct footer", "LS204"),
        ("file does not appear to be a Lance file (invalid magic: [0, 0, 0, 0])", "LS204"),
        ("LanceError(Arrow): Io error: invalid seek to a negative position", "LS204"),
        ("Generic LocalFileSystem error: failed to fill whole buffer", "LS204"),
        ("LanceError(IO): file size is too small", "LS204"),
        ("Generic memory error: Invalid range 0..9 for object of size 4 bytes", "LS204"),
        ("Encountered corrupt file a.lance Io error: Data corruption detected", "LS204"),
        ("Ipc error: Buffer count mismatched with metadata", "LS204"),
        ("something that nobody has seen yet", "LS220"),
        ("task 7 panicked with message: assertion failed", "LS220"),
        (PermissionError(13, "no"), "LS202"),
        (TypeError("argument 'storage_options'"), "LS207"),
    ],
)  # fmt: skip
def test_errors_of_lance_and_python_are_classified(error: str | Exception, code: str) -> None:
    raised = OSError(error) if isinstance(error, str) else error
    assert lake_error(raised, "t.lance").code == code


@pytest.mark.parametrize(
    "name", ["credentials", "connection timed out", "unsupported", "403 forbidden", "a not found b"]
)
def test_the_name_of_a_table_does_not_affect_classification(tmp_path: Path, name: str) -> None:
    with pytest.raises(LakeError) as missing:
        observe_dataset(str(tmp_path / f"{name}.lance"))
    assert missing.value.code == "LS201"
    place = tmp_path / f"{name}2.lance"
    lance.write_dataset(pa.table({"a": [1]}), place)
    for manifest in (place / "_versions").glob("*.manifest"):
        manifest.write_bytes(b"short")
    with pytest.raises(LakeError) as damaged:
        observe_dataset(str(place))
    assert damaged.value.code == "LS204"


ROWS = pa.table({"id": range(10)})


@pytest.fixture
def uri(tmp_path: Path) -> str:
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(ROWS, uri)
    lance.write_dataset(ROWS, uri, mode="append")
    return uri


def recreate(uri: str) -> None:
    shutil.rmtree(uri)
    lance.write_dataset(ROWS, uri)
    lance.write_dataset(ROWS, uri, mode="append")


def code(error: pytest.ExceptionInfo[LakeError]) -> str:
    return error.value.code


def test_a_pinned_dataset_opens_while_it_exists(uri: str) -> None:
    pin = pinned(uri)
    lance.write_dataset(ROWS, uri, mode="append")
    assert open_pinned(pin).count_rows() == 20
    assert replacement(pin) is None


def test_a_snapshot_and_an_open_dataset_have_one_pin(uri: str) -> None:
    lance.dataset(uri).delete("id = 3")
    dataset = lance.dataset(uri)
    dataset.update({"id": "id + 1"}, where="id = 5")
    dataset = lance.dataset(uri)
    assert snapshot(dataset, uri).pin == pin_of(dataset, uri)
    empty = lance.write_dataset(ROWS.slice(0, 0), f"{uri}.empty")
    assert snapshot(empty).pin == pin_of(empty)


def test_a_recreated_dataset_has_another_pin(uri: str) -> None:
    pin = pinned(uri)
    recreate(uri)
    assert pinned(uri).version == pin.version
    with pytest.raises(LakeError, match="has been replaced: its version 2 is not the one") as bad:
        open_pinned(pin)
    assert code(bad) == "LS209"
    assert bad.value.hint is not None
    assert "attach" in bad.value.hint


def test_a_restored_backup_continues_with_another_pin(uri: str, tmp_path: Path) -> None:
    backup = tmp_path / "backup"
    shutil.copytree(uri, backup)
    before = pinned(uri)
    lance.write_dataset(ROWS, uri, mode="append")
    after = pinned(uri)
    shutil.rmtree(uri)
    shutil.copytree(backup, uri)
    assert open_pinned(before).count_rows() == 20
    with pytest.raises(LakeError) as gone:
        open_pinned(after)
    assert code(gone) == "LS206"
    lance.write_dataset(ROWS, uri, mode="append")
    with pytest.raises(LakeError) as replaced:
        open_pinned(after)
    assert code(replaced) == "LS209"


def test_histories_of_one_frozen_clock_differ_by_their_files(uri: str) -> None:
    noon = datetime(2026, 3, 1, 12, tzinfo=timezone.utc)
    first = replace(snapshot(lance.dataset(uri), uri), committed_at=noon)
    recreate(uri)
    second = replace(snapshot(lance.dataset(uri), uri), committed_at=noon)
    assert first.version == second.version
    assert first.pin != second.pin


def test_commit_times_count_to_the_microsecond_in_any_zone() -> None:
    noon = datetime(2026, 3, 1, 12, tzinfo=timezone.utc)
    assert manifest_identity(noon, None) != manifest_identity(
        noon + timedelta(microseconds=1), None
    )
    berlin = noon.astimezone(timezone(timedelta(hours=1)))
    assert manifest_identity(noon, None) == manifest_identity(berlin, None)


def test_apparent_damage_of_a_replaced_dataset_is_reported_as_a_replacement(uri: str) -> None:
    pin = pinned(uri)
    dataset = open_pinned(pin)
    recreate(uri)
    with pytest.raises(LakeError) as bad, pinned_reads(pin):
        dataset.to_table()
    assert code(bad) == "LS209"


def test_damage_is_reported_as_damage(uri: str) -> None:
    pin = pinned(uri)
    dataset = open_pinned(pin)
    shutil.rmtree(Path(uri) / "data")
    with pytest.raises(LakeError) as bad, pinned_reads(pin):
        dataset.to_table()
    assert code(bad) not in ("LS206", "LS209")


def test_a_dataset_replaced_while_its_history_is_read_is_refused(uri: str) -> None:
    pin = pinned(uri)
    with pytest.raises(LakeError) as bad, pinned_history(pin) as dataset:
        recreate(uri)
        # The first version of the other dataset.
        assert dataset.checkout_version(1).count_rows() == 10
    assert code(bad) == "LS209"
