"""Why a side of a join cannot be written: its columns, or the scratch folder."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from lancestat.errors import RunError, ScratchUnusable, SideNotWritten
from lancestat.joins.search.metrics import L2
from lancestat.joins.spark.written_side import SideWriteOptions, _Writer


@pytest.mark.parametrize(
    ("column", "folder", "kind"),
    [
        (pa.array([[1]], pa.list_view(pa.int32())), "scratch", SideNotWritten),
        (pa.array([1]), "file/scratch", ScratchUnusable),
    ],
    ids=["a type that Lance lacks", "scratch below a file"],
)
def test_a_side_that_cannot_be_written_names_the_cause(
    tmp_path: Path, column: pa.Array, folder: str, kind: type[RunError]
) -> None:
    (tmp_path / "file").write_text("")
    vector = pa.array([[1.0, 2.0]], pa.list_(pa.float32(), 2))
    batch = pa.RecordBatch.from_arrays([column, vector], names=["c0", "vector"])
    options = SideWriteOptions(str(tmp_path / folder), "right", L2, False, {})

    with pytest.raises(kind, match="the right side cannot be written: OSError"):
        _Writer(options, 0).write([batch])
