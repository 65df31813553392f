"""Past runs as text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from lancestat.formats import count, duration, instant
from lancestat.presentation.registry import Page
from lancestat.presentation.terminal import paint, table
from lancestat.presentation.text_plan import node_lines
from lancestat.presentation.views import PastRunView, RunsView

if TYPE_CHECKING:
    from lancestat.runs.past_runs import PastRun

_TONES = {"success": "success", "error": "error", "interrupted": "refresh", "running": "title"}
# How much of an id is shown: enough to name one run of very many.
_ID = 12
_WORDS = {"skip": "unchanged", "error": "failed", "skipped": "not run", "interrupted": "stopped"}


def runs_lines(view: RunsView, page: Page) -> list[str]:
    """Return the page that `lancestat runs` prints."""
    if not view.runs:
        return [f"No run of target {view.target} is recorded."]
    lines = [paint(f"Runs of {view.project}, target {view.target}", "title"), ""]
    rows = [_cells(run, page) for run in view.runs]
    head = ["run", "command", "started", "status", "time", "nodes"]
    return [*lines, *table(rows, head=head, right={4}, indent="  ")]


def _cells(run: PastRun, page: Page) -> list[str]:
    tone = _TONES.get(run.status, "note")
    counts = (f"{count(number)} {_WORDS.get(what, what)}" for what, number in run.counts.items())
    run_id = run.run_id if page.verbose else run.run_id[:_ID]
    started = instant(run.started_at, with_seconds=True)
    return [run_id, run.command, started, paint(run.status, tone), _time(run), ", ".join(counts)]


def _time(run: PastRun) -> str:
    return "" if run.elapsed is None else duration(run.elapsed.total_seconds())


def past_run_lines(view: PastRunView, page: Page) -> Iterator[str]:
    """Yield the page that `lancestat runs RUN` prints."""
    run = view.run
    title = f"{run.command.capitalize()} {run.run_id} of {view.project}, target {run.target}"
    yield paint(title, "title")
    took = f", took {_time(run)}" if run.elapsed is not None else ""
    status = paint(run.status, _TONES.get(run.status, "note"))
    yield f"{status}, started {instant(run.started_at, with_seconds=True)}{took}"
    yield ""
    yield from node_lines(view.nodes, page)
