from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from lancestat.errors import NotWritten, PlaceOccupied
from lancestat.lake.open import observe_dataset
from lancestat.scaffold import Scaffold
from lancestat.spec.schema import PROJECT_FILE

ROWS = pa.table({"x": [1, 2, 3]})


def names(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_the_project_file_is_written_last(tmp_path: Path) -> None:
    """A table that cannot be made leaves a folder that is not a project yet."""

    def rows() -> pa.Table:
        assert names(tmp_path) == set()
        raise MemoryError

    scaffold = Scaffold({PROJECT_FILE: "name: x\n", "specs/a.yml": ""}, tables={"t.lance": rows})
    with pytest.raises(MemoryError):
        scaffold.write(tmp_path)
    assert names(tmp_path) == set()


@pytest.mark.parametrize("content", ["mine", None])
def test_a_table_that_appears_while_its_rows_are_made_is_not_replaced(
    content: str | None, tmp_path: Path
) -> None:
    place = tmp_path / "t.lance"

    def rows() -> pa.Table:
        if content is None:
            place.write_text("mine")
        else:
            place.mkdir()
            (place / "x").write_text(content)
        return ROWS

    with pytest.raises(NotWritten, match=f"cannot write to {place}: "):
        Scaffold({PROJECT_FILE: "name: x\n"}, tables={"t.lance": rows}).write(tmp_path)
    assert names(tmp_path) == ({"t.lance"} if content is None else {"t.lance/x"})


def test_only_rows_of_the_same_values_pass_for_a_table_that_was_written(tmp_path: Path) -> None:
    tables = {"t.lance": lambda: ROWS}
    Scaffold({"a.txt": ""}, tables=tables).write(tmp_path)
    version = observe_dataset(str(tmp_path / "t.lance")).version
    Scaffold({"a.txt": ""}, tables=tables).write(tmp_path)
    assert observe_dataset(str(tmp_path / "t.lance")).version == version
    other = {"t.lance": lambda: pa.table({"x": [1, 2, 4]})}
    with pytest.raises(PlaceOccupied, match=r"already holds t\.lance"):
        Scaffold({"a.txt": ""}, tables=other).write(tmp_path)


def test_a_folder_that_cannot_be_written_to_is_named(tmp_path: Path) -> None:
    (tmp_path / "sample").write_text("a file")
    tables = {"sample/t.lance": lambda: ROWS}
    with pytest.raises(NotWritten, match=f"cannot write to {tmp_path}/sample"):
        Scaffold({PROJECT_FILE: "name: x\n"}, tables=tables).write(tmp_path)
    assert names(tmp_path) == {"sample"}
