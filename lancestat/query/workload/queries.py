"""What queries do with the columns of tables: values that any source of queries can fill.

Nothing here holds a condition, a literal or the text of a query.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TypeVar

from lancestat.formats import StringEnum

MAX_USES = 100_000
"""How many different uses a workload holds; what comes after these is counted."""


K = TypeVar("K")

ALL_COLUMNS = "*"
"""What a query reads whose columns are not all known."""


class Role(StringEnum):
    """What an operator does with columns: by which it joins, groups or filters."""

    JOIN = "join"
    GROUP = "group by"
    EQUALITY = "equality"
    RANGE = "range"
    CONDITION = "condition"


@dataclass(frozen=True, slots=True)
class ColumnUse:
    """The columns of one table that one operator of a query uses together, sorted by name.

    `table` is its name in plans. In a join whose other keys are columns of one table, `other` is
    that table, and `other_columns` are in the order of `columns`.
    """

    table: str
    columns: tuple[str, ...]
    role: Role
    other: str | None = None
    other_columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Query:
    """The uses of columns in one query, and by table the columns that it reads.

    `q_errors` has the uses by operators whose rows are known: what these add to the errors of their
    inputs (`lancestat.query.q_error.added_error`).
    """

    uses: frozenset[ColumnUse] = frozenset()
    reads: Mapping[str, frozenset[str]] = field(default_factory=dict)
    q_errors: Mapping[ColumnUse, float] = field(default_factory=dict)


@dataclass(slots=True)
class Usage:
    """How many queries use some columns together, in all and by role.

    `q_error` is the worst of the operators concerned, None where none is known.
    """

    queries: int = 0
    roles: Counter[Role] = field(default_factory=Counter)
    q_error: float | None = None

    def add(self, queries: int, roles: Mapping[Role, int], error: float | None) -> None:
        self.queries += queries
        self.roles.update(roles)
        if error is not None:
            self.q_error = max(error, self.q_error or 1.0)

    @property
    def weight(self) -> float:
        """What better estimates are worth: queries times q-error, 1 where that is not known."""
        return self.queries * (self.q_error or 1.0)


@dataclass(slots=True)
class TableUsage:
    """How many queries scan a table, and when each of its columns was last read."""

    queries: int = 0
    last_read: dict[str, datetime] = field(default_factory=dict)

    def add(self, queries: int, last_read: Mapping[str, datetime]) -> None:
        self.queries += queries
        for column, at in last_read.items():
            self.last_read[column] = max(at, self.last_read.get(column, at))


# Of some columns of a table, sorted; none of them stand for the table as a whole.
Columns = tuple[str, tuple[str, ...]]


@dataclass(slots=True)
class Workload:
    """Queries by what they use: `first` and `last` are the times of the earliest and the latest.

    `sets` has the columns that one operator uses together, and each of them alone; a query counts
    once for each. `joins` has the joins between columns of two tables, from either side.
    `other_uses` counts what came beyond `MAX_USES` different ones.
    """

    queries: int = 0
    first: datetime | None = None
    last: datetime | None = None
    tables: dict[str, TableUsage] = field(default_factory=dict)
    sets: dict[Columns, Usage] = field(default_factory=dict)
    joins: dict[ColumnUse, Usage] = field(default_factory=dict)
    other_uses: int = 0

    @property
    def has_estimates(self) -> bool:
        """Whether some q-error is known."""
        return any(usage.q_error is not None for usage in self.sets.values())

    def add(self, query: Query, at: datetime) -> None:
        """Count a query that ran at an aware instant."""
        self.queries += 1
        self.first = at if self.first is None else min(self.first, at)
        self.last = at if self.last is None else max(self.last, at)
        for table, columns in query.reads.items():
            if self._has_room(self.tables, table):
                usage = self.tables.setdefault(table, TableUsage())
                usage.add(1, dict.fromkeys(columns, at))
        roles: dict[Columns, set[Role]] = {}
        errors: dict[Columns, float] = {}
        for use in query.uses:
            error = query.q_errors.get(use)
            alone = ((name,) for name in use.columns)
            for names in {(), use.columns, *alone}:
                roles.setdefault((use.table, names), set()).add(use.role)
                if error is not None:
                    errors[use.table, names] = max(error, errors.get((use.table, names), 1.0))
            if use.other is not None and self._has_room(self.joins, use):
                self.joins.setdefault(use, Usage()).add(1, {use.role: 1}, error)
        for key, used in roles.items():
            if self._has_room(self.sets, key):
                usage_of = self.sets.setdefault(key, Usage())
                usage_of.add(1, dict.fromkeys(used, 1), errors.get(key))

    def _has_room(self, held: Mapping[K, object], key: K) -> bool:
        if key in held or len(held) < MAX_USES:
            return True
        self.other_uses += 1
        return False

    def renamed(self, names: Mapping[str, str]) -> Workload:
        """Return the workload of the tables in `names` alone, under their names there.

        A table that plans name in several ways becomes one.
        """
        renamed = Workload(self.queries, self.first, self.last, other_uses=self.other_uses)
        for name, scanned in self.tables.items():
            if name in names:
                table = renamed.tables.setdefault(names[name], TableUsage())
                table.add(scanned.queries, scanned.last_read)
        for (name, columns), usage in self.sets.items():
            if name in names:
                known = renamed.sets.setdefault((names[name], columns), Usage())
                known.add(usage.queries, usage.roles, usage.q_error)
        for join, usage in self.joins.items():
            if join.table in names and join.other is not None and join.other in names:
                both = replace(join, table=names[join.table], other=names[join.other])
                known = renamed.joins.setdefault(both, Usage())
                known.add(usage.queries, usage.roles, usage.q_error)
        return renamed
