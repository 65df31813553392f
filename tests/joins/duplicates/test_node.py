"""Plans of near-duplicates, what is wrong with them, reports, pages, diffs and history."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

from lancestat.errors import InvalidProject, Location
from lancestat.joins.action import JoinFigures
from lancestat.joins.duplicates.action import DuplicatesFigures
from lancestat.joins.duplicates.node import DuplicatesNodes
from lancestat.joins.duplicates.record import GroupCounts, GroupSizes, decode_record
from lancestat.joins.duplicates.review import DuplicatesChange
from lancestat.joins.record import Accuracy, JoinCounts
from lancestat.nodes import NODE_TYPES
from lancestat.presentation.site.pages import build_site
from lancestat.report.duplicates import DuplicatesReport
from lancestat.review.evidence import Evidence
from lancestat.review.values import Mask, Risk, node_properties
from lancestat.review.values import changes as properties_changed
from lancestat.runs.actions import Reason
from lancestat.spec.model import Duplicates
from tests.joins.duplicates.shop import Shop, line, products
from tests.runs.world import Clock


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    return Shop.of(tmp_path, monkeypatch, products(line(1, 2, 3, 10, 11, 20)))


FAULTS: dict[str, tuple[dict[str, Any], str, str]] = {
    "vector": ({"vector": "w"}, "LS454", "names column 'w'"),
    "not vectors": ({"vector": "id"}, "LS455", "names 'id' as its vectors"),
    "key": ({"on": ["tenant", "shop"]}, "LS454", "names column 'shop'"),
    "no key": ({"on": ["tenant", "v"]}, "LS462", "rows with equal 'v', which is of type"),
    "order": ({"keep": {"order_by": ["id", "updatd desc"]}}, "LS454", "names column 'updatd'"),
    "unsortable": ({"keep": {"order_by": ["v"]}}, "LS465", "orders rows by 'v'"),
    "selected": ({"select": ["id", "name"]}, "LS454", "names column 'name'"),
    "filter": ({"where": "price > 0"}, "LS454", "names column 'price'"),
    "filter of vectors": ({"where": "v = 1"}, "LS461", "'where' of duplicates node 'same'"),
    "in the table": ({"output": {"lance": "products.lance/x"}}, "LS112", "would be written to"),
    "pairs in the table": ({"pairs": {"lance": "products.lance/x"}}, "LS112", "would be written"),
    "no table": ({"lance": "nothing.lance"}, "LS201", "nothing.lance"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_blocks_the_node_with_one_located_error(name: str, shop: Shop) -> None:
    changes, code, words = FAULTS[name]
    shop.declare(**changes)
    error = shop.refused()
    assert (error.code, words in error.message) == (code, True), error
    assert error.location is not None and error.location.file == "specs/shop.yml"
    assert "side" not in error.message


@pytest.mark.parametrize("key", ["output", "pairs"])
def test_a_node_does_not_write_to_its_table(key: str, shop: Shop) -> None:
    shop.declare(**{key: {"lance": "products.lance"}})
    with pytest.raises(InvalidProject, match="nodes read each other: same -> same"):
        _ = shop.project


def test_the_errors_of_columns_are_where_they_are_written(shop: Shop) -> None:
    path = shop.folder / "specs" / "shop.yml"
    project = shop.project
    path.write_text(
        "duplicates:\n"
        "  - name: same\n"
        "    lance: products.lance\n"
        "    vector: v\n"
        "    max_distance: 1\n"
        "    keep: {order_by: [id, updatd desc]}\n"
        "    output: {lance: same.lance}\n"
    )
    [action] = project.load(shop.folder).plan().actions
    assert action.error is not None
    assert action.error.location == Location("specs/shop.yml", 6, 27)
    assert action.error.hint == "did you mean 'updated'?"


@pytest.mark.parametrize("name", ["group_id", "is_kept", "_row_hash", "GROUP_ID"])
def test_columns_of_the_result_are_not_selected(name: str, shop: Shop) -> None:
    lance.dataset(shop.table).add_columns({name: "1"})
    shop.declare(select=["id", name])
    assert shop.refused().code == "LS451"
    shop.declare(select=None)
    assert shop.refused().code == "LS451"
    shop.declare(select=["id"])
    shop.settle()


def test_a_result_that_is_no_lance_dataset_has_no_duplicates(shop: Shop) -> None:
    join = {
        "name": "near",
        "left": {"lance": "products.lance", "vector": "v"},
        "right": {"lance": "products.lance", "vector": "v"},
        "k": 1,
        "output": {"parquet": "near"},
    }
    (shop.folder / "specs").mkdir()
    (shop.folder / "specs" / "joins.yml").write_text(json.dumps({"knn_joins": [join]}))
    shop.declare(lance=None, table="near")
    project = shop.project
    actions = {action.node: action for action in project.load(shop.folder).plan().actions}
    # While the join is to be run, nothing is known of its result.
    assert actions["same"].verb == "analyze"
    [action] = project.load(shop.folder).plan(select="same").actions
    assert action.error is not None
    assert (action.error.code, "needs a Lance table" in action.error.message) == ("LS463", True)


def test_nodes_that_read_the_result_come_after_it(shop: Shop) -> None:
    shop.declare(pairs={"lance": "pairs.lance"})
    project = shop.project
    tables = [{"name": name, "uri": f"{name}.lance"} for name in ("same_rows", "pairs")]
    tables[0]["uri"] = "same.lance"
    (shop.folder / "specs" / "tables.yml").write_text(json.dumps({"tables": tables}))
    project = project.load(shop.folder)
    plan = {action.node: action for action in project.plan().actions}
    assert plan["same_rows"].dependencies == plan["pairs"].dependencies == ("same",)
    result = project.run(project.plan())
    assert result.ok, [node.text for node in result.nodes]
    assert {node.name: node.rows_total for node in result.nodes if node.kind == "table"} == {
        "same_rows": 5,
        "pairs": 3,
    }


def test_figures_are_stored_and_shown() -> None:
    joined = JoinFigures("exact", "full", JoinCounts(9, 9, 2, 1), 36, Accuracy())
    figures = DuplicatesFigures(joined, GroupCounts(2, 5, 4))
    stored = figures.to_json()
    assert stored["redundant_rows"] == 3
    assert {"strategy", "scope", "pairs", "duplicate_groups"} <= stored.keys()
    again = NODE_TYPES["duplicates"].figures_of(json.loads(json.dumps(stored)))
    assert again == figures
    assert NODE_TYPES["duplicates"].figures_of({}) == DuplicatesFigures()
    assert figures.done == "exact, 9 rows, 36 pairs"
    assert figures.quality == (
        "2 groups of 5 rows",
        "3 rows could go",
        "4 pairs",
        "1 row without a usable vector or key",
    )


def test_sizes_of_groups_are_counted_by_powers_of_two() -> None:
    assert GroupSizes.of([2, 3, 4, 2, 5, 8, 9]) == GroupSizes((2, 2, 2, 1), (9, 8, 5, 4, 3, 2, 2))
    assert GroupSizes.of([]) == GroupSizes((), ())
    assert len(GroupSizes.of(range(2, 50)).largest) == 10


def test_records_are_read_back(shop: Shop) -> None:
    shop.settle()
    state = shop.project.state
    [(key, record)] = state.records("duplicates", decode_record).items()
    assert key == DuplicatesNodes().record_key(shop.project.spec.duplicates[0])
    assert (record.node, record.highest_id, record.counts) == ("same", 2, GroupCounts(2, 5, 3))
    with pytest.raises(ValueError, match="node"):
        decode_record("{}")


def test_status_pages_and_history_have_what_was_found(shop: Shop) -> None:
    [absent] = shop.project.report().nodes
    assert (absent.verdict, absent.made_at) == ("absent", None)
    shop.settle()
    shop.append(products(line(21)))
    shop.settle()
    project = shop.project
    [node] = project.report().nodes
    assert isinstance(node, DuplicatesReport)
    shown = node.to_json(Clock()())
    assert (shown["duplicate_groups"], shown["redundant_rows"], shown["rows"]) == (3, 4, 7)
    build_site(project.report(), project.spec, shop.folder / "site")
    page = (shop.folder / "site" / "duplicates" / "same.html").read_text("utf-8")
    for words in ("3 groups of 7 rows", "Sizes of groups", "3 to 4", "the first row of a group"):
        assert words in page
    assert "p10" not in page, "no values of rows"
    assert "Rows that could go" in (shop.folder / "site" / "index.html").read_text("utf-8")
    [kept] = project.state.history(None).values()
    history = [point.figures for point in kept]
    assert [figures["duplicate_groups"] for figures in history] == [2, 3]
    assert [figures["duplicate_pairs"] for figures in history] == [3, 4]


def test_retry_and_saved_plans_know_the_node(shop: Shop) -> None:
    project = shop.project
    project.save_plan(shop.folder / "plan.json")
    result = project.run(project.load_plan(shop.folder / "plan.json"))
    assert result.ok
    shop.append(products(line(21)))
    project.save_plan(shop.folder / "plan.json")
    project.load_plan(shop.folder / "plan.json")
    shop.append(products(line(22)))
    with pytest.raises(Exception, match="out of date"):
        project.load_plan(shop.folder / "plan.json")


def changed(shop: Shop, **changes: Any) -> DuplicatesChange:
    """Return a change of the declaration."""
    [old] = shop.project.spec.nodes
    shop.declare(**changes)
    [new] = shop.project.spec.nodes
    assert isinstance(old, Duplicates) and isinstance(new, Duplicates)
    before, after = (node_properties(node, {}, Mask()) for node in (old, new))
    return DuplicatesChange(old, new, properties_changed(before, after))


def risks(change: DuplicatesChange, shop: Shop) -> dict[Risk, str]:
    evidence = Evidence(shop.project.spec, Mask(), Clock()(), is_opened=False)
    return {note.risk: note.sentence for note in change.judge(evidence).risks}


def test_a_change_of_what_is_compared_costs_a_run(shop: Shop) -> None:
    found = risks(changed(shop, max_distance=2.0), shop)
    assert found[Risk.COST_INCREASED].startswith("the first run compares all rows again")
    assert changed(shop, on=["tenant"]).opened_uris(shop.project.spec) == (shop.table,)


def test_a_change_of_what_is_kept_or_shown_costs_nothing(shop: Shop) -> None:
    assert risks(changed(shop, keep={"order_by": ["id desc"]}), shop) == {
        Risk.JOIN_MEANING_CHANGED: "other rows are kept, since keep.order_by differs"
    }
    change = changed(shop, keep={"order_by": ["id desc"]}, select=["title"])
    assert not change.runs_again
    assert Risk.COST_INCREASED not in risks(change, shop)


def test_a_move_of_an_output_is_a_risk(shop: Shop) -> None:
    moved = risks(changed(shop, output={"lance": "other.lance"}), shop)
    assert "with new ids" in moved[Risk.OUTPUT_MOVED]
    moved = risks(changed(shop, pairs={"lance": "pairs.lance"}), shop)
    assert moved[Risk.OUTPUT_MOVED].startswith("the pairs are written")


def test_a_plan_says_what_is_read_and_why(shop: Shop) -> None:
    action = shop.pending()
    assert (action.verb, action.reasons) == ("analyze", (Reason.NEW,))
    assert action.reads.startswith("exact, 6 rows")
    assert [stage.name for stage in action.stages][-3:] == [
        "commit",
        "group pairs",
        "commit groups",
    ]
    shop.settle()
    shop.declare(keep={"order_by": ["id"]})
    action = shop.pending()
    assert (action.verb, action.reads, action.figures.pairs) == (
        "refresh",
        "the pairs of the last run",
        0,
    )
    shop.append(products(line(21)))
    action = shop.pending()
    assert action.join is not None
    assert all("side" not in note for note in action.notes)


def test_pairs_count_for_the_limit(shop: Shop) -> None:
    shop.declare(max_pairs=2)
    assert shop.action().verb == "analyze"


def test_a_table_without_columns_to_show_has_groups(shop: Shop) -> None:
    shop.declare(select=[])
    shop.settle()
    rows = lance.dataset(str(shop.folder / "same.lance")).to_table()
    assert rows.column_names == ["group_id", "is_kept", "_distance", "_row_hash"]
    assert isinstance(rows, pa.Table)
