"""Executes plans with all that stands around a run: hooks, OpenLineage, and checks at its end."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from lancestat.arguments import check_session, check_whole
from lancestat.pipelines.hooks import HookCaller
from lancestat.pipelines.lineage import lineage_listener
from lancestat.report.findings import checks_after
from lancestat.runs.actions import Plan
from lancestat.runs.events import Listener
from lancestat.runs.execute import execute_plan
from lancestat.runs.observe import Observer
from lancestat.runs.result import RunResult
from lancestat.spec.model import node_digest
from lancestat.state.store import LanceState

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def executor(
    observer: Observer,
    state: LanceState,
    threads: int | None,
    fail_fast: bool,
    on_event: Listener | None,
    session: SparkSession | None,
    ends_process: bool,
) -> Callable[[Plan, str], RunResult]:
    """Return what executes a plan as a command; arguments are those of `Project.run`."""
    check_whole("threads", threads, 1)
    if session is not None:
        check_session("session", session)
    spec = observer.spec
    hooks, lineage = HookCaller(spec) if spec.hooks else None, lineage_listener(spec)
    return partial(
        execute_plan,
        check=partial(checks_after, spec=spec, state=state, clock=observer.clock),
        observer=observer,
        state=state,
        digests={node.name: node_digest(node) for node in spec.nodes},
        listeners=[one for one in (on_event, hooks, lineage) if one is not None],
        threads=threads,
        fail_fast=fail_fast,
        session=session,
        ends_process=ends_process,
    )
