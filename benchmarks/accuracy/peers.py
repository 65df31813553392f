"""What DuckDB and PostgreSQL expect of the same subplans, each as a query of its own."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb

from accuracy.datasets import Dataset
from accuracy.schemas import groups

# DuckDB's names of types whose names are others in PostgreSQL.
TYPES = {"DOUBLE": "double precision", "FLOAT": "real", "TINYINT": "smallint", "HUGEINT": "numeric"}
# PostgreSQL refuses to run as root; packages make this user.
USER = "postgres"
SETTINGS = ("fsync=off", "listen_addresses=", "max_parallel_workers_per_gather=0")
# Between the answers of one process of psql.
END = "-- end of an answer --"


def duckdb_rows(database: duckdb.DuckDBPyConnection, queries: Sequence[str]) -> list[float | None]:
    """Return the rows that DuckDB expects of each query over its own tables."""
    return [_duckdb_rows(database, query) for query in queries]


def _duckdb_rows(database: duckdb.DuckDBPyConnection, query: str) -> float | None:
    [(_, plan)] = database.execute(f"explain (format json) {query}").fetchall()
    [node] = json.loads(plan)
    while "Estimated Cardinality" not in node["extra_info"]:
        if node["name"].strip() not in ("PROJECTION", "FILTER") or len(node["children"]) != 1:
            return None
        [node] = node["children"]
    return float(node["extra_info"]["Estimated Cardinality"])


def has_postgres() -> bool:
    """Return whether PostgreSQL's server is installed, with psql."""
    return _server("postgres") is not None and shutil.which("psql") is not None


def _server(name: str) -> Path | None:
    """Return a program of the server, which Debian has in a folder of its own."""
    found = shutil.which(name)
    paths = [Path(found)] if found else sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    return paths[-1] if paths else None


class Postgres:
    """A running server, reached through a socket in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def run(self, script: str) -> str:
        """Return what psql prints for a script; what fails in it prints nothing."""
        command = ["psql", "-XAtq", "-h", str(self._folder), "-U", USER, "-d", "postgres"]
        ended = subprocess.run(command, input=script, capture_output=True, text=True, check=True)
        return ended.stdout

    def load(self, dataset: Dataset, database: duckdb.DuckDBPyConnection) -> None:
        """Copy the tables of a database, with statistics of the same groups of columns."""
        script = []
        for table, names in dataset.columns.items():
            described = database.execute(f"describe {table}").fetchall()
            columns = ", ".join(f"{name} {TYPES.get(kind, kind)}" for name, kind, *_ in described)
            file = self._folder / f"{table}.csv"
            database.execute(f"copy {table} to '{file}' (format csv, header false)")
            script += [
                f"drop table if exists {table};",
                f"create table {table} ({columns});",
                f"\\copy {table} from '{file}' csv",
                *(
                    f"create statistics on {', '.join(group)} from {table};"
                    for group in groups(table, names)
                ),
            ]
        self.run("\n".join([*script, "vacuum analyze;"]))
        for table in dataset.columns:
            (self._folder / f"{table}.csv").unlink()

    def rows(self, queries: Sequence[str]) -> list[float | None]:
        """Return the rows that PostgreSQL expects of each query, None where it refuses one."""
        script = "".join(f"explain (format json) {query};\n\\echo {END}\n" for query in queries)
        answers = self.run(script).split(END)[:-1]
        return [_postgres_rows(answer) for answer in answers]


def _postgres_rows(answer: str) -> float | None:
    if not answer.strip():
        return None
    [explained] = json.loads(answer)
    return float(explained["Plan"]["Plan Rows"])


@contextmanager
def postgres() -> Iterator[Postgres]:
    """Start a server of this process's own; it ends with the block."""
    initdb, server = _server("initdb"), _server("pg_ctl")
    user = USER if os.geteuid() == 0 else None
    with tempfile.TemporaryDirectory(prefix="lancestat-postgres-", dir="/tmp") as name:
        folder = Path(name)
        if user:
            owner = pwd.getpwnam(user)
            os.chown(folder, owner.pw_uid, owner.pw_gid)
        place = folder / "tables"
        options = " ".join([f"-k {folder}", *(f"-c {setting}" for setting in SETTINGS)])

        def call(*command: Any) -> None:
            subprocess.run(
                list(map(str, command)), check=True, stdout=subprocess.DEVNULL, user=user, cwd="/"
            )

        call(initdb, "-D", place, "-U", USER, "-A", "trust", "-E", "UTF8", "--no-locale")
        call(server, "-D", place, "-w", "-l", folder / "log", "-o", options, "start")
        try:
            yield Postgres(folder)
        finally:
            call(server, "-D", place, "-m", "immediate", "stop")
