"""Queries of the benchmark: seeded, with literals that are values of rows."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any

import duckdb

from accuracy.schemas import key_of

# Of which conditions and groups are drawn; rows of other tables are too few to be worth it.
LEAST_ROWS = 40
SAMPLE = 500
# Joins of any of a query's tables have at most so many rows.
MOST_JOINED = 20_000_000
# Of the rows of a table that its conditions in a join keep, lest most joins have no rows.
LEAST_SHARE = 0.03
EDGES = tuple(
    (edge.partition("=")[0], edge.partition("=")[2])
    for edge in (
        "posts.owner_user_id=users.id",
        "comments.post_id=posts.id",
        "comments.user_id=users.id",
        "votes.post_id=posts.id",
        "votes.user_id=users.id",
        "badges.user_id=users.id",
        "post_history.post_id=posts.id",
        "post_history.user_id=users.id",
        "post_links.post_id=posts.id",
        "post_links.related_post_id=posts.id",
        "tags.excerpt_post_id=posts.id",
        "comments.user_id=badges.user_id",
        "votes.post_id=comments.post_id",
        "posts.owner_user_id=badges.user_id",
    )
)
Row = Mapping[str, Any]


def table_of(column: str) -> str:
    """Return the table of a column that is named with it."""
    return column.partition(".")[0]


@dataclass(frozen=True)
class Join:
    """A tree of joins: the column that each later table's own is equal to, and conditions."""

    first: str
    edges: Mapping[str, tuple[str, str]]
    conditions: Mapping[str, Sequence[str]]

    @property
    def query(self) -> str:
        on = [f"{inner} = {outer}" for inner, outer in self.edges.values()]
        own = [condition for listed in self.conditions.values() for condition in listed]
        tables = ", ".join((self.first, *self.edges))
        return f"select count(*) from {tables} where {' and '.join(on + own)}"

    def connected(self) -> Iterator[frozenset[str]]:
        """Yield the sets of at least two tables that the joins connect, that of all at last."""
        found = [frozenset({self.first})]
        for table, (inner, _) in self.edges.items():
            found += [part | {table} for part in found if table_of(inner) in part]
            found.append(frozenset({table}))
        yield from sorted((part for part in found if len(part) > 1), key=len)

    def rows(self, part: AbstractSet[str]) -> str:
        """Return SQL of the rows that tables have together, as a sum over the rows of one.

        Each table adds up, by its key, the products of what the tables behind it have added up, so
        that counting takes as long as reading the tables.
        """
        top = next(table for table in (self.first, *self.edges) if table in part)
        return f"(select sum(w) from ({self._weights(top, '0', part)}))"

    def _weights(self, table: str, key: str, part: AbstractSet[str]) -> str:
        below, weights = [], ["1::hugeint"]
        for other, (inner, outer) in self.edges.items():
            if other in part and table_of(inner) == table:
                inside = self._weights(other, outer, part)
                below.append(f" join ({inside}) of_{other} on {inner} = of_{other}.k")
                weights.append(f"of_{other}.w")
        where = " and ".join(self.conditions[table]) or "true"
        return (
            f"select {key} as k, sum({' * '.join(weights)}) as w from {table}{''.join(below)}"
            f" where {where} group by 1"
        )


class Workload:
    """Draws queries over one dataset."""

    def __init__(
        self,
        columns: Mapping[str, Sequence[str]],
        database: duckdb.DuckDBPyConnection,
        seed: str,
    ) -> None:
        self._database = database
        self._random = random.Random(seed)
        counts = {
            table: database.execute(f"select count(*) from {table}").fetchall()[0][0]
            for table in columns
        }
        self._samples = {
            table: self._sample(table, count) for table, count in counts.items() if count
        }
        keys = {table: key_of(table, names) for table, names in columns.items()}
        # Without what identifies a row, and without prose.
        self._columns = {
            table: [
                column
                for column in names
                if [column] != keys[table] and not column.endswith("_comment")
            ]
            for table, names in columns.items()
        }
        self._large = [table for table, count in counts.items() if count >= LEAST_ROWS]
        # Larger tables come more often, but not by as much.
        self._weights = [counts[table] ** 0.5 for table in self._large]

    def _sample(self, table: str, count: int) -> list[Row]:
        step = max(1, count // SAMPLE)
        # Not `using sample`: the same rows on every machine.
        query = f"select * from (select *, row_number() over (order by t) as n from {table} t)"
        found = self._database.execute(f"{query} where n % {step} = 0 limit {SAMPLE}")
        names = [column[0] for column in found.description or ()]
        return [dict(zip(names[:-1], row, strict=False)) for row in found.fetchall()]

    def conjunctions(self, count: int) -> dict[str, str]:
        """Return filters of one to six conditions that at least one row passes."""
        made = {}
        for number in range(1, count + 1):
            [table] = self._random.choices(self._large, self._weights)
            conditions = self._conditions(table, 1 + number % 6)
            made[f"conjunction-{number}"] = (
                f"select * from {table} where {' and '.join(conditions)}"
            )
        return made

    def groups(self, count: int) -> dict[str, str]:
        """Return `group by` over one to four columns, half of them of some of the rows."""
        made = {}
        for number in range(1, count + 1):
            [table] = self._random.choices(self._large, self._weights)
            columns = self._columns[table]
            keys = ", ".join(self._random.sample(columns, min(1 + number % 4, len(columns))))
            where = f" where {self._conditions(table, 1)[0]}" if self._random.random() < 0.5 else ""
            made[f"group-{number}"] = (
                f"select {keys}, count(*) as n from {table}{where} group by {keys}"
            )
        return made

    def joins(self, count: int) -> dict[str, str]:
        """Return joins of two to eight tables of the forum, each table at most once."""
        made: dict[str, str] = {}
        while len(made) < count:
            join = self._join(2 + len(made) % 7)
            *parts, whole = join.connected()
            # The whole join first, which rules most out.
            if self._largest(join, [whole]) and self._largest(join, parts) is not None:
                made[f"join-{len(made) + 1}"] = join.query
        return made

    def _largest(self, join: Join, parts: Iterable[AbstractSet[str]]) -> int | None:
        """Return the most rows that tables have together, or None where they are too many."""
        sizes = [join.rows(part) for part in parts] or ["0"]
        found = self._database.execute(f"select {', '.join(sizes)}").fetchall()[0]
        largest = max(size or 0 for size in found)
        return largest if largest <= MOST_JOINED else None

    def _join(self, size: int) -> Join:
        first = self._random.choice(self._large)
        edges: dict[str, tuple[str, str]] = {}
        while len(edges) + 1 < size:
            options = []
            for pair in EDGES:
                for inner, outer in (pair, pair[::-1]):
                    table, other = table_of(inner), table_of(outer)
                    is_new = other not in (first, *edges) and other in self._large
                    if is_new and table in (first, *edges):
                        options.append((inner, outer))
            inner, outer = self._random.choice(options)
            edges[table_of(outer)] = (inner, outer)
        conditions = {
            table: [
                f"{table}.{condition}"
                for condition in self._conditions(table, self._random.choice([0, 1, 1, 2]))
                if self._share(table, condition) >= LEAST_SHARE
            ]
            for table in (first, *edges)
        }
        return Join(first, edges, conditions)

    def _share(self, table: str, condition: str) -> float:
        passing = f"select avg(case when {condition} then 1.0 else 0 end) from {table}"
        return float(self._database.execute(passing).fetchall()[0][0])

    def _conditions(self, table: str, count: int) -> list[str]:
        """Return conditions that one row of a table passes, on columns of its own each."""
        row = self._random.choice(self._samples[table])
        known = self._columns[table]
        columns = self._random.sample(known, min(count, len(known)))
        return [self._condition(table, column, row[column]) for column in columns]

    def _condition(self, table: str, column: str, value: Any) -> str:
        if value is None:
            return f"{column} is null"
        others = [row[column] for row in self._samples[table] if row[column] is not None]
        kind = self._random.random()
        if isinstance(value, str):
            if kind < 0.2 and value[:3].isalnum() and len(value) > 3:
                return f"{column} like '{value[:3]}%'"
            if kind < 0.3:
                return f"{column} >= {literal(value)}"
        elif kind < 0.2:
            return f"{column} >= {literal(value)}"
        elif kind < 0.4:
            return f"{column} <= {literal(value)}"
        elif kind < 0.6:
            low, high = sorted([value, self._random.choice(others)])
            return f"{column} between {literal(low)} and {literal(high)}"
        if kind < 0.75:
            listed = {value, *self._random.choices(others, k=self._random.randint(1, 4))}
            return f"{column} in ({', '.join(map(literal, sorted(listed)))})"
        if kind < 0.8:
            return f"{column} is not null"
        if kind < 0.85 and len(set(others)) > 1:
            other = self._random.choice(sorted(set(others) - {value}))
            return f"{column} <> {literal(other)}"
        return f"{column} = {literal(value)}"


def literal(value: Any) -> str:
    """Return a value in SQL."""
    if isinstance(value, date):
        return f"date '{value}'"
    if isinstance(value, (int, float, Decimal)):
        return str(value)
    text = str(value).replace("'", "''")
    return f"'{text}'"
