"""Layouts of right sides that are kept from run to run, on Spark."""

from __future__ import annotations

import json
import logging
import re
import shutil
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa
import pytest

from lancestat.joins.action import BuildIndex, ExtendIndex, JoinAction, ReuseIndex
from lancestat.joins.scratch.kept_indexes import IndexStore
from lancestat.joins.spark.ivf import IndexKeeper, IvfIndex, IvfWriter
from lancestat.runs.result import NodeResult
from tests.examples import sample
from tests.integration.kept import (
    Shop,
    all_distances,
    always_in_lists,
    clustered,
    matrix,
    rows_of,
    untouched,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("always_in_lists")]

__all__ = ["always_in_lists"]


@pytest.fixture
def shop(spark: SparkSession, tmp_path: Path) -> Shop:
    return Shop(tmp_path)


def check_recall(shop: Shop, done: NodeResult, least: float = 0.88) -> None:
    """Check the result, and that the run has measured its recall."""
    truth = shop.check()
    assert truth >= least
    assert done.figures is not None
    assert done.figures.accuracy.recall == pytest.approx(truth, abs=0.02)


def test_a_run_over_an_unchanged_right_side_only_searches(shop: Shop) -> None:
    assert isinstance(shop.action().stages[1], BuildIndex)
    first = shop.run()
    assert shop.stages["near"] == ["prepare", "build index", "probe", "commit"]
    check_recall(shop, first, 0.9)
    [layout] = shop.layouts

    shop.forget("near")
    action = shop.action()
    assert action.stages[1] == ReuseIndex(action.decision.lists or 0, 4000)
    assert "a kept IVF index of 4,000 rows is searched" in action.decision.why
    with untouched(shop):
        second = shop.run()
    assert shop.stages["near"] == ["prepare", "reuse index", "probe", "commit"]
    assert shop.layouts == [layout]
    check_recall(shop, second)
    assert second.figures.counts == first.figures.counts
    assert not list(layout.glob("readers/*"))


def test_joins_over_one_right_side_share_a_layout(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.declare("other", {"select": ["id", "parity"]}, k=3, approx={"recall": 0.8})
    made = []
    publish = IndexStore.publish

    def counted(*arguments: Any) -> Any:
        made.append(publish(*arguments))
        return made[-1]

    monkeypatch.setattr(IndexStore, "publish", counted)
    # Both look for a layout before either of them makes one.
    together = threading.Barrier(2)
    build = IndexKeeper.build

    def at_once(*arguments: Any) -> Any:
        together.wait(60)
        return build(*arguments)

    monkeypatch.setattr(IndexKeeper, "build", at_once)
    plan = shop.project.plan(select="near other")
    assert [action.notes for action in plan.actions] == [
        (),
        ("'near' has the same right side, whose index is written once",),
    ]
    shop.run("near", "other")
    assert [stages[1] for stages in shop.stages.values()] == ["build index", "build index"]
    assert len(made) == len(shop.layouts) == 1
    assert shop.check("near") >= 0.88
    with untouched(shop):
        shop.run("near", "other")
    assert {tuple(stages) for stages in shop.stages.values()} == {
        ("prepare", "reuse index", "probe", "commit")
    }


def test_other_metrics_filters_and_vectors_have_layouts_of_their_own(shop: Shop) -> None:
    shop.declare("angles", metric="cosine")
    shop.declare("products", metric="dot")
    shop.declare("odd", {"where": "parity = 1"})
    shop.declare("second", {"vector": "other"})
    bits = {"vector": "bits", "select": ["id"]}
    shop.declare("bits", bits, left={"table": "l", **bits}, metric="hamming")
    names = ("near", "angles", "products", "odd", "second", "bits")
    for reuses in (False, True):
        shop.run(*names)
        assert all(("reuse index" in shop.stages[name]) is reuses for name in names)
        assert len(shop.layouts) == len(names)
        assert shop.check("angles", metric="cosine") >= 0.88
        assert shop.check("products", metric="dot") >= 0.88
        assert shop.check("odd", where="parity = 1") >= 0.88
        assert shop.check("second") >= 0.88
        assert shop.check("bits", metric="hamming") >= 0.88


def test_appended_rows_are_put_into_the_lists(shop: Shop) -> None:
    shop.run()
    [layout] = shop.layouts
    shop.append("r", clustered(300, 3), 4000)
    action = shop.action()
    assert action.stages[1] == ExtendIndex(action.decision.lists or 0, 4000, 300)
    assert "300 new rows are put into the lists of a kept IVF index of 4,000 rows" in (
        action.decision.why
    )
    done = shop.run()
    assert shop.stages["near"] == ["prepare", "extend index", "probe", "commit"]
    check_recall(shop, done, 0.88)
    assert any(id >= 4000 for found in shop.result().values() for id, _ in found)
    assert shop.layouts == [layout]
    with untouched(shop):
        shop.run()
    assert shop.stages["near"] == ["prepare", "reuse index", "probe", "commit"]
    assert shop.check() >= 0.88
    assert len(list(layout.glob("arrays-*"))) == 2
    assert shop.project.collect_garbage().indexes_dropped == 0
    assert len(list(layout.glob("arrays-*"))) == 1
    shop.run()
    assert shop.stages["near"] == ["prepare", "reuse index", "probe", "commit"]


def test_deleted_and_updated_rows_are_not_found(shop: Shop) -> None:
    shop.run()
    before = shop.result()
    found = {id for rows in before.values() for id, _ in rows}
    gone = sorted(found)[::5]
    lance.dataset(shop.uri("r")).delete(f"id in ({', '.join(map(str, gone))})")
    shop.forget("near")
    assert isinstance(shop.action().stages[1], ReuseIndex)
    done = shop.run()
    assert shop.stages["near"] == ["prepare", "reuse index", "probe", "commit"]
    check_recall(shop, done, 0.88)
    assert done.figures.counts.right_rows == 4000 - len(gone)

    moved = sorted(found - set(gone))[:50]
    rows = rows_of(clustered(50, 9)).set_column(0, "id", pa.array(moved))
    lance.dataset(shop.uri("r")).merge_insert("id").when_matched_update_all().execute(rows)
    shop.run()
    assert shop.stages["near"] == ["prepare", "extend index", "probe", "commit"]
    assert shop.check() >= 0.88


def test_rows_that_come_back_are_found(shop: Shop) -> None:
    table = lance.dataset(shop.uri("r"))
    version = table.version
    shop.run()
    nearest = {rows[0][0] for rows in shop.result().values()}
    table.delete(f"id in ({', '.join(map(str, sorted(nearest)))})")
    # This layout has none of the deleted rows.
    shop.run(full_refresh=True)
    assert shop.stages["near"] == ["prepare", "build index", "probe", "commit"]
    assert not nearest & {id for rows in shop.result().values() for id, _ in rows}
    lance.dataset(shop.uri("r"), version=version).restore()
    other = [id for id in range(4000) if id not in nearest][: len(nearest)]
    # As many rows are deleted as before, but other ones.
    lance.dataset(shop.uri("r")).delete(f"id in ({', '.join(map(str, other))})")
    shop.run()
    assert shop.check() >= 0.88
    assert nearest & {id for rows in shop.result().values() for id, _ in rows}


@pytest.mark.thorough
def test_compacted_fragments_are_put_in_again(shop: Shop) -> None:
    shop.run()
    for number in range(3):
        shop.append("r", clustered(50, 20 + number), 4000 + 50 * number)
    shop.run()
    lance.dataset(shop.uri("r")).optimize.compact_files(target_rows_per_fragment=1000)
    action = shop.action()
    assert action.stages[1] == ExtendIndex(action.decision.lists or 0, 4000, 150)
    shop.run()
    assert shop.check() >= 0.88
    lance.dataset(shop.uri("r")).optimize.compact_files()
    assert "100 % of its rows came after it was trained" in shop.action().decision.why
    shop.run()
    assert shop.stages["near"] == ["prepare", "build index", "probe", "commit"]
    assert shop.check() >= 0.88
    assert len(shop.layouts) == 1


@pytest.mark.parametrize("drift", sample(["far", "many", "deleted"], 1))
def test_a_layout_that_has_drifted_is_trained_again(shop: Shop, drift: str) -> None:
    shop.run()
    [before] = shop.layouts
    if drift == "far":
        shop.append("r", clustered(400, 3, shift=6.0), 4000)
        shop.run()
        assert shop.stages["near"] == ["prepare", "extend index", "probe", "commit"]
        expected = r"added rows are \d+\.\d times as far from its centroids as the first ones"
    elif drift == "many":
        shop.append("r", clustered(4200, 3), 4000)
        expected = "51 % of its rows came after it was trained"
    else:
        lance.dataset(shop.uri("r")).delete("id % 3 = 1")
        expected = "33 % of the rows in its lists are deleted"
    shop.forget("near")
    action = shop.action()
    assert isinstance(action.stages[1], BuildIndex)
    assert re.search(
        rf"a kept IVF index of .* is trained again, since {expected}", action.decision.why
    )
    shop.run()
    assert shop.stages["near"] == ["prepare", "build index", "probe", "commit"]
    assert shop.check() >= 0.88
    [after] = shop.layouts
    assert after != before and not before.exists()
    shop.run()
    assert shop.stages["near"] == ["prepare", "reuse index", "probe", "commit"]


def test_rows_that_cannot_match_are_counted_while_they_are_live(shop: Shop) -> None:
    rows = rows_of(clustered(40, 5), 4000)
    nothing = pa.nulls(40, rows.schema.field("emb").type)
    lance.write_dataset(rows.set_column(2, "emb", nothing), shop.uri("r"), mode="append")
    assert _excluded(shop.run()) == 40
    assert _excluded(shop.run()) == 40
    lance.dataset(shop.uri("r")).delete("id >= 4030 or id % 10 = 1")
    assert _excluded(shop.run()) == 27
    assert shop.stages["near"] == ["prepare", "reuse index", "probe", "commit"]
    lance.write_dataset(rows.set_column(2, "emb", nothing)[:5], shop.uri("r"), mode="append")
    assert _excluded(shop.run()) == 32
    assert shop.stages["near"] == ["prepare", "extend index", "probe", "commit"]


def _excluded(done: NodeResult) -> int | None:
    assert done.figures is not None
    return done.figures.counts.excluded_right_rows


def test_new_left_rows_are_searched_in_the_kept_layout(shop: Shop) -> None:
    shop.run()
    shop.append("l", clustered(200, 8), 300)
    plan = shop.project.plan(select="near")
    [action] = plan.actions
    assert isinstance(action, JoinAction) and action.work.scope.value == "new_left"
    assert isinstance(action.stages[1], ReuseIndex)
    [done] = shop.project.run(plan).nodes
    assert done.status == "success", done.message
    assert shop.check() >= 0.88


@pytest.mark.thorough
def test_new_left_rows_that_cannot_match_are_not_searched(shop: Shop) -> None:
    shop.run()
    nulls = pa.array([None] * 5, pa.list_(pa.float32(), 16))
    rows = rows_of(clustered(5, 8), 300).set_column(2, "emb", nulls)
    lance.write_dataset(rows, shop.uri("l"), mode="append")
    [done] = shop.project.run(shop.project.plan(select="near")).nodes
    assert done.status == "success", done.message
    assert done.figures is not None and done.figures.scope == "new_left"
    assert done.figures.counts.unmatched_left_rows == 5


def test_new_rows_do_not_make_the_recall_of_the_others_perfect(shop: Shop) -> None:
    shop.declare("near", approx={"nprobes": 1})
    first = shop.run()
    assert first.figures is not None and first.figures.accuracy.recall is not None
    assert first.figures.accuracy.recall < 0.995
    shop.append("r", clustered(3, 8), 4000)
    [done] = shop.project.run(shop.project.plan(select="near")).nodes
    assert done.figures is not None and done.figures.scope == "new_right"
    assert done.figures.accuracy == first.figures.accuracy
    shop.append("l", clustered(300, 8), 300)
    [done] = shop.project.run(shop.project.plan(select="near")).nodes
    assert done.figures is not None and done.figures.scope == "new_left"
    assert done.figures.accuracy.recall == pytest.approx(shop.check(), abs=0.02)


@pytest.mark.parametrize("seed", sample([2, 11], 1))
def test_the_recall_is_that_of_the_lists_that_were_visited(shop: Shop, seed: int) -> None:
    """Many centroids are equally near, and which of them are visited depends on their number."""
    random = np.random.default_rng(seed)
    right, left = (np.zeros((rows, 16), np.float32) for rows in (1500, 180))
    for vectors in (right, left):
        vectors[:, :2] = random.integers(-1, 2, (len(vectors), 8))[:, :2]
    shop.write("r", right)
    shop.write("l", left)
    shop.declare("near", k=1, metric="dot", approx={"recall": 0.99})
    nearest = np.argmin(1 - left @ right.T, axis=1)
    for _ in range(2):
        done = shop.run()
        found = {left: rows[0][0] for left, rows in shop.result().items()}
        truth = np.mean([found.get(number) == right for number, right in enumerate(nearest)])
        assert truth < 1
        assert done.figures is not None
        assert done.figures.accuracy.recall == pytest.approx(truth, abs=0.05)


@pytest.mark.parametrize("changes", sample([{}, {"k": 150}], 1))
def test_left_rows_get_k_rows_whatever_lists_have(shop: Shop, changes: dict[str, Any]) -> None:
    """The rows of some lists are gone, or k is more than a list has."""
    shop.declare("near", approx={"nprobes": 1}, **changes)
    k = changes.get("k", 10)
    shop.run()
    assert {len(rows) for rows in shop.result().values()} == {k} and len(shop.result()) == 300
    right = lance.dataset(shop.uri("r"))
    vectors = np.stack(right.to_table(["emb"])["emb"].to_pylist())
    centre = np.array(lance.dataset(shop.uri("l")).take([0], ["emb"])["emb"][0].as_py())
    gone = np.argsort(((vectors - centre) ** 2).sum(axis=1))[:600]
    right.delete(f"id in ({', '.join(map(str, gone))})")
    done = shop.run()
    assert shop.stages["near"] == ["prepare", "reuse index", "probe", "commit"]
    assert {len(rows) for rows in shop.result().values()} == {k} and len(shop.result()) == 300
    assert done.figures is not None and done.figures.counts.unmatched_left_rows == 0
    # So a later increment finds as many rows as follow from the counts.
    shop.append("r", clustered(3, 8), 4000)
    [done] = shop.project.run(shop.project.plan(select="near")).nodes
    assert done.figures is not None and done.figures.scope == "new_right"


DATA = "rows.lance/data/*.lance"


def _remove(path: Path) -> None:
    path.unlink()


def _truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def _lengthen(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\0" * 100)


def _mangle(path: Path) -> None:
    text = bytearray(path.read_bytes())
    for place in range(0, min(400, len(text))):
        text[place] ^= 0xFF
    path.write_bytes(bytes(text))


DAMAGES: dict[str, tuple[str, Callable[[Path], None]]] = {
    "rows missing": (DATA, _remove),
    "rows truncated": (DATA, _truncate),
    "rows longer": (DATA, _lengthen),
    "arrays missing": ("arrays-*.lance/data/*.lance", _remove),
    "arrays mangled": ("arrays-*.lance/data/*.lance", _mangle),
    "no version": ("rows.lance/_versions/*.manifest", _remove),
    "manifest truncated": ("index.json", _truncate),
    "manifest mangled": ("index.json", _mangle),
}


@pytest.mark.parametrize("damage", sample(list(DAMAGES), 1))
def test_damage_is_seen_and_costs_time_only(
    shop: Shop, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    shop.run()
    [before] = shop.layouts
    pattern, strike = DAMAGES[damage]
    for path in before.glob(pattern):
        strike(path)
    with caplog.at_level(logging.INFO, "lancestat"):
        shop.run()
    assert "is not used" in caplog.text
    assert "build index" in shop.stages["near"] and "reuse index" not in shop.stages["near"]
    assert shop.check() >= 0.88
    assert shop.layouts and before not in shop.layouts
    shop.run()
    assert shop.stages["near"] == ["prepare", "reuse index", "probe", "commit"]


@pytest.mark.thorough
def test_another_dataset_in_its_place_is_no_layout(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    shop.run()
    [before] = shop.layouts
    shutil.rmtree(before / "rows.lance")
    lance.write_dataset(rows_of(clustered(4000, 4)), str(before / "rows.lance"))
    shop.run()
    assert "the kept index is damaged, and is not used" in caplog.text
    assert shop.check() >= 0.88


def test_a_layout_that_breaks_while_it_is_searched_costs_time_only(
    shop: Shop, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.run()
    [before] = shop.layouts
    # The files vanish after the join has looked at them.
    monkeypatch.setattr(IndexStore, "damage", lambda self, kept: None)
    for path in before.glob(DATA):
        path.unlink()
    shop.run()
    assert "'near' is planned again, without the kept index" in caplog.text
    assert shop.check() >= 0.88
    [after] = shop.layouts
    assert after != before


@pytest.mark.thorough
def test_a_format_of_a_later_release_is_left_alone(shop: Shop) -> None:
    shop.run()
    [before] = shop.layouts
    manifest = before / "index.json"
    stored = json.loads(manifest.read_text())
    manifest.write_text(json.dumps({**stored, "format_version": 99}))
    shop.run()
    assert "build index" in shop.stages["near"]
    assert shop.check() >= 0.88
    report = shop.project.collect_garbage()
    assert report.indexes_dropped == 0
    assert (before / "rows.lance").exists() and len(shop.layouts) == 2


def test_garbage_collection_sweeps_what_no_declared_join_can_use(shop: Shop) -> None:
    shop.declare("angles", metric="cosine")
    shop.run("near", "angles")
    other = Shop(shop.folder / "other")
    shutil.rmtree(other.folder / "r.lance")
    assert shop.project.collect_garbage().indexes_dropped == 0
    assert len(shop.layouts) == 2
    del shop.joins["angles"]
    shop.save()
    dry = shop.project.collect_garbage(dry_run=True)
    assert dry.indexes_dropped == 1 and dry.bytes > 4000 * 4 * 16
    assert len(shop.layouts) == 2
    assert shop.project.collect_garbage() == dry
    assert len(shop.layouts) == 1
    # An exact join needs none.
    shop.declare("near", mode="exact", approx=None)
    del shop.joins["near"]["approx"]
    shop.save()
    assert shop.project.collect_garbage(dry_run=True).indexes_dropped == 1
    shop.declare("near")
    assert shop.project.collect_garbage().indexes_dropped == 0
    # Other content of the same table.
    shop.write("r", clustered(4000, 12))
    assert shop.project.collect_garbage(dry_run=True).indexes_dropped == 1
    shutil.rmtree(shop.uri("r"))
    assert shop.project.collect_garbage().indexes_dropped == 1
    assert not shop.layouts


def test_garbage_collection_leaves_what_others_use(shop: Shop) -> None:
    shop.run()
    [recorded] = shop.project.state.runs(1)
    [layout] = shop.layouts
    store = IndexStore(str(shop.folder / "scratch"))
    kept = store.find(layout.parent.name)
    assert kept is not None
    del shop.joins["near"]
    shop.save()
    with store.held(kept) as held:
        assert held == kept
        assert shop.project.collect_garbage().indexes_dropped == 0
        assert shop.layouts == [layout]
    moved = layout.parent.rename(layout.parent.parent / f"000000000000-{layout.parent.name[13:]}")
    assert shop.project.collect_garbage().indexes_dropped == 0, "it is another project's"
    moved.rename(layout.parent)
    shop.project.state.add_run(replace(recorded, run_id="other", target="other"))
    assert shop.project.collect_garbage().indexes_dropped == 0, "it may be another target's"
    shop.project.state.run_table.attempt(lambda runs: runs.delete("target like '%/other'"))
    assert shop.project.collect_garbage().indexes_dropped == 1


def test_runs_at_once_leave_one_layout(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has a lock of its own, as two processes have."""
    monkeypatch.setattr("lancestat.joins.spark.ivf.building_index", lambda *_: threading.Lock())
    shop.declare("other", k=3)
    for change in (False, True):
        if change:
            shop.append("r", clustered(100, 3), 4000)
        shop.run("near", "other")
        assert shop.check("near") >= 0.88
        assert shop.project.collect_garbage().indexes_dropped <= 1
        assert len(shop.layouts) == 1
        shop.run("near", "other")
        assert all("reuse index" in stages for stages in shop.stages.values())
        assert shop.check("near") >= 0.88


def counted_passes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of queries of each pass over the lists that only measures."""
    passes: list[int] = []
    sampled = IvfWriter._sampled

    def counting(self: IvfWriter, layout: IvfIndex, queries: Any) -> Any:
        passes.append(len(queries))
        return sampled(self, layout, queries)

    monkeypatch.setattr(IvfWriter, "_sampled", counting)
    return passes


@pytest.mark.parametrize(
    ("left_rows", "changes", "passes"),
    sample(
        [
            # One chunk of left rows: the search measures, and a pass chooses again.
            (300, {}, {7: [], 1: [192]}),
            # Two chunks: a pass comes first, with half of the sample while that is enough.
            (1200, {}, {7: [96], 1: [96, 192]}),
            (300, {"max_distance": 9.0}, {7: [96], 1: [96, 192]}),
        ],
        2,
    ),
)
def test_the_number_of_lists_to_visit_is_remembered_and_checked(
    left_rows: int,
    changes: dict[str, Any],
    passes: dict[int, list[int]],
    shop: Shop,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shop.write("l", clustered(left_rows, 1))
    shop.declare("near", approx={"recall": 0.999}, **changes)
    first = shop.run()
    assert first.figures is not None
    manifest = shop.layouts[0] / "index.json"
    stored = json.loads(manifest.read_text())
    chosen = {"k": 10, "recall": 0.999, "nprobes": first.figures.accuracy.nprobes}
    assert first.figures.accuracy.nprobes > 1
    assert stored["chosen"] == [chosen]
    made = counted_passes(monkeypatch)
    for remembered in (7, 1):
        changed = {**stored, "chosen": [{**chosen, "nprobes": remembered}]}
        manifest.write_text(json.dumps(changed))
        made.clear()
        done = shop.run()
        assert made == passes[remembered]
        assert done.figures is not None
        if not changes:
            truth = shop.check()
            assert truth >= 0.97
            assert done.figures.accuracy.recall == pytest.approx(truth, abs=0.02)
        # One list does not reach the recall, so that the number is chosen again.
        expected = remembered if remembered > 1 else chosen["nprobes"]
        assert done.figures.accuracy.nprobes == expected
        assert json.loads(manifest.read_text())["chosen"][0]["nprobes"] == expected
        # Nothing is left of a search that visited too few lists.
        fragments = lance.dataset(shop.uri("near")).get_fragments()
        files = {file.path for part in fragments for file in part.data_files()}
        assert {path.name for path in Path(shop.uri("near"), "data").iterdir()} == files


def test_a_declared_number_of_lists_is_visited_and_its_recall_measured(shop: Shop) -> None:
    shop.declare("near", approx={"nprobes": 2})
    for _ in range(2):
        done = shop.run()
        assert done.figures is not None and done.figures.accuracy.nprobes == 2
        assert done.figures.accuracy.recall == pytest.approx(shop.check(), abs=0.02)
    assert shop.stages["near"] == ["prepare", "reuse index", "probe", "commit"]
    assert json.loads((shop.layouts[0] / "index.json").read_text())["chosen"] == []


@pytest.mark.parametrize(
    ("options", "near"),
    sample(
        [
            ({"join": "left_outer", "right": {"where": "parity = 1"}}, 1.2),
            ({"join": "left_outer"}, 1.2),
            ({"metric": "cosine"}, 0.03),
            ({"right": {"table": "l"}, "pairs": "unordered"}, 1.2),
            ({"right": {"table": "l"}, "exclude_self": True, "join": "left_outer"}, 1.2),
            ({"metric": "hamming", "vector": "bits"}, 1),
        ],
        2,
    ),
    ids=str,
)
def test_all_pairs_within_a_distance_are_searched_in_lists(
    shop: Shop, options: dict[str, Any], near: float
) -> None:
    vector, right = options.pop("vector", "emb"), options.pop("right", {})
    shop.write("l", clustered(1500, 1))
    left = {"table": "l", "vector": vector, "select": ["id"]}
    shop.declare(
        "near", {"vector": vector, **right}, left=left, k="all", max_distance=near, **options
    )
    for stage in ("build index", "reuse index"):
        done = shop.run()
        assert shop.stages["near"] == ["prepare", stage, "probe", "commit"]
        accuracy = done.figures.accuracy
        found = shop.result()
        of_right = lance.dataset(shop.uri(right.get("table", "r")))
        sides = (
            lance.dataset(shop.uri("l")).to_table(),
            of_right.to_table(filter=right.get("where")),
        )
        distances = all_distances(
            *(matrix(rows[vector]) for rows in sides), options.get("metric", "l2")
        )
        if right.get("table") == "l":
            rows = np.arange(len(distances))
            others = rows[:, None] < rows if "pairs" in options else rows[:, None] != rows
            distances = np.where(others, distances, np.inf)
        ids = sides[1]["id"].to_numpy()
        true = {
            (int(one), int(ids[other])) for one, other in np.argwhere(distances <= near).tolist()
        }
        pairs = [(one, other) for one, rows in found.items() for other, _ in rows]
        matched = [pair for pair in pairs if pair[1] is not None]
        assert len(set(pairs)) == len(pairs)
        assert set(matched) <= true
        assert len(matched) >= 0.85 * len(true) > 100
        assert accuracy.recall is not None and abs(accuracy.recall - len(matched) / len(true)) < 0.1
        alone = {one for one, other in pairs if other is None}
        outer = set(range(1500)) - {one for one, _ in matched}
        assert alone == (outer if "join" in options else set())
    # Joins of the nearest neighbours need other numbers of lists.
    [layout] = shop.layouts
    chosen = json.loads((layout / "index.json").read_text())["chosen"]
    assert [(known["k"], known["recall"]) for known in chosen] == [(0, 0.9)]
