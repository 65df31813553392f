from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from lance import LanceOperation
from lance.file import LanceFileWriter
from lance.fragment import DataFile

from lancestat.lake.fingerprint import column_groups
from lancestat.lake.history import (
    Effect,
    History,
    commits_since,
    rows_changed_at,
    rows_changed_between,
)
from lancestat.lake.open import snapshot
from lancestat.lake.snapshot import Fragment

Rows = Callable[[int, int], pa.Table]
Dataset = lance.LanceDataset


def live_rows(dataset: Dataset, version: int, fragments: tuple[Fragment, ...]) -> list[str]:
    """The rows of some fragments, as Lance reads them, in no order."""
    there = lance.dataset(dataset.uri, version=version)
    handles = [there.get_fragment(fragment.id) for fragment in fragments]
    rows = there.scanner(fragments=handles).to_table().to_pylist()
    return sorted(str(row) for row in rows)


def effects(dataset: Dataset, since: int) -> list[Effect]:
    history = commits_since(lance.dataset(dataset.uri), since)
    assert [commit.version for commit in history.commits] == list(
        range(since + 1, history.until + 1)
    )
    return [commit.effect for commit in history.commits]


def merge(dataset: Dataset) -> lance.dataset.MergeInsertBuilder:
    return dataset.merge_insert("id")


def replace_column(dataset: Dataset, rows: Rows) -> None:
    dataset.add_columns({"z": "x * 2"})
    values = pa.table({"z": pa.array([-1.0] * 20)})
    with LanceFileWriter(f"{dataset.uri}/data/z.lance", values.schema) as writer:
        writer.write_batch(values)
    file = DataFile.create(dataset, "z.lance")
    operation = LanceOperation.DataReplacement([LanceOperation.DataReplacementGroup(2, file)])
    lance.LanceDataset.commit(dataset.uri, operation, read_version=dataset.version)


def restore(dataset: Dataset, rows: Rows) -> None:
    dataset.delete("id < 50")
    lance.dataset(dataset.uri, version=1).restore()


CASES: dict[str, tuple[Callable[[Dataset, Rows], object], list[Effect]]] = {
    "append": (lambda d, rows: d.insert(rows(100, 110)), [Effect.APPENDED]),
    "delete": (lambda d, rows: d.delete("id = 3"), [Effect.DELETED]),
    "delete a fragment": (lambda d, rows: d.delete("id < 20"), [Effect.DELETED]),
    "delete nothing": (lambda d, rows: d.delete("id = 999"), [Effect.ROWS_UNCHANGED]),
    "truncate": (lambda d, rows: d.truncate_table(), [Effect.DELETED]),
    "update": (lambda d, rows: d.update({"x": "0"}, where="id = 3"), [Effect.CHANGED]),
    "update nothing": (
        lambda d, rows: d.update({"x": "0"}, where="id = 999"),
        [Effect.ROWS_UNCHANGED],
    ),
    "upsert": (
        lambda d, rows: (
            merge(d)
            .when_matched_update_all()
            .when_not_matched_insert_all()
            .execute(rows(90, 110))
        ),
        [Effect.CHANGED],
    ),
    "insert if absent": (
        lambda d, rows: merge(d).when_not_matched_insert_all().execute(rows(90, 110)),
        [Effect.APPENDED],
    ),
    "insert if absent, none absent": (
        lambda d, rows: merge(d).when_not_matched_insert_all().execute(rows(90, 100)),
        [Effect.ROWS_UNCHANGED],
    ),
    "merge delete": (
        lambda d, rows: merge(d).when_matched_delete().execute(rows(90, 110)),
        [Effect.DELETED],
    ),
    "merge delete by source": (
        lambda d, rows: (
            merge(d)
            .when_matched_update_all()
            .when_not_matched_by_source_delete("id > 50")
            .execute(rows(90, 95))
        ),
        [Effect.CHANGED],
    ),
    "merge some columns": (
        lambda d, rows: merge(d).when_matched_update_all().execute(rows(0, 60).select(["id", "x"])),
        [Effect.CHANGED],
    ),
    "add a column": (lambda d, rows: d.add_columns({"y": "x + 1"}), [Effect.COLUMNS_WRITTEN]),
    "add a null column": (
        lambda d, rows: d.add_columns([pa.field("e", pa.int32())]),
        [Effect.COLUMNS_WRITTEN],
    ),
    "alter a type": (
        lambda d, rows: d.alter_columns({"path": "x", "data_type": pa.float32()}),
        [Effect.COLUMNS_WRITTEN],
    ),
    "rename": (
        lambda d, rows: d.alter_columns({"path": "x", "name": "x2"}),
        [Effect.SCHEMA_ONLY],
    ),
    "nullability": (
        lambda d, rows: d.alter_columns({"path": "id", "nullable": True}),
        [Effect.SCHEMA_ONLY],
    ),
    "drop": (lambda d, rows: d.drop_columns(["x"]), [Effect.SCHEMA_ONLY]),
    "scalar index": (
        lambda d, rows: d.create_scalar_index("id", "BTREE"),
        [Effect.ROWS_UNCHANGED],
    ),
    "drop index": (
        lambda d, rows: (d.create_scalar_index("id", "BTREE"), d.drop_index("id_idx")),
        [Effect.ROWS_UNCHANGED] * 2,
    ),
    "config": (lambda d, rows: d.update_config({"a": "b"}), [Effect.ROWS_UNCHANGED]),
    "metadata": (
        lambda d, rows: (
            d.update_metadata({"a": "b"}),
            d.update_schema_metadata({"a": "b"}),
            d.update_field_metadata({"id": {"a": "b"}}),
        ),
        [Effect.ROWS_UNCHANGED] * 3,
    ),
    "compaction": (
        lambda d, rows: d.optimize.compact_files(),
        [Effect.ROWS_UNCHANGED, Effect.REWRITTEN],
    ),
    "overwrite": (
        lambda d, rows: lance.write_dataset(rows(0, 100), d.uri, mode="overwrite"),
        [Effect.CHANGED],
    ),
    "restore": (restore, [Effect.DELETED, Effect.CHANGED]),
    "replace a column": (replace_column, [Effect.COLUMNS_WRITTEN, Effect.CHANGED]),
}  # fmt: skip


@pytest.mark.parametrize("stable_row_ids", [False, True], ids=["addresses", "stable row ids"])
@pytest.mark.parametrize("case", CASES)
def test_every_commit_has_its_effect(
    tmp_path: Path, rows: Rows, case: str, stable_row_ids: bool
) -> None:
    dataset = lance.write_dataset(
        rows(0, 100),
        tmp_path / "t.lance",
        max_rows_per_file=20,
        enable_stable_row_ids=stable_row_ids,
    )
    act, expected = CASES[case]
    act(dataset, rows)
    assert effects(dataset, 1) == expected


def test_a_vector_index_changes_no_row(tmp_path: Path) -> None:
    vectors = pa.FixedSizeListArray.from_arrays(pa.array([0.5, 1.5] * 600, pa.float32()), 2)
    dataset = lance.write_dataset(pa.table({"v": vectors}), tmp_path / "t.lance")
    dataset.create_index("v", "IVF_FLAT", num_partitions=2)
    assert set(effects(dataset, 1)) == {Effect.ROWS_UNCHANGED}


def confirm_moves(dataset: Dataset, history: History) -> int:
    """Compare the rows of every confirmed move with Lance's own answer, and count the moves."""
    count = 0
    for commit in history.commits:
        for rewrite in commit.rewrites:
            old = live_rows(dataset, commit.version - 1, rewrite.old)
            assert live_rows(dataset, commit.version, rewrite.new) == old
            count += 1
    return count


@pytest.mark.parametrize("index", [None, "BTREE", "BITMAP"])
@pytest.mark.parametrize("deferred", [False, True], ids=["remap", "deferred remap"])
def test_a_compaction_names_the_moved_fragments(
    orders: Dataset, index: str | None, deferred: bool
) -> None:
    if index:
        orders.create_scalar_index("id", index)
    orders.delete("id in (3, 4, 45)")
    since = orders.version
    before = snapshot(orders)
    orders.optimize.compact_files(target_rows_per_fragment=45, defer_index_remap=deferred)
    history = commits_since(orders, since)

    assert history.rows_unchanged
    assert Effect.REWRITTEN in history.effects
    assert confirm_moves(orders, history) == len(history.rewrites)
    (rewrite,) = history.rewrites
    assert (len(rewrite.old), len(rewrite.new)) == (5, 2)
    after = snapshot(orders)
    moved = [fragment for rewrite in history.rewrites for fragment in rewrite.old]
    made = [fragment for rewrite in history.rewrites for fragment in rewrite.new]
    assert set(before.fragments) - set(after.fragments) == set(moved)
    assert set(after.fragments) - set(before.fragments) == set(made)
    now = {group.fingerprint for group in column_groups(after, after.fields)}
    for rewrite in history.rewrites:
        groups = column_groups(
            type(after)(after.uri, 0, after.fields, rewrite.new, {}, None), after.fields
        )
        assert {group.fingerprint for group in groups} <= now


def test_a_rewrite_of_several_fragments_into_several_is_recognized(
    orders: Dataset, rows: Rows
) -> None:
    old = [fragment.metadata for fragment in orders.get_fragments()][:3]
    new = lance.fragment.write_fragments(rows(0, 60), orders.uri, max_rows_per_file=40)
    group = LanceOperation.RewriteGroup(old, new)
    lance.LanceDataset.commit(orders.uri, LanceOperation.Rewrite([group], []), read_version=1)
    dataset = lance.dataset(orders.uri)
    history = commits_since(dataset, 1)
    (rewrite,) = history.rewrites
    assert ([fragment.id for fragment in rewrite.old], len(rewrite.new)) == ([0, 1, 2], 2)
    assert {fragment.id for fragment in rewrite.new} <= set(dataset.fragment_ids())
    assert confirm_moves(dataset, history) == 1


def test_a_rewrite_that_lost_rows_is_not_confirmed(orders: Dataset, rows: Rows) -> None:
    old = [fragment.metadata for fragment in orders.get_fragments()][:2]
    new = lance.fragment.write_fragments(rows(0, 39), orders.uri)
    group = LanceOperation.RewriteGroup(old, new)
    lance.LanceDataset.commit(orders.uri, LanceOperation.Rewrite([group], []), read_version=1)
    (commit,) = commits_since(lance.dataset(orders.uri), 1).commits
    assert commit.rewrites == ()
    assert commit.effect is Effect.UNKNOWN


def test_reading_a_compaction_of_an_indexed_table_restores_the_environment(orders: Dataset) -> None:
    orders.create_scalar_index("id", "BTREE")
    orders.optimize.compact_files()
    with pytest.raises(TypeError, match="RewrittenIndex"):
        orders.read_transaction(orders.version)
    assert commits_since(orders, 2).rows_unchanged
    with pytest.raises(TypeError, match="RewrittenIndex"):
        orders.read_transaction(orders.version)


def test_concurrent_readers_of_one_dataset_agree(orders: Dataset) -> None:
    orders.create_scalar_index("id", "BTREE")
    for number in range(6):
        orders.delete(f"id = {number * 15}")
        orders.optimize.compact_files(materialize_deletions_threshold=0.0)
    expected = commits_since(orders, 1)
    assert expected.is_complete
    histories: list[History] = []
    readers = [
        threading.Thread(target=lambda: histories.append(commits_since(orders, 1)))
        for _ in range(4)
    ]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    assert histories == [expected] * 4


def test_versions_that_were_cleaned_up_are_unknown(orders: Dataset, rows: Rows) -> None:
    for start in (100, 110, 120):
        orders.insert(rows(start, start + 10))
    orders.cleanup_old_versions(older_than=timedelta(0))
    orders.update_config({"a": "b"})
    history = commits_since(orders, 1)
    known = [commit.effect for commit in history.commits]
    assert known == [Effect.UNKNOWN, Effect.UNKNOWN, Effect.APPENDED, Effect.ROWS_UNCHANGED]
    assert not history.is_complete
    assert not history.rows_unchanged
    assert commits_since(orders, 4).rows_unchanged


def test_a_compaction_without_its_previous_version_has_no_rewrites(orders: Dataset) -> None:
    orders.optimize.compact_files()
    orders.cleanup_old_versions(older_than=timedelta(0))
    (commit,) = commits_since(orders, orders.version - 1).commits
    assert (commit.effect, commit.rewrites) == (Effect.REWRITTEN, ())


def test_commits_without_transaction_files_are_read_from_the_manifest(
    orders: Dataset, rows: Rows
) -> None:
    """Small transactions are also stored in the manifest, which is sufficient."""
    orders.insert(rows(100, 110))
    shutil.rmtree(Path(orders.uri, "_transactions"))
    assert effects(orders, 1) == [Effect.APPENDED]


def test_a_damaged_manifest_in_between_is_unknown(orders: Dataset, rows: Rows) -> None:
    orders.insert(rows(100, 110))
    orders.insert(rows(110, 120))
    newest_first = sorted(Path(orders.uri, "_versions").glob("*.manifest"))
    newest_first[1].write_bytes(b"nothing")
    assert effects(orders, 1) == [Effect.UNKNOWN, Effect.APPENDED]


class Shuffle(LanceOperation.BaseOperation):
    """An operation of a later Lance."""


@pytest.mark.parametrize("transaction", [None, lance.Transaction(1, Shuffle())])
def test_a_commit_without_a_known_transaction_is_unknown(
    orders: Dataset, monkeypatch: pytest.MonkeyPatch, transaction: lance.Transaction | None
) -> None:
    monkeypatch.setattr(lance.LanceDataset, "read_transaction", lambda self, version: transaction)
    orders.update_config({"a": "b"})
    assert effects(orders, 1) == [Effect.UNKNOWN]


def test_a_bare_operation_is_harmless_only_if_the_fragments_are_equal(
    orders: Dataset, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare = lance.Transaction(read_version=1, operation=LanceOperation.BaseOperation())
    monkeypatch.setattr(lance.LanceDataset, "read_transaction", lambda self, version: bare)
    orders.update_config({"a": "b"})
    orders.insert(rows(100, 110))
    orders.delete("id = 1")
    orders.add_columns([pa.field("e", pa.int32())])
    assert effects(orders, 1) == [Effect.ROWS_UNCHANGED, *[Effect.UNKNOWN] * 3]


def test_commits_have_their_properties(orders: Dataset) -> None:
    update = LanceOperation.UpdateConfig(config_updates=LanceOperation.UpdateMap({"a": "b"}, False))
    transaction = lance.Transaction(1, update, transaction_properties={"by": "someone"})
    lance.LanceDataset.commit(orders.uri, transaction)
    (commit,) = commits_since(lance.dataset(orders.uri), 1).commits
    assert (commit.version, commit.operation, commit.properties["by"]) == (
        2,
        "UpdateConfig",
        "someone",
    )


def test_a_future_version_proves_nothing(orders: Dataset) -> None:
    """The versions of a recreated table start over."""
    assert not commits_since(orders, 9).is_complete
    assert not commits_since(orders, 9).rows_unchanged


def test_a_history_may_end_at_an_earlier_version(orders: Dataset, rows: Rows) -> None:
    orders.insert(rows(100, 110))
    orders.delete("id = 1")
    history = commits_since(orders, 1, until=2)
    assert [commit.effect for commit in history.commits] == [Effect.APPENDED]
    assert history.is_complete


def test_a_history_longer_than_the_limit_is_cut(orders: Dataset) -> None:
    for number in range(5):
        orders.update_config({"a": str(number)})
    history = commits_since(orders, 1, limit=3)
    assert [commit.version for commit in history.commits] == [4, 5, 6]
    assert not history.is_complete
    assert not history.rows_unchanged


def test_a_branch_has_its_own_commits(orders: Dataset, rows: Rows) -> None:
    orders.insert(rows(100, 110))
    orders.tags.create("release", 2)
    branch = orders.create_branch("trial")
    branch.insert(rows(110, 120))
    history = commits_since(branch, 2)
    assert [commit.effect for commit in history.commits] == [Effect.APPENDED]
    assert [commit.effect for commit in commits_since(branch, 1).commits] == [
        Effect.CHANGED,
        Effect.APPENDED,
    ]
    assert effects(orders, 1) == [Effect.APPENDED]


def test_a_shallow_clone_has_its_own_history(tmp_path: Path, orders: Dataset, rows: Rows) -> None:
    clone = orders.shallow_clone(tmp_path / "clone.lance", 1)
    files = [file for fragment in snapshot(clone).fragments for file in fragment.files]
    assert {file.base_id for file in files} == {0}
    since = clone.version
    clone.insert(rows(100, 110))
    assert effects(clone, since) == [Effect.APPENDED]


def changed_since(
    dataset: lance.LanceDataset, version: int, columns: Sequence[str] = ("id", "x")
) -> tuple[float, float]:
    """The share for statistics of some columns, with and without the help of history."""
    now = lance.dataset(dataset.uri)
    old, new = snapshot(lance.dataset(dataset.uri, version=version)), snapshot(now)
    history = commits_since(now, version)
    return (
        rows_changed_between(old, new, columns, history),
        rows_changed_between(old, new, columns),
    )


def compacted(dataset: Dataset, materialize: float = 0.1) -> None:
    dataset.optimize.compact_files(materialize_deletions_threshold=materialize)


def restored(dataset: Dataset) -> None:
    lance.dataset(dataset.uri, version=1).restore()


# What happens to the table, the version whose rows are compared, and the share with history.
SHARES: dict[str, tuple[Callable[[Dataset, Rows], object], int, float]] = {
    "config": (lambda d, rows: d.update_config({"a": "b"}), 1, 0.0),
    "index": (lambda d, rows: d.create_scalar_index("id", "BTREE"), 1, 0.0),
    "appended rows count once": (lambda d, rows: d.insert(rows(100, 125)), 1, 25 / 125),
    "deleted rows too": (lambda d, rows: (d.insert(rows(100, 125)), d.delete("id < 5")), 1, 0.25),
    "updated rows count twice": (
        lambda d, rows: d.update({"x": "-1"}, where="id in (1, 50)"),
        1,
        0.04,
    ),
    "another column": (
        lambda d, rows: (d.add_columns({"y": "x + 1"}), d.drop_columns(["s"])),
        1,
        0.0,
    ),
    "no common column": (
        lambda d, rows: (d.add_columns({"y": "x + 1"}), d.drop_columns(["id", "x", "s"])),
        1,
        1.0,
    ),
    "equal rows written over": (
        lambda d, rows: lance.write_dataset(rows(0, 100), d.uri, mode="overwrite"),
        1,
        1.0,
    ),
    "emptied": (lambda d, rows: d.truncate_table(), 1, 1.0),
    "empty as before": (lambda d, rows: d.truncate_table(), 2, 0.0),
    "filled again": (lambda d, rows: (d.truncate_table(), d.insert(rows(0, 5))), 2, 1.0),
    "restored": (lambda d, rows: (d.delete("id < 30"), restored(d)), 1, 0.0),
    "restored to before a compaction": (lambda d, rows: (compacted(d), restored(d)), 1, 0.0),
    # Of the fragment's twenty rows, two were away then and two others are away now.
    "deletions that may differ": (
        lambda d, rows: (
            d.delete("id in (1, 2)"),
            restored(d),
            lance.dataset(d.uri).delete("id in (3, 4)"),
        ),
        2,
        4 / 98,
    ),
    "renamed to and fro": (
        lambda d, rows: (
            d.alter_columns({"path": "x", "name": "y"}),
            d.alter_columns({"path": "y", "name": "x"}),
        ),
        1,
        0.0,
    ),
    "a column that a restore brought back": (
        lambda d, rows: (d.drop_columns(["x"]), compacted(d), restored(d)),
        1,
        0.0,
    ),
}


@pytest.mark.parametrize("case", SHARES)
def test_the_share_of_changed_rows(orders: Dataset, rows: Rows, case: str) -> None:
    act, since, share = SHARES[case]
    act(orders, rows)
    assert changed_since(orders, since) == (share, share)


def test_a_compaction_changes_no_rows(orders: Dataset) -> None:
    orders.delete("id in (3, 45)")
    compacted(orders)
    assert changed_since(orders, 2) == (0.0, 1.0)
    assert changed_since(orders, 1)[0] == 2 / 98


def test_rows_that_came_before_a_compaction_are_still_new(orders: Dataset, rows: Rows) -> None:
    orders.insert(rows(100, 110))
    compacted(orders)
    orders.delete("id in (3, 45)")
    compacted(orders, 0.0)
    assert changed_since(orders, 1)[0] == pytest.approx(12 / 108)


def test_repeated_compactions_change_no_rows(tmp_path: Path, rows: Rows) -> None:
    dataset = lance.write_dataset(rows(0, 100), tmp_path / "t.lance", max_rows_per_file=10)
    for target in (20, 50, 1000):
        dataset.optimize.compact_files(target_rows_per_fragment=target)
    assert len(dataset.get_fragments()) < 10
    assert changed_since(dataset, 1)[0] == 0.0


def test_deletions_only_grow_where_history_shows_it(orders: lance.LanceDataset) -> None:
    orders.delete("id in (1, 2)")
    orders.delete("id = 3")
    with_history, without = changed_since(orders, 2)
    assert with_history == 1 / 97
    assert without == 5 / 97


def drop_and_add(table: lance.LanceDataset) -> None:
    table.drop_columns(["x"])
    table.add_columns({"x": "id * 1000000"})


def rename_another(table: lance.LanceDataset) -> None:
    table.add_columns({"y": "id * 1000000"})
    table.drop_columns(["x"])
    table.alter_columns({"path": "y", "name": "x"})


def rename_and_add(table: lance.LanceDataset) -> None:
    table.alter_columns({"path": "x", "name": "old"})
    table.add_columns({"x": "id * 1000000"})


def swap(table: lance.LanceDataset) -> None:
    table.alter_columns({"path": "x", "name": "spare"}, {"path": "id", "name": "x"})
    table.alter_columns({"path": "spare", "name": "id"})


def cast_to_and_fro(table: lance.LanceDataset) -> None:
    type = table.schema.field("x").type
    table.alter_columns({"path": "x", "data_type": pa.float32()})
    table.alter_columns({"path": "x", "data_type": type})


REPLACED = [drop_and_add, rename_another, rename_and_add, swap, cast_to_and_fro]


@pytest.mark.parametrize("replace", REPLACED)
def test_a_column_that_is_another_by_identity_is_wholly_changed(
    orders: lance.LanceDataset, replace: Callable[[lance.LanceDataset], None]
) -> None:
    replace(orders)
    assert changed_since(orders, 1) == (1.0, 1.0)
    assert changed_since(orders, 1, ["x"]) == (1.0, 1.0)


@pytest.mark.parametrize("replace", [drop_and_add, rename_another, rename_and_add])
def test_a_replaced_column_affects_only_its_own_statistics(
    orders: lance.LanceDataset, replace: Callable[[lance.LanceDataset], None]
) -> None:
    replace(orders)
    assert changed_since(orders, 1, ["id"]) == (0.0, 0.0)
    assert changed_since(orders, 1, ["id", "s"]) == (0.0, 0.0)
    orders.delete("id < 5")
    assert changed_since(orders, 1, ["id"]) == (5 / 95, 5 / 95)


def test_a_reused_field_id_is_another_column(tmp_path: Path) -> None:
    """The dropped column's values are gone, the one that has its id and name now is all null."""
    columns = {"id": range(100), "x": [number % 3 for number in range(100)]}
    table = lance.write_dataset(pa.table(columns), tmp_path / "t.lance", max_rows_per_file=20)
    table.drop_columns(["x"])
    table.optimize.compact_files()
    lance.dataset(table.uri).add_columns(pa.field("x", pa.int64()))
    first, last = snapshot(lance.dataset(table.uri, version=1)), snapshot(lance.dataset(table.uri))
    assert first.fields == last.fields, "Lance did not reuse the id, so this proves nothing"
    assert changed_since(table, 1) == (1.0, 1.0)
    assert changed_since(table, 1, ["id"])[0] == 0.0


def test_nested_columns_do_not_affect_others(tmp_path: Path) -> None:
    """They have no statistics; replacing a member does not affect other columns."""
    inner = pa.array([{"a": number, "b": "text"} for number in range(20)])
    table = lance.write_dataset(pa.table({"id": range(20), "st": inner}), tmp_path / "t.lance")
    table.drop_columns(["st.b"])
    assert changed_since(table, 1, ["id"]) == (0.0, 0.0)
    table.drop_columns(["st"])
    table.add_columns({"st": "id"})
    assert changed_since(table, 1, ["id"]) == (0.0, 0.0)


def committed_at(dataset: Dataset, version: int) -> datetime:
    at: datetime = lance.dataset(dataset.uri, version=version).get_version()["timestamp"]
    return at.astimezone(timezone.utc)


def changed_at(dataset: Dataset, limit: int = 200) -> datetime:
    return rows_changed_at(lance.dataset(dataset.uri), limit=limit)


def touch(dataset: Dataset, times: int = 1) -> None:
    """Commits that change no row."""
    for number in range(times):
        lance.dataset(dataset.uri).update_config({"touched": str(number)})


@pytest.mark.parametrize("touches", [0, 1, 2, 9])
def test_commits_that_change_rows_are_found_behind_those_that_do_not(
    touches: int, orders: Dataset, rows: Rows
) -> None:
    orders.optimize.compact_files()
    assert changed_at(orders) == committed_at(orders, 1)
    orders.insert(rows(100, 110))
    version = lance.dataset(orders.uri).version
    touch(orders, touches)
    assert changed_at(orders) == committed_at(orders, version) > committed_at(orders, 1)


def test_the_number_of_inspected_commits_is_bounded(orders: Dataset) -> None:
    touch(orders, 6)
    assert [changed_at(orders, limit) for limit in (1, 2, 3, 5, 6, 7, 8)] == [
        committed_at(orders, version) for version in (7, 6, 5, 3, 2, 1, 1)
    ]


def test_after_a_cleanup_the_oldest_existing_version_counts(orders: Dataset) -> None:
    touch(orders, 2)
    dataset = lance.dataset(orders.uri)
    dataset.cleanup_old_versions(older_than=timedelta(0))
    assert changed_at(orders) == committed_at(orders, 3)


def test_a_version_in_the_past_is_judged_as_it_was(orders: Dataset, rows: Rows) -> None:
    touch(orders)
    orders.insert(rows(100, 110))
    assert rows_changed_at(lance.dataset(orders.uri, version=2)) == committed_at(orders, 1)
