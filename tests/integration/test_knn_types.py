"""Joins of vectors of bytes, bfloat16 and bits, by the exact arithmetic of Python's integers."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

import lancestat
from lancestat import Project
from lancestat.errors import NotVectors
from tests.examples import each, sample

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

K, DIMENSION = 3, 12
LEFT, RIGHT = 30, 200
BFLOAT16 = pa.field(
    "item",
    pa.binary(2),
    metadata={"ARROW:extension:name": "lance.bfloat16", "ARROW:extension:metadata": ""},
)
ELEMENTS: dict[str, Any] = {"int8": pa.int8(), "uint8": pa.uint8(), "bfloat16": BFLOAT16}

Numbers = list[list[Fraction]]


def drawn(element: str, count: int, seed: int) -> tuple[pa.Array, Numbers]:
    """Vectors of a type, every seventh of them null, and their elements as exact numbers."""
    chosen = np.random.default_rng(seed)
    if element == "bfloat16":
        halves = chosen.normal(size=(count, DIMENSION)).astype(np.float32).view(np.uint32) >> 16
        floats = (halves << 16).astype(np.uint32).view(np.float32)
        numbers = [[Fraction(float(value)) for value in row] for row in floats]
        octets = pa.py_buffer(halves.astype("<u2").tobytes())
        values = pa.Array.from_buffers(pa.binary(2), halves.size, [None, octets])
    else:
        dtype = np.dtype(element)
        span = np.iinfo(dtype)
        integers = chosen.integers(span.min, span.max + 1, (count, DIMENSION), dtype)
        numbers = [[Fraction(int(value)) for value in row] for row in integers]
        values = pa.array(integers.ravel())
    is_null = pa.array([number % 7 == 3 for number in range(count)])
    type = pa.list_(ELEMENTS[element], DIMENSION)
    return pa.FixedSizeListArray.from_arrays(values, type=type, mask=is_null), numbers


def expected(left: Numbers, right: Numbers, metric: str) -> list[tuple[int, int, float]]:
    """Left row, right row and distance; by exact numbers, ties in the order of the right rows."""
    rows = []
    for number, query in enumerate(left):
        if number % 7 == 3:
            continue
        near = sorted(
            (distance(query, vector, metric), place)
            for place, vector in enumerate(right)
            if place % 7 != 3
        )
        rows += [(number, place, float(np.float32(float(far)))) for far, place in near[:K]]
    return rows


def distance(left: list[Fraction], right: list[Fraction], metric: str) -> Fraction | int:
    match metric:
        case "l2":
            return sum(((a - b) ** 2 for a, b in zip(left, right, strict=True)), Fraction(0))
        case "dot":
            return 1 - sum((a * b for a, b in zip(left, right, strict=True)), Fraction(0))
        case _:
            pairs = zip(left, right, strict=True)
            return sum(bin((int(a) & 255) ^ (int(b) & 255)).count("1") for a, b in pairs)


CASES = [
    *((element, metric) for element in ELEMENTS for metric in ("l2", "dot")),
    ("uint8", "hamming"),
    ("int8", "hamming"),
]


def table(element: str, count: int, seed: int) -> tuple[pa.Table, Numbers]:
    vectors, numbers = drawn(element, count, seed)
    schema = pa.schema([pa.field("id", pa.int64()), pa.field("v", vectors.type)])
    return pa.table([pa.array(range(count), pa.int64()), vectors], schema=schema), numbers


def declare(folder: Path, sides: dict[str, Any], **join: Any) -> Project:
    (folder / "specs").mkdir(exist_ok=True)
    project = {"name": "shop", "targets": {"dev": {"state": "state"}}, "default_target": "dev"}
    (folder / "lancestat_project.yml").write_text(json.dumps(project))
    named = {
        side: {**source, "vector": "v", "select": ["id"]}
        for side, source in zip(("left", "right"), sides.values(), strict=True)
    }
    declared = {"name": "near", **named, "k": K, "output": {"lance": "near.lance"}, **join}
    (folder / "specs" / "joins.yml").write_text(json.dumps({"knn_joins": [declared]}))
    return Project.load(folder)


def joined(folder: Path, **join: Any) -> list[tuple[int, int, float]]:
    """The result of a join of `l` and `r` below a folder."""
    project = declare(folder, {"l": {"lance": "l.lance"}, "r": {"lance": "r.lance"}}, **join)
    result = project.run(project.plan())
    assert result.status == "success", result.nodes[0].message
    return read(folder)


def read(folder: Path) -> list[tuple[int, int, float]]:
    rows = lance.dataset(str(folder / "near.lance")).to_table()
    names = ("id", "id_right", "_distance")
    return list(zip(*(rows[name].to_pylist() for name in names), strict=True))


def same(ours: list[tuple[int, int, float]], theirs: list[tuple[int, int, float]]) -> None:
    assert [row[:2] for row in ours] == [row[:2] for row in theirs]
    np.testing.assert_allclose([row[2] for row in ours], [row[2] for row in theirs], rtol=1e-6)


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(("case", "gate"), each(sample(CASES, 4), [0, 10_000]))
def test_tables_of_other_types(case: tuple[str, str], gate: int, tmp_path: Path) -> None:
    element, metric = case
    left, left_numbers = table(element, LEFT, 1)
    right, right_numbers = table(element, RIGHT, 2)
    lance.write_dataset(left, str(tmp_path / "l.lance"))
    lance.write_dataset(right, str(tmp_path / "r.lance"), max_rows_per_file=70)
    theirs = expected(left_numbers, right_numbers, metric)
    same(joined(tmp_path, metric=metric, min_right_rows=gate), theirs)


@pytest.mark.parametrize("metric", ["l2", "hamming"])
def test_dataframes_and_parquet_of_bytes(spark: SparkSession, metric: str, tmp_path: Path) -> None:
    left, left_numbers = table("int8", LEFT, 1)
    right, right_numbers = table("int8", RIGHT, 2)
    for name, rows in (("l", left), ("r", right)):
        pq.write_table(rows, tmp_path / f"{name}.parquet")
    theirs = expected(left_numbers, right_numbers, metric)
    frames = [spark.read.parquet(str(tmp_path / f"{name}.parquet")) for name in ("l", "r")]
    for parts in (1, 3):
        near = lancestat.knn_join(
            frames[0].repartitionByRange(parts, "id").sortWithinPartitions("id"),
            frames[1],
            left_vector="v",
            right_vector="v",
            k=K,
            metric=metric,
            select_left=["id"],
            select_right=["id"],
            min_right_rows=0,
        )
        same([tuple(row) for row in near.collect()], theirs)


@pytest.mark.usefixtures("spark")
def test_keys_and_distances_of_bits(tmp_path: Path) -> None:
    """Bits through scratch by keys, and within a distance, which is a number of bits."""
    left, left_numbers = table("uint8", LEFT, 1)
    right, right_numbers = table("uint8", RIGHT, 2)
    for name, rows in (("l", left), ("r", right)):
        keys = pa.array([number % 2 for number in range(len(rows))], pa.int32())
        lance.write_dataset(rows.append_column("key", keys), str(tmp_path / f"{name}.lance"))
    everything = [
        (a, b, float(distance(left_numbers[a], right_numbers[b], "hamming")))
        for a in range(LEFT)
        for b in range(RIGHT)
        if a % 7 != 3 and b % 7 != 3
    ]
    near = [row for row in everything if row[0] % 2 == row[1] % 2]
    by_key: list[tuple[int, int, float]] = []
    for number in range(LEFT):
        mine = sorted((row for row in near if row[0] == number), key=lambda row: (row[2], row[1]))
        by_key += mine[:K]
    same(joined(tmp_path, metric="hamming", on=["key"]), by_key)
    within = sorted((row for row in everything if row[2] <= 38), key=lambda r: (r[0], r[2], r[1]))
    assert len(within) > 50
    same(joined(tmp_path, metric="hamming", k="all", max_distance=38), within)


@pytest.mark.usefixtures("spark")
def test_an_approximate_join_of_bits(tmp_path: Path) -> None:
    chosen = np.random.default_rng(3)
    middles = chosen.integers(0, 256, (40, 16), np.uint8)
    numbers: dict[str, NDArray[np.uint8]] = {}
    for name, count in (("l", 100), ("r", 6_000)):
        flips = chosen.integers(0, 256, (count, 16), np.uint8)
        flips &= chosen.integers(0, 256, (count, 16), np.uint8)
        flips &= chosen.integers(0, 256, (count, 16), np.uint8)
        numbers[name] = middles[chosen.integers(0, 40, count)] ^ flips
        vectors = pa.FixedSizeListArray.from_arrays(pa.array(numbers[name].ravel()), 16)
        rows = pa.table({"id": pa.array(range(count), pa.int64()), "v": vectors})
        lance.write_dataset(rows, str(tmp_path / f"{name}.lance"))
    options = {"mode": "approx", "approx": {"nprobes": 4}, "min_right_rows": 0}
    ours = joined(tmp_path, metric="hamming", **options)
    bits = {name: np.unpackbits(rows, axis=1).astype(int) for name, rows in numbers.items()}
    matrix = (bits["l"][:, None] != bits["r"][None]).sum(axis=2)
    assert all(matrix[a, b] == far for a, b, far in ours)
    limits = np.sort(matrix, axis=1)[:, K - 1]
    assert np.mean([far <= limits[a] for a, _, far in ours]) > 0.9


def test_hamming_of_floats_is_refused_with_its_place(spark: SparkSession, tmp_path: Path) -> None:
    floats = pa.FixedSizeListArray.from_arrays(pa.array(np.ones(8, np.float32)), 4)
    for name in ("l", "r"):
        rows = pa.table({"id": [0, 1], "v": floats})
        lance.write_dataset(rows, str(tmp_path / f"{name}.lance"))
    project = declare(
        tmp_path, {"l": {"lance": "l.lance"}, "r": {"lance": "r.lance"}}, metric="hamming"
    )
    [action] = project.plan().actions
    error = action.error
    assert isinstance(error, NotVectors) and error.location is not None
    assert "vectors of bits" in error.message
    frame = spark.createDataFrame([([1.0, 2.0],)], "v array<float>")
    # Its type says so, and no task has to find it.
    with pytest.raises(NotVectors, match=r"^LS455  the (left|right) side holds no vectors of bits"):
        lancestat.knn_join(frame, frame, left_vector="v", right_vector="v", k=1, metric="hamming")
