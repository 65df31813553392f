"""`lancestat advise`."""

from __future__ import annotations

from pathlib import Path

import click

from lancestat.cli.command import Invocation, command
from lancestat.presentation.views import AdviceView


@command(AdviceView)
@click.argument("paths", metavar="[PATH]...", nargs=-1, type=click.Path(path_type=Path))
@click.option("--write", is_flag=True, help="Change the spec files.")
@click.option(
    "--min-queries",
    type=click.IntRange(min=1),
    metavar="N",
    default=1,
    show_default=True,
    help="Propose only what at least N queries use.",
)
@click.option(
    "--min-q-error",
    type=click.FloatRange(min=1),
    metavar="FACTOR",
    default=2.0,
    show_default=True,
    help="Leave out what serves estimates that are closer than this.",
)
def advise(
    invocation: Invocation,
    paths: tuple[Path, ...],
    write: bool,
    min_queries: int,
    min_q_error: float,
) -> None:
    """Propose changes of the YAML, from what queries have done.

    Each PATH is an event log of Spark, or a folder with such logs: whole, rolled over, still being
    written, compressed or not. Without PATH, what sessions recorded is read. Shows the
    statistics that the queries would have had use for, each with its evidence, columns that none
    has read for 90 days, and the change of the spec files as a diff, which --write makes. Comments
    and the order of keys stay. Nothing of a query is shown or kept but the names of tables and
    columns.
    """
    from lancestat.query.workload.changes import with_changes, write_files
    from lancestat.spec.files import Folder
    from lancestat.spec.load import load_project

    project = invocation.project()
    advice = project.advise(paths, min_queries=min_queries, min_q_error=min_q_error)
    root, options = project.spec.root, dict(invocation.vars)
    advice, files = with_changes(
        advice,
        Folder(root),
        project.spec.tables,
        lambda files: load_project(root, target=invocation.target, vars=options, files=files),
    )
    written = write_files(files) if write else None
    invocation.show(AdviceView(advice, written))
