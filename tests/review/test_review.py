from __future__ import annotations

from pathlib import Path

import pytest

from lancestat.project import Project
from lancestat.review.values import Diff, NodeDiff, Risk
from tests.presentation.rendering import as_json, as_markdown, as_text
from tests.review.conftest import Lake, Repository, Sides, write

ORDERS = "tables:\n  - {name: orders, uri: s3://lake/orders.lance, columns: [a]}\n"
JOIN = """\
knn_joins:
  - name: like
    left: {table: orders, vector: v}
    right: {lance: s3://lake/r.lance, vector: v}
    k: 3
    output: {lance: s3://lake/like.lance}
"""


def only(diff: Diff) -> NodeDiff:
    [node] = diff.nodes
    return node


def risks(node: NodeDiff) -> set[Risk]:
    return {note.risk for note in node.risks}


def test_a_project_is_compared_by_the_library(repository: Repository) -> None:
    repository.commit({"specs/shop.yml": ORDERS})
    write(repository.top, {"specs/shop.yml": ORDERS.replace("[a]", "[a, b]")})
    node = only(Project.diff(repository.top, with_datasets=False))
    assert (node.name, risks(node)) == ("orders", {Risk.COST_INCREASED})


def test_readers_of_a_moved_dataset_are_named(sides: Sides) -> None:
    moved = ORDERS.replace("orders.lance", "elsewhere.lance")
    node = only(sides.diff(ORDERS + JOIN, moved + JOIN))
    assert node.name == "orders"
    assert Risk.DATASET_MOVED in risks(node)
    assert "read by like" in node.notes


def test_a_join_that_is_renamed_is_run_again(sides: Sides) -> None:
    renamed = JOIN.replace("name: like", "name: alike")
    node = only(sides.diff(ORDERS + JOIN, ORDERS + renamed, with_datasets=False))
    assert (node.previous_name, node.name) == ("like", "alike")
    assert risks(node) == {Risk.COST_INCREASED}
    assert node.cost_bytes is None


def test_a_table_replaced_by_a_join_of_its_name_is_two_nodes(sides: Sides) -> None:
    lone = JOIN.replace("table: orders", "lance: s3://lake/l.lance").replace("like", "orders")
    diff = sides.diff(ORDERS, lone, with_datasets=False)
    assert [(node.kind.value, node.change.value) for node in diff.nodes] == [
        ("knn_join", "added"),
        ("table", "removed"),
    ]


def test_a_uri_that_is_spelled_otherwise_has_not_moved(sides: Sides) -> None:
    spelled = ORDERS.replace("s3://lake/orders.lance", "s3a://lake//orders.lance/")
    node = only(sides.diff(ORDERS, spelled, with_datasets=False))
    assert Risk.DATASET_MOVED not in risks(node)


def test_the_dataset_of_base_is_read_where_that_of_head_is_missing(
    sides: Sides, lake: Lake
) -> None:
    lake.add("s3://lake/orders.lance", {"a": "bigint", "b_1": "bigint"})
    moved = ORDERS.replace("orders.lance", "new.lance").replace("[a]", "[a, b_*]")
    node = only(sides.diff(ORDERS, moved))
    assert node.columns is not None
    assert (node.columns.gained, node.columns.are_names) == (("b_1",), True)
    assert (node.cost_bytes, Risk.COST_INCREASED in risks(node)) == (None, True)
    assert any("is not opened" in note for note in node.notes)
    assert lake.asked == ["s3://lake/orders.lance"]


def test_a_value_of_the_environment_is_compared_but_not_shown(
    sides: Sides, monkeypatch: pytest.MonkeyPatch
) -> None:
    header = "name: shop\nvars: {}\ntargets: {dev: {}}\nspec_paths: [specs]\n"
    secret = "vars: {w: \"{{ env_var('W') }}/%s\"}"
    specs = ORDERS.replace("s3://lake", "\"{{ var('w') }}").replace("orders.lance", 'o.lance"')
    monkeypatch.setenv("W", "s3://hunter2")
    base, head = (
        {
            "lancestat_project.yml": header.replace("vars: {}", secret % side),
            "specs/shop.yml": specs,
        }
        for side in ("one", "two")
    )
    diff = sides.diff(base, head, with_datasets=False)
    text = as_text(diff)
    assert (
        "uri  {{ env_var('W') }}/o.lance -> {{ env_var('W') }}/o.lance with another value" in text
    )
    assert "hunter2" not in text + str(as_json(diff)) + repr(diff)
    assert Risk.DATASET_MOVED in diff.risks


def test_values_of_the_environment_in_named_parts_are_not_shown(
    sides: Sides, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET", "hunter2")
    monkeypatch.setenv("AGE", "77h")
    named = ORDERS.replace("columns: [a]", "columns: {set: keys}, policy: old") + (
        "column_sets:\n  - {name: keys, include: [\"{{ env_var('SECRET') }}\"]}\n"
        "policies:\n  - {name: old, allow.stale: {max_age: \"{{ env_var('AGE') }}\"}}\n"
    )
    diff = sides.diff(named, ORDERS, with_datasets=False)
    assert diff.risks == {Risk.STALENESS_TIGHTENED, Risk.COVERAGE_LOST, Risk.COST_INCREASED}
    text = as_text(diff) + as_markdown(diff) + str(as_json(diff))
    assert "hunter2" not in text
    assert "3 d" not in text
    assert "columns      {{ env_var('SECRET') }} -> a" in text


def test_differences_of_whitespace_are_reported(sides: Sides) -> None:
    side = "{sql: 'select v%sfrom t', vector: v}"
    base, head = (
        JOIN.replace("{table: orders, vector: v}", side % spaces) for spaces in (" ", "  ")
    )
    text = as_text(sides.diff(base, head, with_datasets=False))
    assert "left.sql  select v from t -> select v from t with other spaces" in text


def test_the_end_of_a_long_text_is_shown(sides: Sides) -> None:
    long = "words of a description that goes on " * 100
    base, head = (
        ORDERS.replace("columns", f"description: {long}{end}, columns") for end in ("one", "two")
    )
    text = as_text(sides.diff(base, head, with_datasets=False))
    assert "goes on one" in text
    assert "goes on two" in text


def test_a_moved_state_is_reported(sides: Sides) -> None:
    header = "name: shop\nvars: {}\ntargets: {dev: {state: s3://lake/state}}\n"
    diff = sides.diff(ORDERS, {"lancestat_project.yml": header, "specs/shop.yml": ORDERS})
    assert {change.name for change in diff.settings} == {"state"}
    assert "the state is elsewhere" in diff.notes[0]
    assert not diff.is_empty


def test_budgets_and_shared_monitors_are_settings(sides: Sides) -> None:
    base, head = (
        {
            "lancestat_project.yml": f"name: shop\nmonitors: [{monitors}]\n"
            f"targets: {{dev: {{budget: {{bytes: {bytes}, minutes: 30}}}}}}\n",
            "specs/shop.yml": ORDERS,
        }
        for monitors, bytes in (
            ("volume_anomalies", "1kB"),
            ("volume_anomalies: {severity: error}", "2kB"),
        )
    )
    text = as_text(sides.diff(base, head))
    assert "budget.bytes  1,000 -> 2,000\n" in text
    assert "monitors      volume_anomalies -> volume_anomalies (severity error)\n" in text
    assert "budget.minutes" not in text


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("[{call: shop:old}]", "[{call: shop:new}]"),
        ("[{call: shop:old}]", "[{webhook: 'https://hooks.example.org/hunter2'}]"),
        ("[{webhook: \"{{ env_var('UNSET') }}\"}]", "[{webhook: \"{{ env_var('OTHER') }}\"}]"),
    ],
)
def test_hooks_that_change_are_told_without_their_values(sides: Sides, old: str, new: str) -> None:
    base, head = (
        {
            "lancestat_project.yml": f"name: shop\nhooks: {{on_run_end: {hooks}}}\n"
            "targets: {dev: {}}\n",
            "specs/shop.yml": ORDERS,
        }
        for hooks in (old, new)
    )
    assert "hooks  (hidden) -> (hidden) with another value\n" in as_text(sides.diff(base, head))
    assert sides.diff(head, dict(head)).is_empty


def test_folders_of_sides_are_not_reported(sides: Sides, tmp_path: Path) -> None:
    local = ORDERS.replace("s3://lake", "deep")
    diff = sides.diff("tables: []", local)
    assert str(tmp_path / "head") not in as_text(diff)
    assert "uri          deep/orders.lance" in as_text(diff)
