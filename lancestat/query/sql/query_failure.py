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
    UnknownTable,
    did_you_mean,
)
from lancestat.redact import redact_line
from lancestat.spark.failure import carried_by, cause, is_cancelled
from lancestat.spark.python import python_error
from lancestat.spark.start import VIEW_SCHEMA
from lancestat.spark.versions import condition, query_contexts

_WIDEST_EXCERPT = 100


@dataclass(frozen=True, slots=True)
class QueryText:
    """A query and where it came from."""

    text: str
    source: str = "query"

    def location(self, offset: int) -> Location:
        """Return where a character is."""
        before = self.text[:offset]
        return Location(self.source, before.count("\n") + 1, offset - (before.rfind("\n") + 1) + 1)

    def offset(self, line: int, position: int) -> int:
        """Return the character at a line, counted from 1, and a position in it, counted from 0."""
        lines = self.text.split("\n")
        return sum(len(earlier_line) + 1 for earlier_line in lines[: line - 1]) + position

    def excerpt(self, start: int, stop: int | None = None) -> str:
        """Return the line of a character, and carets under it and the others up to `stop`."""
        begin = self.text.rfind("\n", 0, start) + 1
        end = self.text.find("\n", start)
        line = self.text[begin : end if end >= 0 else len(self.text)].replace("\t", " ").rstrip()
        position = start - begin
        width = max(1, min((stop if stop is not None else start) - start + 1, len(line) - position))
        left = max(0, position - _WIDEST_EXCERPT // 2) if len(line) > _WIDEST_EXCERPT else 0
        visible = line[left : left + _WIDEST_EXCERPT]
        carets = "^" * max(1, min(width, len(visible) - (position - left)))
        return f"      | {visible}\n      | {' ' * (position - left)}{carets}"


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
# What follows a message; before Spark 4.0 without a state.
_REST = re.compile(
    r"\s*(?:SQLSTATE:|\(line \d+, pos \d+\)\s*== SQL|; line \d+ pos \d+;).*", re.DOTALL
)


@dataclass(frozen=True, slots=True)
class QueryContext:
    """The tables that a query may name, each with the error if it could not be opened.

    `views` are the full names of lancestat's own. `secrets` are values that messages must not show.
    """

    tables: Mapping[str, LancestatError | None] = field(default_factory=dict)
    secrets: frozenset[str] = field(default=frozenset(), repr=False)
    views: tuple[str, ...] = ()


NO_CONTEXT = QueryContext()


def explain_failure(
    error: Exception, text: QueryText, query_context: QueryContext = NO_CONTEXT
) -> LancestatError:
    """Return the error that a user should see for a query at which Spark raised `error`.

    What a worker raised comes back as it was. A query that names a table that is not there is an
    `UnknownTable`, another one that Spark cannot parse or resolve an `InvalidQuery`; anything else
    is `Cancelled` when it was cancelled, else `QueryFailed`.
    """
    from pyspark.errors import AnalysisException, ParseException

    carried = carried_by(error)
    if carried is not None:
        return carried
    error = _unwrapped(error)
    if condition(error) == "TABLE_OR_VIEW_NOT_FOUND":
        return _no_table(error, text, query_context)
    sentence = _spark_message(error, query_context)
    span = _error_span(error, text)
    message = sentence if span is None else f"{sentence}\n{text.excerpt(*span)}"
    location = None if span is None else text.location(span[0])
    if isinstance(error, (AnalysisException, ParseException)):
        return InvalidQuery(message, location=location)
    if is_cancelled(error):
        return Cancelled("the query was cancelled")
    reason, hint = cause(error, query_context.secrets)
    explained = python_error("the query", reason, str(error))
    if explained is not None:
        return explained
    if condition(error) is None:
        message = reason
    return QueryFailed(f"the query failed: {message}", location=location, hint=hint)


def _no_table(error: Any, text: QueryText, query_context: QueryContext) -> LancestatError:
    name = str(error.getMessageParameters()["relationName"]).replace("`", "")
    for declared, failure in query_context.tables.items():
        if failure is not None and declared.lower() == name.lower():
            return failure
    span = _error_span(error, text)
    message = f"there is no table or view '{name}'"
    return UnknownTable(
        message if span is None else f"{message}\n{text.excerpt(*span)}",
        location=None if span is None else text.location(span[0]),
        hint=hint_for(name, query_context),
    )


def hint_for(name: str, query_context: QueryContext) -> str:
    """Suggest a name: one of lancestat's own views where the schema is named."""
    schema, _, view = name.rpartition(".")
    own = {full_name.rpartition(".")[0].lower() for full_name in query_context.views} | {
        VIEW_SCHEMA
    }
    if query_context.views and schema.lower() in own:
        by_name = {full_name.rpartition(".")[2]: full_name for full_name in query_context.views}
        near = difflib.get_close_matches(view.lower(), by_name, n=1)
        listed = ", ".join(query_context.views)
        return f"did you mean '{by_name[near[0]]}'?" if near else f"there are {listed}"
    declared = ", ".join(list(query_context.tables)[:20]) or "none"
    return did_you_mean(name, query_context.tables) or f"declared tables: {declared}"


def _spark_message(error: Any, query_context: QueryContext) -> str:
    """Return Spark's message, without its state, the excerpt and the plan that follow."""
    text = str(getattr(error, "desc", None) or error).strip()
    return redact_line(_REST.sub("", text), query_context.secrets)


def _unwrapped(error: Any) -> Any:
    """Return the innermost of Java's causes that has a condition, if the outer ones have none."""
    from pyspark.errors.exceptions.captured import convert_exception

    java = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    while condition(error) is None and java is not None:
        java = java.getCause()
        if java is not None:
            converted = convert_exception(java)
            error = converted if condition(converted) is not None else error
    return error


def _error_span(error: Any, text: QueryText) -> tuple[int, int] | None:
    """Return the first and last character of the error, where it is in this very query."""
    contexts = query_contexts(error)
    for context in contexts:
        start, stop = context.startIndex(), context.stopIndex()
        # A view's own text is elsewhere.
        if not context.objectType() and 0 <= start <= stop < len(text.text):
            return start, stop
    if contexts:
        return None
    matched = _LINE_AND_POSITION.search(str(error))
    if matched is None:
        return None
    line, position = (int(group) for group in matched.groups() if group is not None)
    start = min(text.offset(line, position), len(text.text))
    return start, start
