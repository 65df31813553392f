"""Evaluates the actions of a plan, stage by stage."""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from datetime import datetime
from threading import Event
from typing import Protocol

from typing_extensions import assert_never

from lancestat.errors import (
    Cancelled,
    LancestatError,
    Location,
    PartitionsLost,
    StaleBase,
    TableKeepsChanging,
)
from lancestat.formats import count
from lancestat.joins.action import (
    CommitResult,
    ExtendLayout,
    GroupRows,
    JoinAction,
    JoinFigures,
    LayOut,
    MeasureIndex,
    MergeNeighbours,
    PrepareSides,
    Probe,
    ReuseLayout,
    SearchStage,
)
from lancestat.joins.measures import Accuracy, JoinGroups
from lancestat.joins.planner import (
    JoinFacts,
    in_full,
    revise,
    without_approximation,
    without_kept_layout,
)
from lancestat.joins.record import JoinRecord, ResultRecord
from lancestat.joins.record import stored_record as stored_join
from lancestat.joins.search.work import JoinOutcome, JoinWork, OutputFormat, Scope
from lancestat.lake.catalogs import declare
from lancestat.lake.fingerprint import Fingerprint
from lancestat.lake.open import REPLACED
from lancestat.runs.actions import Action, Blocked, Deferred, Figures, Reason, Skip
from lancestat.runs.node_result import NodeResult, Status, planned
from lancestat.runs.stages import OnStage, StageProgress
from lancestat.spark.failure import SessionLostError
from lancestat.spec.catalog import Catalog, UriOptions, table_name_of
from lancestat.state.values import StateWriter, StoredRecord
from lancestat.tables.action import (
    MergePartials,
    PublishStatistics,
    ReadFragments,
    RestampStatistics,
    ReusePartials,
    TableAction,
)
from lancestat.tables.assembly import (
    PartialsGoneError,
    ScanTable,
    ScanTotals,
    TableWorkspace,
)
from lancestat.tables.stored import stored_record as stored_table

_log = logging.getLogger("lancestat.run")

MAX_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class NodeEnded:
    """The outcome of a node, and the record of it for the state.

    `live` has by dataset the fingerprints of the version that was read.
    """

    result: NodeResult
    record: StoredRecord | None = None
    live: Mapping[str, frozenset[Fingerprint]] = field(default_factory=dict)


class PreparedJoin(Protocol):
    """A join whose sides are prepared, and a way to search it: at first every pair is compared.

    Its methods are stages, of which every one but the last returns a join that goes on in another
    way, and leaves this one as it is. Searching and merging are lazy, like transformations of
    Spark: rows pass through both in the job that `commit` runs. Every method raises a
    LancestatError where it cannot be done; readers of the output see what they saw before.
    """

    @property
    def facts(self) -> JoinFacts:
        """The facts about the sides, by which the join is decided again."""
        ...

    def lay_out(self, stage: LayOut) -> PreparedJoin | None:
        """Write the right side to scratch in lists; None where no right row can match."""
        ...

    def reuse_layout(self, stage: ReuseLayout) -> PreparedJoin | None:
        """Take the kept layout of the right side; None where it has gone.

        Raises:
            PartitionsLost: it cannot be read.
        """
        ...

    def extend_layout(self, stage: ExtendLayout) -> PreparedJoin | None:
        """Put new rows into the kept layout, and take it, as `reuse_layout`."""
        ...

    def group_rows(self) -> PreparedJoin:
        """Write the rows of both sides to scratch by the keys that they share."""
        ...

    def measure_index(self) -> PreparedJoin | None:
        """Find how far the index has to be searched; None where no effort reaches the recall."""
        ...

    def probe(self, stage: Probe) -> PreparedJoin:
        """Search neighbours in that stage."""
        ...

    def merge_neighbours(self) -> PreparedJoin:
        """Merge the neighbours with the last result.

        Raises:
            StaleBase: the last result is not what it was taken for.
        """
        ...

    def commit(self, stage: CommitResult) -> JoinOutcome:
        """Search, write the result and commit it in one step; nothing can be done after it.

        Raises:
            StaleBase: the last result is not what it was taken for; nothing was written.
        """
        ...


class JoinSession(Protocol):
    """One join on Spark."""

    def prepare_sides(self, stage: PrepareSides) -> PreparedJoin:
        """Open both sides, write to scratch those that are no tables, and count their rows.

        Raises:
            LancestatError: a side cannot be read, or the result cannot be written to its location.
        """
        ...


# Opens a session for the rows that a work names; leaving it removes what was left in scratch.
OpenJoin = Callable[[JoinWork, OnStage], AbstractContextManager[JoinSession]]


@dataclass(frozen=True, slots=True)
class JoinEvaluation:
    """Evaluates the stages of one join.

    Where the facts contradict a decision of the plan, the join is planned again and the log says
    so.
    """

    open: OpenJoin
    on_stage: OnStage

    def run(self, action: JoinAction) -> tuple[JoinAction, JoinOutcome]:
        """Carry out a join; one whose last result has gone is joined in full.

        Returns:
            The action as it was carried out in the end, and what it did.

        Raises:
            LancestatError: it cannot be done; readers of the output see what they saw before.
        """
        try:
            return self._run(action)
        except PartitionsLost as error:
            if action.work.is_fresh or action.work.right.content is None:
                raise
            _log.warning(
                "'%s' is planned again, without the kept layout: %s", action.node, error.message
            )
            return self._run(without_kept_layout(action))
        except StaleBase as error:
            if action.work.scope is Scope.FULL:
                raise
            whole = in_full(action)
            _log.warning("'%s' is planned again, in full: %s", action.node, error.message)
            return self._run(whole)

    def _run(self, action: JoinAction) -> tuple[JoinAction, JoinOutcome]:
        prepare = action.stages.prepare
        with self.open(action.work, self.on_stage) as session:
            self.on_stage(StageProgress(prepare))
            join = session.prepare_sides(prepare)
            for side in join.facts.in_place:
                _log.info("'%s': the %s side is read in place", action.node, side)
            action = _revised(action, revise(action, join.facts))
            left = deque(action.stages.search)
            while left:
                stage = left.popleft()
                self.on_stage(StageProgress(stage))
                changed, why = _search_stage(join, stage)
                if changed is None:
                    action = _revised(action, without_approximation(action, join.facts, why))
                    left = deque(action.stages.search)
                else:
                    join = changed
            return action, join.commit(action.stages.commit)


def _search_stage(join: PreparedJoin, stage: SearchStage) -> tuple[PreparedJoin | None, str]:
    """Return the join after a stage; None, and why, where it cannot be searched in this way."""
    match stage:
        case LayOut():
            return join.lay_out(stage), "no right row can match"
        case ReuseLayout():
            return _in_kept_layout(join.reuse_layout(stage)), ""
        case ExtendLayout():
            return _in_kept_layout(join.extend_layout(stage)), ""
        case GroupRows():
            return join.group_rows(), ""
        case MeasureIndex():
            return join.measure_index(), "the index does not reach the recall"
        case Probe():
            return join.probe(stage), ""
        case MergeNeighbours():
            return join.merge_neighbours(), ""
        case _:
            assert_never(stage)


def _in_kept_layout(join: PreparedJoin | None) -> PreparedJoin:
    if join is None:
        raise PartitionsLost("the kept layout has gone")
    return join


def _revised(action: JoinAction, revised: JoinAction) -> JoinAction:
    """Return the revised action; log where it contradicts what was planned."""
    before, after = action.decision, revised.decision
    if (before.strategy, before.lists, before.kept) != (after.strategy, after.lists, after.kept):
        # A decision that was made without knowing the sides is expected to change.
        is_known = None not in (action.sides.left_rows, action.sides.right_rows)
        # Where only the layout differs, this costs or spares time, and nothing else.
        is_same_search = before.strategy is after.strategy and before.kept != after.kept
        level = logging.WARNING if is_known and not is_same_search else logging.INFO
        lists = f" in {count(after.lists, 'list')}" if after.lists else ""
        text = "'%s' is planned again: %s%s, %s"
        _log.log(level, text, action.node, after.strategy.value, lists, after.why)
    return revised


@dataclass(frozen=True, slots=True)
class Evaluator:
    """Evaluates actions of one project.

    Args:
        state: What is remembered of tables.
        scan: Reads fragments.
        open_join: Opens a join on Spark.
        replan: Plans a node again; its second argument makes everything again.
        replan_table: Plans a table again; its second argument says whether partials in the state
            may be counted on.
        options: How to reach the tables.
        catalogs: Those of the target.
        run_id: Names the run.
        clock: Returns the time, an aware instant.
        digests: The digests of the nodes' meanings.
        locations: Where the nodes are declared.
        on_stage: Receives the stages that nodes reach, and how far they are in them.
        stored: By table, how many fragments this run has read and stored.
        stopped: Set where tables begin no further stage.
        publishing: The tables whose statistics are being published, or were just now; who takes
            in the end of such a table removes it.
    """

    state: StateWriter
    scan: ScanTable
    open_join: OpenJoin
    replan: Callable[[str, bool], Action]
    replan_table: Callable[[str, bool], Action]
    options: UriOptions
    catalogs: Mapping[str, Catalog]
    run_id: str
    clock: Callable[[], datetime]
    digests: Mapping[str, str]
    locations: Mapping[str, Location]
    on_stage: Callable[[str, StageProgress], None]
    stored: Counter[str] = field(default_factory=Counter)
    stopped: Event = field(default_factory=Event)
    publishing: set[str] = field(default_factory=set)

    def run(self, action: Action) -> NodeEnded:
        """Evaluate one action; the elapsed time of the result is not set yet.

        Raises:
            LancestatError: the node failed.
            Cancelled: it was stopped; nothing is published of it.
        """
        match action:
            case Skip():
                return NodeEnded(replace(planned(action), status=Status.SUCCESS))
            case Blocked():
                raise action.error
            case TableAction():
                return self._run_table(action)
            case JoinAction():
                return self._run_join(action)
            case Deferred():
                return self.run(self.replan(action.node, action.full_refresh))
            case _:
                raise AssertionError(f"nothing evaluates {action}")

    def _run_table(self, action: TableAction) -> NodeEnded:
        """Carry out an action until its statistics are published for the version they describe."""
        result, scanned = planned(action), ScanTotals()
        for attempt in range(1, MAX_ATTEMPTS + 1):
            scanned = scanned.plus(action.scans)
            try:
                done = self._table_stages(action, even_late=attempt == MAX_ATTEMPTS)
                if done is not None:
                    return _table_ended(result, action, scanned, done)
                again = self.replan_table(action.node, True)
            except PartialsGoneError:
                again = self.replan_table(action.node, False)
            except REPLACED as error:
                _log.info("'%s' is planned again: %s", action.node, error.message)
                again = self.replan_table(action.node, True)
            except SessionLostError as error:
                _log.warning("'%s' goes on: %s", action.node, error)
                # What a run in full has stored, it cannot tell from what was there before.
                is_full = Reason.FULL_REFRESH in action.reasons
                again = action if is_full else self.replan_table(action.node, True)
            match again:
                case TableAction():
                    action = again
                case Skip(figures=Figures() as figures):
                    return NodeEnded(_table_result(result, figures, scanned))
                case Blocked():
                    raise again.error
                case _:
                    raise AssertionError(f"no action on a table: {again}")
        raise TableKeepsChanging(
            f"the table changed during each of {MAX_ATTEMPTS} attempts to publish its statistics",
            hint="what was read is remembered: run again when the table is quieter",
        )

    def _table_stages(self, action: TableAction, *, even_late: bool) -> TableWorkspace | None:
        """The workspace after the last stage, None where the table has moved on meanwhile."""
        workspace = TableWorkspace(
            action.node,
            action.table,
            self.state,
            self.scan,
            self.options.of(action.table.uri),
            self.run_id,
            self.clock,
            is_new=action.verb == "analyze",
            on_stored=lambda fragments: self.stored.update({action.node: fragments}),
        )
        for stage in action.stages:
            self.on_stage(action.node, StageProgress(stage))
            self._refuse_when_stopped(action.node)
            match stage:
                case ReusePartials():
                    workspace.reuse(stage.coverage)
                case ReadFragments():
                    workspace.read(stage)
                case MergePartials():
                    workspace.merge(stage.version)
                case RestampStatistics():
                    workspace.restamp(stage)
                case PublishStatistics():
                    if not self._publish(workspace, stage, even_late=even_late):
                        return None
                case _:
                    assert_never(stage)
        return workspace

    def _publish(
        self, workspace: TableWorkspace, stage: PublishStatistics, *, even_late: bool
    ) -> bool:
        """Publish as the workspace does; a table that is published stays in `publishing`."""
        is_published = False
        # Added before the look: whoever sets `stopped`, and then finds none here, has seen all.
        self.publishing.add(workspace.node)
        try:
            self._refuse_when_stopped(workspace.node)
            is_published = workspace.publish(stage, even_late=even_late)
        finally:
            if not is_published:
                self.publishing.discard(workspace.node)
        return is_published

    def _refuse_when_stopped(self, node: str) -> None:
        if self.stopped.is_set():
            raise Cancelled(f"'{node}' was stopped")

    def _run_join(self, action: JoinAction) -> NodeEnded:
        """Carry out a join, planning it again where a side was replaced while it was read."""
        for _ in range(MAX_ATTEMPTS - 1):
            try:
                return self._join(action)
            except REPLACED as error:
                _log.info("'%s' is planned again: %s", action.node, error.message)
                again = self.replan(action.node, False)
                if not isinstance(again, JoinAction):
                    return self.run(again)
                action = again
            except SessionLostError as error:
                _log.warning("'%s' starts again: %s", action.node, error)
        return self._join(action)

    def _join(self, action: JoinAction) -> NodeEnded:
        action = self._with_place(action)
        evaluation = JoinEvaluation(
            self.open_join,
            lambda progress: self.on_stage(action.node, progress),
        )
        try:
            done, outcome = evaluation.run(action)
        except LancestatError as error:
            raise error.placed(self.locations.get(action.node)) from None
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
        return NodeEnded(result, stored_join(self._join_record(done, outcome)))

    def _with_place(self, action: JoinAction) -> JoinAction:
        """The action with the place of its result, which a catalog chooses for a new table."""
        name = table_name_of(action.work.output_uri)
        if name is None:
            return action
        try:
            place = declare(self.catalogs[name.catalog], name, self.options.declared(name.uri))
        except LancestatError as error:
            raise error.placed(self.locations.get(action.node)) from None
        self.options.locate(place.uri, place.options)
        return replace(action, work=replace(action.work, output_uri=place.uri))

    def _join_record(self, action: JoinAction, outcome: JoinOutcome) -> JoinRecord:
        """Return the record of a join for the state.

        The sides are as they were seen before they were read: should they have moved on in between,
        the next run joins again.
        """
        assert action.left is not None and action.right is not None, "declared sides are recorded"
        made = outcome.output
        return JoinRecord(
            node=action.node,
            digest=self.digests[action.node],
            left=replace(action.left, unproven=outcome.unproven.get("left")),
            right=replace(action.right, unproven=outcome.unproven.get("right")),
            result=ResultRecord(made.rows, made.digest, made.version, made.generation),
            counts=outcome.counts,
            strategy=outcome.strategy,
            finished_at=self.clock(),
            accuracy=outcome.accuracy,
            distances=outcome.distances,
            groups=_groups(action, outcome),
        )


def _accuracy(work: JoinWork, known: Accuracy, outcome: JoinOutcome) -> Accuracy:
    """Return the accuracy of the whole result; an increment measures that of its new rows."""
    measured, increment = outcome.accuracy, work.increment
    if increment is None:
        return measured
    if increment.scope is Scope.NEW_RIGHT:
        # Every pair of new right rows is compared, which changes nothing for the others.
        return known
    if known.recall is None or measured.recall is None:
        return measured if known.recall is None else known
    before, all_rows = increment.known.left_rows, outcome.counts.left_rows
    recall = known.recall * before + measured.recall * (all_rows - before)
    return Accuracy(recall / all_rows if all_rows else 1.0, measured.nprobes or known.nprobes)


def _groups(action: JoinAction, outcome: JoinOutcome) -> JoinGroups | None:
    """Return what is known of the join's groups, which an increment does not count anew."""
    if action.work.scope is not Scope.FULL:
        return action.sides.groups
    if outcome.groups is None:
        return None
    rows = outcome.counts
    return JoinGroups(outcome.groups, outcome.pairs, rows.left_rows, rows.right_rows)


def _table_ended(
    result: NodeResult, action: TableAction, scanned: ScanTotals, done: TableWorkspace
) -> NodeEnded:
    assert done.record is not None, "publishing is the last stage"
    landed = done.record.version
    result = replace(
        _table_result(result, action.figures, scanned),
        version_published=landed if landed != action.table.version else None,
    )
    return NodeEnded(result, stored_table(done.record), {action.table.identity: action.table.live})


def _table_result(result: NodeResult, figures: Figures, scanned: ScanTotals) -> NodeResult:
    """The result of an action whose last attempt had these figures."""
    return replace(
        result,
        status=Status.SUCCESS,
        fragments_total=figures.fragments_total,
        fragments_scanned=scanned.fragments,
        rows_total=figures.rows_total,
        rows_scanned=scanned.rows,
        version_read=figures.version_read,
    )
