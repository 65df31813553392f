"""Columns that Lance cannot read by their names are left out, and what is refused is no damage."""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
import pytest

from lancestat.lake.snapshot import is_readable_name
from lancestat.project import Project


@pytest.mark.parametrize("name", ["*", "", "`", "a`b"])
def test_a_column_that_cannot_be_named_is_left_out_with_a_note(name: str, tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"a": [1, 2], name: [3, 4], "b": [5, 6]}), uri)
    (tmp_path / "specs").mkdir()
    (tmp_path / "lancestat_project.yml").write_text("name: shop\ntargets: {dev: {state: state}}\n")
    (tmp_path / "specs" / "t.yml").write_text("tables: [{name: t, uri: t.lance}]\n")
    project = Project.load(tmp_path)
    [action] = project.plan().actions
    [note] = action.notes
    why = "Lance cannot read a column of this name" if name else "a column without a name"
    assert note.startswith(f"column '{name}' skipped: {why}")
    [node] = project.run().nodes
    assert node.message is None, node.message
    assert project.show("t").analyzable == 2
    entries = lance.dataset(uri).config()
    assert entries["lance.stats.column.a.max"] == "2"
    assert entries["lance.stats.column.b.max"] == "6"
    assert not any(".column.*" in key or ".column.." in key or "`" in key for key in entries)


@pytest.mark.parametrize(
    "name", ["a*", "**", "a b", "count(*)", '"q"', "é", "\\", "_distance", " "]
)
def test_other_odd_names_are_read(name: str, tmp_path: Path) -> None:
    """Lance gives their values, so that none is left out without need."""
    uri = str(tmp_path / "t.lance")
    dataset = lance.write_dataset(pa.table({"a": [1], name: [2]}), uri)
    assert is_readable_name(name)
    table = dataset.get_fragments()[0].to_table(columns=["a", name])
    assert table.column(name).to_pylist() == [2]


@pytest.mark.parametrize("name", ["*", "", "`"])
def test_the_names_that_are_left_out_cannot_be_read(name: str, tmp_path: Path) -> None:
    dataset = lance.write_dataset(pa.table({"a": [1], name: [2]}), str(tmp_path / "t.lance"))
    assert not is_readable_name(name)
    with pytest.raises(Exception, match=r"Duplicate column|No field named"):
        dataset.get_fragments()[0].to_table(columns=["a", name])
