"""Publishing to real tables: commits, refusals and races."""

from __future__ import annotations

import pickle
import shutil
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from lancestat import __version__
from lancestat.errors import DatasetMissing, PublishError, VersionMissing
from lancestat.lake.commit import CommitOutcome, Conflict, Landed
from lancestat.lake.open import snapshot
from lancestat.lake.snapshot import Snapshot
from lancestat.tables.carriers import EntriesChange, commit, publication, removal
from lancestat.tables.judgement import examine
from lancestat.tables.statistics.column_statistics import ColumnStatistics
from lancestat.tables.statistics.column_type import ColumnType, Kind
from lancestat.tables.wire import (
    GuardReason,
    decode_statistics,
    encode_statistics,
    published_entries,
)
from tests.tables.races import during_commit

BIGINT = ColumnType(Kind.INTEGER, "bigint", 8)
NOON = datetime(2026, 3, 1, 12, tzinfo=timezone.utc)
HASH = "ab" * 32
ROWS = pa.table({"id": [1, 2, 3], "name": ["a", "b", "c"]})
FOREIGN = {"user.key": "v", "lance.other": "9", "lancestat.note": "n"}


@pytest.fixture
def uri(tmp_path: Path) -> str:
    """A table of three rows with an index, schema metadata and foreign config keys."""
    place = str(tmp_path / "t.lance")
    schema = ROWS.schema.with_metadata({"owner": "them"})
    dataset = lance.write_dataset(ROWS.replace_schema_metadata(schema.metadata), place)
    dataset.create_scalar_index("id", "BTREE")
    dataset.update_config(FOREIGN)
    dataset.update_metadata({"table.note": "m"})
    return place


def observe(uri: str) -> Snapshot:
    return snapshot(lance.dataset(uri))


def entries_of(read: Snapshot, *columns: str, maximum: int | None = 3) -> dict[str, str]:
    statistics = ColumnStatistics(0, 3, None if maximum is None else 1, maximum, 8, 8)
    return encode_statistics(
        dict.fromkeys(columns, (BIGINT, statistics)),
        rows=read.rows,
        schema_hash=HASH,
        computed_at_version=read.version + 1,
        computed_at=NOON,
    )


def change(
    read: Snapshot, *columns: str, maximum: int | None = 3, run: str | None = None
) -> EntriesChange:
    return publication(read.pin, entries_of(read, *columns, maximum=maximum), read.config, run)


def written(change: EntriesChange) -> dict[str, str]:
    return {key: text for key, text in change.updates.items() if text is not None}


def landed_at(landing: CommitOutcome) -> int:
    assert isinstance(landing, Landed) and not landing.is_late
    return landing.version


def verdict(uri: str) -> GuardReason:
    now = observe(uri)
    decoded = decode_statistics(now.config)
    return examine(decoded, version=now.version, schema_hash=HASH).reason


def append(uri: str) -> None:
    lance.write_dataset(ROWS, uri, mode="append")


def overwrite(uri: str) -> None:
    lance.write_dataset(ROWS, uri, mode="overwrite")


def restore(uri: str) -> None:
    lance.dataset(uri, version=1).restore()


def delete(uri: str) -> None:
    lance.dataset(uri).delete("id = 1")


def compact(uri: str) -> None:
    append(uri)
    lance.dataset(uri).optimize.compact_files()


def index(uri: str) -> None:
    lance.dataset(uri).create_scalar_index("name", "BTREE")


def set_user_key(uri: str) -> None:
    lance.dataset(uri).update_config({"user.other": "w"})


COMMITS_BETWEEN = [append, overwrite, restore, delete, compact, index, set_user_key]


def test_a_publication_lands_where_its_tag_says(uri: str) -> None:
    read = observe(uri)
    assert landed_at(commit(change(read, "id"))) == read.version + 1
    after = observe(uri)
    assert after.version == read.version + 1
    assert after.config["lance.stats.computedAtVersion"] == str(after.version)
    assert verdict(uri) is GuardReason.CURRENT


def test_the_commit_names_lancestat(uri: str) -> None:
    commit(change(observe(uri), "id", run="run-7"))
    dataset = lance.dataset(uri)
    transaction = dataset.read_transaction(dataset.version)
    assert transaction.transaction_properties == {
        "__lance_commit_message": (
            f"lancestat {__version__}: statistics of version {dataset.version - 1}"
        ),
        "lancestat.version": __version__,
        "lancestat.run": "run-7",
    }


def test_a_publication_changes_only_statistics(uri: str) -> None:
    before, rows = lance.dataset(uri), lance.dataset(uri).to_table()
    indices = [str(description) for description in before.describe_indices()]
    read = observe(uri)
    published = change(read, "id")
    commit(published)
    after = lance.dataset(uri)
    assert after.config() == {**FOREIGN, **written(published)}
    assert after.schema.equals(before.schema, check_metadata=True)
    assert after.schema.metadata == {b"owner": b"them"}
    assert after.metadata == {"table.note": "m"}
    assert after.to_table().equals(rows)
    assert [str(description) for description in after.describe_indices()] == indices
    assert observe(uri).fragments == read.fragments


@pytest.mark.parametrize("between", COMMITS_BETWEEN)
def test_a_table_that_changed_gets_no_commit(uri: str, between: Callable[[str], None]) -> None:
    published = change(observe(uri), "id")
    between(uri)
    moved = observe(uri)
    landing = commit(published)
    assert isinstance(landing, Conflict)
    assert str(published.pin.version) in landing.detail
    assert observe(uri) == moved


@pytest.mark.parametrize("between", COMMITS_BETWEEN)
def test_a_late_landing_is_reported_and_its_tag_refused(
    uri: str, between: Callable[[str], None]
) -> None:
    published = change(observe(uri), "id")
    between(uri)
    moved = observe(uri).version
    landing = commit(published, even_late=True)
    assert isinstance(landing, Landed) and landing.is_late
    assert landing.version == moved + 1
    assert observe(uri).config["lance.stats.computedAtVersion"] == str(published.pin.version + 1)
    assert verdict(uri) is GuardReason.STALE
    append(uri)
    assert verdict(uri) is GuardReason.STALE


@pytest.mark.parametrize("between", COMMITS_BETWEEN)
def test_a_commit_between_observation_and_attempt_is_reported_afterwards(
    uri: str, between: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    published = change(observe(uri), "id")
    during_commit(monkeypatch, lambda: between(uri))
    landing = commit(published)
    assert isinstance(landing, Landed) and landing.is_late
    assert landing.version == observe(uri).version
    assert verdict(uri) is GuardReason.STALE


@pytest.mark.parametrize("even_late", [False, True])
def test_one_of_two_concurrent_publishers_wins(uri: str, even_late: bool) -> None:
    read = observe(uri)
    first, second = change(read, "id"), change(read, "id", "name")
    assert landed_at(commit(first)) == read.version + 1
    assert isinstance(commit(second, even_late=even_late), Conflict)
    assert published_entries(observe(uri).config) == written(first)
    assert verdict(uri) is GuardReason.CURRENT


def test_a_table_replaced_under_the_same_version_number_gets_no_commit(uri: str) -> None:
    published = change(observe(uri), "id")
    shutil.rmtree(uri)
    for _ in range(published.pin.version):
        lance.write_dataset(ROWS, uri, mode="append")
    replaced = observe(uri)
    assert replaced.version == published.pin.version
    for even_late in (False, True):
        landing = commit(published, even_late=even_late)
        assert isinstance(landing, Conflict)
        assert "replaced" in landing.detail
    append(uri)
    assert isinstance(commit(published, even_late=True), Conflict)
    assert published_entries(observe(uri).config) == {}


def test_a_version_that_was_cleaned_up_gets_one_clear_error(uri: str) -> None:
    published = change(observe(uri), "id")
    append(uri)
    lance.dataset(uri).cleanup_old_versions(older_than=timedelta(0))
    assert isinstance(commit(published), Conflict)
    with pytest.raises(
        VersionMissing, match=r"^LS206  statistics were not published: .*no version"
    ) as raised:
        commit(published, even_late=True)
    assert ".rs" not in str(raised.value)


DECLARE_NONE = "allow writing there, or declare 'publish: none', which keeps them in the state"


def test_statistics_that_may_not_be_removed_are_no_case_for_publish_none(
    uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: object, **options: object) -> object:
        raise OSError("LanceError(IO): Read-only file system (os error 30)")

    removed = removal(observe(uri).pin, frozenset({"lance.stats.numRows"}))
    monkeypatch.setattr(lance.LanceDataset, "commit", fail)
    with pytest.raises(PublishError) as raised:
        commit(removed)
    assert raised.value.hint == "the table's data is untouched; allow writing there, and run again"


def test_a_missing_table_gets_one_clear_error(uri: str) -> None:
    published = change(observe(uri), "id")
    shutil.rmtree(uri)
    with pytest.raises(
        DatasetMissing, match=r"^LS201  statistics were not published: .*no Lance dataset"
    ) as raised:
        commit(published)
    assert ".rs" not in str(raised.value)


@pytest.mark.parametrize(
    ("reason", "remedy"),
    [
        ("Unable to copy data to file: No space left on device", "make room there, and run again"),
        ("Unable to open file: Read-only file system (os error 30)", DECLARE_NONE),
        ("Unable to open file: Permission denied (os error 13)", DECLARE_NONE),
        ("something else", "run again"),
    ],
)
def test_a_failed_commit_gets_a_remedy(
    uri: str, reason: str, remedy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: object, **options: object) -> object:
        raise OSError(f"LanceError(IO): {reason}")

    published = change(observe(uri), "id")
    monkeypatch.setattr(lance.LanceDataset, "commit", fail)
    with pytest.raises(PublishError) as raised:
        commit(published)
    assert raised.value.code == "LS603"
    assert raised.value.hint == f"the table's data is untouched; {remedy}"


def test_a_failed_commit_gets_one_clear_error_without_secrets(
    uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: object, **options: object) -> object:
        raise OSError("LanceError(IO): denied for hunter22, /home/build/lance/src/io.rs:10:2")

    published = change(observe(uri), "id")
    monkeypatch.setattr(lance.LanceDataset, "commit", fail)
    with pytest.raises(PublishError) as raised:
        commit(published, storage_options={"aws_secret_access_key": "hunter22"})
    assert raised.value.code == "LS603"
    assert "denied for ***" in raised.value.message
    assert ".rs" not in str(raised.value)
    assert "hunter22" not in repr(raised.value)
    assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)


def test_a_publication_contains_only_statistics_and_their_tag(uri: str) -> None:
    read = observe(uri)
    good = entries_of(read, "id")
    with pytest.raises(ValueError, match=r"'user\.key'"):
        publication(read.pin, {**good, "user.key": "x"}, read.config)
    with pytest.raises(ValueError, match="tag"):
        publication(replace(read.pin, version=read.version + 1), good, read.config)
    with pytest.raises(ValueError, match=r"'user\.key'"):
        removal(read.pin, frozenset({"user.key"}))


@pytest.mark.fault
def test_racing_publishers_and_writers_never_mislead_readers(uri: str) -> None:
    """Whoever reads a set as current finds in it the row count of the version that it reads."""
    landings: list[CommitOutcome] = []
    stop = threading.Event()

    def publish() -> None:
        while not stop.is_set():
            landings.append(commit(change(observe(uri), "id")))

    def write() -> None:
        for number in range(400):
            # On a busy machine all of forty may come between observing and committing.
            if number >= 40 and any(
                isinstance(landing, Landed) and not landing.is_late for landing in landings
            ):
                break
            # An append that loses to twenty other commits in a row is given up by Lance.
            with suppress(OSError):
                append(uri)
        stop.set()

    threads = [threading.Thread(target=target) for target in (publish, publish, write)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    last = lance.dataset(uri).version
    current = 0
    for version in range(3, last + 1):
        seen = snapshot(lance.dataset(uri, version=version))
        answer = examine(decode_statistics(seen.config), version=version, schema_hash=HASH)
        if answer.reason is GuardReason.CURRENT:
            current += 1
            assert answer.statistics is not None
            assert answer.statistics.rows == seen.rows
    landed = [
        landing for landing in landings if isinstance(landing, Landed) and not landing.is_late
    ]
    assert current == len(landed) > 0
