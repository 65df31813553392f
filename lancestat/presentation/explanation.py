"""`lancestat.explain`: what `lancestat sql --explain` shows, of any DataFrame."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lancestat.errors import InvalidArgument
from lancestat.formats import escape_commands, visible
from lancestat.presentation.registry import Page, load_format
from lancestat.presentation.terminal import unpainted
from lancestat.presentation.views import ExplanationView
from lancestat.redact import Audience, Redactor, secret_environment
from lancestat.spark.read.relation import planning_service
from lancestat.spark.sql.explain import PlanExplanation, explain_frame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True, repr=False)
class QueryExplanation:
    """The plan of a DataFrame; printed, it is the text of `lancestat sql --explain --verbose`.

    `plan` has its operators and scans as values.
    """

    plan: PlanExplanation
    _redactor: Redactor = field(repr=False)

    def to_json(self) -> Mapping[str, object]:
        """Return the object that `lancestat sql --explain --output json` prints."""
        page = self._page
        payload = load_format("json").render(ExplanationView(self.plan), page)
        redacted = self._redactor.json(payload, page.audience)
        assert isinstance(redacted, dict)
        return redacted

    def __str__(self) -> str:
        lines = load_format("text").render(ExplanationView(self.plan), self._page)
        return "\n".join(
            visible(escape_commands(unpainted(self._page.redacted(line)))).rstrip()
            for line in lines
        )

    __repr__ = __str__

    @property
    def _page(self) -> Page:
        return Page(verbose=True, audience=Audience.PERSON, redactor=self._redactor)


def explain(frame: DataFrame) -> QueryExplanation:
    """Explain the plan of a DataFrame: its operators with Spark's estimates, and of each scan of a
    Lance table which statistics, filters and aggregates reach it, or why they do not.

    Nothing is run. The plan is the one that the DataFrame's own actions run; of data that is cached
    it goes on with the plan that the data came from.

    Args:
        frame: Of a classic session, over tables of any kind.

    Raises:
        InvalidArgument: it is no DataFrame.
        SparkConnectSession: it is one of Spark Connect.
        LancestatError: Spark cannot plan it.
    """
    if not hasattr(frame, "sparkSession"):
        raise InvalidArgument(f"explain takes a DataFrame, not {type(frame).__name__}")
    explained = explain_frame(frame)
    known = [*secret_environment(os.environ), *planning_service().secrets()]
    return QueryExplanation(explained, Redactor(known))
