"""The command that says whether tables are as expected."""

from __future__ import annotations

import click

from lancestat.cli.command import (
    ExitCode,
    Invocation,
    MakeArtifacts,
    Selectors,
    artifact_options,
    command,
    selection_options,
)
from lancestat.presentation.views import CheckView


@command(CheckView)
@selection_options
@click.option("--prove", is_flag=True, help="Read rows where nothing that is known decides.")
@artifact_options
def check(
    invocation: Invocation,
    select: Selectors,
    exclude: Selectors,
    prove: bool,
    artifacts: MakeArtifacts,
) -> ExitCode | None:
    """Say whether tables are as expected, as far as that is known without reading rows.

    What `expect` declares of a table is proved or refuted by the statistics of its fragments, or
    unknown. --prove reads the columns of what is unknown, as far as they have not been read, and
    remembers what it finds. Exits with 1 if an expectation of severity error is refuted, or a table
    cannot be read. Without --prove no Spark is started.
    """
    from lancestat.cli.progress import progress_display

    project = invocation.project()
    written = artifacts(project)
    with progress_display(quiet=invocation.quiet) as progress:
        checked = project.check(
            select,
            exclude,
            prove=prove,
            on_event=progress,
            ends_process=invocation.ends_process,
        )
    if written is not None:
        written.reported(checked.report)
    invocation.show(CheckView(checked))
    return None if checked.ok else ExitCode.FAILURE
