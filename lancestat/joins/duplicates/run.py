"""Runs near-duplicates: the join that finds pairs, then the groups, which are committed as one."""

from __future__ import annotations

from dataclasses import dataclass, replace

from lancestat.errors import StaleBase
from lancestat.joins.action import JoinFigures
from lancestat.joins.duplicates.action import (
    CommitGroups,
    DuplicatesAction,
    DuplicatesFigures,
    GroupPairs,
    GroupWork,
)
from lancestat.joins.duplicates.grouping import Members, components, lasting_ids
from lancestat.joins.duplicates.members import GroupedRows, read_members, read_pairs, result_schema
from lancestat.joins.duplicates.record import (
    DuplicatesRecord,
    GroupCounts,
    GroupSizes,
    decode_record,
)
from lancestat.joins.output.lance_output import LanceOutput
from lancestat.joins.record import JoinRecord, OutputState
from lancestat.joins.record import decode_record as decode_join
from lancestat.joins.run import JoinRunner, OpenJoin
from lancestat.joins.search.metrics import metric_named
from lancestat.joins.search.work import VectorSide
from lancestat.runs.actions import Action, Stage, StageProgress
from lancestat.runs.events import StageReached
from lancestat.runs.execute import MAX_ATTEMPTS, RunContext
from lancestat.runs.node import NodeEnded, NodeRunner
from lancestat.runs.result import Status, planned
from lancestat.spec.model import Duplicates
from lancestat.state.values import result_identity

# The join that found the pairs, its result, and what it did if it has just run.
_Pairs = tuple[JoinRecord, OutputState, JoinFigures]


@dataclass(frozen=True, slots=True)
class DuplicatesRunner(NodeRunner):
    """Runs actions on near-duplicates."""

    context: RunContext
    open_join: OpenJoin

    def run(self, action: DuplicatesAction) -> NodeEnded | Action:
        """Find the pairs where that is to be done, and group them.

        A run that dies in between leaves the groups as they are; the next one does both again.
        """
        found = self._pairs(action)
        if not isinstance(found, tuple):
            return found
        join, pairs, figures = found
        for _ in range(MAX_ATTEMPTS - 1):
            try:
                return self._ended(action, figures, self._group(action, join, pairs))
            except StaleBase:
                # Another run has committed, and its ids are taken.
                continue
        return self._ended(action, figures, self._group(action, join, pairs))

    def _pairs(self, action: DuplicatesAction) -> _Pairs | Action:
        if action.join is None:
            assert action.known is not None, "there are pairs"
            record, state = action.known
            figures = JoinFigures(record.strategy, None, record.counts, 0, record.accuracy)
            return record, state, figures
        digests = {**self.context.digests, action.node: action.work.pairs_digest}
        joins = JoinRunner(replace(self.context, digests=digests), self.open_join)
        ended = joins.run(action.join)
        if not isinstance(ended, NodeEnded):
            return ended
        assert ended.record is not None, "joins that end well are recorded"
        assert isinstance(ended.result.figures, JoinFigures), "joins have figures"
        record = decode_join(ended.record[1])
        return record, record.result, ended.result.figures

    def _group(
        self, action: DuplicatesAction, join: JoinRecord, pairs: OutputState
    ) -> DuplicatesRecord:
        """Group pairs, and replace the last result, whose ids groups take over.

        Raises:
            StaleBase: another run has written the result meanwhile.
        """
        work, options = action.work, self.context.options
        self._reach(action, GroupPairs())
        output = LanceOutput(work.output_uri, options.of(work.output_uri))
        before = output.opened()
        known, highest = read_members(output, before)
        side = self._side(work)
        place = work.pairs_uri, options.of(work.pairs_uri)
        grouped = components(*read_pairs(pairs, side, *place))
        rows = GroupedRows.of(side, metric_named(work.metric), grouped, work.order_by)
        hashes, distances = rows.compared()
        members = Members(hashes, grouped.labels, rows.is_kept)
        ids, highest = lasting_ids(known, members, max(highest, self._highest(work.output_uri)))
        schema = result_schema(rows.side, highest)
        self._reach(action, CommitGroups(work.output_uri))
        writer = output.begin(self.context.run_id)
        try:
            batches = rows.batches(ids, hashes, distances, schema)
            written = [output.write(writer, 0, schema, batches)] if len(grouped) else []
            result = output.replace_version(writer, schema, written, before)
        except BaseException:
            output.discard(writer)
            raise
        return DuplicatesRecord(
            node=action.node,
            digest=self.context.digests[action.node],
            content=work.content,
            pairs=join,
            result=result,
            counts=GroupCounts(len(grouped), len(grouped.rows), pairs.rows),
            sizes=GroupSizes.of(grouped.sizes.tolist()),
            highest_id=highest,
            finished_at=self.context.clock(),
        )

    def _side(self, work: GroupWork) -> VectorSide:
        table = work.table
        return VectorSide(
            pin=table.pin,
            vector=work.vector,
            columns=work.select,
            fragments=table.fragments,
            storage_options=self.context.options.of(table.pin.uri),
            keys=work.keys,
            has_bits=metric_named(work.metric).has_bits,
        )

    def _highest(self, output_uri: str) -> int:
        """Return the highest id that the state knows of, should the result have gone."""
        kind = Duplicates.kind.value
        records = self.context.state.records(kind, decode_record)
        record = records.get(result_identity(kind, output_uri))
        return 0 if record is None else record.highest_id

    def _reach(self, action: DuplicatesAction, stage: Stage) -> None:
        self.context.refuse_when_stopped(action.node)
        self.context.events.emit(StageReached(action.node, StageProgress(stage)))

    def _ended(
        self, action: DuplicatesAction, pairs: JoinFigures, record: DuplicatesRecord
    ) -> NodeEnded:
        result = replace(
            planned(action),
            status=Status.SUCCESS,
            version_published=record.result.version,
            figures=DuplicatesFigures(pairs, record.counts),
        )
        pin = action.work.table.pin
        found, versions = record.history_figures(), {pin.uri: pin.version}
        return NodeEnded(result, record.stored(action.work.output_uri), found, versions=versions)
