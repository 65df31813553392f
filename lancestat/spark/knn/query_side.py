"""A side that is a query: one plain query over declared tables, at the versions that were seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lancestat.errors import LancestatError, RunError, UsageError
from lancestat.knn.work import PinnedTable, SideWork
from lancestat.lake.clean import secret_values
from lancestat.spark.plain_query import ParsedQuery, hidden_objection, parse_query
from lancestat.spark.query_failure import Surroundings, explain_failure
from lancestat.spark.query_proof import unproven
from lancestat.spark.query_text import QueryText

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class QuerySide:
    """A side's query, in a session of its own, whose text Spark takes for one plain query.

    `name` is `left` or `right`, for errors.
    """

    name: str
    source: SideWork
    parsed: ParsedQuery

    @classmethod
    def parse(
        cls,
        spark: SparkSession,
        source: SideWork,
        storage_options: Mapping[str, str],
        name: str,
    ) -> QuerySide:
        """Read the query; nothing is resolved, and nothing runs.

        Raises:
            UsageError: LS459 it is not one plain query.
            RunError: LS555 Spark cannot parse it.
        """
        assert source.sql is not None
        try:
            parsed = parse_query(spark.newSession(), source.sql)
        except Exception as error:
            raise unreadable(error, source, storage_options, name) from None
        if parsed.objection is not None:
            raise _not_plain(source, name, parsed.objection)
        return cls(name, source, parsed)

    def rows(self, storage_options: Mapping[str, str]) -> tuple[DataFrame, tuple[str, ...]]:
        """The rows, nothing of which is computed yet, and `query_proof.unproven` about them.

        Raises:
            UsageError: LS459 what it names is no plain query.
            RunError: LS555 Spark cannot resolve it.
            LakeError: a table that it names cannot be opened.
        """
        source = self.source
        try:
            _attach(self.parsed.session, source.views, storage_options)
            rows = self.parsed.rows()
            analyzed = self.parsed.analyzed(rows)
        except LancestatError:
            raise
        except Exception as error:
            raise unreadable(error, source, storage_options, self.name) from None
        objection = hidden_objection(analyzed)
        if objection is not None:
            raise _not_plain(source, self.name, objection)
        names = [view.name for view in source.views]
        return rows, unproven(source.sql or "", self.parsed.facts, analyzed, names)


def unreadable(
    error: Exception, source: SideWork, storage_options: Mapping[str, str], name: str
) -> LancestatError:
    """The error (LS555) for a side of which Spark can make no rows."""
    secrets = secret_values(storage_options) | secret_values(source.options)
    around = Surroundings({view.name: None for view in source.views}, secrets)
    found = explain_failure(error, QueryText(source.sql or "", f"the {name} side's query"), around)
    hint = found.hint
    if source.sql is not None and "no table" in found.message:
        hint = "a query names declared tables as {{ ref('name') }}"
    message = f"the {name} side cannot be read: {found.message}"
    return RunError("LS555", message, location=source.location, hint=hint)


def _not_plain(source: SideWork, name: str, objection: str) -> UsageError:
    return UsageError(
        "LS459",
        f"the query of the {name} side is not one plain query: it holds {objection}",
        location=source.location,
        hint="a side is one SELECT, which writes nothing and runs no program",
    )


def _attach(
    session: SparkSession, views: Sequence[PinnedTable], storage_options: Mapping[str, str]
) -> None:
    from lancestat.read.opening import open_pinned_table
    from lancestat.spark.relation import Relation, relate

    opened = [(each.name, open_pinned_table(each.pin, storage_options)) for each in views]
    relate(session, [Relation(table, view=name) for name, table in opened])
