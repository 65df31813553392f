from __future__ import annotations

from dataclasses import replace

import lance
import pyarrow as pa
import pytest

from lancestat.lake.fingerprint import column_groups, content_digest, field_key
from lancestat.lake.observe import snapshot
from lancestat.lake.snapshot import DataFile, Field, Fragment, Overlay, Snapshot

A, B, C = (Field(id, name, pa.int32(), True, "int") for id, name in enumerate("abc"))
FILE = DataFile("f0", (0, 1), 10, None)
OTHER = DataFile("f1", (2,), 10, None)
FRAGMENT = Fragment(0, 100, 0, (FILE, OTHER), None, ())


def table(*fragments: Fragment) -> Snapshot:
    return Snapshot("t", 1, (A, B, C), fragments, {}, None)


def print_of(fragment: Fragment, field: Field) -> bytes:
    (group,) = column_groups(table(fragment), [field])
    return group.fingerprint


def test_columns_of_one_file_share_a_group() -> None:
    groups = column_groups(table(FRAGMENT), [A, B, C])
    assert {group.fields for group in groups} == {
        frozenset({field_key(A), field_key(B)}),
        frozenset({field_key(C)}),
    }
    assert len({group.fingerprint for group in groups}) == 2
    assert {len(group.fingerprint) for group in groups} == {16}


def test_a_fingerprint_does_not_depend_on_the_columns_asked_for() -> None:
    together = {
        key: group.fingerprint
        for group in column_groups(table(FRAGMENT), [A, B, C])
        for key in group.fields
    }
    assert together == {field_key(field): print_of(FRAGMENT, field) for field in (A, B, C)}


def test_every_column_is_in_one_group_of_every_fragment() -> None:
    fragments = [replace(FRAGMENT, id=number) for number in (4, 2, 9)]
    groups = column_groups(table(*fragments), [C, A])
    assert [group.fragment_id for group in groups] == [4, 4, 2, 2, 9, 9]
    for number in (4, 2, 9):
        keys = [key for g in groups if g.fragment_id == number for key in g.fields]
        assert sorted(keys) == ["0:int", "2:int"]


def test_equal_sets_are_one_object() -> None:
    fragments = [replace(FRAGMENT, id=number) for number in range(3)]
    # Field ids that are equal but not shared, as from manifests read one by one.
    fragments.append(replace(FRAGMENT, id=3, files=(replace(FILE, field_ids=(*[0], 1)), OTHER)))
    groups = column_groups(table(*fragments), [A, B, C])
    assert len({id(group.fields) for group in groups}) == 2


@pytest.mark.parametrize(
    "changed",
    [
        replace(FRAGMENT, files=(replace(FILE, path="g0"), OTHER)),
        replace(FRAGMENT, files=(replace(FILE, base_id=1), OTHER)),
        replace(FRAGMENT, deletion_file="1-2-array-None", deleted_rows=1),
        replace(FRAGMENT, physical_rows=101),
        replace(FRAGMENT, files=(FILE, replace(OTHER, field_ids=(2, 0)))),
        replace(FRAGMENT, overlays=(Overlay(DataFile("o", (0,), 1, None), "cells"),)),
    ],
    ids=["path", "base", "deletion", "rows", "second file", "overlay"],
)
def test_changes_of_content_change_a_fingerprint(changed: Fragment) -> None:
    assert print_of(changed, A) != print_of(FRAGMENT, A)


@pytest.mark.parametrize(
    "changed",
    [
        replace(FRAGMENT, id=7),
        replace(FRAGMENT, files=(replace(FILE, size_bytes=99), OTHER)),
        replace(FRAGMENT, files=(replace(FILE, field_ids=(0, -2)), OTHER)),
        replace(FRAGMENT, files=(FILE, replace(OTHER, path="g1"))),
        replace(FRAGMENT, files=(OTHER, FILE)),
        replace(FRAGMENT, overlays=(Overlay(DataFile("o", (1,), 1, None), "cells"),)),
    ],
    ids=["id", "size", "sibling replaced", "other file", "file order", "overlay of a sibling"],
)
def test_other_changes_do_not_change_a_fingerprint(changed: Fragment) -> None:
    assert print_of(changed, A) == print_of(FRAGMENT, A)


def test_overlays_affect_the_fingerprint_by_their_cells_and_order() -> None:
    first = Overlay(DataFile("o1", (0,), 1, None), "cells 1")
    second = Overlay(DataFile("o2", (0,), 1, None), "cells 2")
    orders = [
        (first,),
        (second,),
        (first, second),
        (second, first),
        (replace(first, coverage="x"),),
    ]
    prints = {print_of(replace(FRAGMENT, overlays=overlays), A) for overlays in orders}
    assert len(prints) == len(orders)


def test_a_column_that_no_file_holds_is_null_in_every_row() -> None:
    only_c = replace(FRAGMENT, files=(OTHER,))
    elsewhere = replace(only_c, files=(replace(OTHER, path="g1"),))
    assert print_of(only_c, A) == print_of(elsewhere, A)
    assert print_of(only_c, A) == print_of(only_c, B)
    assert print_of(only_c, A) != print_of(replace(only_c, physical_rows=5), A)
    assert print_of(only_c, A) != print_of(replace(only_c, deletion_file="d"), A)


def test_the_type_is_part_of_a_field_key_but_the_name_is_not() -> None:
    assert field_key(A) == field_key(replace(A, name="renamed"))
    assert field_key(A) != field_key(replace(A, spark_type="bigint"))
    assert field_key(A) != field_key(B)


def digest(*fragments: Fragment, fields: tuple[Field, ...] = (A, B, C)) -> str:
    return content_digest(column_groups(table(*fragments), list(fields)))


def test_a_digest_ignores_order_and_ids_but_counts() -> None:
    one, two = FRAGMENT, replace(FRAGMENT, id=1, files=(replace(FILE, path="g0"), OTHER))
    assert digest(one, two) == digest(two, one)
    assert digest(one, two) == digest(replace(one, id=8), replace(two, id=9))
    assert digest(one, two, fields=(C, A, B)) == digest(one, two)
    copy = replace(one, id=5)
    everything = [(), (one,), (two,), (one, two), (one, copy), (one, copy, two)]
    assert len({digest(*fragments) for fragments in everything}) == len(everything)


def test_a_digest_names_its_columns() -> None:
    subsets = [(A,), (B,), (A, B), (A, C), (replace(A, spark_type="bigint"),)]
    assert len({digest(FRAGMENT, fields=fields) for fields in subsets}) == len(subsets)


def test_a_table_without_columns_to_analyze() -> None:
    assert column_groups(table(FRAGMENT), []) == []


def test_fixed_size_lists_and_columns_beside_nested_ones(orders: lance.LanceDataset) -> None:
    nested = pa.field("n", pa.struct([("k", pa.int32())]))
    orders.add_columns([nested, pa.field("v", pa.list_(pa.float32(), 2)), pa.field("e", pa.int8())])
    before = snapshot(orders)
    orders.add_columns({"e2": "cast(id as int)"})
    after = snapshot(orders)
    fields = [field for field in before.fields if field.name != "n"]
    assert content_digest(column_groups(before, fields)) == content_digest(
        column_groups(after, fields)
    )
    assert len({g.fingerprint for g in column_groups(after, [after.fields[-1]])}) == 5
