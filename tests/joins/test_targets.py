"""Targets with the same state whose nodes have the same names, and results of their own."""

from __future__ import annotations

from pathlib import Path

import lance
import pytest
import yaml

from lancestat import Project
from lancestat.joins.search.work import JoinWork
from lancestat.runs.actions import OnStage
from lancestat.state.store import open_state
from tests.joins.duplicates.shop import DECLARED, line, products
from tests.joins.local import opened_locally
from tests.runs.world import scan_locally

TABLE = "{{ target.name }}/products.lance"
SIDE = {"lance": TABLE, "vector": "v", "select": ["id"]}
SPEC = {
    "duplicates": [
        {**DECLARED, "lance": TABLE, "output": {"lance": "{{ target.name }}/same.lance"}},
    ],
    "knn_joins": [
        {
            "name": f"near_{form}",
            "left": SIDE,
            "right": SIDE,
            "k": 2,
            "min_right_rows": 0,
            "output": {form: f"{{{{ target.name }}}}/near.{form}"},
        }
        for form in ("lance", "parquet")
    ],
}
NODES = ["same", "near_lance", "near_parquet"]


class Targets:
    """A project with two targets; `scopes` are those of the joins that were run."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.scopes = folder, list[str]()
        target = {"state": "state", "scratch": "scratch", "spark": {"master": "local[2]"}}
        declared = {"name": "shop", "targets": {"dev": target, "prod": target}}
        (folder / "specs").mkdir()
        (folder / "lancestat_project.yml").write_text(yaml.safe_dump(declared), "utf-8")
        (folder / "specs" / "shop.yml").write_text(yaml.safe_dump(SPEC), "utf-8")

    def open_join(self, work: JoinWork, on_stage: OnStage) -> object:
        self.scopes.append(work.scope.value)
        return opened_locally(str(self.folder / "scratch"), work, on_stage)

    def project(self, target: str) -> Project:
        return Project.load(self.folder, target=target)

    def run(self, target: str) -> list[str]:
        """Run one target, and return the scopes of its joins."""
        self.scopes.clear()
        self.project(target).run().raise_for_status()
        return self.scopes[:]

    def append(self, target: str, *ids: int) -> None:
        uri = str(self.folder / target / "products.lance")
        lance.write_dataset(products(line(*ids)), uri, mode="append")


@pytest.fixture
def targets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Targets:
    made = Targets(tmp_path)
    for name, ids in (("dev", (1, 2, 9)), ("prod", (1, 2, 3, 9))):
        lance.write_dataset(products(line(*ids)), str(tmp_path / name / "products.lance"))
    scan_locally(monkeypatch, open_join=made.open_join)
    assert made.run("dev") == made.run("prod") == ["full"] * 3
    return made


def test_each_target_knows_its_own_results(targets: Targets) -> None:
    for name in ("dev", "prod", "dev"):
        project = targets.project(name)
        assert [action.verb for action in project.plan().actions] == ["skip"] * 3
        assert project.plan(select="state:new state:modified").actions == ()
        assert targets.run(name) == []


def test_each_target_brings_its_own_results_up_to_date(targets: Targets) -> None:
    for name in ("dev", "prod"):
        targets.append(name, 4, 10)
        assert "full" not in targets.run(name)
    targets.append("dev", 5)
    assert "full" not in targets.run("dev")
    histories = open_state(str(targets.folder / "state")).history().values()
    rows = sorted([point.figures.get("rows") for point in points] for points in histories)
    assert rows == [[3, 5, 6], [4, 6], [6, 10, 12], [6, 10, 12], [8, 12], [8, 12]]


def test_garbage_collection_leaves_results_of_other_targets(targets: Targets) -> None:
    (targets.folder / "specs" / "shop.yml").write_text("knn_joins: []\n", "utf-8")
    assert targets.project("dev").collect_garbage().runs_dropped > 0
    (targets.folder / "specs" / "shop.yml").write_text(yaml.safe_dump(SPEC), "utf-8")
    assert targets.run("prod") == []
    targets.append("prod", 4)
    assert "full" not in targets.run("prod")
    assert targets.run("dev") == ["full"] * 3
