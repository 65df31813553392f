"""Each kind of change: its plan, its reads, and the result, which equals a full refresh."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import lance
import pyarrow as pa
import pytest

from lancestat.report.tables import lacking
from lancestat.runs.actions import STATE_LACKS, Reason, Skip, has_work
from lancestat.spec.model import (
    ColumnPattern,
    ColumnRule,
    ColumnSelection,
    Policy,
    Publish,
    StaleBounds,
)
from lancestat.spec.model import Refresh as RefreshWhen
from lancestat.state.values import StoredPartials, table_identity
from lancestat.tables.action import RecordStatistics, TableAction
from lancestat.tables.stored import add_partials, read_partials, table_records
from lancestat.tables.table_status import table_status
from tests.runs.world import World, orders, publish_and_die
from tests.state.fresh import FreshState

pytestmark = pytest.mark.whole


def settle(world: World) -> None:
    """Run, and clear the log of reads."""
    assert world.run().status == "success"
    world.reads.clear()


def check_converged(world: World) -> None:
    """Check that a run leaves nothing to do, and publishes the statistics of a full refresh."""
    assert world.run().status == "success"
    assert isinstance(world.action(), Skip)
    published = world.published()
    assert published["lance.stats.numRows"] == str(world.dataset.count_rows())
    version = world.dataset.version
    assert world.dataset.config()["lance.stats.computedAtVersion"] == str(version)
    reads = list(world.reads)
    world.run(full_refresh=True)
    assert world.published() == published
    assert world.dataset.version == version, "a full refresh that finds the same commits nothing"
    world.reads[:] = reads


def columns_read(world: World) -> set[str]:
    return set().union(*(columns for _, _, columns in world.reads))


def fragments_read(world: World) -> int:
    return len({fragment for _, fragment, _ in world.reads})


def test_first_run_analyzes_everything(world: World) -> None:
    action = world.action()
    assert isinstance(action, TableAction)
    assert action.verb == "analyze"
    assert action.reasons == (Reason.NEW,)
    check_converged(world)
    assert fragments_read(world) == 4


def test_second_run_does_nothing(world: World) -> None:
    settle(world)
    version = world.dataset.version
    assert world.action().reasons == (Reason.UNCHANGED,)
    world.run()
    assert world.dataset.version == version
    assert not world.reads


def append(world: World, rows: int = 10) -> None:
    lance.write_dataset(orders(100, rows), str(world.path), mode="append")


def overwrite(world: World) -> None:
    lance.write_dataset(orders(500, 50), str(world.path), mode="overwrite", max_rows_per_file=25)


def merge_insert(world: World) -> None:
    merge = world.dataset.merge_insert("o_id").when_matched_update_all()
    merge.when_not_matched_insert_all().execute(orders(99, 3))


def compact(world: World) -> None:
    world.dataset.optimize.compact_files(target_rows_per_fragment=1000)


def index_column(world: World) -> None:
    world.dataset.create_scalar_index("o_id", "BTREE")


def append_and_compact(world: World) -> None:
    append(world)
    compact(world)


def unpublish(world: World) -> None:
    keys = [key for key in world.dataset.config() if key.startswith("lance.stats.")]
    world.dataset.delete_config_keys(keys)


def only(*names: str) -> ColumnSelection:
    rule = ColumnRule(tuple(ColumnPattern(name) for name in names))
    return ColumnSelection(all=False, rules=(rule,))


def want(*names: str) -> Callable[[World], None]:
    def choose(world: World) -> None:
        world.columns = only(*names)

    return choose


def call(method: str, *arguments: object, **options: object) -> Callable[[World], object]:
    return lambda world: getattr(world.dataset, method)(*arguments, **options)


R = Reason
NEW = (R.COLUMNS_ADDED, R.SCHEMA_CHANGED)
INT32 = {"path": "o_id", "data_type": pa.int32()}
RENAME = {"path": "o_id", "name": "o_key"}
LATE = {"lance.stats.computedAtVersion": "soon"}


# The change, the verb and reasons of the plan, and how many fragments and which columns are read.
@pytest.mark.parametrize(
    ("change", "verb", "reasons", "fragments", "columns"),
    [
        (append, "refresh", (R.ROWS_APPENDED,), 1, None),
        (call("delete", "o_id = 30"), "refresh", (R.ROWS_DELETED,), 1, None),
        (call("delete", "o_id < 25"), "refresh", (R.ROWS_DELETED,), 0, None),
        (call("update", {"o_total": "7"}, where="o_id = 3"), "refresh", (R.ROWS_CHANGED,), 2, None),
        (merge_insert, "refresh", (R.ROWS_CHANGED,), 2, None),
        (overwrite, "refresh", (R.ROWS_CHANGED,), 2, None),
        (call("truncate_table"), "refresh", None, 0, None),
        (call("add_columns", {"b": "o_id * 2"}), "refresh", NEW, 4, {"b"}),
        (call("add_columns", [pa.field("b", pa.string())]), "refresh", NEW, None, {"b"}),
        (
            call("drop_columns", ["o_total"]),
            "refresh",
            (R.COLUMNS_REMOVED, R.SCHEMA_CHANGED),
            0,
            None,
        ),
        (call("alter_columns", INT32), "refresh", (R.SCHEMA_CHANGED,), 4, {"o_id"}),
        (call("alter_columns", RENAME), "refresh", None, 0, None),
        (compact, "restamp", (R.FRAGMENTS_REWRITTEN,), 0, None),
        (append_and_compact, "refresh", (R.ROWS_APPENDED, R.FRAGMENTS_REWRITTEN), None, None),
        (call("create_scalar_index", "o_id", "BTREE"), "restamp", (R.VERSION_MOVED,), 0, None),
        (call("update_config", {"owner": "shop"}), "restamp", (R.VERSION_MOVED,), 0, None),
        (call("update_schema_metadata", {"a": "b"}), "restamp", (R.VERSION_MOVED,), 0, None),
        (unpublish, "refresh", (R.PUBLISH_MISSING,), 0, None),
        (call("update_config", LATE), "refresh", (R.PUBLISH_ALTERED,), 0, None),
        (want("o_id"), "refresh", (R.COLUMNS_REMOVED,), 0, None),
    ],
)
def test_a_change_reads_only_what_is_new(
    world: World,
    change: Callable[[World], object],
    verb: str,
    reasons: tuple[Reason, ...] | None,
    fragments: int | None,
    columns: set[str] | None,
) -> None:
    settle(world)
    change(world)
    action = world.action()
    assert isinstance(action, TableAction)
    assert action.verb == verb
    assert reasons is None or action.reasons == reasons
    check_converged(world)
    assert fragments is None or fragments_read(world) == fragments
    assert columns is None or columns_read(world) == columns


def test_columns_that_swap_names_swap_statistics(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The schema hash is the same before and after, and so is the set of field ids."""
    path = tmp_path_factory.mktemp("swap") / "pairs.lance"
    pairs = pa.table({"a": pa.array([1, 2], pa.int64()), "b": pa.array([30, 40], pa.int64())})
    lance.write_dataset(pairs, str(path))
    world = World(path)
    settle(world)
    swap_names(world.dataset)
    assert world.dataset.to_table().to_pydict() == {"a": [30, 40], "b": [1, 2]}
    check_converged(world)
    assert not world.reads
    assert world.published()["lance.stats.column.a.max"] == "40"


def swap_names(dataset: lance.LanceDataset) -> None:
    """Rename a to b and b to a, and put them in the old order of names."""
    for old, new in (("a", "tmp"), ("b", "a"), ("tmp", "b")):
        dataset.alter_columns({"path": old, "name": new})
    make, (metadata, *fields) = dataset.lance_schema.__reduce__()
    swapped = lance.LanceOperation.Project(make(metadata, *reversed(fields)))
    lance.LanceDataset.commit(dataset.uri, swapped, read_version=dataset.version)


def test_restore_reads_nothing(world: World) -> None:
    settle(world)
    before = world.dataset.version
    lance.write_dataset(orders(100, 10), str(world.path), mode="append")
    settle(world)
    lance.dataset(str(world.path), version=before).restore()
    assert world.action().verb == "restamp", "what is restored with the rows is true of them"
    check_converged(world)
    assert not world.reads
    assert world.published()["lance.stats.numRows"] == "100"


@pytest.mark.parametrize(
    ("before", "rows"),
    [
        (lambda w: None, 1000),
        (lambda w: w.dataset.delete("o_id % 5 = 0"), 40),
        (lambda w: w.dataset.create_scalar_index("o_id", "BTREE"), 1000),
    ],
)
def test_a_compaction_is_carried_over(
    world: World, before: Callable[[World], object], rows: int
) -> None:
    """Also one that materializes deletions, and that of a table with an index."""
    before(world)
    settle(world)
    world.dataset.optimize.compact_files(target_rows_per_fragment=rows)
    assert world.action().reasons == (Reason.FRAGMENTS_REWRITTEN,)
    settle(world)
    assert isinstance(world.action(), Skip)
    append(world)
    check_converged(world)
    assert fragments_read(world) == 1, "the compacted fragment is known from its parts"


def test_a_restamp_needs_no_state(world: World) -> None:
    settle(world)
    world.state = FreshState()
    world.dataset.create_scalar_index("o_id", "BTREE")
    assert world.action().verb == "restamp"
    world.run()
    assert not world.reads
    assert isinstance(world.action(), Skip)


def test_a_lost_state_only_costs_time(world: World) -> None:
    settle(world)
    world.state = FreshState()
    assert isinstance(world.action(), Skip)
    lance.write_dataset(orders(100, 10), str(world.path), mode="append")
    assert world.action().verb == "analyze"
    check_converged(world)
    assert fragments_read(world) == 5


@pytest.mark.parametrize("is_restamped", [False, True])
def test_what_only_a_lost_state_had_is_missed_until_a_full_refresh(
    world: World, is_restamped: bool
) -> None:
    settle(world)
    assert is_complete(world)
    world.state = FreshState()
    if is_restamped:
        world.dataset.create_scalar_index("o_id", "BTREE")
        assert STATE_LACKS in world.action().notes
    for _ in range(2):
        world.run()
        action = world.action()
        assert isinstance(action, Skip)
        assert STATE_LACKS in action.notes
        assert not is_complete(world)
    world.run(full_refresh=True)
    assert is_complete(world)
    assert isinstance(world.action(), Skip)
    assert not world.action().notes


@pytest.mark.parametrize("is_first", [True, False])
def test_a_run_killed_after_it_published_is_recorded_by_the_next_without_reading(
    world: World, monkeypatch: pytest.MonkeyPatch, is_first: bool
) -> None:
    if not is_first:
        settle(world)
        append(world)
    version = publish_and_die(world, monkeypatch)
    assert not is_complete(world)
    action = world.action()
    assert isinstance(action, Skip)
    assert STATE_LACKS not in action.notes
    assert [type(stage) for stage in action.stages] == [RecordStatistics]
    assert has_work(action)
    [node] = world.run().nodes
    assert (node.status, node.fragments_scanned, node.version_published) == ("success", 0, None)
    assert is_complete(world)
    summary = world.state.summary(table_identity(str(world.path)))
    assert summary is not None
    assert summary.version == version
    assert not has_work(world.action())
    assert (world.reads, world.dataset.version) == ([], version)
    check_converged(world)


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize("move_on", [index_column, compact])
def test_a_run_killed_after_it_published_loses_nothing_where_the_table_has_moved_on(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    move_on: Callable[[World], None],
    is_first: bool,
) -> None:
    if not is_first:
        settle(world)
        append(world)
    publish_and_die(world, monkeypatch)
    move_on(world)
    assert not world.action().notes
    assert world.run().status == "success"
    assert is_complete(world)
    check_converged(world)
    assert not world.reads


def test_a_run_killed_after_it_published_is_recorded_where_the_policy_accepts_more(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The state has a record of the run before, with histograms."""
    world.policy = Policy(allow_stale=True, refresh=RefreshWhen.WHEN_STALE)
    world.histogram = True
    settle(world)
    append(world)
    assert world.action().reasons == (Reason.POLICY_ACCEPTS,)
    world.policy = Policy()
    publish_and_die(world, monkeypatch)
    world.policy = Policy(allow_stale=True, refresh=RefreshWhen.WHEN_STALE)
    action = world.action()
    assert isinstance(action, Skip)
    assert [type(stage) for stage in action.stages] == [RecordStatistics]
    assert world.run().status == "success"
    assert is_complete(world)
    assert not world.action().notes
    append(world)
    assert (world.action().reasons, world.action().notes) == ((Reason.POLICY_ACCEPTS,), ())


def test_a_run_killed_after_it_published_on_a_table_without_rows_is_recorded(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    lance.write_dataset(orders(0, 0), str(world.path), mode="overwrite")
    publish_and_die(world, monkeypatch)
    assert [type(stage) for stage in world.action().stages] == [RecordStatistics]
    check_converged(world)
    assert not world.action().notes


def test_what_a_state_lacks_of_statistics_that_another_project_published_is_said(
    world: World,
) -> None:
    other = replace(world, state=FreshState(), reads=[])
    settle(world)
    append(world)
    settle(other)
    [record] = table_records(world.state).values()
    assert record.bounds
    assert not is_complete(world)
    assert STATE_LACKS in world.action().notes


@pytest.mark.parametrize("change", ["a partial is gone", "a partial is of other rows"])
def test_statistics_are_not_recorded_from_partials_that_do_not_give_them(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, change: str
) -> None:
    version = publish_and_die(world, monkeypatch)
    identity = table_identity(str(world.path))
    index = world.state.partial_index(identity).singles
    stored = {(fingerprint,): fields for fingerprint, fields in index.items()}
    [entry, *others] = read_partials(world.state, identity, stored)
    world.state = FreshState()
    if change == "a partial is of other rows":
        others.append(replace(entry, partials=others[0].partials))
    add_partials(world.state, identity, others)
    for _ in range(2):
        assert world.run().status == "success"
        assert not table_records(world.state)
        assert world.dataset.version == version
        assert not is_complete(world)
    said = "the published statistics of 'orders' are not those that its stored partials give"
    assert (said in caplog.text) == (change == "a partial is of other rows")


def test_a_record_that_stored_partials_do_not_give_is_said_to_be_lacking(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    publish_and_die(world, monkeypatch)
    identity = table_identity(str(world.path))
    index = world.state.partial_index(identity).singles
    damaged = [
        StoredPartials((fingerprint,), dict.fromkeys(fields, b"damaged"))
        for fingerprint, fields in index.items()
    ]
    world.state = FreshState()
    world.state.add_partials(identity, damaged)
    for _ in range(2):
        caplog.clear()
        [node] = world.run().nodes
        assert (node.status, node.notes) == ("success", (STATE_LACKS,))
        assert "stored partials of 'orders' are gone" in caplog.text
    assert world.run(full_refresh=True).status == "success"
    assert is_complete(world)
    assert not world.action().notes


def test_two_projects_with_states_of_their_own_publish_the_same_statistics_once(
    world: World,
) -> None:
    other = replace(world, state=FreshState(), reads=[])
    settle(other)
    settle(world)
    append(world)
    version = world.dataset.version + 1
    for one in (world, other, world, other):
        assert one.run().status == "success"
        assert world.dataset.version == version


def is_complete(world: World) -> bool:
    """Whether bounds of strings are known, and no note says that something is missing."""
    assessment, _ = world.assess()
    status = table_status(assessment, world.clock())
    notes = [*status.skipped, *(sentence for _, sentence in lacking(status))]
    return status.columns["o_status"].minimum is not None and not notes


def test_strings_without_a_short_upper_bound_lack_nothing(world: World) -> None:
    highest = pa.table({"o_id": [1, 2], "o_status": ["\U0010ffff" * 100, "open"]})
    lance.write_dataset(highest, str(world.path), mode="overwrite")
    world.columns = only("o_status")
    settle(world)
    assert not next(iter(table_records(world.state).values())).bounds
    assert not world.action().notes
    world.dataset.create_scalar_index("o_id", "BTREE")
    settle(world)
    assert not world.action().notes


def test_statistics_without_strings_need_no_bounds_in_the_state(world: World) -> None:
    world.columns = only("o_id")
    settle(world)
    assert world.action().notes == ()


def test_more_columns_read_only_those(world: World) -> None:
    world.columns = only("o_id")
    settle(world)
    world.columns = only("o_id", "o_total")
    assert world.action().reasons == (Reason.COLUMNS_ADDED,)
    check_converged(world)
    assert columns_read(world) == {"o_total"}


def test_entries_of_others_under_the_prefix_are_named_before_they_go(world: World) -> None:
    for known in (False, True):
        world.dataset.update_config({"lance.stats.note": "n", "user.note": "n"})
        action = world.action()
        assert action.reasons == ((Reason.PUBLISH_ALTERED,) if known else (Reason.NEW,))
        [note] = action.notes
        assert note == "publishing removes 1 entry that is not lancestat's: lance.stats.note"
        check_converged(world)
        assert "lance.stats.note" not in world.dataset.config()
        assert world.dataset.config()["user.note"] == "n"
        assert not world.action().notes


def test_entries_of_others_stay_where_nothing_is_published(world: World) -> None:
    world.publish = Publish.NONE
    settle(world)
    world.dataset.update_config({"lance.stats.note": "n"})
    world.run()
    assert not world.action().notes
    world.publish = Publish.MANIFEST
    assert world.action().reasons == (Reason.SPEC_CHANGED,)


def test_publish_none_commits_nothing(world: World) -> None:
    world.publish = Publish.NONE
    settle(world)
    assert world.dataset.version == 1
    assert world.action().reasons == (Reason.UNCHANGED,)
    world.dataset.create_scalar_index("o_id", "BTREE")
    assert world.action().verb == "restamp"
    settle(world)
    assert world.action().reasons == (Reason.UNCHANGED,)
    lance.write_dataset(orders(100, 10), str(world.path), mode="append")
    assert world.action().reasons == (Reason.ROWS_APPENDED,)
    world.run()
    assert fragments_read(world) == 1
    assert not world.published()


def test_a_shallow_clone_in_place_of_its_base_is_as_the_base_was(world: World) -> None:
    world.dataset.delete("o_id % 2 = 0")
    settle(world)
    base = world.path.with_name("base.lance")
    world.path.rename(base)
    dataset = lance.dataset(str(base))
    dataset.shallow_clone(str(world.path), dataset.version)
    assert world.action().reasons == (Reason.UNCHANGED,)


def test_publish_none_then_manifest_publishes_without_reading(world: World) -> None:
    world.publish = Publish.NONE
    settle(world)
    world.publish = Publish.MANIFEST
    assert world.action().reasons == (Reason.SPEC_CHANGED,)
    check_converged(world)
    assert not world.reads


@pytest.mark.parametrize("publish", Publish)
@pytest.mark.parametrize("newer", [-1, 0, 1])
def test_a_dataset_made_anew_has_other_rows(world: World, publish: Publish, newer: int) -> None:
    """Also one with as many versions as the last run has seen, or fewer."""
    world.publish = publish
    world.dataset.update_config({"owner": "shop"})
    settle(world)
    versions = world.dataset.version + newer
    lance.LanceDataset.drop(str(world.path), {})
    lance.write_dataset(orders(7, 40), str(world.path))
    while world.dataset.version < versions:
        world.dataset.update_config({"owner": "shop"})
    missing = (Reason.PUBLISH_MISSING,) if publish is Publish.MANIFEST else ()
    action = world.action()
    assert (action.verb, action.reasons) == ("refresh", (Reason.ROWS_CHANGED, *missing))
    world.run()
    assert fragments_read(world) == 1


def test_full_refresh_reads_all(world: World) -> None:
    settle(world)
    assert world.action(full_refresh=True).reasons == (Reason.FULL_REFRESH,)
    world.run(full_refresh=True)
    assert fragments_read(world) == 4


@pytest.mark.parametrize(
    ("bounds", "rows", "hours"),
    [
        (StaleBounds(max_versions=1, max_changed_rows=0.5), 1, 0),
        (StaleBounds(max_changed_rows=0.05), 4, 0),
        (StaleBounds(max_age=timedelta(hours=24)), 1, 13),
    ],
)
def test_when_stale_waits_until_the_policy_refuses(
    world: World, bounds: StaleBounds, rows: int, hours: int
) -> None:
    """Each of two appends adds a version, its rows and hours; the second is too much."""
    world.policy = Policy(allow_stale=bounds, refresh=RefreshWhen.WHEN_STALE)
    settle(world)
    for reason in (Reason.POLICY_ACCEPTS, Reason.ROWS_APPENDED):
        append(world, rows)
        world.clock.advance(hours=hours)
        assert world.action().reasons == (reason,)


def test_columns_that_cannot_be_read_or_stored_are_skipped_with_a_reason(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    path = tmp_path_factory.mktemp("names") / "t.lance"
    names = ["id", "a`b", "list", "key"]
    keys = pa.array([bytes(16), bytes(16)], pa.uuid())
    arrays = [pa.array([1, 2]), pa.array([3, 4]), pa.array([[1], [2]]), keys]
    lance.write_dataset(pa.table(dict(zip(names, arrays, strict=True))), str(path))
    world = World(path)
    backtick, *others = world.action().notes
    assert backtick.startswith("column 'a`b' skipped")
    assert others == [
        "column 'list' skipped: type array<bigint> has no statistics",
        "column 'key' skipped: type arrow.uuid has no statistics",
    ]
    check_converged(world)
