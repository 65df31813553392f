"""`lancestat.explain`: what `lancestat sql --explain` shows, of any DataFrame."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lancestat import display
from lancestat.errors import InvalidArgument
from lancestat.formats import count
from lancestat.presentation.display import view_of
from lancestat.presentation.registry import Page, load_format
from lancestat.presentation.views import ExplanationView
from lancestat.query.read.relation import planning_service
from lancestat.query.sql.explain import PlanExplanation, explain_frame
from lancestat.redact import Audience, Redactor, secret_environment

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class QueryExplanation:
    """The plan of a DataFrame; printed, it is the text of `lancestat sql --explain --verbose`.

    `plan` has its operators and scans as values.
    """

    plan: PlanExplanation
    redactor: Redactor = field(repr=False, compare=False)

    def to_json(self) -> Mapping[str, object]:
        payload = load_format("json").render(ExplanationView(self.plan), Page())
        redacted = self.redactor.json(payload, Audience.PERSON)
        assert isinstance(redacted, dict)
        return redacted

    def __repr__(self) -> str:
        operators = count(len(self.plan.operators), "operator")
        scans = self.plan.scans
        known = sum(scan.explanation is not None for scan in scans)
        what = f"{operators}, {count(len(scans), 'scan')}, {count(known)} of Lance tables"
        return display.summary(self, what)

    __str__ = display.as_text
    _repr_html_ = display.as_html


@view_of.register
def _(value: QueryExplanation) -> object:
    return ExplanationView(value.plan)


def explain(frame: DataFrame) -> QueryExplanation:
    """Explain the plan of a DataFrame.

    The explanation has the plan's operators with Spark's estimates and, for each scan of a Lance
    table, which statistics, filters and aggregates reach it, or why they do not. Nothing is run.
    The plan is the one that the DataFrame's actions run; below cached data, it is the plan that
    computed the data.

    Args:
        frame: A DataFrame of a classic session, over tables of any format.

    Raises:
        InvalidArgument: `frame` is not a DataFrame.
        SparkConnectSession: `frame` belongs to a Spark Connect session.
        LancestatError: Spark cannot plan it.
    """
    if not hasattr(frame, "sparkSession"):
        raise InvalidArgument(f"explain takes a DataFrame, not {type(frame).__name__}")
    explained = explain_frame(frame)
    known = [*secret_environment(os.environ), *planning_service().secrets()]
    return QueryExplanation(explained, Redactor(known))
