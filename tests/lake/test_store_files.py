"""Listings of an object store, compared with the uploaded objects."""

from __future__ import annotations

import pytest

from lancestat.lake import files as store_files
from lancestat.lake.files import ListedFile, files_digest, list_store_files
from tests.integration.object_store import ObjectStore

pytestmark = pytest.mark.s3


def put(store: ObjectStore, uri: str, content: bytes) -> None:
    with store.filesystem().open_output_stream(uri.removeprefix("s3://")) as stream:
        stream.write(content)


@pytest.fixture
def root(object_store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(store_files, "_SETTLED_NS", -3_600_000_000_000)
    root = object_store.fresh_uri("rows")
    for name in ("a.parquet", "day=1/b.parquet", "_null=x/c", "_SUCCESS", ".hidden/d"):
        put(object_store, f"{root}/{name}", b"123")
    return root


def listed(store: ObjectStore, uri: str) -> tuple[ListedFile, ...]:
    files = list_store_files(uri, store.storage_options)
    assert files is not None
    return files


def test_files_that_spark_ignores_are_not_listed(object_store: ObjectStore, root: str) -> None:
    def names(uri: str) -> list[str]:
        prefix = root.removeprefix("s3://") + "/"
        return [file.path.removeprefix(prefix) for file in listed(object_store, uri)]

    assert names(root) == ["_null=x/c", "a.parquet", "day=1/b.parquet"]
    assert names(f"{root.replace('s3://', 's3a://')}/") == names(root)
    assert names(f"{root}/a.parquet") == ["a.parquet"]


def test_every_change_changes_the_digest(object_store: ObjectStore, root: str) -> None:
    seen = {files_digest(listed(object_store, root))}
    put(object_store, f"{root}/e", b"")
    seen.add(files_digest(listed(object_store, root)))
    put(object_store, f"{root}/e", b"1")
    seen.add(files_digest(listed(object_store, root)))
    object_store.filesystem().delete_file(f"{root}/a.parquet".removeprefix("s3://"))
    seen.add(files_digest(listed(object_store, root)))
    assert len(seen) == 4
    assert files_digest(listed(object_store, root)) in seen


def test_files_that_are_too_new_have_no_digest(
    object_store: ObjectStore, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(object_store, f"{root}/new", b"1")
    monkeypatch.setattr(store_files, "_SETTLED_NS", 3_600_000_000_000)
    assert list_store_files(root, object_store.storage_options) is None


def test_a_store_that_does_not_answer_has_no_listing(object_store: ObjectStore) -> None:
    away = {**object_store.storage_options, "aws_endpoint": "http://127.0.0.1:9"}
    assert list_store_files("s3://bucket/rows", away) is None
    wrong = {**object_store.storage_options, "aws_secret_access_key": "wrong"}
    assert list_store_files(object_store.fresh_uri("rows"), wrong) is None
    assert list_store_files("gs://bucket/rows", {}) is None


def test_a_prefix_without_files_lists_none(object_store: ObjectStore) -> None:
    assert listed(object_store, object_store.fresh_uri("rows")) == ()
