"""A side whose planner is told true rows: what the best estimates there are would give.

A query is planned twice before it counts. The joins of the first plan give each region of inner
joins the order with the fewest true rows; the operators of the second, which has these orders, have
true rows instead of estimated ones. The planning service then answers the same questions so. What
DuckDB cannot count or search, the plans of scalar subqueries, and what adaptive execution asks when
it plans again, with stages that are counted, have lancestat's answers.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import msgspec

from accuracy.datasets import Dataset
from accuracy.measures import cheapest_tree, regions
from accuracy.plans import PASSING, Block, Translated, alias_of, translated
from accuracy.sides import TRUE
from accuracy.truths import MOST, Truths
from lancestat.query.plans.answers import PlanAnswers
from lancestat.query.read import planning_service

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Message = dict[str, Any]
# They describe no operators, and have no numbers of columns.
OTHERS = frozenset({"filter", "sample", "scan", "values"})
HAS_ROWS_OF_INPUT = PASSING | {"Project", "ReturnAnswer"}


def told(true_rows: TrueRows | None, side: str) -> AbstractContextManager[object]:
    """Return a context in which a side's planner is told what it is to be told."""
    return true_rows.answering() if true_rows and side == TRUE else nullcontext()


class TrueRows:
    """Answers of the planning service to a session's questions, with true rows where known."""

    def __init__(self, spark: SparkSession, dataset: Dataset) -> None:
        self._spark, self._dataset = spark, dataset
        # By the text of a question: rows of operators or orders of regions, by their index.
        self._known: dict[str, dict[int, Any]] = {}
        self._asked: list[Message] = []
        # Regions that have the best order, and those that do not.
        self.ordered = self.left = 0

    def learn(self, query: str, truths: Truths) -> None:
        """Plan a query, and remember the answers to its questions."""
        for learn in (self._learn_orders, self._learn_rows):
            with self.answering():
                # What a plan's statistics are depends on the settings of the active session.
                jvm = self._spark._jvm
                jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(
                    self._spark._jsparkSession
                )
                physical = self._spark.sql(query)._jdf.queryExecution().sparkPlan()
            nodes = msgspec.json.decode(physical.logicalLink().get().toJSON())
            learn(translated(nodes, self._dataset.by_columns), truths)

    @contextmanager
    def answering(self) -> Iterator[None]:
        """Answer questions of the block, which are this session's alone."""
        self._asked.clear()
        own = planning_service.PlanAnswers
        side = self

        class Answers(PlanAnswers):
            def __init__(self, message: Message, *others: Any) -> None:
                super().__init__(message, *others)
                side._asked.append(message)
                self.known = side._known.get(canonical(message), {})

            def estimates(self) -> Message:
                answer = super().estimates()
                for index, rows in self.known.items():
                    answer["operators"][index] = {"rows": rows, "at_most": rows, "evidence": "true"}
                return answer

            def orders(self, regions: Sequence[Message]) -> Message:
                answer = super().orders(regions)
                for index, tree in self.known.items():
                    answer["orders"][index] = tree
                return answer

        planning_service.PlanAnswers = Answers
        try:
            yield
        finally:
            planning_service.PlanAnswers = own

    def _learn_orders(self, plan: Translated, truths: Truths) -> None:
        blocks = [block for block, _ in regions(plan.operators)]
        for message in self._asked:
            if message["op"] != "order":
                continue
            known: dict[int, Any] = {}
            for index, region in enumerate(message["regions"]):
                inputs = [below(message["operators"], start) for start in region["inputs"]]
                for block in blocks:
                    items = items_of(inputs, block, plan)
                    best = items and cheapest_tree(block, items, truths)
                    if best:
                        known[index] = best[1]
            self.ordered += len(known)
            self.left += len(message["regions"]) - len(known)
            self._known[canonical(message)] = known

    def _learn_rows(self, plan: Translated, truths: Truths) -> None:
        counted = {
            operator.place: max(1, rows)
            for operator in plan.operators
            if operator.sql is not None and (rows := truths.rows(operator.sql)) <= MOST
        }
        for message in self._asked:
            operators = message["operators"]
            # Of the query, not of a subquery, which is planned by itself.
            if message["op"] != "plan" or len(operators) != plan.places + 1:
                continue
            known: dict[int, Any] = {}
            for index, place in enumerate(places(operators)):
                inputs = operators[index]["inputs"]
                if place in counted:
                    known[index] = counted[place]
                elif operators[index]["name"] in HAS_ROWS_OF_INPUT and inputs[0] in known:
                    known[index] = known[inputs[0]]
            self._known[canonical(message)] = known


def items_of(
    inputs: Sequence[AbstractSet[int]], block: Block, plan: Translated
) -> list[frozenset[str]]:
    """Return which aliases of a block inputs of a region read, by their columns.

    Nothing where an input has no part of the block, or shares one with another.
    """
    sources = list(map(alias_of, block.sources))
    items = [
        frozenset(name for name in sources if plan.columns[name] & columns) for columns in inputs
    ]
    total = sum(map(len, items))
    return items if all(items) and total == len(frozenset().union(*items)) else []


def below(operators: Sequence[Message], start: int) -> frozenset[int]:
    """Return the numbers of the columns of an operator and of all that it reads."""
    own = frozenset(map(int, operators[start]["output"]))
    return own.union(*(below(operators, index) for index in operators[start]["inputs"]))


def places(operators: Sequence[Message]) -> list[int]:
    """Return the places in preorder of operators that each come after what they read.

    The root, which Spark adds, has the place before 0.
    """
    found = [0] * len(operators)
    waiting, place = [len(operators) - 1], -1
    while waiting:
        index = waiting.pop()
        found[index] = place
        place += 1
        waiting += reversed(operators[index]["inputs"])
    return found


def canonical(message: Message) -> str:
    """Return a text that the same question has whatever numbers Spark gives the columns."""
    numbers: dict[str, str] = {}

    def named(value: Any) -> Any:
        if isinstance(value, str):
            return numbers.setdefault(value, f"c{len(numbers)}") if value.isdigit() else value
        if isinstance(value, list):
            return list(map(named, value))
        if isinstance(value, dict):
            return {
                named(key): None if key in OTHERS else named(part) for key, part in value.items()
            }
        return value

    asked = [message["op"], message["operators"], message.get("regions")]
    return json.dumps(named(asked))
