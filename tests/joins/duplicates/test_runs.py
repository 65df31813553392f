"""Runs of near-duplicates between changes of their table, without Spark."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import lancestat.joins.duplicates.run
from lancestat.errors import OutputOccupied
from lancestat.joins.output import lance_output
from lancestat.joins.output.lance_output import LanceOutput
from lancestat.runs.actions import Reason, needs_spark
from tests.joins.duplicates.shop import Shop, brute, line, products
from tests.joins.joined import distance

pytestmark = pytest.mark.whole


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    points = {**line(1, 2, 3, 10, 11, 20), 30: None}
    return Shop.of(tmp_path, monkeypatch, products(points))


def test_members_of_groups_are_written_with_the_row_that_is_kept(shop: Shop) -> None:
    figures = shop.settle()
    assert shop.rows() == [
        {
            "id": id,
            "title": f"p{id}",
            "group_id": group,
            "is_kept": distance is None,
            "_distance": distance,
            "_row_hash": row["_row_hash"],
        }
        for row, (id, group, distance) in zip(
            shop.rows(),
            # In a chain a distance may be over the largest one of a pair.
            [(1, 1, None), (2, 1, 1.0), (3, 1, 4.0), (10, 2, None), (11, 2, 1.0)],
            strict=True,
        )
    ]
    assert len({row["_row_hash"] for row in shop.rows()}) == 5
    counts = figures.counts
    assert counts is not None
    assert (counts.groups, counts.rows, counts.redundant_rows, counts.pairs) == (2, 5, 3, 3)
    assert [(pair["_row"], pair["_row_right"]) for pair in shop.pairs()] == [
        (0, 1),
        (1, 2),
        (1 << 32, (1 << 32) + 1),
    ]


@pytest.mark.parametrize(
    ("order_by", "kept"),
    [
        (["updated"], 2),
        (["updated desc"], 1),
        (["updated desc nulls first"], 3),
        (["updated nulls first", "id desc"], 4),
        (["title desc"], 4),
        (["tenant", "id desc"], 4),
        (["tenant"], 1),
    ],
)
def test_the_row_that_comes_first_is_kept(shop: Shop, order_by: list[str], kept: int) -> None:
    rows = products(line(1, 2, 3, 4), updated=[9, 1, None, None])
    lance.write_dataset(rows, shop.table, mode="overwrite")
    shop.declare(keep={"order_by": order_by})
    shop.settle()
    [(first, *others)] = shop.groups().values()
    assert first == kept
    assert others == sorted(others), "others are in row order"


def test_dictionaries_are_selected_and_ordered_as_their_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of a fragment are not those of others, and have more values than 8 bits number."""
    type, parts = pa.dictionary(pa.int8(), pa.string()), []
    for start in (0, 100):
        kinds = [f"{999 - id}" for id in range(start, start + 100)]
        rows = products(line(*range(start, start + 100)))
        parts.append(rows.append_column("kind", pa.array(kinds).dictionary_encode().cast(type)))
    shop = Shop.of(tmp_path, monkeypatch, parts[0])
    shop.append(parts[1])
    shop.declare(select=["id", "kind"], keep={"order_by": ["kind"]})
    shop.settle()
    kept, *others = shop.rows()
    assert (kept["id"], kept["kind"]) == (199, "800")
    assert [row["kind"] for row in others] == [f"{999 - id}" for id in range(199)]


def test_without_duplicates_the_result_is_empty(shop: Shop) -> None:
    shop.declare(max_distance=0.5)
    figures = shop.settle()
    assert shop.rows() == []
    assert figures.quality == ("no duplicates", "1 row without a usable vector or key")


def test_an_empty_table_has_no_duplicates(shop: Shop) -> None:
    lance.write_dataset(products({}), shop.table, mode="overwrite")
    shop.settle()
    assert shop.rows() == []


def test_groups_are_those_of_all_pairs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = np.random.default_rng(3)
    points: dict[int, Any] = {id: chosen.integers(0, 12, 2).astype(float) for id in range(40)}
    points[7] = None
    tenants = [chosen.choice(["a", "b", None]) for _ in points]
    rows = products(points, tenant=tenants)
    shop = Shop.of(tmp_path, monkeypatch, rows)
    lance.dataset(shop.table).delete("id % 9 = 4")
    for on in ([], ["tenant"]):
        for where in (None, "id < 30"):
            shop.declare(on=on or None, where=where)
            shop.settle()
            live = lance.dataset(shop.table).to_table(filter=where).to_pylist()
            expected = brute(live, 1.0, "l2", on)
            assert expected, "there is something to find"
            groups = [set(group) for group in shop.groups().values()]
            assert sorted(map(sorted, groups)) == sorted(map(sorted, expected))


def test_pairs_follow_any_change_of_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = np.random.default_rng(5)

    def some(first: int, count: int) -> pa.Table:
        ids = range(first, first + count)
        points: dict[int, Any] = {id: chosen.integers(0, 9, 2).astype(float) for id in ids}
        return products(points, tenant=[chosen.choice(["a", "b"]) for _ in ids])

    shop = Shop.of(tmp_path, monkeypatch, some(0, 40))
    shop.declare(on=["tenant"], where="id <> 7", pairs={"lance": "pairs.lance"})
    shop.settle()
    for step in range(1, 7):
        dataset = lance.dataset(shop.table)
        match step % 3:
            case 0:
                shop.append(some(100 * step, 3))
            case 1:
                dataset.delete(f"id % 13 = {step}")
            case _:
                merge = dataset.merge_insert("id").when_matched_update_all()
                merge.when_not_matched_insert_all().execute(some(3 * step, 4))
        shop.settle()
        rows = lance.dataset(shop.table).to_table(filter="id <> 7").to_pylist()
        groups = [set(group) for group in shop.groups().values()]
        assert sorted(map(sorted, groups)) == sorted(
            map(sorted, brute(rows, 1.0, "l2", ["tenant"]))
        )
        near = {
            (one["id"], other["id"])
            for one, other in combinations(rows, 2)
            if one["tenant"] == other["tenant"] and distance(one["v"], other["v"], "l2") <= 1.0
        }
        assert {(pair["id"], pair["id_right"]) for pair in shop.pairs()} == near
    assert {work.scope.value for work in shop.works[1:]} == {"changed"}


def test_ids_last_while_rows_come_and_go(shop: Shop) -> None:
    shop.settle()
    assert shop.groups() == {1: [1, 2, 3], 2: [10, 11]}
    shop.append(products(line(21, 12, 50, 51)))
    assert shop.pending().reasons == (Reason.ROWS_APPENDED,)
    shop.settle()
    assert shop.groups() == {1: [1, 2, 3], 2: [10, 11, 12], 3: [20, 21], 4: [50, 51]}
    # Two groups merge.
    shop.append(products(line(*range(4, 10))))
    shop.settle()
    assert list(shop.groups()) == [1, 3, 4]
    # And are apart again: the larger part keeps the id, the other one gets a new one.
    lance.dataset(shop.table).delete("id = 9")
    shop.settle()
    assert shop.groups() == {1: [1, 2, 3, 4, 5, 6, 7, 8], 3: [20, 21], 4: [50, 51], 5: [10, 11, 12]}
    lance.dataset(shop.table).delete("id >= 50")
    shop.settle()
    shop.append(products(line(60, 61)))
    shop.settle()
    assert list(shop.groups()) == [1, 3, 5, 6], "the id of the group that went is not used again"


def test_ids_outlast_the_state_and_a_refresh(shop: Shop) -> None:
    shop.settle()
    lance.dataset(shop.table).delete("id = 1 or id = 2")
    shop.settle()
    assert shop.groups() == {2: [10, 11]}
    shop.settle(full_refresh=True)
    assert shop.groups() == {2: [10, 11]}
    (shop.folder / "state").rename(shop.folder / "gone")
    shop.append(products(line(1, 2)))
    shop.settle()
    assert shop.groups() == {2: [10, 11], 3: [2, 3, 1]} | shop.groups()
    assert sorted(shop.groups()) == [2, 3]


def test_ids_outlast_a_result_that_is_removed(shop: Shop) -> None:
    shop.settle()
    (shop.folder / "same.lance").rename(shop.folder / "gone")
    assert shop.pending().reasons == (Reason.OUTPUT_MISSING,)
    shop.settle()
    assert sorted(shop.groups()) == [3, 4]


@pytest.mark.parametrize("stored", [None, "x", "[]", "{}"])
def test_damaged_metadata_does_not_bring_ids_back(shop: Shop, stored: str | None) -> None:
    shop.settle()
    lance.dataset(shop.table).delete("id >= 10")
    shop.settle()
    dataset = lance.dataset(str(shop.folder / "same.lance"))
    dataset.update_schema_metadata({"lancestat.duplicates": stored})
    shop.append(products(line(50, 51)))
    shop.settle()
    assert sorted(shop.groups()) == [1, 3]


def test_compaction_and_updates_of_other_columns_move_no_ids(shop: Shop) -> None:
    lance.dataset(shop.table).delete("id = 1")
    shop.settle()
    shop.append(products(line(0)))
    shop.settle()
    before = shop.groups()
    lance.dataset(shop.table).optimize.compact_files()
    shop.settle()
    assert shop.groups() == before
    lance.dataset(shop.table).update({"title": "'new'"}, where="id = 10 or id = 2")
    shop.settle()
    assert {id: sorted(ids) for id, ids in shop.groups().items()} == {
        id: sorted(ids) for id, ids in before.items()
    }
    assert {row["id"] for row in shop.rows() if row["title"] == "new"} == {2, 10}


def test_pairs_are_not_found_again_for_other_columns(shop: Shop) -> None:
    shop.settle()
    shop.works.clear()
    shop.declare(keep={"order_by": ["id desc"]})
    action = shop.pending()
    assert (action.join, action.reasons) == (None, (Reason.SPEC_CHANGED,))
    assert not needs_spark(action)
    shop.settle()
    assert shop.groups() == {1: [3, 1, 2], 2: [11, 10]}
    dataset = lance.dataset(shop.table)
    dataset.add_columns({"more": "id * 2"})
    shop.declare(select=["id", "more"])
    shop.settle()
    assert [row["more"] for row in shop.rows()] == [6, 2, 4, 22, 20]
    assert not shop.works


def test_a_column_of_the_result_that_is_rewritten_is_read_again(shop: Shop) -> None:
    shop.declare(select=["id", "more"])
    lance.dataset(shop.table).add_columns({"more": "id * 2"})
    shop.settle()
    shop.works.clear()
    dataset = lance.dataset(shop.table)
    dataset.drop_columns(["more"])
    lance.dataset(shop.table).add_columns({"more": "id * 3"})
    assert shop.pending().reasons == (Reason.INPUT_CHANGED,)
    shop.settle()
    assert [row["more"] for row in shop.rows()] == [3, 6, 9, 30, 33]
    assert not shop.works


def test_declared_pairs_have_the_selected_columns_of_both_rows(shop: Shop) -> None:
    shop.declare(pairs={"lance": "pairs.lance"})
    shop.settle()
    assert shop.pairs()[0] == {
        "id": 1,
        "title": "p1",
        "_row": 0,
        "id_right": 2,
        "title_right": "p2",
        "_row_right": 1,
        "_distance": 1.0,
    }
    shop.declare(select=None)
    shop.settle()
    assert {"tenant", "tenant_right", "_row"} < shop.pairs()[0].keys()


def test_pairs_that_are_gone_are_found_again(shop: Shop) -> None:
    shop.settle()
    (shop.folder / ".same.lance.pairs").rename(shop.folder / "gone")
    action = shop.pending()
    assert (action.reasons, action.join is None) == ((Reason.OUTPUT_MISSING,), False)
    shop.settle()
    assert shop.groups() == {1: [1, 2, 3], 2: [10, 11]}


def test_a_run_that_dies_after_the_pairs_leaves_the_groups(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.settle()
    before = shop.rows()
    shop.append(products(line(21)))

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(lancestat.joins.duplicates.run, "components", die)
        result = shop.project.run
        with pytest.raises(KeyboardInterrupt):
            result()
    assert shop.rows() == before
    assert len(shop.pairs()) == 4
    shop.settle()
    assert shop.groups() == {1: [1, 2, 3], 2: [10, 11], 3: [20, 21]}


@pytest.mark.parametrize("is_first", [False, True])
def test_groups_are_made_again_where_another_run_commits_right_before(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, is_first: bool
) -> None:
    """The other run has other new groups, and gives one of them the id that is free."""
    if not is_first:
        shop.settle()
    shop.append(products(line(21)))
    commit = LanceOutput._commit
    others: list[Any] = []

    def racing(self: LanceOutput, *arguments: Any, **options: Any) -> Any:
        if self.uri.endswith("same.lance") and not others:
            others.append(shop.groups)
            shop.append(products(line(30, 31)))
            lance.dataset(shop.table).delete("id = 21")
            assert shop.run().status == "success"
            others[0] = shop.groups()
        return commit(self, *arguments, **options)

    monkeypatch.setattr(LanceOutput, "_commit", racing)
    assert shop.run().status == "success"
    assert others == [{1: [1, 2, 3], 2: [10, 11], 3: [30, 31]}]
    assert shop.groups() == {1: [1, 2, 3], 2: [10, 11], 4: [20, 21]}
    shop.settle()
    assert shop.groups() == {1: [1, 2, 3], 2: [10, 11], 5: [30, 31]}


@pytest.mark.parametrize("place", ["same.lance", ".same.lance.pairs"])
def test_what_no_run_has_written_is_left_as_it_is(shop: Shop, place: str) -> None:
    rows = pa.table({"a": [1]})
    lance.write_dataset(rows, str(shop.folder / place))
    assert isinstance(shop.refused(), OutputOccupied)
    assert lance.dataset(str(shop.folder / place)).to_table().equals(rows)


def test_statistics_of_the_result_and_its_compaction_change_nothing(shop: Shop) -> None:
    shop.settle()
    dataset = lance.dataset(str(shop.folder / "same.lance"))
    dataset.update_config({"a": "b"})
    assert shop.action().verb == "skip"
    shop.append(products(line(21)))
    shop.settle()
    assert shop.groups() == {1: [1, 2, 3], 2: [10, 11], 3: [20, 21]}


def test_past_results_are_removed(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lance_output, "GRACE", -lance_output.GRACE)
    shop.declare(output={"lance": "same.lance", "keep": 2})
    for id in (21, 22, 23):
        shop.append(products(line(id)))
        shop.settle()
    versions = {
        place: len(lance.dataset(str(shop.folder / place)).versions())
        for place in ("same.lance", ".same.lance.pairs")
    }
    # The last update of the pairs is a commit of rows, and one of their mark.
    assert versions == {"same.lance": 2, ".same.lance.pairs": 2}


def test_rows_are_told_by_their_keys_and_vectors(shop: Shop) -> None:
    points = {1: (0.0, 0.0), 2: (-0.0, 0.0), 3: (0.0, 1.0), 4: (0.0, 0.0)}
    rows = products(points, tenant=["a", "a", "a", "b"])
    lance.write_dataset(rows, shop.table, mode="overwrite")
    shop.settle()
    hashes = {row["id"]: row["_row_hash"] for row in shop.rows()}
    assert hashes[1] == hashes[2] == hashes[4] != hashes[3]
    other = products({**points, 5: (0.0, 0.5)}, tenant=["a", "a", "a", "b", "b"])
    lance.write_dataset(other, shop.table, mode="overwrite")
    shop.declare(on=["tenant"])
    shop.settle()
    hashes = {row["id"]: row["_row_hash"] for row in shop.rows()}
    assert hashes[1] == hashes[2] != hashes[4]
