from __future__ import annotations

import copy
import shutil
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

from lancestat.errors import LakeError, UsageError
from lancestat.lake.open import observe_at, observe_snapshots, parse_version, snapshot
from lancestat.lake.snapshot import Snapshot, fragment_values, index_metric

Rows = Callable[[int, int], pa.Table]


def test_a_snapshot_holds_rows_fields_and_fragments(orders: lance.LanceDataset) -> None:
    orders.delete("id in (3, 4, 45)")
    orders.update_config({"owner": "me"})
    observed = snapshot(orders, "some/place")

    assert (observed.uri, observed.version, observed.rows) == ("some/place", 3, 97)
    assert [(f.id, f.name, f.spark_type) for f in observed.fields] == [
        (0, "id", "bigint"),
        (1, "x", "double"),
        (2, "s", "string"),
    ]
    assert [f.rows for f in observed.fragments] == [18, 20, 19, 20, 20]
    assert [f.physical_rows for f in observed.fragments] == [20] * 5
    assert observed.config["owner"] == "me"
    assert observed.size_bytes == sum(
        path.stat().st_size for path in Path(orders.uri, "data").iterdir()
    )


def test_the_commit_time_is_aware_and_true(orders: lance.LanceDataset) -> None:
    committed_at = snapshot(orders).committed_at
    assert committed_at is not None
    assert committed_at.tzinfo is timezone.utc
    assert timedelta(0) <= datetime.now(timezone.utc) - committed_at < timedelta(minutes=10)


def test_a_snapshot_has_nullability_and_the_order_of_columns(tmp_path: Path) -> None:
    schema = pa.schema(
        [
            pa.field("b", pa.struct([("c", pa.int32())])),
            pa.field("a", pa.int32(), nullable=False),
            pa.field("v", pa.list_(pa.float32(), 4)),
        ]
    )
    dataset = lance.write_dataset(schema.empty_table(), tmp_path / "t.lance")
    observed = snapshot(dataset)
    assert [(f.id, f.name, f.nullable, f.spark_type) for f in observed.fields] == [
        (0, "b", True, "struct<c:int>"),
        (2, "a", False, "int"),
        (3, "v", True, "array<float>"),
    ]
    assert observed.field("a") == observed.fields[1]
    assert observed.field("A") is None
    assert (observed.rows, observed.size_bytes) == (0, 0)


def test_reading_a_snapshot_touches_no_data_file(orders: lance.LanceDataset) -> None:
    before = snapshot(orders)
    for path in Path(orders.uri, "data").iterdir():
        path.unlink()
    assert snapshot(lance.dataset(orders.uri)) == before


def test_a_failing_table_does_not_stop_others(
    tmp_path: Path, orders: lance.LanceDataset, rows: Rows
) -> None:
    requests = [("orders", orders.uri), ("gone", str(tmp_path / "gone.lance"))]
    for number in range(20):
        uri = tmp_path / f"t{number}.lance"
        lance.write_dataset(rows(0, number + 1), uri)
        requests.append((f"t{number}", str(uri)))

    snapshots = observe_snapshots(requests, threads=4)

    assert list(snapshots) == [name for name, _ in requests]
    gone = snapshots.pop("gone")
    assert isinstance(gone, LakeError)
    assert gone.code == "LS201"
    sizes = [observed.rows for observed in snapshots.values() if isinstance(observed, Snapshot)]
    assert sizes == [100, *range(1, 21)]


def test_overlays_differ_by_their_cells(orders: lance.LanceDataset) -> None:
    metadata = orders.get_fragments()[0].metadata
    file = metadata.files[0]

    def coverage(offsets: object) -> str:
        changed = copy.copy(metadata)
        changed.overlays = [lance.LanceOperation.DataOverlayFile(file, offsets, 2)]
        (fragment,) = fragment_values([changed], {})
        return fragment.overlays[0].coverage

    dense = lance.bitmap.Bitmap
    assert coverage(dense([1, 3])) == coverage(dense([3, 1]))
    different = [dense([1, 3]), dense([1]), [[1], [3]], [[3], [1]], [dense([1]), dense([3, 4])]]
    assert len({coverage(offsets) for offsets in different}) == len(different)


OVERLAY = """
import sys, lance, pyarrow as pa
from lance import LanceOperation as O
from lance.file import LanceFileWriter
from lance.fragment import DataFile
from lancestat.lake.open import snapshot
from lancestat.lake.history import commits_since
from lancestat.lake.fingerprint import column_groups

uri = sys.argv[1]
dataset = lance.dataset(uri)
before = snapshot(dataset)
values = pa.table({"x": pa.array([-1.0, -2.0])})
with LanceFileWriter(f"{uri}/data/overlay.lance", values.schema) as writer:
    writer.write_batch(values)
file = DataFile.create(dataset, "overlay.lance")
group = O.DataOverlayGroup(1, [O.DataOverlayFile(file, lance.bitmap.Bitmap([0, 2]))])
lance.LanceDataset.commit(uri, O.DataOverlay([group]), read_version=1)
dataset = lance.dataset(uri)
after = snapshot(dataset)
old = column_groups(before, before.fields)
for fragment, overlaid in zip(before.fragments, after.fragments):
    print(len(overlaid.overlays), end=" ")
for field in after.fields:
    pairs = zip(column_groups(before, [field]), column_groups(after, [field]))
    print([a.fingerprint == b.fingerprint for a, b in pairs].count(False), end=" ")
print([c.effect.value for c in commits_since(dataset, 1).commits])
"""


def test_an_overlay_changes_only_its_column(
    orders: lance.LanceDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lance reads its switch for overlays once, so this needs a process of its own."""
    monkeypatch.setenv("LANCE_ENABLE_UNSTABLE_DATA_OVERLAY_FILES", "1")
    completed = subprocess.run(
        [sys.executable, "-c", OVERLAY, orders.uri], capture_output=True, text=True, check=False
    )
    assert completed.returncode == 0, completed.stderr
    assert completed.stdout.strip() == "0 1 0 0 0 0 1 0 ['changed']"


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    values = np.random.default_rng(0).random((300, 4), dtype=np.float32)
    rows = pa.table(
        {"id": pa.array(range(300)), "v": pa.array(values.tolist(), pa.list_(pa.float32(), 4))}
    )
    path: Path = tmp_path_factory.mktemp("index") / "t.lance"
    lance.write_dataset(rows, str(path))
    return str(path)


def test_without_an_index_there_is_no_metric(uri: str) -> None:
    dataset = lance.dataset(uri)
    dataset.create_scalar_index("id", "BTREE", replace=True)
    assert index_metric(dataset, "id") is None
    assert index_metric(dataset, "v") is None


@pytest.mark.parametrize("metric", ["l2", "cosine", "dot"])
def test_the_metric_of_a_vector_index(uri: str, metric: str) -> None:
    dataset = lance.dataset(uri)
    dataset.create_index("v", "IVF_FLAT", num_partitions=1, metric=metric, replace=True)
    assert index_metric(lance.dataset(uri), "v") == metric


def test_without_version_or_tag_the_latest_is_read(
    orders: lance.LanceDataset, rows: Callable[[int, int], pa.Table]
) -> None:
    orders.insert(rows(100, 101))
    assert observe_at(orders.uri, None, None).version == 2
    assert observe_at(orders.uri, 1, None).version == 1


def test_a_tag_means_its_version(
    orders: lance.LanceDataset, rows: Callable[[int, int], pa.Table]
) -> None:
    orders.insert(rows(100, 101))
    orders.tags.create("before", 1)
    orders.tags.create("after", 2)
    assert observe_at(orders.uri, None, "before").version == 1
    assert observe_at(orders.uri, None, "after").version == 2


def test_version_and_tag_together_are_refused() -> None:
    with pytest.raises(UsageError) as caught:
        observe_at("t.lance", 3, "before")
    assert caught.value.code == "LS410"
    assert caught.value.message == "both version 3 and tag 'before' are given for t.lance"


def test_an_unknown_tag_names_the_others(orders: lance.LanceDataset) -> None:
    with pytest.raises(LakeError) as caught:
        observe_at(orders.uri, None, "before")
    assert (caught.value.code, caught.value.hint) == ("LS208", "the dataset has no tags")
    orders.tags.create("before", 1)
    orders.tags.create("zero", 1)
    with pytest.raises(LakeError) as caught:
        observe_at(orders.uri, None, "befor")
    assert caught.value.message == f"{orders.uri} has no tag 'befor'"
    assert caught.value.hint == "did you mean 'before'? tags: before, zero"


def test_a_long_list_of_tags_is_shortened(orders: lance.LanceDataset) -> None:
    for number in range(12):
        orders.tags.create(f"t{number:02}", 1)
    with pytest.raises(LakeError) as caught:
        observe_at(orders.uri, None, "/ '")
    assert caught.value.hint is not None
    assert caught.value.hint.endswith("t09 and 2 more")


def test_a_tag_is_never_looked_up_in_one_dataset_and_read_in_another(
    orders: lance.LanceDataset,
    rows: Callable[[int, int], pa.Table],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The dataset is dropped and created again before each call of Lance."""
    orders.insert(rows(100, 101))
    orders.tags.create("before", 1)
    uri, open_dataset, codes = orders.uri, lance.dataset, []

    def replaced_before(moment: int) -> Callable[..., lance.LanceDataset]:
        moments = iter(range(10))

        def open_later(*arguments: Any, **options: Any) -> lance.LanceDataset:
            if next(moments) == moment:
                shutil.rmtree(uri)
                lance.write_dataset(rows(900, 901), uri)
                lance.write_dataset(rows(901, 902), uri, mode="append")
            return open_dataset(*arguments, **options)

        return open_later

    for moment in range(1, 4):
        shutil.rmtree(uri)
        lance.write_dataset(rows(0, 100), uri)
        lance.write_dataset(rows(100, 101), uri, mode="append").tags.create("before", 1)
        monkeypatch.setattr(lance, "dataset", replaced_before(moment))
        with pytest.raises(LakeError) as caught:
            observe_at(uri, None, "before")
        monkeypatch.undo()
        codes.append(caught.value.code)
    assert codes == ["LS209"] * 3


def test_a_tag_of_a_branch_is_refused(
    orders: lance.LanceDataset, rows: Callable[[int, int], pa.Table]
) -> None:
    branch = orders.create_branch("aside")
    branch.insert(rows(100, 101))
    orders.tags.create("aside-2", ("aside", 2))
    with pytest.raises(LakeError) as caught:
        observe_at(orders.uri, None, "aside-2")
    assert caught.value.code == "LS208"
    assert "is on branch 'aside'" in caught.value.message


@pytest.mark.parametrize("version", [0, -1, 2**63, True, 1.0, "1"])
def test_numbers_that_are_not_versions_are_refused(version: object) -> None:
    with pytest.raises(UsageError) as caught:
        observe_at("t.lance", version, None)  # type: ignore[arg-type]
    assert caught.value.code == "LS411"
    assert f"'{version}'" in caught.value.message


def test_versions_are_parsed_from_text() -> None:
    assert parse_version("12") == 12
    assert parse_version(" 007 ") == 7
    assert parse_version(str(2**63 - 1)) == 2**63 - 1


@pytest.mark.parametrize("text", ["", "latest", "-1", "0", "1.0", "1_0", "²", str(2**63), "9" * 99])
def test_texts_that_are_not_versions_are_refused(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_version(text)
    assert caught.value.code == "LS411"
