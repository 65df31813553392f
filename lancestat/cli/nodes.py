"""The commands that plan, run and show nodes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lancestat.cli.command import (
    ExitCode,
    Invocation,
    MakeArtifacts,
    Selectors,
    artifact_options,
    budget_options,
    command,
    execution_options,
    path_option,
    run_nodes,
    selection_options,
)
from lancestat.cli.completion import complete_selector, complete_table
from lancestat.formats import count, instant, size
from lancestat.presentation.terminal import CONSOLE, paint
from lancestat.presentation.views import (
    Answer,
    HistoryView,
    PlanView,
    RunView,
    ShowView,
    StatusView,
    load_format,
)

if TYPE_CHECKING:
    from lancestat.runs.result import UnfinishedNodes


@command(PlanView)
@selection_options
@click.option("--full-refresh", is_flag=True, help="Plan as if nothing were known yet.")
@budget_options
@click.option("--check", is_flag=True, help="Exit with 3 if there is anything to do.")
@path_option("--out", help="Also write the plan to a file, for 'run --plan-file FILE'.")
@artifact_options
def plan(
    invocation: Invocation,
    select: Selectors,
    exclude: Selectors,
    full_refresh: bool,
    check: bool,
    out: Path | None,
    artifacts: MakeArtifacts,
    **budget: Any,
) -> ExitCode | None:
    """Show what a run would do, and why. Opens datasets, starts no Spark."""
    from lancestat.presentation.words import deferred, is_blocked
    from lancestat.runs.actions import has_work

    project = invocation.project()
    written = artifacts(project)
    if out is None:
        made = project.plan(select, exclude, full_refresh=full_refresh, **budget)
    else:
        made = project.save_plan(out, select, exclude, full_refresh=full_refresh, **budget)
    if written is not None:
        written.planned(made)
    policies = {table.name: table.policy for table in project.spec.tables}
    invocation.show(PlanView(made, policies))
    if out is not None:
        invocation.say(f"the plan is in {out}, for 'lancestat run --plan-file'")
    if is_blocked(made):
        return ExitCode.FAILURE
    is_due = bool(deferred(made)) or any(map(has_work, made.actions))
    return ExitCode.CHANGES_PENDING if check and is_due else None


@command(RunView)
@selection_options
@click.option("--full-refresh", is_flag=True, help="Compute everything from scratch.")
@path_option(
    "--plan-file",
    help="Run exactly what 'plan --out FILE' wrote, with the options given there; refused if "
    "the project, a dataset or the state has changed since.",
)
@budget_options
@execution_options
@artifact_options
def run(
    invocation: Invocation,
    select: Selectors,
    exclude: Selectors,
    full_refresh: bool,
    plan_file: Path | None,
    max_bytes: int | None,
    max_minutes: float | None,
    artifacts: MakeArtifacts,
    **options: object,
) -> ExitCode | None:
    """Bring statistics and joins up to date."""
    budget: dict[str, Any] = {"max_bytes": max_bytes, "max_minutes": max_minutes}
    is_planned = select or exclude or full_refresh or any(v is not None for v in budget.values())
    if plan_file is not None and is_planned:
        raise click.UsageError(
            "--plan-file cannot be combined with --select, --exclude, --full-refresh, --max-bytes "
            "and --max-minutes; pass them to 'plan --out'."
        )
    project = invocation.project()
    if plan_file is not None:
        plan = project.load_plan(plan_file)
    else:
        plan = project.plan(select, exclude, full_refresh=full_refresh, **budget)
    return run_nodes(
        invocation,
        artifacts(project),
        project.run,
        plan,
        ends_process=invocation.ends_process,
        **options,
    )


@command(RunView)
@budget_options
@execution_options
@artifact_options
def retry(invocation: Invocation, artifacts: MakeArtifacts, **options: object) -> ExitCode | None:
    """Run again what failed or was interrupted last time.

    Runs the nodes that failed in the newest run of this target, and those that did not run because
    of a failure, or because the run was interrupted or killed; after 'run --full-refresh', in full
    again. What was read before is not read again. If nothing failed, or no run is recorded, there
    is nothing to do, and the command succeeds.
    """
    project = invocation.project()
    left = project.unfinished()
    for name in left.gone:
        invocation.say(f"'{name}' is no longer declared, and is not retried")
    if not left.nodes:
        invocation.say(_nothing(left, project.spec.target.name))
    return run_nodes(
        invocation,
        artifacts(project),
        project.retry,
        left,
        ends_process=invocation.ends_process,
        **options,
    )


def _nothing(left: UnfinishedNodes, target: str) -> str:
    if left.run is None:
        return f"no run of target {target} is recorded"
    ended = instant(left.run.finished_at, with_seconds=True)
    what = "nothing else failed" if left.gone else "nothing failed"
    return f"{what} in the last run of target {target}, which ended at {ended}"


@command(Answer)
@click.argument("run", required=False)
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    metavar="N",
    help="How many runs to list.",
)
def runs(invocation: Invocation, run: str | None, limit: int) -> None:
    """List past runs of the target, the newest first, or the nodes of one RUN.

    RUN is an id, of which the beginning is enough. Runs that found nothing to do are not recorded.
    Spark is not started.
    """
    from lancestat.presentation.results import past_run_answer, runs_answer
    from lancestat.runs.result import past_run

    project = invocation.project()
    if run is None:
        invocation.show(runs_answer(project.spec, project.runs(limit=limit)))
    else:
        invocation.show(past_run_answer(project.spec, past_run(project.runs(), run)))


@command(StatusView)
@selection_options
@artifact_options
def status(
    invocation: Invocation, select: Selectors, exclude: Selectors, artifacts: MakeArtifacts
) -> ExitCode | None:
    """Show all tables and joins at a glance, and what is wrong with them.

    A table has an error if it cannot be opened, its policy refuses the statistics, its last run
    failed, its rows are older than freshness.error_after, or a check of severity error is refuted.
    A join has an error if it is blocked, has no result or failed. Warnings are rows older than
    freshness.warn_after, other refuted checks, declared columns without statistics, and a join
    whose result is out of date. Exits with 1 if any node has an error. Starts no Spark.
    """
    from lancestat.presentation.results import status_view
    from lancestat.report.gather import redacted_report
    from lancestat.report.values import Health

    project = invocation.project()
    written = artifacts(project)
    with_histograms = load_format(invocation.output).has_histograms
    report = project.report(select, exclude, runs=1, with_histograms=with_histograms)
    if written is not None:
        written.reported(report)
    invocation.show(status_view(redacted_report(report, project.spec, CONSOLE.audience)))
    return ExitCode.FAILURE if report.health is Health.ERROR else None


@command(ShowView, HistoryView)
@click.argument("table", shell_complete=complete_table)
@click.option("--history", is_flag=True, help="Show what runs have found over time instead.")
def show(invocation: Invocation, table: str, history: bool) -> None:
    """Show a table's published statistics, and whether its policy lets readers use them.

    CSV has a line per column with all figures, like lancestat.statistics in SQL; with --history,
    like lancestat.history.
    """
    from lancestat.presentation.results import history_view, show_view

    project = invocation.project()
    if history:
        invocation.show(history_view(table, project.history(table)))
    else:
        invocation.show(show_view(project.show(table)))


@command(Answer, is_published=True)
@selection_options
@path_option(
    "--out", metavar="DIR", help="Where to write them (default: .lancestat/docs in the project)."
)
def docs(invocation: Invocation, select: Selectors, exclude: Selectors, out: Path | None) -> None:
    """Write HTML pages about all tables and joins."""
    from lancestat.presentation.site.pages import build_site, check_folder
    from lancestat.spec import PAGES

    project = invocation.project()
    folder = out or project.spec.root / PAGES
    check_folder(folder)
    report = project.report(
        select, exclude, with_fragments=True, with_histograms=True, with_history=True
    )
    site = build_site(report, project.spec, folder)
    nodes = [{"name": node.spec.name, "health": node.health.value} for node in report.nodes]
    members = {"page": str(site.page), "pages": site.pages, "nodes": nodes}
    wrote = f"wrote {count(site.pages, 'page')}, {size(site.size_bytes)}"
    lines = [paint(f"{wrote}; open this one in a browser:", "note"), site.page.as_uri()]
    invocation.show(Answer("docs", members, lambda page: lines))


@command(Answer)
@click.option("--dry-run", is_flag=True, help="Only print what would be removed.")
def gc(invocation: Invocation, dry_run: bool) -> None:
    """Remove state and scratch that are no longer needed."""
    from lancestat.presentation.results import garbage_answer

    project = invocation.project()
    report = project.collect_garbage(dry_run=dry_run)
    invocation.show(garbage_answer(report, project.spec.name, project.spec.target.name))


@command(Answer)
@click.argument("selection", nargs=-1, shell_complete=complete_selector)
@selection_options
@click.option("--dry-run", is_flag=True, help="Only print what would be removed.")
def unpublish(
    invocation: Invocation,
    selection: tuple[str, ...],
    select: Selectors,
    exclude: Selectors,
    dry_run: bool,
) -> ExitCode | None:
    """Remove published statistics from tables.

    SELECTION is what --select takes: a name, tag:x and so on; without any, all tables. Every table
    gets one commit, which removes the entries that lancestat wrote and changes nothing else.
    Statistics of other writers, the state and the results of joins stay as they are.

    The next run publishes the statistics of tables with 'publish: manifest' again, without reading
    what the state has stored. To keep them out, declare 'publish: none'.
    """
    from lancestat.presentation.results import unpublish_answer

    chosen = [*selection, *(select or ())] or None
    result = invocation.project().unpublish(chosen, exclude, dry_run=dry_run)
    invocation.show(unpublish_answer(result))
    return None if result.ok else ExitCode.FAILURE
