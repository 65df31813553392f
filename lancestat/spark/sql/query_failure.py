"""Explains why Spark refused a query, with the place in its text."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lancestat.errors import (
    Cancelled,
    InvalidQuery,
    LancestatError,
    Location,
    QueryFailed,
    did_you_mean,
)
from lancestat.redact import clean
from lancestat.spark.session.failure import carried_error, cause, is_cancelled
from lancestat.spark.sql.system_views import SCHEMA

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


def query_text(content: bytes, source: str) -> QueryText:
    """Decode a query.

    Raises:
        InvalidQuery: it is not UTF-8.
    """
    try:
        return QueryText(content.decode("utf-8-sig"), source)
    except UnicodeDecodeError as error:
        before = QueryText(content[: error.start].decode("utf-8-sig"), source)
        raise InvalidQuery(
            f"byte 0x{content[error.start]:02x} is not UTF-8",
            location=before.location(len(before.text)),
            hint="save the query as UTF-8",
        ) from None


_LINE_AND_POSITION = re.compile(r"\(line (\d+), pos (\d+)\)|; line (\d+) pos (\d+)")
_FROM_STATE_ON = re.compile(r"\s*SQLSTATE:.*", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a query may name: declared tables, each with the error if it could not be opened.

    `views` are the full names of lancestat's own. `secrets` are values that messages must not show.
    """

    tables: Mapping[str, LancestatError | None] = field(default_factory=dict)
    secrets: frozenset[str] = field(default=frozenset(), repr=False)
    views: tuple[str, ...] = ()


NOTHING_AROUND = Surroundings()


def explain_failure(
    error: Exception, text: QueryText, surroundings: Surroundings = NOTHING_AROUND
) -> LancestatError:
    """The error that a user should see for a query at which Spark raised `error`.

    What a worker raised comes back as it was. A query that Spark cannot parse or resolve is an
    `InvalidQuery`; anything else is `Cancelled` when it was cancelled, else `QueryFailed`.
    """
    from pyspark.errors import AnalysisException, ParseException

    carried = carried_error(str(error))
    if carried is not None:
        return carried
    error = _unwrapped(error)
    if _condition(error) == "TABLE_OR_VIEW_NOT_FOUND":
        return _no_table(error, text, surroundings)
    said = _said(error, surroundings)
    place = _place(error, text)
    message = said if place is None else f"{said}\n{text.excerpt(*place)}"
    location = None if place is None else text.location(place[0])
    if isinstance(error, (AnalysisException, ParseException)):
        return InvalidQuery(message, location=location)
    if is_cancelled(error):
        return Cancelled("the query was cancelled")
    reason, hint = cause(error, surroundings.secrets)
    if _condition(error) is None:
        message = reason
    return QueryFailed(f"the query failed: {message}", location=location, hint=hint)


def _no_table(error: Any, text: QueryText, surroundings: Surroundings) -> LancestatError:
    name = str(error.getMessageParameters()["relationName"]).replace("`", "")
    for declared, failure in surroundings.tables.items():
        if failure is not None and declared.lower() == name.lower():
            return failure
    place = _place(error, text)
    message = f"there is no table or view '{name}'"
    return InvalidQuery(
        message if place is None else f"{message}\n{text.excerpt(*place)}",
        location=None if place is None else text.location(place[0]),
        hint=hint_for(name, surroundings),
    )


def hint_for(name: str, surroundings: Surroundings) -> str:
    """What may have been meant: of lancestat's own views where the schema is named."""
    schema, _, view = name.rpartition(".")
    own = {each.rpartition(".")[0].lower() for each in surroundings.views} | {SCHEMA}
    if surroundings.views and schema.lower() in own:
        by_name = {each.rpartition(".")[2]: each for each in surroundings.views}
        near = difflib.get_close_matches(view.lower(), by_name, n=1)
        listed = ", ".join(surroundings.views)
        return f"did you mean '{by_name[near[0]]}'?" if near else f"there are {listed}"
    declared = ", ".join(list(surroundings.tables)[:20]) or "none"
    return did_you_mean(name, surroundings.tables) or f"declared tables: {declared}"


def _said(error: Any, surroundings: Surroundings) -> str:
    """Spark's sentence, without its state, the excerpt and the plan that follow."""
    text = str(getattr(error, "desc", None) or error).strip()
    return clean(_FROM_STATE_ON.sub("", text), surroundings.secrets)


def _unwrapped(error: Any) -> Any:
    """The innermost of Java's causes that has a condition, if the outer ones have none."""
    from pyspark.errors.exceptions.captured import convert_exception

    java = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    while _condition(error) is None and java is not None:
        java = java.getCause()
        if java is not None:
            converted = convert_exception(java)
            error = converted if _condition(converted) is not None else error
    return error


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
