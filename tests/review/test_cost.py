"""Bytes of the first run, compared with a plan over real tables and a real state."""

from __future__ import annotations

from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest

from lancestat.errors import StateUnreachable
from lancestat.lake.fingerprint import column_groups, field_key
from lancestat.lake.open import observe_snapshots
from lancestat.project import Project
from lancestat.review.values import Diff, NodeDiff, Risk
from lancestat.state.values import StoredPartials, table_identity
from lancestat.tables.action import TableAction
from lancestat.tables.statistics.kernel import analyze
from lancestat.tables.stored import add_partials
from tests.review.conftest import NOW, write
from tests.review.pairs import review

ROWS = 5000


@pytest.fixture
def root(tmp_path: Path) -> Path:
    numbers = np.arange(ROWS)
    table = pa.table(
        {
            "o_key": pa.array(numbers, pa.int64()),
            "o_price": pa.array(numbers / 7, pa.float64()),
            "o_text": pa.array([f"order number {number}" for number in numbers], pa.string()),
        }
    )
    for start in (0, ROWS // 2):
        lance.write_dataset(
            table.slice(start, ROWS // 2), str(tmp_path / "head/orders.lance"), mode="append"
        )
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(80), pa.float32()), 8)
    parts = pa.table({"p_key": pa.array(range(10), pa.int64()), "p_vector": vectors})
    lance.write_dataset(parts, str(tmp_path / "head/parts.lance"))
    return tmp_path


def orders(columns: str, *more: str) -> str:
    lines = "".join(f"    {line}\n" for line in more)
    return f"tables:\n  - name: orders\n    uri: orders.lance\n    columns: {columns}\n{lines}"


def join(k: int, right: str = "{lance: parts.lance, vector: p_vector, select: [p_key]}") -> str:
    return (
        "knn_joins:\n  - name: like\n    left: {lance: parts.lance, vector: p_vector}\n"
        f"    right: {right}\n    k: {k}\n    output: {{lance: like.lance}}\n"
    )


HEADER = "name: shop\nvars: {}\ndefault_target: dev\ntargets: {dev: {}}\n"


def compare(root: Path, base: str, head: str) -> Diff:
    for name, text in (("base", base), ("head", head)):
        files = {"lancestat_project.yml": HEADER, "specs/shop.yml": text}
        write(root / name, files)
    return review(root / "head", f"{root}/base", clock=lambda: NOW)


def only(diff: Diff) -> NodeDiff:
    [node] = diff.nodes
    return node


def planned_bytes(root: Path) -> int:
    """Return the bytes that a run of HEAD reads according to `lancestat plan`."""
    [action] = Project.load(root / "head").plan(select="orders").actions
    assert isinstance(action, TableAction)
    return action.figures.bytes_scanned


def test_a_new_table_costs_the_bytes_of_its_first_plan(root: Path) -> None:
    # A dataset is opened only where BASE reads it already.
    base = join(3).replace("left: {lance: parts.lance", "left: {lance: orders.lance")
    [node] = compare(root, base, orders("all") + base).nodes
    assert node.cost_bytes == planned_bytes(root) > 0
    assert node.columns is not None
    assert node.columns.gained == ("o_key", "o_price", "o_text")


def test_a_new_column_costs_its_own_bytes(root: Path) -> None:
    node = only(compare(root, orders("[o_key]"), orders("[o_key, o_price]")))
    assert node.cost_bytes is not None
    assert ROWS * 8 * 0.5 < node.cost_bytes < planned_bytes(root)


def test_columns_that_the_state_knows_cost_nothing(root: Path) -> None:
    remember(root, ["o_price"])
    node = only(compare(root, orders("[o_key]"), orders("[o_key, o_price]")))
    assert node.cost_bytes == 0
    assert Risk.COST_INCREASED not in {note.risk for note in node.risks}
    assert node.columns is not None
    assert node.columns.gained == ("o_price",)


def test_histograms_need_columns_read_again(root: Path) -> None:
    remember(root, ["o_key", "o_text"])
    names = "[o_key, o_text]"
    node = only(compare(root, orders(names), orders(names, "histogram: true")))
    # Text has no histogram.
    assert node.cost_bytes == planned_bytes(root) > 0


def test_an_unreadable_state_is_reported_and_everything_is_unknown(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remember(root, ["o_price"])
    from lancestat.state.store import LanceState

    def fail(self: LanceState, *_: object) -> None:
        raise StateUnreachable("the state cannot be reached")

    monkeypatch.setattr(LanceState, "records", fail)
    diff = compare(root, orders("[o_key]"), orders("[o_key, o_price]"))
    assert only(diff).cost_bytes
    assert "LS301 the state cannot be reached" in diff.notes[0]


def test_a_join_costs_the_bytes_of_its_sides(root: Path) -> None:
    node = only(compare(root, join(3), join(4)))
    size = observe_snapshots([("p", f"{root}/head/parts.lance")])["p"]
    assert not isinstance(size, Exception)
    assert node.cost_bytes == 2 * size.size_bytes


def test_a_side_of_files_costs_their_bytes(root: Path) -> None:
    import pyarrow.parquet as pq

    (root / "head/rows").mkdir()
    pq.write_table(pa.table({"v": [[0.5] * 8] * 9}), root / "head/rows/a.parquet")
    bytes_of_file = (root / "head/rows/a.parquet").stat().st_size
    node = only(compare(root, *(join(k, "{parquet: rows, vector: v}") for k in (3, 4))))
    size = observe_snapshots([("p", f"{root}/head/parts.lance")])["p"]
    assert not isinstance(size, Exception)
    assert node.cost_bytes == size.size_bytes + bytes_of_file


def test_a_query_costs_the_tables_that_it_names(root: Path) -> None:
    sql = "{sql: \"select o_key, o_price as v from {{ ref('orders') }}\", vector: v}"
    base = orders("[o_key]") + join(3)
    node = only(compare(root, base, orders("[o_key]") + join(3, sql)))
    snapshots = observe_snapshots(
        [(name, f"{root}/head/{name}.lance") for name in ("orders", "parts")]
    )
    sizes = [
        snapshot.size_bytes
        for snapshot in snapshots.values()
        if not isinstance(snapshot, Exception)
    ]
    assert node.cost_bytes == sum(sizes)


def remember(root: Path, names: list[str]) -> None:
    """Store the partials of some columns of orders."""
    write(root / "head", {"lancestat_project.yml": HEADER, "specs/shop.yml": orders("all")})
    project = Project.load(root / "head")
    uri = f"{root}/head/orders.lance"
    observed = observe_snapshots([("orders", uri)])["orders"]
    assert not isinstance(observed, Exception)
    fields = [field for field in observed.fields if field.name in names]
    dataset = lance.dataset(uri)
    schema = pa.schema([(field.name, field.type) for field in fields])
    rows = []
    for group in column_groups(observed, fields):
        fragment = dataset.get_fragment(group.fragment_id)
        partials = analyze(fragment.to_batches(columns=names), schema)
        keyed = {field_key(field): partials[field.name] for field in fields}
        rows.append(StoredPartials((group.fingerprint,), keyed))
    add_partials(project.state, table_identity(uri), rows)
