"""True numbers of rows, counted once by DuckDB and kept in a Parquet file."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

# Rows are counted up to here, and for so many seconds: more of them are known to be too many.
MOST, LIMIT_SECONDS = 50_000_000, 60


def load(folder: Path, tables: Sequence[str]) -> duckdb.DuckDBPyConnection:
    """Return a database in memory that has the tables of a folder of Parquet files."""
    database = duckdb.connect()
    database.execute("set preserve_insertion_order = false")
    # Beyond that it spills; the rest is Spark's.
    database.execute("set memory_limit = '8GB'")
    database.execute(f"set temp_directory = '{folder / 'temporary'}'")
    for table in tables:
        database.execute(f"create table {table} as from '{folder / table}.parquet'")
    return database


class Truths:
    """The rows of queries over one dataset, by the content of its tables.

    As a context manager it writes what it has counted to the file, beside what was there.
    """

    def __init__(self, path: Path, database: duckdb.DuckDBPyConnection) -> None:
        self._path = path
        self.database = database
        self._data = _digest(database)
        self._known: dict[str, int] = {}
        if path.exists():
            table = pq.read_table(path)
            self._known = dict(zip(*table.to_pydict().values(), strict=True))
        self.counted = 0
        self.refused: dict[str, str] = {}

    def __enter__(self) -> Truths:
        return self

    def __exit__(
        self, kind: type | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.save()

    def rows(self, query: str, most: int = MOST) -> int:
        """Return the rows of a query, or `most` + 1 where they are more or too many to count.

        SQL that DuckDB refuses counts as that too; `refused` has the errors.
        """
        key = self._key(query, MOST)
        if key not in self._known and most < MOST:
            key = self._key(query, most)
        if key not in self._known:
            self._known[key] = self._count(query, most)
            self.counted += 1
        return min(self._known[key], most + 1)

    def _key(self, query: str, most: int) -> str:
        asked = query if most == MOST else f"{query}\nlimit {most}"
        return hashlib.sha256(f"{self._data}\n{asked}".encode()).hexdigest()[:24]

    def _count(self, query: str, most: int) -> int:
        counting = f"select count(*) from (select 1 from ({query}) limit {most + 1})"
        timer = threading.Timer(LIMIT_SECONDS, self.database.interrupt)
        timer.start()
        try:
            [(rows,)] = self.database.execute(counting).fetchall()
        except (duckdb.OutOfMemoryException, duckdb.InterruptException):
            return most + 1
        except duckdb.Error as error:
            self.refused[query] = str(error)
            return most + 1
        finally:
            timer.cancel()
        return int(rows)

    def save(self) -> None:
        """Write all truths to the file."""
        if self.counted:
            columns = {"query": list(self._known), "rows": list(self._known.values())}
            pq.write_table(pa.table(columns), self._path)


def _digest(database: duckdb.DuckDBPyConnection) -> str:
    """Return a digest of all rows of all tables, whatever their order."""
    digest = hashlib.sha256()
    tables = database.execute("select table_name from duckdb_tables() order by 1").fetchall()
    for (table,) in tables:
        columns = database.execute(f"describe {table}").fetchall()
        hashed = f"select count(*), sum(hash(t)::hugeint) from {table} t"
        rows = database.execute(hashed).fetchall()
        digest.update(repr((table, [column[:2] for column in columns], rows)).encode())
    return digest.hexdigest()
