"""Answers to aggregates, compared with the rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import lance
import numpy as np

from lancestat.query.estimates import Aggregate, Function, push_down
from lancestat.query.predicates.filter import Filter
from lancestat.query.table import ReadSettings, ReadTable
from tests.query.values import holds, literal_of


def check_answers(table: ReadTable, dataset: lance.LanceDataset, filters: Sequence[Filter]) -> int:
    """Compare the answers that are given, column by column; return how many there are."""
    columns = [name for name in dataset.schema.names if name in table.types]
    asked = [Aggregate(Function.COUNT)]
    asked += [Aggregate(function, name) for name in columns for function in Function]
    decisions = [push_down(table, [aggregate], filters, ReadSettings()) for aggregate in asked]
    answers = [
        (aggregate, decision.values[0])
        for aggregate, decision in zip(asked, decisions, strict=True)
        if decision.use
    ]
    if not answers:
        return 0
    live = [
        row
        for row in dataset.to_table(columns=columns).to_pylist()
        if all(holds(filter, row) is True for filter in filters)
    ]
    for aggregate, answer in answers:
        expected = len(live) if aggregate.column is None else truth(aggregate, live)
        assert_same(answer, expected)
    return len(answers)


def truth(asked: Aggregate, rows: Sequence[dict[str, Any]]) -> Any:
    """Return what Spark makes of the rows."""
    values = [row[asked.column or ""] for row in rows if row[asked.column or ""] is not None]
    if asked.function is Function.COUNT:
        return len(values)
    choose = min if asked.function is Function.MIN else max
    return choose(values, key=spark_order, default=None)


def spark_order(value: Any) -> Any:
    if isinstance(value, float):
        return (math.isnan(value), 0.0 if math.isnan(value) else value)
    return value.encode() if isinstance(value, str) else value


def assert_same(answer: Any, expected: Any) -> None:
    """The answer is the value, down to the sign of zero; None of both is null."""
    if expected is None or isinstance(expected, bytes):
        assert answer == expected
        return
    if isinstance(expected, float):
        assert (np.float64(answer).tobytes() == np.float64(expected).tobytes()) or (
            math.isnan(answer) and math.isnan(expected)
        )
        return
    literal = literal_of(expected)
    if isinstance(expected, Decimal):
        literal = int(expected.scaleb(2))
    stored = getattr(literal, "micros", getattr(literal, "days", literal))
    stored = stored.encode() if isinstance(stored, str) else stored
    assert answer == stored
