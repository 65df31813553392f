"""Why Spark did not answer a query: one error with its place in the query."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from lancestat.errors import LancestatError, Location, RunError, UsageError
from lancestat.lake.clean import clean
from lancestat.spark.failure import cause, is_cancelled
from lancestat.spark.worker_error import carried_error

BAD_QUERY = "LS410"
QUERY_FAILED = "LS513"
CANCELLED = "LS512"

_LINE_AND_POSITION = re.compile(r"\(line (\d+), pos (\d+)\)|; line (\d+) pos (\d+)")
_FROM_STATE_ON = re.compile(r"\s*SQLSTATE:.*", re.DOTALL)
_WIDEST_EXCERPT = 100


@dataclass(frozen=True, slots=True)
class QueryText:
    """A query and where it came from."""

    text: str
    source: str = "query"

    def location(self, offset: int) -> Location:
        """The place of a character."""
        before = self.text[:offset]
        return Location(self.source, before.count("\n") + 1, offset - (before.rfind("\n") + 1) + 1)

    def offset(self, line: int, position: int) -> int:
        """The character at a line, counted from 1, and a position in it, counted from 0."""
        lines = self.text.split("\n")
        return sum(len(each) + 1 for each in lines[: line - 1]) + position

    def excerpt(self, start: int, stop: int | None = None) -> str:
        """The line of a character, and carets under it and the others up to `stop`."""
        begin = self.text.rfind("\n", 0, start) + 1
        end = self.text.find("\n", start)
        line = self.text[begin : end if end >= 0 else len(self.text)].replace("\t", " ").rstrip()
        position = start - begin
        width = max(1, min((stop if stop is not None else start) - start + 1, len(line) - position))
        left = max(0, position - _WIDEST_EXCERPT // 2) if len(line) > _WIDEST_EXCERPT else 0
        shown = line[left : left + _WIDEST_EXCERPT]
        carets = "^" * max(1, min(width, len(shown) - (position - left)))
        return f"      | {shown}\n      | {' ' * (position - left)}{carets}"


def explain_failure(
    error: Exception, text: QueryText, secrets: Iterable[str] = ()
) -> LancestatError:
    """The error that a user should see for a query at which Spark raised `error`.

    What a worker raised comes back as it was. A query that Spark cannot parse or resolve is a
    UsageError (LS410); anything else a RunError: LS512 when it was cancelled, else LS513.
    """
    from pyspark.errors import AnalysisException, ParseException

    carried = carried_error(str(error))
    if carried is not None:
        return carried
    said = _said(error, secrets)
    place = _place(error, text)
    message = said if place is None else f"{said}\n{text.excerpt(*place)}"
    location = None if place is None else text.location(place[0])
    if isinstance(error, (AnalysisException, ParseException)):
        return UsageError(BAD_QUERY, message, location=location)
    if is_cancelled(error):
        return RunError(CANCELLED, "the query was cancelled")
    reason, hint = cause(error, secrets)
    if _condition(error) is None:
        message = reason
    return RunError(QUERY_FAILED, f"the query failed: {message}", location=location, hint=hint)


def _said(error: Any, secrets: Iterable[str]) -> str:
    """Spark's sentence, without its state, the excerpt and the plan that follow."""
    text = str(getattr(error, "desc", None) or error).strip()
    return clean(_FROM_STATE_ON.sub("", text), secrets)


def _condition(error: Any) -> str | None:
    ask = getattr(error, "getCondition", None)
    return None if ask is None else ask()


def _place(error: Any, text: QueryText) -> tuple[int, int] | None:
    """First and last character of what Spark complains about, where it is in this very query."""
    contexts = error.getQueryContext() if hasattr(error, "getQueryContext") else []
    for context in contexts:
        start, stop = context.startIndex(), context.stopIndex()
        # A view's own text is elsewhere.
        if not context.objectType() and 0 <= start <= stop < len(text.text):
            return start, stop
    if contexts:
        return None
    found = _LINE_AND_POSITION.search(str(error))
    if found is None:
        return None
    line, position = (int(group) for group in found.groups() if group is not None)
    start = min(text.offset(line, position), len(text.text))
    return start, start
