"""Published entries that are not what lancestat wrote are neither used nor taken over."""

from __future__ import annotations

from collections.abc import Callable

import lance
import pytest

from lancestat.runs.actions import Reason, Skip
from lancestat.spec.model import Policy
from lancestat.spec.model import Refresh as RefreshWhen
from lancestat.tables.action import RestampStatistics, TableAction
from lancestat.tables.stored import table_records
from lancestat.tables.wire import COMPUTED_AT_VERSION, NEWEST_FRAGMENT, PREFIX, WRITER, GuardReason
from tests.examples import each, sample
from tests.runs.world import World, orders
from tests.state.fresh import FreshState
from tests.tables.test_incremental import check_converged, settle

pytestmark = pytest.mark.whole

MINIMUM = f"{PREFIX}column.o_id.min"
NULLS = f"{PREFIX}column.o_id.nullCount"
Entries = dict[str, str | None]


def alter(world: World, entries: Entries) -> None:
    """Change entries as another program would, in one commit."""
    world.dataset.update_config(entries)


def append(world: World, start: int = 100) -> None:
    lance.write_dataset(orders(start, 10), str(world.path), mode="append")


def restore(world: World, version: int) -> None:
    lance.dataset(str(world.path), version=version).restore()


def verdict(world: World) -> GuardReason:
    return world.assess()[0].finding.reason


def assert_mended(world: World, reads: int = 0) -> None:
    assert verdict(world) is GuardReason.ALTERED
    action = world.action()
    assert isinstance(action, TableAction)
    assert Reason.PUBLISH_ALTERED in action.reasons
    assert not any(isinstance(stage, RestampStatistics) for stage in action.stages)
    world.reads.clear()
    check_converged(world)
    assert len(world.reads) == reads
    assert world.published()[MINIMUM] == "0"
    assert world.published()[NULLS] == "0"


ALTERATIONS: dict[str, Entries] = {
    "another value": {MINIMUM: "7"},
    "one entry less": {NULLS: None},
    "one entry more": {f"{PREFIX}column.o_id.histogram": "h"},
    "another time": {f"{PREFIX}computedAt": "2031-01-01T00:00:00Z"},
    "another fragment": {NEWEST_FRAGMENT: "0" * 32},
}


ALTERED = sample([pytest.param(entries, id=name) for name, entries in ALTERATIONS.items()], 2)


@pytest.mark.parametrize("entries", ALTERED)
def test_entries_of_a_restored_version_that_are_altered(world: World, entries: Entries) -> None:
    settle(world)
    first = world.dataset.version
    append(world)
    settle(world)
    restore(world, first)
    alter(world, entries)
    assert_mended(world)


@pytest.mark.parametrize("entries", ALTERED)
def test_a_restored_version_whose_entries_were_altered_before(
    world: World, entries: Entries
) -> None:
    settle(world)
    alter(world, entries)
    altered = world.dataset.version
    assert_mended(world)
    append(world)
    settle(world)
    restore(world, altered)
    assert_mended(world)


@pytest.mark.parametrize("entries", ALTERED)
def test_entries_that_are_altered_after_the_state_was_lost(world: World, entries: Entries) -> None:
    settle(world)
    world.state = FreshState()
    alter(world, entries)
    assert_mended(world, reads=4)


def move_tag(world: World, *, with_mark: bool) -> Entries:
    """Return the tag of the version that the commit makes, as if it were published there."""
    config, version = world.dataset.config(), world.dataset.version + 1
    moved: Entries = {COMPUTED_AT_VERSION: str(version)}
    if with_mark:
        old = f"@{config[COMPUTED_AT_VERSION]}:"
        moved[WRITER] = config[WRITER].replace(old, f"@{version}:")
    return moved


@pytest.mark.parametrize("keeps_state", [True, False])
def test_entries_that_are_altered_together_with_their_tag(world: World, keeps_state: bool) -> None:
    settle(world)
    if not keeps_state:
        world.state = FreshState()
    alter(world, {MINIMUM: "7", **move_tag(world, with_mark=True)})
    assert_mended(world, reads=0 if keeps_state else 4)


def test_a_tag_that_is_moved_alone_is_no_other_writers(world: World) -> None:
    settle(world)
    append(world)
    alter(world, move_tag(world, with_mark=False))
    assert verdict(world) is GuardReason.ALTERED
    assert_mended(world, reads=1)


@pytest.mark.parametrize("refresh", RefreshWhen)
def test_no_policy_accepts_altered_entries(world: World, refresh: RefreshWhen) -> None:
    world.policy = Policy("any", allow_stale=True, refresh=refresh)
    settle(world)
    alter(world, {MINIMUM: "7"})
    assert_mended(world)


def test_entries_without_any_mark_are_known_by_the_state(world: World) -> None:
    """They look like another writer's, but nobody else tags statistics with that version."""
    settle(world)
    alter(world, {WRITER: None, NEWEST_FRAGMENT: None, MINIMUM: "7"})
    action = world.action()
    assert isinstance(action, TableAction)
    assert Reason.PUBLISH_ALTERED in action.reasons
    check_converged(world)
    assert not world.reads
    assert world.published()[MINIMUM] == "0"


@pytest.mark.parametrize(("end", "keeps_state"), each([-1, 14, 9, 0], [True, False]))
def test_a_mark_that_was_cut_belongs_to_altered_entries(
    world: World, end: int, keeps_state: bool
) -> None:
    settle(world)
    if not keeps_state:
        world.state = FreshState()
    alter(world, {MINIMUM: "7", WRITER: world.dataset.config()[WRITER][:end]})
    assert verdict(world) is GuardReason.ALTERED
    assert_mended(world, reads=0 if keeps_state else 4)


@pytest.mark.parametrize("keeps_state", [True, False])
def test_statistics_of_another_writer_are_never_taken_over(world: World, keeps_state: bool) -> None:
    """They are used where they are current, as they always were, and then made anew."""
    settle(world)
    tag = str(world.dataset.version + 1)
    later = {f"{PREFIX}computedAt": "2031-01-01T00:00:00Z", COMPUTED_AT_VERSION: tag}
    alter(world, {MINIMUM: "-7", **later})
    assert verdict(world) is GuardReason.CURRENT
    assert isinstance(world.action(), Skip)
    if not keeps_state:
        world.state = FreshState()
    world.dataset.create_scalar_index("o_id", "BTREE")
    check_converged(world)
    assert world.published()[MINIMUM] == "0"
    assert len(world.reads) == (0 if keeps_state else 4)


@pytest.mark.parametrize("keeps_state", [True, False])
def test_entries_that_a_restore_brings_back_are_made_anew(world: World, keeps_state: bool) -> None:
    """They are as lancestat wrote them, and still no source of what is published."""
    settle(world)
    first = world.dataset.version
    append(world)
    settle(world)
    restore(world, first)
    if not keeps_state:
        world.state = FreshState()
    action = world.action()
    assert isinstance(action, TableAction)
    assert not any(isinstance(stage, RestampStatistics) for stage in action.stages)
    assert action.verb == ("restamp" if keeps_state else "analyze")
    check_converged(world)
    assert len(world.reads) == (0 if keeps_state else 4)


def index(world: World) -> None:
    world.dataset.create_scalar_index("o_id", "BTREE")


@pytest.mark.parametrize("change", [index, lambda world: alter(world, {"owner": "x"})])
def test_bounds_of_strings_are_those_of_the_values(
    world: World, change: Callable[[World], None]
) -> None:
    """They are in the state alone, whose record may be of other rows than the entries."""
    settle(world)
    first = world.dataset.version
    lance.write_dataset(orders(100, 10), str(world.path), mode="overwrite")
    settle(world)
    restore(world, first)
    change(world)
    check_converged(world)
    [record] = table_records(world.state).values()
    fresh = World(world.path, state=FreshState())
    fresh.run(full_refresh=True)
    [expected] = table_records(fresh.state).values()
    assert record.bounds == expected.bounds
