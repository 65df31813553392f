"""The datasets: TPC-H, TPC-DS, skew-H and a forum, as Parquet, as Lance and in a project."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import tpcds
import yaml
from joins import FRAGMENTS, PROJECT, read_query
from lineitem import generate, write_lance

import lancestat
from accuracy.forum import write_forum
from accuracy.schemas import Declared, declarations
from accuracy.skew import skew
from accuracy.truths import load
from accuracy.workloads import Workload

SEED = 27
# Queries that are drawn, those of the first two kinds in equal parts over each dataset.
CONJUNCTIONS, GROUPS, JOINS = 500, 200, 146
# Tables have a fragment for so many rows, up to eight.
FRAGMENT_ROWS, MOST_FRAGMENTS = 20_000, 8
# Part of the folder's name: a change of a generator makes the data anew.
GENERATION = 1
POLICY = {"name": "tolerant", "allow.stale": {"max_changed_rows": "5%"}}


@dataclass(frozen=True)
class Dataset:
    """Tables as `<table>.parquet` in a folder, and the queries that come with them."""

    name: str
    folder: Path
    # Names of columns by table.
    columns: Mapping[str, tuple[str, ...]]
    queries: Mapping[str, str]

    @property
    def by_columns(self) -> dict[frozenset[str], str]:
        """Names of tables by their columns, of which no two tables have the same."""
        return {frozenset(columns): table for table, columns in self.columns.items()}


def _tpch(scale: float, folder: Path) -> dict[str, str]:
    generate(str(scale), folder, list(FRAGMENTS))
    return {f"q{number:02}": read_query(number) for number in range(1, 23)}


def _skew(scale: float, folder: Path) -> dict[str, str]:
    queries = _tpch(scale, folder)
    skew(folder, SEED)
    return queries


def _tpcds(scale: float, folder: Path) -> dict[str, str]:
    _, queries = tpcds.generate(max(scale, tpcds.TINY_SCALE), folder)
    return {f"q{number:02}": query for number, query in queries.items()}


def _forum(scale: float, folder: Path) -> dict[str, str]:
    write_forum(folder, scale, SEED)
    return {}


GENERATORS: Mapping[str, Callable[[float, Path], dict[str, str]]] = {
    "tpch": _tpch,
    "tpcds": _tpcds,
    "skewh": _skew,
    "forum": _forum,
}


def prepare(name: str, scale: float, folder: Path, share: float = 1) -> Dataset:
    """Return a dataset, generated unless the folder has it.

    `share` is that of the queries which are drawn.
    """
    place = folder / f"{name}-{scale}-{share}-{GENERATION}"
    listed = place / "queries.json"
    if not listed.exists():
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        queries = GENERATORS[name](scale, place)
        queries |= _drawn(name, _columns(place), place, share)
        # Last: a folder that has it is complete.
        listed.write_text(json.dumps(queries))
    return Dataset(name, place, _columns(place), json.loads(listed.read_text()))


def _columns(folder: Path) -> dict[str, tuple[str, ...]]:
    paths = sorted(folder.glob("*.parquet"))
    return {path.stem: tuple(pq.read_schema(path).names) for path in paths}


def _drawn(
    name: str, columns: Mapping[str, Sequence[str]], folder: Path, share: float
) -> dict[str, str]:
    with load(folder, list(columns)) as database:
        workload = Workload(columns, database, f"{SEED} {name}")
        queries = workload.conjunctions(ceil(share * CONJUNCTIONS / len(GENERATORS)))
        queries |= workload.groups(ceil(share * GROUPS / len(GENERATORS)))
        if name == "forum":
            queries |= workload.joins(ceil(share * JOINS))
    return queries


def write_tables(dataset: Dataset, folder: Path) -> None:
    """Write the tables as `<table>.lance` to a folder."""
    for table in dataset.columns:
        parquet = dataset.folder / f"{table}.parquet"
        rows = pq.read_metadata(parquet).num_rows
        fragments = min(MOST_FRAGMENTS, 1 + rows // FRAGMENT_ROWS)
        write_lance(parquet, folder / f"{table}.lance", fragments=fragments)


def write_project(
    dataset: Dataset, folder: Path, cores: int, declared: Iterable[Declared] = ()
) -> lancestat.Project:
    """Write a project that declares the Lance tables of a folder, with all their columns.

    Readers take statistics of which up to 5 % of the rows have changed. `declared` are keys that
    every table gets of which something is known.
    """
    (folder / "specs").mkdir(exist_ok=True)
    project = PROJECT.format(cores=cores, partitions=4 * cores, folder=folder)
    (folder / "lancestat_project.yml").write_text(project)
    tables: list[dict[str, Any]] = [
        {
            "name": table,
            "uri": f"{table}.lance",
            "policy": POLICY["name"],
            **declarations(table, dataset.columns, declared),
        }
        for table in dataset.columns
    ]
    specs = yaml.safe_dump({"policies": [POLICY], "tables": tables}, sort_keys=False)
    (folder / "specs" / "tables.yml").write_text(specs)
    return lancestat.Project.load(folder)
