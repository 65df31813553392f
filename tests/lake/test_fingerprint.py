from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest

from lancestat.lake.fingerprint import (
    ByteEstimator,
    FragmentContent,
    column_groups,
    content_digest,
    field_key,
    fixed_width,
    fragment_contents,
    leaves,
    rows_digest,
)
from lancestat.lake.open import snapshot
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


FIELDS = [
    Field(0, "a", pa.int64(), True, "bigint"),
    Field(1, "b", pa.int32(), True, "int"),
    Field(2, "s", pa.string(), True, "string"),
    Field(3, "later", pa.int32(), True, "int"),
]


def fragment(size_bytes: int | None, field_ids: tuple[int, ...] = (0, 1, 2)) -> Fragment:
    return Fragment(0, 1000, 0, (DataFile("f", field_ids, size_bytes, None),), None, ())


def estimate(of: Fragment, *names: str) -> int:
    keys = {field_key(field) for field in FIELDS if field.name in names}
    return ByteEstimator(FIELDS).estimate(of, frozenset(keys))


@pytest.mark.parametrize(
    ("arrow", "width"),
    [
        (pa.bool_(), 0.125),
        (pa.int8(), 1),
        (pa.timestamp("us", "UTC"), 8),
        (pa.decimal128(10, 2), 16),
        (pa.binary(7), 7),
        (pa.list_(pa.float32(), 128), 512),
        (pa.dictionary(pa.int16(), pa.string()), 2),
        (pa.fixed_shape_tensor(pa.float32(), [2, 2]), 16),
        (pa.null(), 0),
        (pa.string(), None),
        (pa.list_(pa.int8()), None),
        (pa.struct([("a", pa.int8())]), None),
    ],
    ids=str,
)
def test_fixed_width_columns_have_their_width(arrow: pa.DataType, width: float | None) -> None:
    assert fixed_width(arrow) == width


@pytest.mark.parametrize(
    ("of", "names", "size_bytes"),
    [
        # Strings share the bytes that fixed-width columns leave.
        (fragment(1_000_000), "a", 8_000),
        (fragment(1_000_000), "b", 4_000),
        (fragment(1_000_000), "s", 988_000),
        (fragment(12_345), "abs", 12_345),
        # A compressed file is shared by width.
        (fragment(2_800), "a", 800),
        (fragment(2_800), "b", 400),
        (fragment(2_800), "s", 1_600),
        # No file holds the column.
        (fragment(1_000_000, (0, 1, -2)), "s", 0),
        # A file of unknown size counts as not compressed.
        (fragment(None), "as", 8_000 + 16_000),
        (replace(fragment(100), physical_rows=0), "a", 0),
    ],
)
def test_columns_share_the_bytes_of_a_file(of: Fragment, names: str, size_bytes: int) -> None:
    assert estimate(of, *names) == size_bytes
    assert estimate(of, "later") == 0


def test_estimates_are_accurate_for_real_files(tmp_path: Path) -> None:
    random = np.random.default_rng(7)
    count = 20_000
    vectors = pa.array(random.random(count * 8).astype("f4"))
    table = pa.table(
        {
            "i": random.integers(0, 2**62, count),
            "f": random.random(count),
            "s": [f"{value}" * 4 for value in random.integers(0, 2**60, count)],
            "v": pa.FixedSizeListArray.from_arrays(vectors, 8),
        }
    )
    dataset = lance.write_dataset(table, tmp_path / "t.lance")
    observed = snapshot(dataset)
    true_sizes = {field.id: field.bytes_on_disk for field in dataset.stats.data_stats().fields}
    for field in observed.fields:
        keys = frozenset({field_key(field)})
        estimated = ByteEstimator(observed.fields).estimate(observed.fragments[0], keys)
        assert estimated == pytest.approx(true_sizes[field.id], rel=0.1)


def rows(start: int, count: int) -> pa.Table:
    numbers = range(start, start + count)
    return pa.table(
        {
            "id": pa.array(numbers),
            "fixed": pa.array([[1.0, float(n)] for n in numbers], pa.list_(pa.float32(), 2)),
            "list": pa.array([[float(n)] for n in numbers], pa.list_(pa.float64())),
            "deep": pa.array([{"a": {"b": [n]}, "c": n} for n in numbers]),
            "other": pa.array(numbers),
        }
    )


@pytest.fixture
def uri(tmp_path: Path) -> str:
    path = str(tmp_path / "t.lance")
    lance.write_dataset(rows(0, 30), path, max_rows_per_file=10)
    return path


def contents(uri: str, *columns: str) -> tuple[FragmentContent, ...]:
    dataset = lance.dataset(uri)
    return fragment_contents(snapshot(dataset), leaves(dataset, columns))


def test_every_fragment_has_its_rows_and_its_digest(uri: str) -> None:
    fragments = contents(uri, "id")
    assert [(fragment.id, fragment.rows) for fragment in fragments] == [(0, 10), (1, 10), (2, 10)]
    assert len({fragment.digest for fragment in fragments}) == 3
    assert contents(uri, "id") == fragments


@pytest.mark.parametrize("column", ["fixed", "list", "deep"])
def test_new_values_of_a_column_change_only_their_fragment(uri: str, column: str) -> None:
    """The files of a list or a struct name their innermost fields only."""
    before, others = contents(uri, column), contents(uri, "other")
    values = rows(500, 10).column(column)
    dataset = lance.dataset(uri)
    updated, modified = dataset.get_fragment(1).update_columns(
        pa.table({"id": pa.array(range(10, 20)), column: values}), left_on="id"
    )
    operation = lance.LanceOperation.Update(updated_fragments=[updated], fields_modified=modified)
    lance.LanceDataset.commit(uri, operation, read_version=dataset.version)
    assert lance.dataset(uri).to_table()[column].slice(10, 10).to_pylist() == values.to_pylist()
    after = contents(uri, column)
    assert [now == then for now, then in zip(after, before, strict=True)] == [True, False, True]
    assert contents(uri, "other") == others


def test_a_deletion_changes_only_its_fragment(uri: str) -> None:
    before = contents(uri, "id")
    lance.dataset(uri).delete("id = 15")
    after = contents(uri, "id")
    assert after[0] == before[0]
    assert after[1].rows == 9
    assert after[1].digest != before[1].digest
    assert after[2] == before[2]


def test_fragments_without_rows_have_no_content(uri: str) -> None:
    lance.dataset(uri).delete("id >= 10 AND id < 20")
    assert [fragment.id for fragment in contents(uri, "id")] == [0, 2]


UNRELATED: dict[str, Callable[[lance.LanceDataset], object]] = {
    "config": lambda dataset: dataset.update_config({"a": "b"}),
    "index": lambda dataset: dataset.create_scalar_index("id", "BTREE"),
    "another column": lambda dataset: dataset.add_columns({"more": "id + 1"}),
    "without another": lambda dataset: dataset.drop_columns(["other"]),
    "another renamed": lambda dataset: dataset.alter_columns({"path": "other", "name": "o"}),
}


@pytest.mark.parametrize("change", UNRELATED)
def test_commits_that_keep_rows_and_columns_keep_the_content(uri: str, change: str) -> None:
    columns = ("id", "fixed", "list", "deep")
    before = contents(uri, *columns)
    UNRELATED[change](lance.dataset(uri))
    assert contents(uri, *columns) == before


def test_a_recreated_column_is_another(uri: str) -> None:
    before = contents(uri, "id", "other")
    dataset = lance.dataset(uri)
    dataset.drop_columns(["other"])
    dataset.add_columns({"other": "id"})
    assert rows_digest(contents(uri, "id", "other")) != rows_digest(before)


def test_the_order_of_fragments_affects_the_digest(uri: str) -> None:
    fragments = contents(uri, "id")
    assert rows_digest(fragments) == rows_digest(list(fragments))
    assert rows_digest(fragments) != rows_digest(fragments[::-1])
    assert rows_digest(fragments[:2]) != rows_digest(fragments)
