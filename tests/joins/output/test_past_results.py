"""Older results are removed as `keep` says, and nothing else is."""

from __future__ import annotations

import shutil
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import lance
import pytest

from lancestat.errors import LakeError, OutputOccupied
from lancestat.joins.output import lance_output
from lancestat.joins.output import result as output
from lancestat.joins.search.work import OutputFormat
from tests.joins.search.results import add, files_below, put, rows, seen, table

LANCE = OutputFormat.LANCE
HOUR = timedelta(hours=1)


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return str(tmp_path / "similar.lance")


def remove(uri: str, keep: int | timedelta, *, later: timedelta = HOUR) -> int:
    return output.remove_past(LANCE, uri, {}, keep, datetime.now(timezone.utc) + later)


def versions(uri: str) -> list[int]:
    return [version["version"] for version in lance.dataset(uri).versions()]


def test_the_newest_results_are_kept_with_their_files(uri: str) -> None:
    for number in range(5):
        put(LANCE, uri, [rows(number, number + 1)])
    assert remove(uri, 6) == remove(uri, 5) == 0
    assert remove(uri, 2) == 3
    assert versions(uri) == [4, 5]
    assert seen(LANCE, uri).equals(table(rows(4, 5)))
    assert lance.dataset(uri, version=4).count_rows() == 1
    data = [name for name in files_below(Path(uri)) if name.startswith("data/")]
    assert len(data) == 2


def test_versions_since_a_kept_result_are_kept(uri: str) -> None:
    """Published statistics are versions, too, which prove that the result is still the join's."""
    put(LANCE, uri, [rows(0, 1)])
    put(LANCE, uri, [rows(1, 2)])
    lance.dataset(uri).update_config({"lance.stats.x": "1"})
    lance.dataset(uri).update_config({"lance.stats.x": "2"})
    assert remove(uri, 1) == 1
    assert versions(uri) == [2, 3, 4]
    assert output.current(LANCE, uri, {}) is not None
    assert remove(uri, 1) == 0


def test_an_appended_result_counts_as_one(uri: str) -> None:
    put(LANCE, uri, [rows(0, 1)])
    add(LANCE, uri, [rows(1, 2)])
    add(LANCE, uri, [rows(2, 3)])
    assert remove(uri, 2) == 1
    assert seen(LANCE, uri).equals(table(rows(0, 1), rows(1, 2), rows(2, 3)).combine_chunks())


def test_tagged_versions_are_kept(uri: str) -> None:
    for number in range(4):
        put(LANCE, uri, [rows(number, number + 1)])
    lance.dataset(uri).tags.create("audited", 2)
    assert remove(uri, 1) == 2
    assert versions(uri) == [2, 4]
    assert lance.dataset(uri, version="audited").to_table()["id"].to_pylist() == [1]


def test_results_are_kept_for_a_time_and_the_newest_for_ever(uri: str) -> None:
    for number in range(3):
        put(LANCE, uri, [rows(number, number + 1)])
    assert remove(uri, timedelta(days=7), later=timedelta(days=6)) == 0
    assert remove(uri, timedelta(days=7), later=timedelta(days=8)) == 2
    assert versions(uri) == [3]
    assert remove(uri, timedelta(days=7), later=timedelta(days=800)) == 0


def test_readers_of_what_was_just_replaced_can_finish(uri: str) -> None:
    put(LANCE, uri, [rows(0, 1)])
    put(LANCE, uri, [rows(1, 2)])
    assert remove(uri, 1, later=timedelta(minutes=14)) == 0
    assert remove(uri, 1, later=timedelta(minutes=16)) == 1


def test_a_table_that_no_join_has_written_is_left_alone(uri: str) -> None:
    for _ in range(3):
        lance.write_dataset(table(rows(0, 1)), uri, mode="overwrite")
    with pytest.raises(OutputOccupied, match="no join has written"):
        remove(uri, 1)
    assert versions(uri) == [1, 2, 3]


def test_versions_of_a_table_that_took_the_place_are_left_alone(
    uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other table comes once the result is known to be the join's, with versions of its own."""
    for number in range(3):
        put(LANCE, uri, [rows(number, number + 1)])
    judge = lance_output.objection

    def judged_and_replaced(*arguments: Any) -> str | None:
        reason = judge(*arguments)
        shutil.rmtree(uri)
        for _ in range(4):
            lance.write_dataset(table(rows(0, 1)), uri, mode="overwrite")
        return reason

    monkeypatch.setattr(lance_output, "objection", judged_and_replaced)
    monkeypatch.setattr(lance_output, "is_result", lambda commit: True)
    with pytest.raises(LakeError):
        remove(uri, 1)
    assert versions(uri) == [1, 2, 3, 4]


def test_where_nothing_was_written_nothing_is_removed(uri: str) -> None:
    assert remove(uri, 1) == 0
