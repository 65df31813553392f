"""Measure a plan over the tables of a source of which nothing changed.

    python benchmarks/discovery.py [--tiny] [PART ...]

folder    a flat folder of 5,000 datasets
catalog   a directory catalog of 5,000 tables in 50 namespaces

Commands run as processes; their times are medians after a first run that is not counted. Processor
time is that of the process and its threads.
"""

from __future__ import annotations

import resource
import statistics
from collections.abc import Iterator
from pathlib import Path

from measure import LANCESTAT, process, run

_PROJECT = """\
name: many
targets:
  dev:
    state: .lancestat/state
    catalogs:
      lake: {{impl: dir, properties: {{root: {root}}}}}
"""


def folder(folder: Path, tiny: bool) -> Iterator[tuple[str, float]]:
    """Datasets side by side."""
    tables = 4 if tiny else 5_000
    root = folder / "warehouse"
    for number in range(tables):
        _write(root / f"table_{number:04}.lance")
    yield from _plans(folder, root, f"uri: {root}", tables, tiny)


def catalog(folder: Path, tiny: bool) -> Iterator[tuple[str, float]]:
    """Tables that a directory catalog knows by their names."""
    import lance_namespace

    tables, spaces = (4, 2) if tiny else (5_000, 50)
    root = folder / "warehouse"
    root.mkdir()
    client = lance_namespace.connect("dir", {"root": str(root)})
    for space in range(spaces):
        name = f"space_{space:02}"
        client.create_namespace(lance_namespace.CreateNamespaceRequest(id=[name]))
        for number in range(tables // spaces):
            wanted = lance_namespace.DeclareTableRequest(id=[name, f"table_{number:04}"])
            _write(client.declare_table(wanted).location or "")
    yield from _plans(folder, root, "catalog: lake", tables, tiny)


def _write(place: Path | str) -> None:
    import lance
    import pyarrow as pa

    rows = pa.table({"id": pa.array(range(40), pa.int64()), "name": ["a name"] * 40})
    lance.write_dataset(rows, str(place))


def _plans(
    folder: Path, root: Path, place: str, tables: int, tiny: bool
) -> Iterator[tuple[str, float]]:
    (folder / "lancestat_project.yml").write_text(_PROJECT.format(root=root))
    (folder / "specs").mkdir()
    (folder / "specs" / "sources.yml").write_text(f"sources:\n  - {place}\n")
    yield f"first run, {tables:,} tables, s", process([LANCESTAT, "run"], folder).seconds
    walls, processors = [], []
    for _ in range(1 if tiny else 6):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        ended = process([LANCESTAT, "plan"], folder)
        assert "Nothing to do" in ended.stdout
        walls.append(ended.seconds)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        processors.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    yield "plan, nothing changed, s", statistics.median(walls[1:] or walls)
    yield "  of which processor, s", statistics.median(processors[1:] or processors)


if __name__ == "__main__":
    run(__doc__ or "", {"folder": folder, "catalog": catalog}, {})
