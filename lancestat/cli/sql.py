"""`lancestat sql`."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lancestat.cli.command import ExitCode, Invocation, command, run_nodes
from lancestat.errors.base import LancestatError
from lancestat.errors.codes import UnsupportedStatement
from lancestat.formats import count
from lancestat.presentation.views import ComparisonView, ExplanationView, QueryView, RunView
from lancestat.redact import secret_values

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lancestat.project import Project
    from lancestat.query.sql.query import QueryResult
    from lancestat.query.sql.statement import AnalyzeStatement, QueryContext, QueryText
    from lancestat.runs.result import RunResult

_ROWS_FOR_PEOPLE = 100
_ALL = "all"
_NEAREST_BY = re.compile(r"\bnearest\b", re.IGNORECASE)


class Limit(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """A number of rows, or `all`."""

    name = "limit"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> str | int:
        text = str(value)
        if text == _ALL:
            return _ALL
        if not text.isascii() or not text.isdigit():
            self.fail(f"{text!r} is neither a number of rows nor '{_ALL}'.", param, ctx)
        return int(text)


@command(QueryView)
@click.argument("query", required=False)
@click.option(
    "--file",
    "-f",
    "path",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Read the query from a file.",
)
@click.option(
    "--limit",
    type=Limit(),
    metavar="N|all",
    help=f"Maximum number of rows to print (default: {_ROWS_FOR_PEOPLE}; for JSON and CSV, all).",
)
@click.option(
    "--explain",
    is_flag=True,
    help="Show the query plan, its estimates and the statistics behind them, without running "
    "the query.",
)
@click.option(
    "--analyze",
    is_flag=True,
    help="Run the query, and show the plan that ran: the true rows, time and q-error of its "
    "operators beside the estimates.",
)
@click.option(
    "--compare",
    is_flag=True,
    help="Run the query with and without statistics, several times each, and show what changes in "
    "its plan and in time.",
)
def sql(
    invocation: Invocation,
    query: str | None,
    path: Path | None,
    limit: str | int | None,
    explain: bool,
    analyze: bool,
    compare: bool,
) -> ExitCode | None:
    """Run a query with the tables' statistics. Declared tables are available by name.

    QUERY is one statement of Spark SQL that writes and defines nothing; '-' reads it from stdin.
    ANALYZE TABLE t COMPUTE STATISTICS
    [FOR COLUMNS a, b | FOR ALL COLUMNS] computes what is not known yet about a declared table, like
    `lancestat run`.

    What is known about the project is available too: lancestat.statistics has a row per table and
    column, lancestat.runs one per run and node, lancestat.fragments one per fragment,
    and lancestat.history one per column and run that found something new.
    """
    from lancestat.query.sql.query import query_session, run_query
    from lancestat.query.sql.statement import parse, parse_analyze
    from lancestat.spark.session import remote_of

    look = _look(explain=explain, analyze=analyze, compare=compare)
    if look:
        invocation.require(ComparisonView if compare else ExplanationView, look)
    text = _query(query, path)
    project = invocation.project()
    project.discover()
    target = project.spec.target
    most, local_time = _limit(invocation, limit), invocation.is_for_people
    if not look and (result := _answer_without_spark(project, text, most, local_time)):
        _print(invocation, result)
        return None
    # The parser of Spark Connect is on the server.
    is_remote = remote_of(target) is not None
    statement = parse_analyze(text, is_strict=is_remote)
    if statement and is_remote and (run := _analysis(invocation, project, statement, look)):
        return run_nodes(invocation, None, run)
    with query_session(target) as spark:
        if statement and (run := _analysis(invocation, project, statement, look, spark)):
            return run_nodes(invocation, None, run)
        plan = parse(spark, text)
        query_context = _attach(project, spark, text)
        with _system_views(project, spark, text):
            if look:
                invocation.show(_looked_at(look, spark, plan, text, query_context))
            else:
                result = run_query(spark, text, query_context, limit=most, local_time=local_time)
                _print(invocation, result)
    return None


def _look(**wanted: bool) -> str | None:
    """Return the option that shows a query's plan in place of its rows, None without one."""
    given = [f"--{name}" for name, is_given in wanted.items() if is_given]
    if len(given) > 1:
        raise click.UsageError(f"Give one of {' and '.join(given)}.")
    return given[0] if given else None


def _looked_at(
    look: str, spark: SparkSession, plan: Any, text: QueryText, query_context: QueryContext
) -> ExplanationView | ComparisonView:
    from lancestat.query.sql.comparison import compare_query
    from lancestat.query.sql.explain import explain_query
    from lancestat.query.workload.query_log import stop_recording

    if look == "--compare":
        # It would count as eight queries, half of which are planned without statistics.
        stop_recording(spark)
        return ComparisonView(compare_query(spark, plan, text, query_context))
    is_run = look == "--analyze"
    return ExplanationView(explain_query(spark, plan, text, query_context, analyze=is_run))


def _query(query: str | None, path: Path | None) -> QueryText:
    from lancestat.query.sql.statement import query_text

    if (query is None) == (path is None):
        what = "neither was" if query is None else "both were"
        raise click.UsageError(f"Give a query or --file; {what} given.")
    if path is not None:
        try:
            return query_text(path.read_bytes(), str(path))
        except OSError as error:
            reason = error.strerror or str(error)
            raise click.UsageError(f"cannot read {path}: {reason}") from None
    assert query is not None
    if query == "-":
        return query_text(sys.stdin.buffer.read(), "stdin")
    return query_text(query.encode("utf-8", "surrogateescape"), "query")


def _limit(invocation: Invocation, limit: str | int | None) -> int | None:
    """Return how many rows to print, None for all, which is what scripts get by default."""
    if isinstance(limit, int):
        return limit
    return _ROWS_FOR_PEOPLE if limit is None and invocation.is_for_people else None


def _attach(project: Project, spark: SparkSession, text: QueryText) -> QueryContext:
    """Open the tables that the query may name; one that fails to open fails a query of it."""
    from lancestat.query.sql.query import view_schema
    from lancestat.query.sql.statement import QueryContext, mentioned
    from lancestat.report.gather import ReportTable

    tables: dict[str, LancestatError | None] = {table.name: None for table in project.spec.tables}
    selected = mentioned(text.text, tuple(tables))
    if selected:
        tables |= project.attach(spark, select=selected).failed
    elif mentioned(text.text, tuple(project.spec.target.catalogs)):
        project.attach_catalogs(spark)
    if _NEAREST_BY.search(text.text):
        project.run_nearest_by(spark)
    schema = view_schema(spark)
    views = tuple(f"{schema}.{table.value}" for table in ReportTable)
    return QueryContext(tables, secret_values(project.spec.target.storage_options), views)


def _system_views(
    project: Project, spark: SparkSession, text: QueryText
) -> AbstractContextManager[None]:
    """Make views of what is known of the project, as far as the query may name them."""
    from lancestat.query.sql.query import mentioned_views, system_views, view_schema
    from lancestat.report.gather import ReportTable

    names = [table.value for table in ReportTable]
    selected = mentioned_views(text.text, view_schema(spark), names)
    return system_views(spark, project.report_tables(selected) if selected else {})


def _answer_without_spark(
    project: Project, text: QueryText, limit: int | None, local_time: bool
) -> QueryResult | None:
    """Return the result of a query of a system view, None where it takes Spark."""
    from lancestat.query.sql.query import answer
    from lancestat.report.gather import SHAPES
    from lancestat.spark.jvm import spark_defaults
    from lancestat.spark.session import VIEW_SCHEMA, running_session

    # Settings of a session decide what a query means.
    has_session = "pyspark" in sys.modules and running_session() is not None
    settings = [*project.spec.target.spark_conf, *spark_defaults().splitlines()]
    if has_session or any(setting.startswith("spark.sql.") for setting in settings):
        return None
    return answer(
        text.text,
        {table.value: shape.columns for table, shape in SHAPES.items()},
        project.report_tables,
        schema=VIEW_SCHEMA,
        limit=limit,
        local_time=local_time,
    )


def _print(invocation: Invocation, result: QueryResult) -> None:
    from lancestat.presentation.results import query_view

    view = query_view(result)
    invocation.show(view)
    if not view.columns:
        invocation.say("done")
        return
    rows = count(view.printed, "row")
    if view.is_complete:
        invocation.say(rows)
    else:
        invocation.say(f"the first {rows}; --limit all shows every one")
    if view.is_shortened:
        invocation.say("what does not fit is left out; --verbose shows it")


def _analysis(
    invocation: Invocation,
    project: Project,
    analyze: AnalyzeStatement,
    look: str | None,
    spark: SparkSession | None = None,
) -> Callable[..., RunResult] | None:
    """Return what runs ANALYZE TABLE, None for a table of Spark's own catalog.

    Over Spark Connect there is no `spark`, and its catalog is not asked.
    """
    from lancestat.query.sql.statement import find_declared, not_declared

    invocation.require(RunView, "ANALYZE TABLE")
    if look:
        raise UnsupportedStatement(
            f"{look} shows the plan of a query, and ANALYZE TABLE has none",
            hint="lancestat plan shows what would be read, and why",
        )
    conf = project.spec.target.spark_conf if spark is None else spark.conf
    is_case_sensitive = conf.get("spark.sql.caseSensitive", "false") == "true"
    table = find_declared(analyze, project.spec.tables, is_case_sensitive=is_case_sensitive)
    if table is None:
        if spark is not None and spark.catalog.tableExists(analyze.quoted_name):
            return None
        names = [table.name for table in project.spec.tables]
        raise not_declared(analyze, names, asked_catalog=spark is not None)
    if analyze.objection is not None:
        raise analyze.objection
    return partial(
        project.analyze,
        table,
        analyze.columns or None,
        all_columns=analyze.all_columns,
        is_case_sensitive=is_case_sensitive,
    )
