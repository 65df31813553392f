"""One join's part of a run: joined by the engine, and in full when its last result has gone."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Protocol

from lancestat.errors import LancestatError, Location
from lancestat.knn.stages import OnStage, StageProgress
from lancestat.knn.work import JoinOutcome, JoinWork, OutputFormat, Scope, StaleBase
from lancestat.plan.join_actions import Join, JoinFigures
from lancestat.state.values import JoinRecord, ResultRecord

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
