"""One join's part of a run: joined by the engine, and in full when its last result has gone."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Protocol

from lancestat.errors import LakeError, LancestatError, Location
from lancestat.execution.table_run import MAX_ATTEMPTS, Outcome, TableRunner
from lancestat.knn.request import OnStage, StageProgress
from lancestat.knn.work import JoinOutcome, JoinWork, OutputFormat, Scope, StaleBase
from lancestat.lake.fingerprint import Fingerprint
from lancestat.lake.open import REPLACED_CODES
from lancestat.plan.actions import Action, Await, Blocked, Join, JoinFigures, Skip
from lancestat.plan.node_result import NodeResult, Status, planned
from lancestat.state.values import JoinRecord, ResultRecord, TableRecord

_log = logging.getLogger("lancestat.run")


class JoinEngine(Protocol):
    """Runs a join and commits its result."""

    def __call__(self, work: JoinWork, on_stage: OnStage) -> JoinOutcome:
        """Do the work.

        Raises:
            StaleBase: the result to go on from is not what it was taken for; nothing was written.
            LancestatError: it cannot be done; readers see what they saw before.
        """
        ...


@dataclass(frozen=True, slots=True)
class JoinEnded:
    """How a join ended; `record` is to be remembered."""

    figures: JoinFigures
    version_published: int | None
    record: JoinRecord


@dataclass(frozen=True, slots=True)
class JoinRunner:
    """Runs the joins of a plan.

    `digests` are those of the nodes' meanings, `locations` where they are declared.
    """

    engine: JoinEngine
    clock: Callable[[], datetime]
    digests: Mapping[str, str]
    locations: Mapping[str, Location]
    on_stage: Callable[[str, StageProgress], None]

    def run(self, action: Join) -> JoinEnded:
        """Carry out a join.

        What is remembered of the sides was seen before they were read: should they have moved on
        in between, the next run joins again.

        Raises:
            LancestatError: what the engine raised, at the place of the declaration.
        """
        try:
            return self._run(action)
        except LancestatError as error:
            raise error.placed(self.locations.get(action.node)) from None

    def _run(self, action: Join) -> JoinEnded:
        def on_stage(stage: StageProgress) -> None:
            self.on_stage(action.node, stage)

        work = action.work
        try:
            outcome = self.engine(work, on_stage)
        except StaleBase as error:
            if work.scope is Scope.FULL:
                raise
            _log.info("%s is joined in full: %s", action.node, error.message)
            work = in_full(work)
            outcome = self.engine(work, on_stage)
        if outcome.recall is None and work.scope is not Scope.FULL:
            # What was compared in full does not change what is known of the rest.
            known = action.figures
            outcome = replace(outcome, recall=known.recall, nprobes=known.nprobes)
        made = outcome.output
        is_lance = work.output_format is OutputFormat.LANCE
        return JoinEnded(
            _figures(work, outcome),
            made.version if is_lance else None,
            self._record(action, outcome),
        )

    def _record(self, action: Join, outcome: JoinOutcome) -> JoinRecord:
        made, counts = outcome.output, outcome.counts
        return JoinRecord(
            node=action.node,
            digest=self.digests[action.node],
            left=replace(action.left, unproven=outcome.unproven.get("left")),
            right=replace(action.right, unproven=outcome.unproven.get("right")),
            result=ResultRecord(made.rows, made.digest, made.version, made.generation),
            left_rows=counts.left_rows,
            right_rows=counts.right_rows,
            unmatched_left_rows=counts.unmatched_left_rows,
            excluded_right_rows=counts.excluded_right_rows,
            strategy=outcome.strategy,
            finished_at=self.clock(),
            recall=outcome.recall,
            nprobes=outcome.nprobes,
        )


def in_full(work: JoinWork) -> JoinWork:
    """The same join, as if nothing were known of it."""
    return replace(work, scope=Scope.FULL, new_fragments=frozenset(), previous=None, known=None)


def _figures(work: JoinWork, outcome: JoinOutcome) -> JoinFigures:
    counts = outcome.counts
    return JoinFigures(
        strategy=outcome.strategy,
        scope=work.scope.value,
        left_rows=counts.left_rows,
        right_rows=counts.right_rows,
        unmatched_left_rows=counts.unmatched_left_rows,
        excluded_right_rows=counts.excluded_right_rows,
        pairs=outcome.pairs,
        recall=outcome.recall,
        nprobes=outcome.nprobes,
    )


@dataclass(frozen=True, slots=True)
class NodeEnded:
    """How a node ended, and what is to be remembered of it.

    `live` are the fingerprints of the version of a table that was read.
    """

    result: NodeResult
    record: TableRecord | JoinRecord | None = None
    live: frozenset[Fingerprint] = frozenset()


@dataclass(frozen=True, slots=True)
class NodeRunner:
    """Carries out the actions of a plan.

    `replan` looks at a node again and says what to do now: when what the node awaits has ended, and
    when a side of a join was replaced while it was read. Its second argument says whether
    everything is to be made again.
    """

    tables: TableRunner
    joins: JoinRunner
    replan: Callable[[str, bool], Action]

    @property
    def run_id(self) -> str:
        """Names the run."""
        return self.tables.run_id

    def run(self, action: Action) -> NodeEnded:
        """Carry out one action; the result does not tell yet how long it took.

        Raises:
            LancestatError: the node failed.
        """
        for _ in range(MAX_ATTEMPTS - 1):
            try:
                return self._run(action)
            except LakeError as error:
                if not isinstance(action, Join | Await) or error.code not in REPLACED_CODES:
                    raise
                _log.info("'%s' is planned again: %s", action.node, error.message)
                action = self.replan(action.node, False)
        return self._run(action)

    def _run(self, action: Action) -> NodeEnded:
        if isinstance(action, Await):
            action = self.replan(action.node, action.full_refresh)
        done = replace(planned(action), status=Status.SUCCESS)
        if isinstance(action, Blocked):
            raise action.error
        if isinstance(action, Skip):
            return NodeEnded(done)
        if isinstance(action, Join):
            ended = self.joins.run(action)
            result = replace(done, version_published=ended.version_published, join=ended.figures)
            return NodeEnded(result, ended.record)
        outcome = self.tables.run(action)
        return NodeEnded(_published(done, outcome), outcome.record, outcome.live)


def _published(done: NodeResult, outcome: Outcome) -> NodeResult:
    figures = outcome.figures
    return replace(
        done,
        fragments_total=figures.fragments_total,
        fragments_scanned=outcome.scanned.fragments,
        rows_total=figures.rows_total,
        rows_scanned=outcome.scanned.rows,
        version_read=figures.version_read,
        version_published=outcome.version_published,
    )
