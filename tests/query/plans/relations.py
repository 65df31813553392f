"""Relations in memory, with the facts of them that statistics would give."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from lancestat.lake.snapshot import Field
from lancestat.query.plans.facts import ColumnFacts, Facts, Origin
from lancestat.query.plans.operators import Condition
from lancestat.query.plans.sampled import SampledRows
from lancestat.query.sampler import BLOCKS
from lancestat.tables.statistics.column_type import column_type


@dataclass(frozen=True)
class Relation:
    """Rows, and the index of the scan that they would come from."""

    rows: pl.DataFrame
    scan: int

    def facts(self) -> Facts:
        total = float(len(self.rows))
        columns = {name: self._column(name) for name in self.rows.columns}
        unique = frozenset(
            frozenset((name,)) for name, column in columns.items() if column.distinct == total
        )
        return Facts(total, total, "count", columns, unique)

    def sampled(self, rows: int | None = None) -> Facts:
        """The facts with a sample of so many rows, or with all rows."""
        taken = self.rows if rows is None else self.rows.sample(rows, seed=5)
        table = taken.to_arrow()
        sample = SampledRows(
            lambda names: table.select(sorted(names)),
            len(taken),
            float(len(self.rows)),
            is_whole=rows is None,
        )
        return replace(self.facts(), samples={self.scan: sample})

    def _column(self, name: str) -> ColumnFacts:
        values = self.rows[name]
        present = values.drop_nulls()
        arrow = present.to_arrow()
        type = column_type(arrow.type)
        assert type is not None
        is_number = values.dtype.is_numeric()
        distinct = float(max(1, present.n_unique()))
        return ColumnFacts(
            distinct,
            values.null_count() / max(1, len(values)),
            float(present.min()) if is_number and len(present) else None,  # type: ignore[arg-type]
            float(present.max()) if is_number and len(present) else None,  # type: ignore[arg-type]
            origin=(self.scan, name),
            rows_per_value=max(1.0, len(present) / distinct),
            type=type,
            field=Field(0, name, arrow.type, True, type.spark_type),
        )


def blocks_of(relation: Relation, size: int) -> SampledRows:
    """A sample as the reader takes it: rows side by side, in blocks at even distances."""
    total, each = len(relation.rows), size // BLOCKS
    starts = np.arange(BLOCKS) * total // BLOCKS
    taken = relation.rows[np.concatenate([np.arange(start, start + each) for start in starts])]
    table = taken.to_arrow()
    return SampledRows(lambda names: table.select(sorted(names)), size, float(total))


def where(facts: Facts, relation: Relation, condition: pl.Expr) -> Facts:
    """What a condition leaves of a relation with a sample, as a filter over its scan does."""
    sample = facts.samples[relation.scan]
    names = condition.meta.root_names()
    rows = pl.from_arrow(sample.columns(names))
    assert isinstance(rows, pl.DataFrame)
    passing = rows.select(condition).to_series().fill_null(value=False).to_numpy()
    left = facts.rows * float(passing.mean())
    made = facts.with_rows(left, left, "sample")
    return replace(made, samples={relation.scan: sample.where(passing, left)})


class Nothing:
    """Of no columns together anything is kept."""

    def distinct(self, scan: int, names: frozenset[str]) -> float | None:
        return None

    def with_null(self, scan: int, names: frozenset[str]) -> float | None:
        return None

    def is_contained(self, pairs: Collection[tuple[Origin, Origin]]) -> bool:
        return False


NOTHING = Nothing()


@dataclass(frozen=True)
class Contained(Nothing):
    """A proven reference of columns of one scan to those of another."""

    pairs: tuple[tuple[Origin, Origin], ...]

    def is_contained(self, pairs: Collection[tuple[Origin, Origin]]) -> bool:
        return set(pairs) == set(self.pairs)


class Joint(Nothing):
    """Joint distinct counts of relations, as a state keeps them; `asked` are the groups."""

    def __init__(self, *relations: Relation) -> None:
        self.relations = {relation.scan: relation for relation in relations}
        self.asked: list[frozenset[str]] = []

    def distinct(self, scan: int, names: frozenset[str]) -> float | None:
        self.asked.append(names)
        rows = self.relations[scan].rows.select(sorted(names)).drop_nulls()
        return float(rows.n_unique())

    def with_null(self, scan: int, names: frozenset[str]) -> float | None:
        rows = self.relations[scan].rows
        return float(len(rows) - len(rows.drop_nulls(sorted(names))))


def equal(left: str, right: str) -> Condition:
    return Condition((left, right), compares="=", left=left, right=right)


def frame(random: np.random.Generator, rows: int, **domains: int) -> pl.DataFrame:
    """Rows with uniform columns of so many values each, independent of each other."""
    return pl.DataFrame({name: random.integers(0, n, rows) for name, n in domains.items()})


def true_rows(left: pl.DataFrame, right: pl.DataFrame, keys: Mapping[str, str], how: str) -> int:
    """The rows of a join, by polars; those of an inner one are many, and counted by key."""
    if how == "inner":
        ones = left.group_by(list(keys)).agg(pl.len().cast(pl.Int64).alias("ones"))
        others = right.group_by(list(keys.values())).agg(pl.len().cast(pl.Int64).alias("others"))
        pairs = ones.join(others, left_on=list(keys), right_on=list(keys.values()))
        return int((pairs["ones"] * pairs["others"]).sum())
    made = left.join(
        right,
        left_on=list(keys),
        right_on=list(keys.values()),
        how=how,  # type: ignore[arg-type]
        coalesce=False if how in ("left", "full") else None,
    )
    return len(made)


def q_error(expected: float, true: float) -> float:
    """How many times too many or too few, at least one row each."""
    expected, true = max(1.0, expected), max(1.0, true)
    return max(expected / true, true / expected)
