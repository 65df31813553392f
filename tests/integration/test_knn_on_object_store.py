"""A join whose sides, scratch, result and state are on S3, with credentials that are not shown."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import lance
import pyarrow as pa
import pytest
import yaml
from pyarrow.fs import FileSelector

from lancestat import Project
from tests.integration.kept import always_in_lists, clustered, rows_of
from tests.integration.object_store import (
    SECRET_KEY,
    ObjectStore,
)
from tests.joins.joined import vectors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["always_in_lists"]

pytestmark = [pytest.mark.s3, pytest.mark.spark]

SPECS = """\
tables: [{{name: l, uri: {root}/l.lance}}, {{name: r, uri: {root}/r.lance}}]
knn_joins:
  - name: near
    left: {{table: l, vector: v, select: [id]}}
    right: {{table: r, vector: w, select: [key]}}
    k: 2
    output: {{lance: {root}/near.lance}}
  - name: some
    left: {{table: near_left, vector: v, select: [id]}}
    right: {{sql: "select key, w from {{{{ ref('r') }}}} where id > 3", vector: w}}
    k: 1
    output: {{lance: {root}/some.lance}}
  - name: near_left
    left: {{table: l, vector: v, select: [id, v]}}
    right: {{table: r, vector: w, select: []}}
    k: 1
    output: {{lance: {root}/near_left.lance}}
"""


@pytest.fixture
def root(object_store: ObjectStore) -> str:
    return object_store.fresh_uri("warehouse")


@pytest.fixture
def project(object_store: ObjectStore, root: str, spark: SparkSession, tmp_path: Path) -> Project:
    for side, name, count in (("l", "v", 20), ("r", "w", 30)):
        write(object_store, f"{root}/{side}.lance", vectors(0, count, name=name), "create")
    declare_target(tmp_path, object_store, root)
    (tmp_path / "specs" / "s.yml").write_text(SPECS.format(root=root))
    return Project.load(tmp_path)


def declare_target(folder: Path, store: ObjectStore, root: str) -> None:
    target = {
        "state": f"{root}/state",
        "scratch": f"{root}/scratch",
        "storage_options": dict(store.storage_options),
    }
    project = {"name": "shop", "default_target": "dev", "targets": {"dev": target}}
    (folder / "lancestat_project.yml").write_text(yaml.safe_dump(project))
    (folder / "specs").mkdir()


def write(store: ObjectStore, uri: str, rows: pa.Table, mode: str) -> None:
    lance.write_dataset(rows, uri, mode=mode, storage_options=dict(store.storage_options))


def rows(store: ObjectStore, uri: str) -> int:
    return int(lance.dataset(uri, storage_options=dict(store.storage_options)).count_rows())


def test_joins_run_on_an_object_store(
    object_store: ObjectStore, root: str, project: Project
) -> None:
    result = project.run(project.plan("kind:knn_join"))
    assert {node.status for node in result.nodes} == {"success"}, result.nodes
    assert {action.verb for action in project.plan("kind:knn_join").actions} == {"skip"}
    assert rows(object_store, f"{root}/near.lance") == 2 * rows(object_store, f"{root}/some.lance")
    write(object_store, f"{root}/l.lance", vectors(50, 5, name="v"), "append")
    again = project.run(project.plan("kind:knn_join"))
    scopes = {node.name: node.figures.scope for node in again.nodes if node.figures}
    assert scopes == dict.fromkeys(("near", "some", "near_left"), "new_left"), again.nodes
    check_no_trace(object_store, root)


def check_no_trace(store: ObjectStore, root: str) -> None:
    """Scratch has only what joins keep, and no file but Lance's own holds anything secret."""
    files = store.filesystem()
    path = root.removeprefix("s3://")
    listing = files.get_file_info(FileSelector(path, recursive=True))
    scratch = [file.path for file in listing if file.is_file and "/scratch/" in file.path]
    assert scratch and all(path.split("/scratch/")[1].startswith("neighbours/") for path in scratch)
    for file in listing:
        if file.is_file:
            assert SECRET_KEY.encode() not in files.open_input_file(file.path).read()


def test_layouts_are_kept_on_an_object_store(
    object_store: ObjectStore, root: str, spark: SparkSession, tmp_path: Path, always_in_lists: None
) -> None:
    for side, count in (("l", 100), ("r", 2000)):
        write(object_store, f"{root}/{side}.lance", rows_of(clustered(count, count)), "create")
    declare_target(tmp_path, object_store, root)
    join = {
        "name": "near",
        "left": {"lance": f"{root}/l.lance", "vector": "emb", "select": ["id"]},
        "right": {"lance": f"{root}/r.lance", "vector": "emb", "select": ["id"]},
        "k": 10,
        "mode": "approx",
        "approx": {"recall": 0.9},
        "min_right_rows": 0,
        "output": {"lance": f"{root}/near.lance"},
    }
    (tmp_path / "specs" / "s.yml").write_text(yaml.safe_dump({"knn_joins": [join]}))
    project = Project.load(tmp_path)
    for stage, changed in (("build index", ""), ("reuse index", "l"), ("extend index", "lr")):
        for side in changed:
            more = rows_of(clustered(50, 3), 5000)
            write(object_store, f"{root}/{side}.lance", more, "append")
        if stage == "extend index":
            # A result that is there would be brought up to date without the index.
            object_store.filesystem().delete_dir(f"{root.removeprefix('s3://')}/near.lance")
        plan = project.plan()
        [action] = plan.actions
        assert [part.name for part in action.stages][1:3] == [stage, "probe"]
        [done] = project.run(plan).nodes
        assert done.status == "success", done.message
        assert done.figures is not None and (done.figures.accuracy.recall or 0) >= 0.85
    assert rows(object_store, f"{root}/near.lance") == 200 * 10
    assert project.collect_garbage().indexes_dropped == 0
    (tmp_path / "specs" / "s.yml").write_text("tables: []\n")
    assert Project.load(tmp_path).collect_garbage().indexes_dropped == 1
    check_no_trace(object_store, root)
