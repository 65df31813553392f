from __future__ import annotations

import pickle
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from lancestat.errors import LakeError
from lancestat.lake.open import observe_dataset, store_options


def refused(uri: str | Path, **options: object) -> LakeError:
    with pytest.raises(LakeError) as caught:
        observe_dataset(str(uri), **options)  # type: ignore[arg-type]
    return caught.value


def manifest(dataset: lance.LanceDataset) -> Path:
    (found,) = Path(dataset.uri, "_versions").glob("*.manifest")
    return found


def test_opens_the_latest_version_and_any_other(
    orders: lance.LanceDataset, rows: Callable[[int, int], pa.Table]
) -> None:
    orders.insert(rows(100, 101))
    assert observe_dataset(orders.uri).count_rows() == 101
    assert observe_dataset(orders.uri, version=1).count_rows() == 100


def test_missing_names_the_nearest_sibling(orders: lance.LanceDataset) -> None:
    place = Path(orders.uri).with_name("ordesr.lance")
    error = refused(place)
    assert error.code == "LS201"
    assert str(place) in error.message
    assert error.hint == "did you mean 'orders.lance'?"


def test_missing_without_a_similar_sibling(tmp_path: Path) -> None:
    none_near = "the folder above it holds no dataset of a similar name"
    assert refused(tmp_path / "a.lance").hint == none_near
    assert refused(tmp_path / "b" / "c" / "a.lance").hint == "the folder above it does not exist"


def test_a_folder_that_is_no_dataset(tmp_path: Path) -> None:
    error = refused(tmp_path)
    assert error.code == "LS201"
    assert error.hint == "the folder exists, but holds no Lance versions"


def test_a_file_is_no_dataset(tmp_path: Path) -> None:
    (tmp_path / "file.lance").write_text("x", encoding="utf-8")
    assert refused(tmp_path / "file.lance").code == "LS201"


def test_a_version_that_is_gone(orders: lance.LanceDataset) -> None:
    error = refused(orders.uri, version=7)
    assert (error.code, error.message) == ("LS206", f"{orders.uri} has no version 7")


@pytest.mark.parametrize("length", [0, 7, 100])
def test_a_damaged_manifest(orders: lance.LanceDataset, length: int) -> None:
    path = manifest(orders)
    path.write_bytes(path.read_bytes()[:length])
    error = refused(orders.uri)
    assert error.code == "LS204"
    assert ".rs:" not in str(error)


def test_a_manifest_of_noise(orders: lance.LanceDataset) -> None:
    path = manifest(orders)
    content = path.read_bytes()
    path.write_bytes(bytes(255 - byte for byte in content[:-16]) + content[-16:])
    assert refused(orders.uri).code == "LS204"


def test_an_unknown_reader_feature_flag(orders: lance.LanceDataset) -> None:
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


def test_an_unknown_scheme() -> None:
    error = refused("gopher://bucket/t.lance")
    assert error.code == "LS207"
    assert "gopher" in error.message


def test_secrets_in_a_uri_are_masked() -> None:
    error = refused("gopher://me:hunter2@bucket/t.lance?token=hunter3")
    assert "hunter" not in str(error)
    assert "hunter" not in repr(error)


@pytest.mark.parametrize("value", ["soon", 3])
def test_an_option_that_makes_no_sense(value: object) -> None:
    options = {"timeout": value, "aws_region": "r", "aws_secret_access_key": "hunter2"}
    error = refused("s3://bucket/t.lance", storage_options=options)
    assert error.code == "LS207"
    assert "hunter2" not in str(error)


def test_errors_survive_pickling(tmp_path: Path) -> None:
    error = refused(tmp_path / "a.lance")
    copy = pickle.loads(pickle.dumps(error))
    assert str(copy) == str(error)


def test_local_paths_get_no_store_options(tmp_path: Path) -> None:
    options = {"aws_region": "r", "timeout": "nonsense"}
    assert store_options(str(tmp_path), options) is None
    assert store_options(f"file://{tmp_path}", options) is None


def test_patience_with_stores_is_a_default_only() -> None:
    default = store_options("s3://bucket/t", None)
    assert default is not None
    assert set(default) == {"client_max_retries", "client_retry_timeout", "connect_timeout"}
    options = {"CLIENT_MAX_RETRIES": "9", "aws_connect_timeout": "60s"}
    assert store_options("s3://bucket/t", options) == {
        **options,
        "client_retry_timeout": default["client_retry_timeout"],
    }


def test_a_file_uri(orders: lance.LanceDataset) -> None:
    assert observe_dataset(f"file://{orders.uri}").count_rows() == 100
    shutil.rmtree(orders.uri)
    assert refused(f"file://{orders.uri}").code == "LS201"
