"""The command that runs what is due for as long as it is let."""

from __future__ import annotations

import re
import signal
import sys
import time
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lancestat.cli.command import (
    Invocation,
    MakeArtifacts,
    Selectors,
    artifact_options,
    budget_options,
    command,
    execution_options,
    selection_options,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lancestat.spec.model import Node, ProjectSpec


def _interval(context: click.Context, parameter: click.Parameter, text: str) -> timedelta:
    from lancestat.spec.declaration import DURATION, span

    if not re.match(str(DURATION.keywords["pattern"]), text) or not span(text):
        raise click.BadParameter(f"{text!r} is not {DURATION.title}.")
    return span(text)


@command()
@selection_options
@click.option(
    "--interval",
    default="60s",
    show_default=True,
    callback=_interval,
    metavar="DURATION",
    help="How long to wait between two looks.",
)
@click.option(
    "--round", "file", hidden=True, allow_from_autoenv=False, type=click.Path(path_type=Path)
)
@budget_options
@execution_options
@artifact_options
def watch(
    invocation: Invocation,
    select: Selectors,
    exclude: Selectors,
    interval: timedelta,
    file: Path | None,
    max_bytes: int | None,
    max_minutes: float | None,
    artifacts: MakeArtifacts,
    **options: Any,
) -> None:
    """Run what is due, again and again, until SIGTERM or Ctrl-C.

    Datasets are asked for their latest versions, and nodes are run as 'lancestat run' would when
    one has changed. Nodes that fail are tried again, after twice as long each time, within the
    hour. Ends with 0 on SIGTERM, once a run that goes on has recorded how far it got. One process
    may watch a state.
    """
    # A round plans and runs in a process of its own, so that between rounds none holds its memory.
    from lancestat.cli.main import LINE, Terminated, raise_once
    from lancestat.cli.progress import progress_display
    from lancestat.errors import LakeError
    from lancestat.pipelines.watch import Watcher, answer, run_apart, run_due, sole_watcher
    from lancestat.runs.actions import Plan
    from lancestat.runs.events import EventStream
    from lancestat.runs.result import RunResult

    def clock() -> datetime:
        return datetime.now(timezone.utc)

    project = invocation.project()

    def plan() -> Plan:
        return project.plan(select, exclude, max_bytes=max_bytes, max_minutes=max_minutes)

    def execute(plan: Plan) -> RunResult:
        written = artifacts(project)
        with progress_display(quiet=invocation.quiet) as progress:
            listeners = EventStream(filter(None, (progress, written)))
            return project.run(plan, on_event=listeners.emit, **options)

    if file is not None:
        # It comes from who watches, and from systemd, which signals all processes of a unit.
        signal.signal(signal.SIGTERM, raise_once)
        answer(file, partial(run_due, plan, execute))
        return

    def watched() -> tuple[ProjectSpec, Sequence[Node]]:
        # Rounds read the project as it is by then.
        latest = invocation.project()
        return latest.spec, latest.nodes(select, exclude)

    # Rounds report a catalog that is down until it is back. A selection of nothing would stay one.
    with suppress(LakeError):
        project.nodes(select, exclude)
    line = click.get_current_context().meta[LINE]
    watcher = Watcher(
        watched,
        partial(run_apart, [sys.executable, "-m", "lancestat", *line, "--round"]),
        interval,
        clock,
    )
    try:
        with sole_watcher(project.state, clock):
            invocation.say(f"watching {project.spec.name}, target {project.spec.target.name}")
            for pause in watcher.rounds():
                time.sleep(pause.total_seconds())
    except KeyboardInterrupt as interrupt:
        # That of a run that was interrupted has its own.
        if Terminated not in (type(interrupt), type(interrupt.__cause__)):
            raise
        invocation.say("stopped")
