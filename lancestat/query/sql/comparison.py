"""Compares a query with statistics and without: what changes in its plan, and in time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

from lancestat.formats import StringEnum, count
from lancestat.query.sql.explain import analyzed
from lancestat.query.sql.explanation import Execution, Operator, PlanExplanation
from lancestat.query.sql.statement import NO_CONTEXT, QueryContext, QueryText, explain_failure
from lancestat.query.table import CBO, ENABLED, ESTIMATES, OWN_SPARK_PREFIX, PUSHDOWN, SPARK_PREFIX

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TURNS = 3
# Fragments are ruled out all the same, and tables have their row counts and sizes.
WITHOUT_STATISTICS = {
    CBO: "false",
    "spark.sql.cbo.joinReorder.enabled": "false",
    f"{SPARK_PREFIX}{ENABLED}": "false",
    f"{OWN_SPARK_PREFIX}{PUSHDOWN}": "false",
    f"{OWN_SPARK_PREFIX}{ESTIMATES}": "false",
}


class Difference(StringEnum):
    """What differs between two plans; the spelling is a contract."""

    ORDER = "order_of_tables"
    JOIN = "join"
    FRAGMENTS = "fragments"
    AGGREGATES = "aggregates"
    EXCHANGES = "exchanges"


@dataclass(frozen=True, slots=True)
class PlanChange:
    """A difference of two plans, with what each has in words.

    `subject` are the keys of a join or the name of a table, None for what is of the whole plan.
    """

    what: Difference
    subject: str | None
    without_statistics: str
    with_statistics: str


@dataclass(frozen=True, slots=True)
class Side:
    """The turns of a query with statistics, or without, as they were run."""

    turns: Sequence[PlanExplanation]

    @property
    def plan(self) -> PlanExplanation:
        """The plan of the last turn."""
        return self.turns[-1]

    @property
    def seconds(self) -> float:
        """The median time of a turn, from the parsed query to the last row."""
        return median(self.all_seconds)

    @property
    def all_seconds(self) -> list[float]:
        """The times of all turns, the least first."""
        return sorted(done.planning_seconds + done.seconds for done in self._executions())

    @property
    def planning_seconds(self) -> float:
        """The median time of planning."""
        return median(done.planning_seconds for done in self._executions())

    def to_json(self) -> dict[str, object]:
        """Return the object in the JSON of `lancestat sql --compare`."""
        return {
            "seconds": self.seconds,
            "planning_seconds": self.planning_seconds,
            "turns": [asdict(done) for done in self._executions()],
            "explanation": self.plan.to_json(),
        }

    def _executions(self) -> list[Execution]:
        return [turn.execution for turn in self.turns if turn.execution is not None]


@dataclass(frozen=True, slots=True)
class Comparison:
    """A query with statistics and without; each side was run once before the turns that count."""

    without_statistics: Side
    with_statistics: Side

    @property
    def time_ratio(self) -> float:
        """The time with statistics as a share of the time without."""
        return self.with_statistics.seconds / max(self.without_statistics.seconds, 1e-9)

    @property
    def changes(self) -> tuple[PlanChange, ...]:
        """What the statistics have changed in the plan that ran last."""
        return tuple(plan_changes(self.without_statistics.plan, self.with_statistics.plan))

    def to_json(self) -> dict[str, object]:
        """Return the object in the JSON of `lancestat sql --compare`."""
        return {
            "turns": len(self.with_statistics.turns),
            "time_ratio": self.time_ratio,
            "changes": [{**asdict(change), "what": change.what.value} for change in self.changes],
            "without_statistics": self.without_statistics.to_json(),
            "with_statistics": self.with_statistics.to_json(),
        }


def compare_query(
    spark: SparkSession, plan: Any, text: QueryText, query_context: QueryContext = NO_CONTEXT
) -> Comparison:
    """Run a parsed query in turns without statistics and as the session has them.

    The side that comes first in one turn is the second in the next: Spark gets faster as it runs.

    Raises:
        LancestatError: Spark refuses the query (see `explain_failure`).
    """
    turns: dict[bool, list[PlanExplanation]] = {True: [], False: []}
    try:
        for turn in range(1 + TURNS):
            for has_statistics in (turn % 2 == 1, turn % 2 == 0):
                with _settings(spark, {} if has_statistics else WITHOUT_STATISTICS):
                    turns[has_statistics].append(analyzed(spark, plan))
    except Exception as error:
        raise explain_failure(error, text, query_context) from None
    return Comparison(Side(turns[False][1:]), Side(turns[True][1:]))


@contextmanager
def _settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    before = {key: spark.conf.get(key, None) for key in settings}
    try:
        for key, value in settings.items():
            spark.conf.set(key, value)
        yield
    finally:
        for key, former in before.items():
            if former is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, former)


def plan_changes(before: PlanExplanation, after: PlanExplanation) -> Iterator[PlanChange]:
    """Yield what differs between two plans of one query, without and with statistics."""
    former, latter = _traits(before), _traits(after)
    for key in dict.fromkeys((*former, *latter)):
        absent = "left to Spark" if key[0] is Difference.AGGREGATES else "none"
        sides = ["; ".join(traits.get(key, ())) or absent for traits in (former, latter)]
        if sides[0] != sides[1]:
            yield PlanChange(key[0], key[2], *sides)


# What a plan has, in words, by the kind of difference, by what is the same in both plans, and by
# the text of that. Where a plan has several of a kind, their words are in the order of the plan.
_Key = tuple[Difference, object, str | None]


def _traits(plan: PlanExplanation) -> Mapping[_Key, Sequence[str]]:
    traits: dict[_Key, list[str]] = defaultdict(list)
    tables = [scan.table for scan in plan.scans]
    if len(tables) > 1:
        traits[Difference.ORDER, None, None].append(", ".join(tables))
    subjects: dict[object, str] = {}
    for index, operator in enumerate(plan.operators):
        if operator.join is not None:
            keys = frozenset(frozenset(pair.split(" = ")) for pair in operator.join.on)
            written = sorted(" = ".join(sorted(pair)) for pair in keys)
            subject = subjects.setdefault(keys, ", ".join(written) or "no keys")
            traits[Difference.JOIN, keys, subject].append(_join_words(plan, index))
    for scan in plan.scans:
        explanation = scan.explanation
        if explanation is None:
            continue
        read = f"{count(explanation.fragments_scanned)} of {count(explanation.fragments)} read"
        traits[Difference.FRAGMENTS, scan.table, scan.table].append(read)
        if explanation.aggregates is not None and explanation.aggregates.use:
            traits[Difference.AGGREGATES, scan.table, scan.table].append("answered without reading")
    exchanges = sum(operator.text.startswith(_EXCHANGES) for operator in plan.operators)
    traits[Difference.EXCHANGES, None, None].append(count(exchanges))
    return traits


_EXCHANGES = ("Exchange", "BroadcastExchange")


def _join_words(plan: PlanExplanation, index: int) -> str:
    join = plan.operators[index].join
    assert join is not None
    strategy = join.strategy.replace("_", " ")
    if join.build_side is None:
        return strategy
    inputs = _inputs(plan.operators, index)
    at = inputs[0 if join.build_side == "left" else -1]
    end = _end(plan.operators, at)
    below = [plan.scans[op.scan - 1].table for op in plan.operators[at:end] if op.scan is not None]
    verb = "broadcasts" if join.strategy.startswith("broadcast") else "hashes"
    return f"{strategy}, {verb} {', '.join(below) or f'its {join.build_side}'}"


def _inputs(operators: Sequence[Operator], index: int) -> list[int]:
    """Return the operators right below one; its subqueries come before its inputs."""
    depth = operators[index].depth + 1
    end = _end(operators, index)
    return [at for at in range(index + 1, end) if operators[at].depth == depth]


def _end(operators: Sequence[Operator], index: int) -> int:
    """Return the first operator that is not below one."""
    depth = operators[index].depth
    for at in range(index + 1, len(operators)):
        if operators[at].depth <= depth:
            return at
    return len(operators)
