"""Runs KNN joins: prepares their sides on Spark, walks the stages, and commits the result."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from typing_extensions import assert_never

from lancestat.errors import LancestatError, ListsLost, StaleBase
from lancestat.formats import count
from lancestat.joins.action import (
    BuildIndex,
    CommitResult,
    ExtendIndex,
    GroupRows,
    JoinAction,
    JoinFigures,
    JoinStage,
    MeasureIndex,
    MergeNeighbours,
    PrepareSides,
    Probe,
    ReuseIndex,
)
from lancestat.joins.planner import in_full, revise, without_approximation, without_kept_index
from lancestat.joins.record import Accuracy, JoinGroups, JoinRecord, OutputFormat
from lancestat.joins.scratch.folder import CONNECT, require_shared, scratch_root
from lancestat.joins.search.work import JoinOutcome, JoinWork, Scope
from lancestat.lake.catalog_tables import declare
from lancestat.lake.open import REPLACED
from lancestat.runs.actions import Action, OnStage, StageProgress
from lancestat.runs.events import StageReached
from lancestat.runs.execute import MAX_ATTEMPTS, RunContext
from lancestat.runs.node import NodeEnded, NodeRunner
from lancestat.runs.result import Status, planned
from lancestat.spark.failure import SessionLostError
from lancestat.spark.session import RunSession, remote_of
from lancestat.spec.catalog import UriOptions, table_name_of
from lancestat.spec.model import Target

if TYPE_CHECKING:
    from lancestat.joins.spark.engine import SparkJoin
    from lancestat.joins.spark.prepared_join import PreparedJoin

_log = logging.getLogger("lancestat.run")

# Opens a session for the rows that a work names; leaving it removes what was left in scratch.
OpenJoin = Callable[[JoinWork, OnStage], "AbstractContextManager[SparkJoin]"]


@dataclass(frozen=True, slots=True)
class JoinOpener:
    """Opens joins on the Spark of a run."""

    spark: RunSession
    target: Target
    options: UriOptions

    @contextmanager
    def open(self, work: JoinWork, on_stage: OnStage) -> Iterator[SparkJoin]:
        """Open a join.

        Raises:
            LakeError: A side was replaced, or cannot be opened.
            RunError: A side, the output or scratch cannot be used, a job failed or was cancelled,
                or Spark did not start; later calls raise `SparkNotStarted` without another attempt.
        """
        master = self.target.master if remote_of(self.target) is None else CONNECT
        require_scratch = partial(require_shared, self.target.scratch, master)
        with self.spark.working(f"joining '{work.node}'", require_scratch) as lent:
            from lancestat.joins.spark.engine import Engine

            session, group = lent
            root = scratch_root(self.target.scratch, session)
            engine = Engine(session, root, group, self.options, on_stage)
            with engine.open(work) as join:
                yield join


@dataclass(frozen=True, slots=True)
class JoinEvaluation:
    """Carries out the stages of a join, which is planned again where facts contradict its plan."""

    open: OpenJoin
    on_stage: OnStage

    def run(self, action: JoinAction) -> tuple[JoinAction, JoinOutcome]:
        """Carry out a join; one whose last result has gone is joined in full.

        Returns:
            The action as it was carried out in the end, and what it did.
        """
        try:
            return self._run(action)
        except ListsLost as error:
            if action.work.is_fresh or action.work.right.content is None:
                raise
            _log.warning(
                "'%s' is planned again, without the kept index: %s", action.node, error.message
            )
            return self._run(without_kept_index(action))
        except StaleBase as error:
            if action.work.scope is Scope.FULL:
                raise
            whole = in_full(action)
            _log.warning("'%s' is planned again, in full: %s", action.node, error.message)
            return self._run(whole)

    def _run(self, action: JoinAction) -> tuple[JoinAction, JoinOutcome]:
        prepare = action.stages[0]
        assert isinstance(prepare, PrepareSides), "sides are prepared first"
        with self.open(action.work, self.on_stage) as session:
            self.on_stage(StageProgress(prepare))
            join = session.prepare_sides(prepare)
            for side in join.in_place:
                _log.info("'%s': the %s side is read in place", action.node, side)
            facts = (join.size, join.cores, join.in_place)
            action = _revised(action, revise(action, *facts))
            left = deque(action.stages[1:])
            while left:
                stage = left.popleft()
                self.on_stage(StageProgress(stage))
                unsuitable = _carry_out(join, stage, action.stages[-1])
                if unsuitable is not None:
                    action = _revised(action, without_approximation(action, unsuitable, *facts))
                    left = deque(action.stages[1:])
            return action, join.outcome


def _carry_out(join: PreparedJoin, stage: JoinStage, last: JoinStage) -> str | None:
    """Carry out a stage; return why the join cannot be searched in this way, else None."""
    match stage:
        case BuildIndex():
            return None if join.build_index(stage) else "no right row can match"
        case ReuseIndex() | ExtendIndex():
            join.use_index()
        case GroupRows():
            join.group_rows()
        case MeasureIndex():
            return None if join.measure_index() else "the index does not reach the recall"
        case Probe():
            join.probe(stage, last)
        case CommitResult():
            join.commit(stage)
        case PrepareSides() | MergeNeighbours():
            # Sides are prepared already, and the tasks that probed have merged what they found.
            pass
        case _:
            assert_never(stage)
    return None


def _revised(action: JoinAction, revised: JoinAction) -> JoinAction:
    """Return the revised action; log where it contradicts what was planned."""
    before, after = action.decision, revised.decision
    if (before.strategy, before.lists, before.kept) != (after.strategy, after.lists, after.kept):
        # A decision that was made without knowing the sides is expected to change.
        is_known = None not in (action.sides.left_rows, action.sides.right_rows)
        # Where only the index differs, this costs or spares time, and nothing else.
        is_same_search = before.strategy is after.strategy and before.kept != after.kept
        level = logging.WARNING if is_known and not is_same_search else logging.INFO
        lists = f" in {count(after.lists, 'list')}" if after.lists else ""
        text = "'%s' is planned again: %s%s, %s"
        _log.log(level, text, action.node, after.strategy.value, lists, after.why)
    return revised


@dataclass(frozen=True, slots=True)
class JoinRunner(NodeRunner):
    """Runs actions on joins."""

    context: RunContext
    open_join: OpenJoin

    def run(self, action: JoinAction) -> NodeEnded | Action:
        """Carry out a join, planning it again where a side was replaced while it was read."""
        for _ in range(MAX_ATTEMPTS - 1):
            try:
                return self._join(action)
            except REPLACED as error:
                _log.info("'%s' is planned again: %s", action.node, error.message)
                again = self.context.observer.plan_again(action.node)
                if not isinstance(again, JoinAction):
                    return again
                action = again
            except SessionLostError as error:
                _log.warning("'%s' starts again: %s", action.node, error)
        return self._join(action)

    def _join(self, action: JoinAction) -> NodeEnded:
        evaluation = JoinEvaluation(
            self.open_join,
            lambda progress: self.context.events.emit(StageReached(action.node, progress)),
        )
        try:
            done, outcome = evaluation.run(self._with_place(action))
        except LancestatError as error:
            raise error.placed(self.context.location(action.node)) from None
        outcome = replace(outcome, accuracy=_accuracy(done.work, action.known, outcome))
        is_lance = done.work.output_format is OutputFormat.LANCE
        result = replace(
            planned(action),
            status=Status.SUCCESS,
            version_published=outcome.output.version if is_lance else None,
            figures=JoinFigures(
                outcome.strategy,
                done.work.scope.value,
                outcome.counts,
                outcome.pairs,
                outcome.accuracy,
                groups=outcome.groups,
            ),
        )
        pins = (table.pin for side in (done.work.left, done.work.right) for table in side.tables)
        versions = {pin.uri: pin.version for pin in pins}
        record = self._join_record(done, outcome)
        found = record.history_figures()
        return NodeEnded(result, record.stored(done.work.output_uri), found, versions=versions)

    def _with_place(self, action: JoinAction) -> JoinAction:
        """The action with the location of its result, which a catalog chooses for a new table."""
        name = table_name_of(action.work.output_uri)
        if name is None:
            return action
        catalog = self.context.spec.target.catalogs[name.catalog]
        place = declare(catalog, name, self.context.options.declared(name.uri))
        self.context.options.locate(place.uri, place.options)
        return replace(action, work=replace(action.work, output_uri=place.uri))

    def _join_record(self, action: JoinAction, outcome: JoinOutcome) -> JoinRecord:
        """Return the record of a join for the state.

        The sides are as they were seen before they were read: should they have moved on in between,
        the next run joins again.
        """
        assert action.left is not None and action.right is not None, "declared sides are recorded"
        return JoinRecord(
            node=action.node,
            digest=self.context.digests[action.node],
            left=replace(action.left, unproven=outcome.unproven.get("left")),
            right=replace(action.right, unproven=outcome.unproven.get("right")),
            result=outcome.output,
            counts=outcome.counts,
            strategy=outcome.strategy,
            finished_at=self.context.clock(),
            accuracy=outcome.accuracy,
            distances=outcome.distances,
            groups=_groups(action, outcome),
            neighbours=outcome.neighbours,
        )


def _accuracy(work: JoinWork, known: Accuracy, outcome: JoinOutcome) -> Accuracy:
    """Return the accuracy of the whole result; an increment measures that of its new rows."""
    measured, increment = outcome.accuracy, work.increment
    if increment is None:
        return measured
    if increment.scope.is_update:
        # What is compared is compared exactly, which changes nothing for the others.
        return known
    if known.recall is None or measured.recall is None:
        return measured if known.recall is None else known
    before, all_rows = increment.known.left_rows, outcome.counts.left_rows
    recall = known.recall * before + measured.recall * (all_rows - before)
    return Accuracy(recall / all_rows if all_rows else 1.0, measured.nprobes or known.nprobes)


def _groups(action: JoinAction, outcome: JoinOutcome) -> JoinGroups | None:
    """Return what is known of the join's groups, which an increment does not count again."""
    if action.work.scope is not Scope.FULL:
        return action.sides.groups
    if outcome.groups is None:
        return None
    rows = outcome.counts
    return JoinGroups(outcome.groups, outcome.pairs, rows.left_rows, rows.right_rows)
