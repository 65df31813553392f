"""Tables that are dropped and created again, or restored, while statistics of them are made."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from functools import partial
from pathlib import Path

import lance
import pytest

from lancestat.lake.commit import Conflict
from lancestat.lake.open import snapshot
from lancestat.runs.actions import Skip
from lancestat.spec.model import Policy, Publish, StaleBounds
from lancestat.state.values import table_identity
from lancestat.tables import carriers as publish
from lancestat.tables.action import Scan, TableVersion
from lancestat.tables.judgement import TableStatistics
from lancestat.tables.node import look_back
from lancestat.tables.statistics.partial import ColumnPartial
from lancestat.tables.stored import table_records
from lancestat.tables.wire import GuardReason
from tests.runs.test_faults import check_no_reader_is_misled
from tests.runs.world import Killed, World, orders
from tests.tables.races import during_commit


def make(path: Path, first: int, fragments: int = 1) -> None:
    """Create a table of 100 rows a fragment in place of any other."""
    shutil.rmtree(path, ignore_errors=True)
    for number in range(fragments):
        mode = "append" if number else "create"
        lance.write_dataset(orders(first + 100 * number, 100), str(path), mode=mode)


def published_ids(world: World) -> tuple[str | None, str | None]:
    config = world.dataset.config()
    key = "lance.stats.column.o_id"
    return config.get(f"{key}.min"), config.get(f"{key}.max")


@pytest.mark.parametrize("moment", ["before", "amid"])
def test_a_table_recreated_during_a_scan_is_planned_again(world: World, moment: str) -> None:
    make(world.path, 0, fragments=2)
    aside = world.path.with_suffix(".aside")
    shutil.copytree(world.path, aside)
    scan = world.scan
    done: list[str] = []

    def scan_later(
        node: str, table: TableVersion, scans: Sequence[Scan]
    ) -> Iterator[tuple[Scan, Mapping[str, ColumnPartial]]]:
        if not done and moment == "before":
            make(world.path, 5000, fragments=2)
            done.append(moment)
        for scanned in scan(node, table, scans):
            yield scanned
            if not done:
                make(world.path, 5000, fragments=2)
                done.append(moment)

    object.__setattr__(world, "scan", scan_later)
    assert world.run().status == "success"
    assert done == [moment]
    assert published_ids(world) == ("5000", "5199")
    assert check_no_reader_is_misled(world.path)

    # The old table is restored: nothing that was stored meanwhile is used for it.
    shutil.rmtree(world.path)
    shutil.copytree(aside, world.path)
    assert world.run().status == "success"
    assert published_ids(world) == ("0", "199")
    assert check_no_reader_is_misled(world.path)


def test_a_table_recreated_before_the_commit_gets_no_false_statistics(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the last look at a table and the commit there is always a moment."""
    make(world.path, 0)
    acted = during_commit(monkeypatch, lambda: make(world.path, 5000))
    assert world.run().status == "success"
    assert acted
    assert published_ids(world) == ("5000", "5099")
    assert verdict_of_readers(world) is GuardReason.CURRENT


def test_statistics_that_landed_in_a_replaced_table_are_reverted(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(world.path, 0)
    observed = snapshot(world.dataset, str(world.path))
    entries = {"lance.stats.numRows": "100", "lance.stats.computedAtVersion": "2"}
    during_commit(monkeypatch, lambda: make(world.path, 5000))
    landing = publish.commit(publish.publication(observed.pin, entries, observed.config))
    assert isinstance(landing, Conflict)
    assert "replaced" in landing.detail
    assert world.dataset.config() == {}


def publish_and_kill(world: World, monkeypatch: pytest.MonkeyPatch, first: int, count: int) -> None:
    """Replace the table at the moment of the commit that publishes, and die once that landed."""
    commit = lance.LanceDataset.commit

    def late(*args: object, **options: object) -> object:
        if args[0] != str(world.path):
            return commit(*args, **options)
        shutil.rmtree(world.path)
        lance.write_dataset(orders(first, count), str(world.path))
        commit(*args, **options)
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(lance.LanceDataset, "commit", staticmethod(late))
        with pytest.raises(Killed):
            world.run()
    assert published_ids(world) == ("0", "99"), "those of the table that is gone"


@pytest.mark.parametrize("count", [7, 100])
def test_statistics_that_a_killed_run_left_in_a_replaced_table_are_not_used(
    world: World, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    make(world.path, 0)
    publish_and_kill(world, monkeypatch, 5000, count)
    assert verdict_of_readers(world) is GuardReason.ABSENT
    assert world.run().status == "success"
    assert published_ids(world) == ("5000", str(5000 + count - 1))
    assert verdict_of_readers(world) is GuardReason.CURRENT


@pytest.mark.parametrize("allow_stale", [True, StaleBounds(max_versions=10)])
def test_no_policy_accepts_statistics_that_a_killed_run_left_in_a_replaced_table(
    world: World, monkeypatch: pytest.MonkeyPatch, allow_stale: bool | StaleBounds
) -> None:
    world.policy = Policy(allow_stale=allow_stale)
    make(world.path, 0)
    publish_and_kill(world, monkeypatch, 5000, 100)
    append(world)
    assert verdict_of_readers(world) is GuardReason.STALE
    assert world.run().status == "success"
    append(world)
    assert verdict_of_readers(world) is GuardReason.STALE_ACCEPTED


def verdict_of_readers(world: World) -> GuardReason:
    now = snapshot(world.dataset, str(world.path))
    record = table_records(world.state).get(table_identity(str(world.path)))
    statistics = TableStatistics.declared(world.table, now, record, partial(look_back, options={}))
    return statistics.verdict(datetime.now(timezone.utc)).reason


def test_unpublished_statistics_are_those_of_one_dataset(world: World) -> None:
    world.publish = Publish.NONE
    make(world.path, 0)
    assert world.run().status == "success"
    assert verdict_of_readers(world) is GuardReason.CURRENT
    make(world.path, 5000)
    assert verdict_of_readers(world) is GuardReason.ABSENT
    assert world.run().status == "success"
    assert verdict_of_readers(world) is GuardReason.CURRENT


def test_unpublished_statistics_of_a_later_version_are_of_another_dataset(world: World) -> None:
    world.publish = Publish.NONE
    make(world.path, 0, fragments=3)
    assert world.run().status == "success"
    make(world.path, 5000)
    assert verdict_of_readers(world) is GuardReason.ABSENT


@pytest.mark.parametrize("allow_stale", [True, StaleBounds(max_versions=10)])
def test_no_policy_accepts_unpublished_statistics_of_another_dataset(
    world: World, allow_stale: bool | StaleBounds
) -> None:
    world.publish = Publish.NONE
    world.policy = Policy(allow_stale=allow_stale)
    make(world.path, 0, fragments=2)
    assert world.run().status == "success"
    append(world)
    assert verdict_of_readers(world) is GuardReason.STALE_ACCEPTED
    make(world.path, 5000, fragments=3)
    assert verdict_of_readers(world) is GuardReason.STALE
    assert world.run().status == "success"
    assert verdict_of_readers(world) is GuardReason.CURRENT
    append(world)
    world.dataset.cleanup_old_versions(older_than=timedelta(0))
    assert verdict_of_readers(world) is GuardReason.STALE


def append(world: World) -> None:
    lance.write_dataset(orders(9000, 5), str(world.path), mode="append")


def test_a_restored_backup_has_its_unpublished_statistics(world: World) -> None:
    world.publish = Publish.NONE
    make(world.path, 0)
    aside = world.path.with_suffix(".aside")
    shutil.copytree(world.path, aside)
    assert world.run().status == "success"
    make(world.path, 5000)
    shutil.rmtree(world.path)
    shutil.copytree(aside, world.path)
    assert verdict_of_readers(world) is GuardReason.CURRENT
    assert isinstance(world.action(), Skip)


def test_a_table_replaced_during_planning_is_planned_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(world.path, 0)
    assert world.run().status == "success"
    lance.write_dataset(orders(100, 10), str(world.path), mode="append")
    from lancestat.tables import node as observe

    background: Callable[..., object] = observe.TableObserver.changes
    done: list[int] = []

    def late(*args: object, **options: object) -> object:
        if not done:
            shutil.rmtree(world.path)
            lance.write_dataset(orders(0, 5), str(world.path))
            done.append(1)
        return background(*args, **options)

    monkeypatch.setattr(observe.TableObserver, "changes", late)
    action = world.action()
    assert action.figures.rows_total == 5  # type: ignore[union-attr]
