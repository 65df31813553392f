from __future__ import annotations

import os
from pathlib import Path

import pytest

from lancestat.lake.files import ListedFile, files_digest, list_files


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder as Spark leaves it."""
    root = tmp_path / "rows"
    (root / "day=1").mkdir(parents=True)
    (root / "_null=x").mkdir()
    (root / ".hidden").mkdir()
    for name in ("a.parquet", "day=1/b.parquet", "_null=x/c", "_SUCCESS", ".a.crc", ".hidden/d"):
        (root / name).write_bytes(b"123")
    return root


def listed(uri: str) -> tuple[ListedFile, ...]:
    files = list_files(uri)
    assert files is not None
    return files


def names(folder: Path) -> list[str]:
    return [Path(file.path).relative_to(folder).as_posix() for file in listed(str(folder))]


def test_files_that_spark_ignores_are_not_listed(folder: Path) -> None:
    assert names(folder) == ["_null=x/c", "a.parquet", "day=1/b.parquet"]


def test_a_single_file_is_a_listing_of_one(folder: Path) -> None:
    [file] = listed(str(folder / "a.parquet"))
    assert (file.path, file.size_bytes) == (str(folder / "a.parquet"), 3)


def test_a_pattern_lists_the_matching_files(folder: Path) -> None:
    assert [Path(file.path).name for file in listed(f"{folder}/*.parquet")] == ["a.parquet"]


@pytest.mark.parametrize("uri", ["s3://bucket/rows", "/no/such/place", "/no/such/*", "/a/{b,c}"])
def test_a_uri_that_cannot_be_listed_has_no_listing(uri: str) -> None:
    assert list_files(uri) is None


def test_a_link_lists_its_target(folder: Path) -> None:
    other = folder.parent / "other"
    other.mkdir()
    link = folder.parent / "link"
    link.symlink_to(folder)
    before = files_digest(listed(str(link)))
    link.unlink()
    link.symlink_to(other)
    assert files_digest(listed(str(link))) != before


@pytest.mark.parametrize("change", ["new", "gone", "grown", "written again", "renamed"])
def test_every_change_of_a_file_changes_the_digest(folder: Path, change: str) -> None:
    before = files_digest(listed(str(folder)))
    file = folder / "day=1" / "b.parquet"
    match change:
        case "new":
            (folder / "e").write_bytes(b"")
        case "gone":
            file.unlink()
        case "grown":
            with file.open("ab") as appended:
                appended.write(b"4")
        case "written again":
            os.utime(file, ns=(0, 1))
        case _:
            file.rename(folder / "day=1" / "z.parquet")
    assert files_digest(listed(str(folder))) != before
