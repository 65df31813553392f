"""Every command of the page "Remove everything", in its order, on a project that has run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import lance
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lancestat.tables.wire import PREFIX
from tests.integration.commands import lancestat

pytestmark = pytest.mark.spark

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "uninstall.md"
BLOCK = re.compile(r"^```(console|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PROJECT = """\
name: shop
default_target: dev
targets: {dev: {spark: {master: "local[1]"}}}
"""
SPECS = """\
tables:
  - {name: orders, uri: orders.lance}
knn_joins:
  - name: similar
    left: {lance: items.lance, vector: v, select: [id]}
    right: {lance: items.lance, vector: v, select: [id]}
    k: 2
    output: {lance: similar.lance}
  - name: files
    left: {lance: items.lance, vector: v, select: [id]}
    right: {lance: items.lance, vector: v, select: [id]}
    k: 2
    output: {parquet: similar.parquet}
"""


def steps() -> Iterator[tuple[str, ...]]:
    """The commands and programs of the page, as they are run."""
    for language, block in BLOCK.findall(PAGE.read_text("utf-8")):
        if language == "python":
            yield sys.executable, "-c", block
            continue
        lines = block.splitlines()
        assert all(line.startswith("$ ") for line in lines), "the page shows commands alone"
        yield from (("sh", "-c", line[2:]) for line in lines)


def test_the_page_removes_all_that_lancestat_wrote_and_nothing_else(tmp_path: Path) -> None:
    folder, temporary, cache = (tmp_path / name for name in ("shop", "temporary", "cache"))
    for place in (folder / "specs", temporary, cache / "lancestat"):
        place.mkdir(parents=True)
    environment = {
        "TMPDIR": str(temporary),
        "XDG_CACHE_HOME": str(cache),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    vectors = pa.FixedSizeListArray.from_arrays(pa.array([1.0, 2.0, 3.0, 5.0], pa.float32()), 2)
    lance.write_dataset(pa.table({"id": [1, 2], "v": vectors}), str(folder / "items.lance"))
    lance.write_dataset(pa.table({"o_id": [1, 2, 3]}), str(folder / "orders.lance"))
    (folder / "lancestat_project.yml").write_text(PROJECT)
    (folder / "specs" / "shop.yml").write_text(SPECS)
    [run] = lancestat(folder, environment, ("run",))
    assert run.returncode == 0, run.stderr

    similar, files = folder / "similar.lance", folder / "similar.parquet"
    before = lance.dataset(str(similar)).to_table(), pq.read_table(files)
    assert b"lancestat.output" in lance.dataset(str(similar)).schema.metadata
    assert any(
        key.startswith(PREFIX) for key in lance.dataset(str(folder / "orders.lance")).config()
    )
    assert files.is_symlink() and (folder / ".lancestat").exists()
    (temporary / f"lancestat-{os.getuid()}").mkdir(exist_ok=True)

    for step in steps():
        ended = subprocess.run(
            step, cwd=folder, env={**os.environ, **environment}, capture_output=True, text=True
        )
        assert ended.returncode == 0, (step, ended.stdout, ended.stderr)

    after = lance.dataset(str(similar)).to_table(), pq.read_table(files)
    for old, new in zip(before, after, strict=True):
        assert new.replace_schema_metadata().equals(old.replace_schema_metadata())
    assert "lancestat" not in str(lance.dataset(str(similar)).schema.metadata)
    orders = lance.dataset(str(folder / "orders.lance"))
    assert orders.config() == {} and orders.count_rows() == 3
    assert files.is_dir() and not files.is_symlink()
    left = {path.name for path in folder.iterdir()}
    assert left == {
        *("items.lance", "orders.lance", "similar.lance", "similar.parquet"),
        *("lancestat_project.yml", "specs"),
    }
    assert [path for place in (temporary, cache) for path in place.iterdir()] == []
    assert not (similar / "_lancestat").exists()
