"""Spark quotes pieces of queries, in which values of the environment are not found."""

from __future__ import annotations

from pathlib import Path

import lance
import pytest

from lancestat import Project
from lancestat.errors import SideUnreadable
from lancestat.joins.search.work import JoinOutcome, JoinWork
from lancestat.runs.actions import OnStage
from tests.joins.joined import opened, vectors
from tests.runs.local import scan_locally

PROJECT = "name: shop\ndefault_target: dev\ntargets: {dev: {state: state, scratch: scratch}}\n"
SPECS = """\
tables: [{name: l, uri: l.lance, columns: [id]}]
knn_joins:
  - name: near
    left: {table: l, vector: v}
    right: {sql: "select {{ env_var('%s') }} from {{ ref('l') }}", vector: v}
    k: 1
    output: {lance: near.lance}
"""
PIECE = "qzpiece"


def refuse(work: JoinWork, on_stage: OnStage) -> JoinOutcome:
    raise SideUnreadable(f"the right side cannot be read: syntax error at or near '{PIECE}'")


@pytest.mark.parametrize(
    ("variable", "is_secret"), [("W_QUERY", False), ("W_TOKEN", True), (None, False)]
)
def test_parts_of_a_query_are_shown_only_when_it_is_not_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str | None, is_secret: bool
) -> None:
    monkeypatch.setenv(variable or "W_OTHER", f"v, 1 as {PIECE}, 2 as b")
    lance.write_dataset(vectors(0, 10, name="v"), str(tmp_path / "l.lance"))
    specs = SPECS % variable if variable else SPECS.replace("{{ env_var('%s') }}", "v")
    (tmp_path / "lancestat_project.yml").write_text(PROJECT)
    (tmp_path / "specs").mkdir()
    (tmp_path / "specs" / "shop.yml").write_text(specs)
    scan_locally(monkeypatch, lambda node: None, opened(refuse))

    project = Project.load(tmp_path)
    node = project.run().nodes[-1]
    message = node.message or ""
    assert node.code == "LS555"
    assert (PIECE in message) is not is_secret
    stored = project.state.outcomes("dev", 1)["near"][0].nodes[0].result
    remembered = stored["message"]
    assert stored["code"] == "LS555"
    assert (PIECE in remembered) is (variable is None)
    if variable:
        assert f"env_var('{variable}')" in remembered
