from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest

from lancestat.lake.fingerprint import column_bytes, estimated_bytes, field_key, fixed_width
from lancestat.lake.observe import snapshot
from lancestat.lake.snapshot import DataFile, Field, Fragment

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
    return estimated_bytes(of, keys, FIELDS)


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


def test_strings_share_the_bytes_left_by_fixed_width_columns() -> None:
    large = fragment(1_000_000)
    assert estimate(large, "a") == 8_000
    assert estimate(large, "b") == 4_000
    assert estimate(large, "s") == 988_000


def test_all_columns_together_have_the_bytes_of_the_file() -> None:
    assert estimate(fragment(12_345), "a", "b", "s") == 12_345


def test_a_compressed_file_is_shared_by_width() -> None:
    small = fragment(2_800)
    assert estimate(small, "a") == 800
    assert estimate(small, "b") == 400
    assert estimate(small, "s") == 1_600


def test_a_column_that_no_file_holds_costs_nothing() -> None:
    assert estimate(fragment(1_000_000), "later") == 0
    assert estimate(fragment(1_000_000, (0, 1, -2)), "s") == 0


def test_a_file_of_unknown_size_counts_as_not_compressed() -> None:
    assert estimate(fragment(None), "a", "s") == 8_000 + 16_000


def test_a_fragment_without_rows_costs_nothing() -> None:
    assert estimate(replace(fragment(100), physical_rows=0), "a") == 0


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
    true_sizes = column_bytes(dataset)
    for field in observed.fields:
        estimated = estimated_bytes(observed.fragments[0], {field_key(field)}, observed.fields)
        assert estimated == pytest.approx(true_sizes[field.id], rel=0.1)


def test_estimates_are_equal_for_fields_of_the_same_layout() -> None:
    """Fields are compared as objects: another table's must not be mistaken for these."""
    other = [replace(FIELDS[0], type=pa.int8(), spark_type="tinyint"), *FIELDS[1:]]
    large = fragment(1_000_000)
    assert estimated_bytes(large, {"0:bigint"}, FIELDS) == 8_000
    assert estimated_bytes(large, {"0:tinyint"}, other) == 1_000
