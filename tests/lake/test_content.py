from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from lancestat.lake.fingerprint import FragmentContent, fragment_contents, leaves, rows_digest
from lancestat.lake.observe import snapshot


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
