"""Coverage: every (fragment, column) exactly once, for any stored or rewritten fragments."""

from __future__ import annotations

import hashlib
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from lancestat.lake.fingerprint import ColumnGroup
from lancestat.state.values import PartialIndex
from lancestat.tables.coverage import Rewritten, cover
from tests.examples import examples

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


def test_a_compaction_into_one_fragment_is_carried() -> None:
    rewrite = Rewritten(old=(group(0, "a"), group(1, "b")), new=(group(9, "c"),))
    coverage = cover([group(9, "c")], index({"a": FIELDS, "b": FIELDS}), [rewrite])
    assert not coverage.missing
    [carry] = coverage.carries
    assert set(carry.sources) == {(fingerprint("a"),), (fingerprint("b"),)}
    assert carry.new == (fingerprint("c"),)


def test_a_compaction_of_which_a_part_is_unknown_is_read() -> None:
    rewrite = Rewritten(old=(group(0, "a"), group(1, "b")), new=(group(9, "c"),))
    coverage = cover([group(9, "c")], index({"a": FIELDS}), [rewrite])
    assert not coverage.carries
    assert coverage.missing == ((group(9, "c"), frozenset(FIELDS)),)


def test_compactions_in_a_row_are_followed() -> None:
    first = Rewritten(old=(group(0, "a"), group(1, "b")), new=(group(9, "c"),))
    second = Rewritten(old=(group(9, "c"), group(2, "d")), new=(group(10, "e"),))
    coverage = cover(
        [group(10, "e")], index({"a": FIELDS, "b": FIELDS, "d": FIELDS}), [first, second]
    )
    assert not coverage.missing
    [carry] = coverage.carries
    assert set(carry.sources) == {(fingerprint(name),) for name in "abd"}


def test_several_new_fragments_are_known_only_together() -> None:
    rewrite = Rewritten(old=(group(0, "a"),), new=(group(9, "c"), group(10, "d")))
    stored = index({"a": FIELDS})
    whole = cover([group(9, "c"), group(10, "d")], stored, [rewrite])
    assert not whole.missing
    assert set(whole.carries[0].new) == {fingerprint("c"), fingerprint("d")}
    changed = cover([group(9, "c"), group(10, "d2")], stored, [rewrite])
    assert {item[0].fragment_id for item in changed.missing} == {9, 10}


def test_a_stored_group_is_used_only_whole() -> None:
    key = (fingerprint("c"), fingerprint("d"))
    whole = cover([group(9, "c"), group(10, "d")], index({}, key), [])
    assert [item.fingerprints for item in whole.reuse] == [key]
    assert cover([group(9, "c")], index({}, key), []).missing


def test_a_group_of_which_a_member_was_read_since_is_not_counted_twice() -> None:
    key = (fingerprint("c"), fingerprint("d"))
    coverage = cover([group(9, "c"), group(10, "d")], index({"c": FIELDS}, key), [])
    assert [item.fingerprints for item in coverage.reuse] == [(fingerprint("c"),)]
    assert coverage.missing == ((group(10, "d"), frozenset(FIELDS)),)


def test_equal_content_of_two_fragments_is_counted_twice() -> None:
    """An all-null column that no file holds has the same fingerprint in fragments of equal size."""
    coverage = cover([group(0, "n", FIELDS[0]), group(1, "n", FIELDS[0])], index({"n": FIELDS}), [])
    [item] = coverage.reuse
    assert item.times == 2


def test_columns_in_separate_files_are_carried_into_one() -> None:
    old = (group(0, "a", *FIELDS[:2]), group(0, "x", FIELDS[2]), group(1, "b"))
    rewrite = Rewritten(old=old, new=(group(9, "c"),))
    stored = index({"a": FIELDS[:2], "x": FIELDS[2:], "b": FIELDS})
    coverage = cover([group(9, "c")], stored, [rewrite])
    assert not coverage.missing
    assert frozenset().union(*(carry.fields for carry in coverage.carries)) == frozenset(FIELDS)


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
        self.rewrites.append(
            Rewritten(tuple(group(0, n) for n in names), tuple(group(0, n) for n in new))
        )

    def append(self) -> None:
        name = str(self.next)
        self.next += 1
        self.fragments[name] = self.truth[name] = Counter({f"atom{name}": 2})


@settings(max_examples=examples(200))
@given(st.data())
def test_reuse_carries_and_scans_sum_up_to_the_table(data: st.DataObject) -> None:
    world = Simulation(data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=5)))
    known = data.draw(st.sets(st.sampled_from(sorted(world.fragments))))
    for _ in range(data.draw(st.integers(0, 4))):
        if data.draw(st.booleans()):
            world.append()
        else:
            names = sorted(world.fragments)
            some = data.draw(st.lists(st.sampled_from(names), min_size=1, unique=True))
            world.rewrite(some, data.draw(st.integers(1, 2)))
    stored = {fingerprint(name): world.truth[name] for name in known}
    groups = [group(i, name) for i, name in enumerate(sorted(world.fragments))]
    by_fingerprint = {fingerprint(name): rows for name, rows in world.truth.items()}
    coverage = cover(groups, index(dict.fromkeys(known, FIELDS)), world.rewrites)
    for key in FIELDS:
        rows: Counter[str] = Counter()
        for item in coverage.reuse:
            if key in item.fields:
                for _ in range(item.times):
                    rows += stored[item.fingerprints[0]]
        for carry in coverage.carries:
            if key in carry.fields:
                for source in carry.sources:
                    rows += stored[source[0]]
        for missing, fields in coverage.missing:
            if key in fields:
                rows += by_fingerprint[missing.fingerprint]
        assert rows == sum(world.fragments.values(), Counter())
