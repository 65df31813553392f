"""What joins write: sides in scratch, and batches of the result."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import lance
import numpy as np
import pyarrow as pa
import pytest

from lancestat.errors import RunError, ScratchUnusable, SideNotWritten
from lancestat.joins.output.writer import OutputWriter
from lancestat.joins.search.metrics import L2
from lancestat.joins.search.neighbours import Neighbours
from lancestat.joins.search.work import JoinKind, PinnedTable, Rows, VectorSide, output_names
from lancestat.joins.spark import materialize
from lancestat.joins.spark.materialize import Materializer, ProbedChunk, output_schema
from lancestat.joins.spark.sides import SideWriter
from lancestat.lake.open import snapshot

WIDTH = 200_000
LEFT, K = 400, 3


def side(path: Path, table: pa.Table, columns: tuple[str, ...]) -> VectorSide:
    lance.write_dataset(table, str(path), max_rows_per_file=150)
    pinned = PinnedTable.at(snapshot(lance.dataset(str(path)), str(path), {}))
    return VectorSide(pinned.pin, "v", columns, pinned.fragments, {})


def test_wide_columns_come_in_small_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [chr(97 + number % 26) * WIDTH for number in range(50)]
    left = side(tmp_path / "l", pa.table({"v": np.zeros(LEFT), "id": np.arange(LEFT)}), ("id",))
    right = side(tmp_path / "r", pa.table({"v": np.zeros(50), "text": texts}), ("text",))
    names = output_names(["id"], ["text"], with_rank=True)
    batches: list[pa.RecordBatch] = []
    output = SimpleNamespace(write=lambda _, number, schema, written: batches.extend(written))
    monkeypatch.setattr(materialize, "output_of", lambda writer: output)
    schema = output_schema(left, right, names, JoinKind.INNER)
    made = Materializer(left, right, names, JoinKind.INNER, schema, cast(OutputWriter, None))
    places = np.random.default_rng(1).integers(0, 50, (LEFT, K))
    distances = np.tile(np.arange(K, dtype=np.float32), (LEFT, 1))

    found = Neighbours(places, distances)
    made.write(0, [ProbedChunk(0, Rows(0, LEFT), np.ones(LEFT, np.bool_), found)])

    later = batches[1:]
    assert len(later) > 5
    assert max(batch.nbytes for batch in later) < 2 * (16 << 20)
    table = pa.Table.from_batches(batches)
    assert table["id"].to_pylist() == np.repeat(np.arange(LEFT), K).tolist()
    assert table["text"].to_pylist() == [texts[place] for place in places.ravel()]
    assert table["_rank"].to_pylist() == [1, 2, 3] * LEFT


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
    writer = SideWriter(str(tmp_path / folder), "right", L2, False, {})

    with pytest.raises(kind, match="the right side cannot be written: OSError"):
        writer.write(0, [batch])
