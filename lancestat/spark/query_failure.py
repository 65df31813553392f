"""Why Spark did not answer a query: one error with its place in the query."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lancestat.errors import LancestatError, RunError, UsageError, did_you_mean
from lancestat.lake.clean import clean
from lancestat.spark.failure import CANCELLED, cause, is_cancelled
from lancestat.spark.query_text import BAD_QUERY, QueryText
from lancestat.spark.system_views import SCHEMA
from lancestat.spark.worker_error import carried_error

QUERY_FAILED = "LS513"

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

    What a worker raised comes back as it was. A query that Spark cannot parse or resolve is a
    UsageError (LS420); anything else a RunError: LS512 when it was cancelled, else LS513.
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
        return UsageError(BAD_QUERY, message, location=location)
    if is_cancelled(error):
        return RunError(CANCELLED, "the query was cancelled")
    reason, hint = cause(error, surroundings.secrets)
    if _condition(error) is None:
        message = reason
    return RunError(QUERY_FAILED, f"the query failed: {message}", location=location, hint=hint)


def _no_table(error: Any, text: QueryText, surroundings: Surroundings) -> LancestatError:
    name = str(error.getMessageParameters()["relationName"]).replace("`", "")
    for declared, failure in surroundings.tables.items():
        if failure is not None and declared.lower() == name.lower():
            return failure
    place = _place(error, text)
    message = f"there is no table or view '{name}'"
    return UsageError(
        BAD_QUERY,
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
