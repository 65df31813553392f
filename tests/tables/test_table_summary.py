"""Coverage by stored partials, and summaries, whose updates read and write changed groups."""

from __future__ import annotations

import hashlib
import logging
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path

import lance
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lancestat.tables.run
import lancestat.tables.summary
from lancestat.errors import StateUnreachable
from lancestat.lake.fingerprint import ColumnGroup
from lancestat.runs.actions import Skip
from lancestat.spec.model import Publish
from lancestat.state.values import PartialIndex, TableSummary
from lancestat.tables.action import ReadFragments, TableVersion
from lancestat.tables.analyze import Scanned
from lancestat.tables.coverage import Coverage, Rewritten, cover
from tests.examples import examples
from tests.runs.world import World, orders
from tests.state.fresh import FreshState
from tests.tables.counted import Counted, check

pytestmark = pytest.mark.whole

FIELDS = ("0:bigint", "1:string", "2:date")


def fingerprint(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


def group(fragment: int, content: str, *fields: str) -> ColumnGroup:
    return ColumnGroup(fragment, fingerprint(content), frozenset(fields or FIELDS))


def index(singles: dict[str, tuple[str, ...]], *groups: tuple[bytes, ...]) -> PartialIndex:
    fields = dict.fromkeys(groups, frozenset(FIELDS))
    return PartialIndex({fingerprint(k): frozenset(v) for k, v in singles.items()}, fields)


def test_stored_content_is_reused_and_the_rest_is_missing() -> None:
    coverage = cover([group(0, "a"), group(1, "b")], index({"a": FIELDS, "b": FIELDS[:1]}), [])
    assert {(item.fingerprints, item.fields) for item in coverage.reuse} == {
        ((fingerprint("a"),), frozenset(FIELDS)),
        ((fingerprint("b"),), frozenset(FIELDS[:1])),
    }
    assert coverage.missing == ((group(1, "b"), frozenset(FIELDS[1:])),)


def groups_of(names: str) -> tuple[ColumnGroup, ...]:
    return tuple(group(number, name) for number, name in enumerate(names))


def covered(
    now: str, singles: str, sums: Sequence[str], rewrites: Sequence[tuple[str, str]]
) -> Coverage:
    """Cover content, of which a letter is that of a fragment."""
    stored = index(dict.fromkeys(singles, FIELDS), *map(content, sums))
    steps = [(groups_of(old), groups_of(new)) for old, new in rewrites]
    return cover(groups_of(now), stored, steps)


def content(names: Sequence[str]) -> tuple[bytes, ...]:
    return tuple(map(fingerprint, names))


# A letter is a fragment's content: that of the table now, what is stored by itself and as sums,
# compactions; and what is reused, carried over and missing.
@pytest.mark.parametrize(
    ("now", "singles", "sums", "rewrites", "reused", "carried", "missing"),
    [
        ("c", "ab", [], [("ab", "c")], [], [("ab", "c")], ""),
        ("c", "a", [], [("ab", "c")], [], [], "c"),
        ("e", "abd", [], [("ab", "c"), ("cd", "e")], [], [("abd", "e")], ""),
        ("cd", "a", [], [("a", "cd")], [], [("a", "cd")], ""),
        ("cx", "a", [], [("a", "cd")], [], [], "cx"),
        ("cd", "", ["cd"], [], ["cd"], [], ""),
        ("c", "", ["cd"], [], [], [], "c"),
        ("cd", "c", ["cd"], [], ["c"], [], "d"),
    ],
    ids=[
        *("a compaction is carried", "a part of it is unknown", "compactions in a row"),
        *("several fragments together", "one of them has changed since"),
        *("a sum is used", "but only whole", "and not twice with a member"),
    ],
)
def test_known_content_is_reused_or_carried(
    now: str,
    singles: str,
    sums: list[str],
    rewrites: list[tuple[str, str]],
    reused: list[str],
    carried: list[tuple[str, str]],
    missing: str,
) -> None:
    coverage = covered(now, singles, sums, rewrites)
    assert [item.fingerprints for item in coverage.reuse] == [*map(content, reused)]
    assert [({*carry.sources}, {*carry.new}) for carry in coverage.carries] == [
        ({(source,) for source in content(old)}, {*content(new)}) for old, new in carried
    ]
    assert [item.fingerprint for item, _ in coverage.missing] == [*content(missing)]


@pytest.mark.parametrize(
    ("now", "singles", "sums", "rewrites", "carried", "missing"),
    [
        ("xy", "a", ["bc"], [("ab", "x"), ("c", "y")], ("abc", "xy"), ""),
        ("yf", "", ["cf"], [("c", "y")], ("cf", "yf"), ""),
        (
            "xyzf",
            "",
            ["ab", "cd", "ef"],
            [("a", "x"), ("bc", "y"), ("de", "z")],
            ("abcdef", "xyzf"),
            "",
        ),
        ("y", "", ["cg"], [("c", "y")], None, "y"),
        ("zf", "", ["ac", "f"], [("a", "x"), ("cx", "z")], None, "z"),
    ],
    ids=[
        *("over two compactions", "with a fragment that stands", "over a chain of them"),
        *("not without a part", "not over the compaction of a compacted one"),
    ],
)
def test_a_sum_that_is_taken_apart_is_carried_as_a_whole(
    now: str,
    singles: str,
    sums: list[str],
    rewrites: list[tuple[str, str]],
    carried: tuple[str, str] | None,
    missing: str,
) -> None:
    coverage = covered(now, singles, sums, rewrites)
    found = [({*chain.from_iterable(carry.sources)}, {*carry.new}) for carry in coverage.carries]
    assert found == ([({*content(carried[0])}, {*content(carried[1])})] if carried else [])
    assert [item.fingerprint for item, _ in coverage.missing] == [*content(missing)]


def test_equal_content_of_two_fragments_is_counted_twice() -> None:
    """An all-null column that no file holds has the same fingerprint in fragments of equal size."""
    coverage = cover([group(0, "n", FIELDS[0]), group(1, "n", FIELDS[0])], index({"n": FIELDS}), [])
    [item] = coverage.reuse
    assert item.times == 2


def test_columns_in_separate_files_are_carried_into_one() -> None:
    old = (group(0, "a", *FIELDS[:2]), group(0, "x", FIELDS[2]), group(1, "b"))
    rewrite = (old, (group(9, "c"),))
    stored = index({"a": FIELDS[:2], "x": FIELDS[2:], "b": FIELDS})
    coverage = cover([group(9, "c")], stored, [rewrite])
    assert not coverage.missing
    assert frozenset().union(*(carry.fields for carry in coverage.carries)) == frozenset(FIELDS)


def test_columns_that_are_not_known_leave_others_to_be_carried() -> None:
    known, more, unknown = FIELDS
    old = (group(0, "a", known), group(0, "x", more), group(0, "n", unknown), group(1, "b"))
    middle, new = group(8, "c"), group(9, "d")
    stored = index({"a": (known,), "x": (more,), "b": FIELDS})
    sums = PartialIndex({}, {content("ab"): frozenset({known, more})})
    for now, known_before, rewrites in (
        (new, stored, [(old, (middle,)), ((middle,), (new,))]),
        (middle, sums, [(groups_of("ab"), (middle,))]),
    ):
        coverage = cover([now], known_before, rewrites)
        carried = [field for carry in coverage.carries for field in carry.fields]
        assert sorted(carried) == sorted([known, more])
        assert coverage.missing == ((now, frozenset({unknown})),)


class Simulation:
    """Fragments are lists of atoms; a rewrite concatenates some and may split the sum again."""

    def __init__(self, sizes: list[int]) -> None:
        self.fragments = {str(i): Counter({f"atom{i}": size}) for i, size in enumerate(sizes)}
        self.truth = dict(self.fragments)
        self.rewrites: list[Rewritten] = []
        self.next = len(sizes)

    def rewrite(self, names: list[str], pieces: int) -> None:
        total: Counter[str] = sum((self.fragments.pop(name) for name in names), Counter())
        new = [str(self.next + i) for i in range(pieces)]
        self.next += pieces
        rows = sorted(total.elements())
        for i, name in enumerate(new):
            self.fragments[name] = Counter(rows[i::pieces])
            self.truth[name] = self.fragments[name]
        self.rewrites.append((tuple(group(0, n) for n in names), tuple(group(0, n) for n in new)))

    def append(self) -> None:
        name = str(self.next)
        self.next += 1
        self.fragments[name] = self.truth[name] = Counter({f"atom{name}": 2})


@settings(max_examples=examples(200))
@given(st.data())
def test_reuse_carries_and_scans_sum_up_to_the_table(data: st.DataObject) -> None:
    world = Simulation(data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=5)))
    known, sums = set[str](), defaultdict[int, list[str]](list)
    for name in sorted(world.fragments):
        match data.draw(st.integers(0, 3)):
            case 0:
                known.add(name)
            case 1 | 2 as number:
                sums[number].append(name)
    for _ in range(data.draw(st.integers(0, 4))):
        if data.draw(st.booleans()):
            world.append()
        else:
            names = sorted(world.fragments)
            some = data.draw(st.lists(st.sampled_from(names), min_size=1, unique=True))
            world.rewrite(some, data.draw(st.integers(1, 2)))
    stored = {content([name]): world.truth[name] for name in known}
    for names in sums.values():
        stored[content(names)] = sum((world.truth[name] for name in names), Counter())
    groups = [group(i, name) for i, name in enumerate(sorted(world.fragments))]
    by_fingerprint = {fingerprint(name): rows for name, rows in world.truth.items()}
    of_sums = index(dict.fromkeys(known, FIELDS), *map(content, sums.values()))
    coverage = cover(groups, of_sums, world.rewrites)
    for key in FIELDS:
        rows: Counter[str] = Counter()
        for item in coverage.reuse:
            if key in item.fields:
                for _ in range(item.times):
                    rows += stored[item.fingerprints]
        for carry in coverage.carries:
            if key in carry.fields:
                for source in carry.sources:
                    rows += stored[source]
        for missing, fields in coverage.missing:
            if key in fields:
                rows += by_fingerprint[missing.fingerprint]
        assert rows == sum(world.fragments.values(), Counter())


COLUMNS = 3


@pytest.fixture
def state() -> Counted:
    return Counted()


@pytest.fixture
def world(tmp_path: Path, state: Counted) -> World:
    """100 rows in 20 fragments, of which a run made a summary of 20 groups in ten blocks."""
    path = tmp_path / "orders.lance"
    lance.write_dataset(orders(0, 100), str(path), max_rows_per_file=5)
    world = World(path, state=state)
    assert world.run().status == "success"
    check(world)
    assert [len(summary.groups) for summary in state.summaries] == [20]
    assert state.blocks_written == 10 * COLUMNS
    state.reset()
    return world


def run(world: World, state: Counted) -> None:
    """Run, and count only the reads and writes of the summary."""
    state.reset()
    assert world.run().status == "success"


def test_the_first_run_reads_nothing_back(tmp_path: Path) -> None:
    class Unread(Counted):
        def summary(self, table: str) -> TableSummary | None:
            raise AssertionError("a table that is new has no summary")

    lance.write_dataset(orders(0, 100), str(tmp_path / "orders.lance"), max_rows_per_file=5)
    state = Unread()
    world = World(tmp_path / "orders.lance", state=state)
    assert world.run().status == "success"
    assert (state.partials_read, state.blocks_written) == (0, 10 * COLUMNS)


def test_many_partials_are_read_back_for_the_summary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are not kept in memory."""
    monkeypatch.setattr(lancestat.tables.run, "_BYTES_KEPT", 0)
    lance.write_dataset(orders(0, 100), str(tmp_path / "orders.lance"), max_rows_per_file=5)
    state = Counted()
    world = World(tmp_path / "orders.lance", state=state)
    assert world.run().status == "success"
    assert state.partials_read == 20 * COLUMNS
    check(world)


def test_tasks_merge_what_belongs_to_one_group(tmp_path: Path) -> None:
    """A table of more fragments than groups, read by the scanner of this process."""

    class Scanning(World):
        def scan(self, node: str, table: TableVersion, stage: ReadFragments) -> Iterator[Scanned]:
            for scanned in super().scan(node, table, stage):
                merged.update(len(scans) for scans, _ in scanned.merged)
                yield scanned

    merged: Counter[int] = Counter()
    path = tmp_path / "orders.lance"
    lance.write_dataset(orders(0, 600), str(path), max_rows_per_file=1)
    state = Counted()
    world = Scanning(path, state=state)
    assert world.run().status == "success"
    check(world)
    assert merged[2] > 250, "groups have two fragments each"
    assert state.partials_read == 0
    # Groups have four fragments now, and some of those of two are parts of them.
    lance.write_dataset(orders(600, 700), str(path), mode="append", max_rows_per_file=1)
    lance.dataset(str(path)).delete("o_id = 7")
    merged.clear()
    run(world, state)
    check(world)
    assert merged[4] > 150
    assert state.partials_read < 20 * COLUMNS, "few are in no group that is known"


def test_a_skip_writes_nothing(world: World, state: Counted) -> None:
    assert isinstance(world.action(), Skip)
    run(world, state)
    assert not state.summaries


def test_an_append_rewrites_the_last_block(world: World, state: Counted) -> None:
    lance.write_dataset(orders(100, 5), str(world.path), mode="append")
    run(world, state)
    # All 20 fragments are merged for the table; the partials of the appended one are at hand.
    assert state.partials_read == 20 * COLUMNS
    assert (state.blocks_read, state.blocks_written) == (0, COLUMNS)
    check(world)


def test_an_append_merges_existing_groups_with_new_fragments(
    world: World, state: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lancestat.tables.summary, "MOST_GROUPS", 8)
    lance.write_dataset(orders(100, 5), str(world.path), mode="append")
    run(world, state)
    assert [len(summary.groups) for summary in state.summaries] == [6]
    # Groups of four are merged of groups of one: no partial of an old fragment is read for them.
    assert state.partials_read == 20 * COLUMNS
    check(world)
    lance.write_dataset(orders(105, 5), str(world.path), mode="append")
    run(world, state)
    # The table is merged of five groups, and of the one fragment that was a group by itself.
    assert state.partials_read == COLUMNS
    assert state.blocks_written == COLUMNS
    check(world)


def test_deleted_rows_rewrite_their_block(world: World, state: Counted) -> None:
    world.dataset.delete("o_id = 12")
    run(world, state)
    assert state.blocks_written == COLUMNS
    check(world)


def test_an_added_column_is_summarized_alone(world: World, state: Counted) -> None:
    world.dataset.add_columns({"o_double": "o_id * 2"})
    run(world, state)
    assert state.blocks_written == 10
    check(world)


def test_commits_that_keep_rows_and_fragments_write_no_block(world: World, state: Counted) -> None:
    world.dataset.create_scalar_index("o_id", "BTREE")
    assert world.action().verb == "restamp"
    run(world, state)
    [summary] = state.summaries
    assert summary.version == world.dataset.version
    assert (state.blocks_read, state.blocks_written) == (0, 0)
    check(world)


@pytest.mark.parametrize("rows_per_fragment", [12, 1000])
def test_compacted_fragments_are_summarized_from_carried_partials(
    world: World, state: Counted, rows_per_fragment: int
) -> None:
    world.dataset.optimize.compact_files(target_rows_per_fragment=rows_per_fragment)
    assert world.action().verb == "restamp"
    world.reads.clear()
    run(world, state)
    assert not world.reads
    assert state.blocks_written
    check(world)
    world.dataset.delete("o_id = 12")
    run(world, state)
    check(world)


def test_lost_blocks_of_a_summary_are_rebuilt(world: World, state: Counted) -> None:
    dataset = state.summary_table.dataset(latest=True)
    assert dataset is not None
    dataset.delete("field != ''")
    lance.write_dataset(orders(100, 5), str(world.path), mode="append")
    run(world, state)
    assert state.blocks_written == 11 * COLUMNS
    check(world)


def test_a_summary_that_cannot_be_written_does_not_fail_the_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*given: object) -> None:
        raise StateUnreachable("the state cannot be reached")

    lance.write_dataset(orders(0, 10), str(tmp_path / "orders.lance"))
    world = World(tmp_path / "orders.lance")
    monkeypatch.setattr(FreshState, "add_summary", refuse)
    with caplog.at_level(logging.WARNING, "lancestat.run"):
        assert world.run().status == "success"
    assert "is not summed up by groups of fragments" in caplog.text
    assert isinstance(world.action(), Skip)


def test_unpublished_statistics_are_summarized_too(tmp_path: Path) -> None:
    lance.write_dataset(orders(0, 10), str(tmp_path / "orders.lance"), max_rows_per_file=5)
    world = World(tmp_path / "orders.lance", publish=Publish.NONE)
    world.run()
    check(world)
