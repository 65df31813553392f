"""Reads rows to prove or refute what is expected of tables where nothing that is known does.

Statistics of the columns in question are read of the fragments that the state does not know, and
kept there: later proofs read new fragments alone. What these cannot decide, Spark does, over all
rows of the columns. The state remembers what was found for as long as the columns stay as they are.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from lancestat.errors import LancestatError
from lancestat.formats import count
from lancestat.lake.open import open_pinned
from lancestat.report.expectations import (
    StateFacts,
    content_of,
    expectation_digest,
    known_proof,
    other_tables,
)
from lancestat.report.relations import OtherTable, groups_of
from lancestat.runs.actions import StageProgress
from lancestat.runs.events import EventStream, Listener, StageReached
from lancestat.runs.execute import RunContext
from lancestat.runs.node import Observed
from lancestat.runs.observe import Observer
from lancestat.spark.session import RunSession, in_process_bytes
from lancestat.spec.column_selection import ColumnPattern, ColumnRule, ColumnSelection
from lancestat.spec.expectations import (
    AcceptedValues,
    Between,
    Check,
    DistinctBetween,
    Expectation,
    MaxNullShare,
    NotNull,
    References,
    Unique,
)
from lancestat.spec.model import Publish, Table, tables_of
from lancestat.spec.relations import MOST_COMMON_VALUES, Columns, CommonValues
from lancestat.state.proofs import Proof, read_proofs, write_proofs
from lancestat.state.store import LanceState
from lancestat.tables.action import ReadFragments, ReusePartials, TableAction
from lancestat.tables.expectations import CheckResult, CheckVerdict, Known, is_within, judge
from lancestat.tables.judgement import TableAssessment
from lancestat.tables.node import TableObserver, assess_table
from lancestat.tables.planner import NOTHING_STORED, read_missing
from lancestat.tables.run import PartialsGoneError, ScanTable, TableWorkspace, table_runner
from lancestat.tables.statistics.partial import EMPTY_PARTIAL

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class ReadFacts(StateFacts):
    """As `StateFacts`, with the partials of all rows that were read for it, by columns."""

    partials: Mapping[frozenset[str], Known]

    def known(self, columns: Sequence[str]) -> Known | None:
        found = self.partials.get(frozenset(columns))
        return super().known(columns) if found is None else found


def prove(
    observer: Observer,
    state: LanceState,
    tables: Sequence[Table],
    on_event: Listener | None,
    session: SparkSession | None,
    ends_process: bool,
) -> Mapping[str, LancestatError]:
    """Decide what is unknown of what tables are expected to be, and remember it.

    Returns:
        The errors of tables that cannot be read, by name.
    """
    target = observer.spec.target
    in_process = in_process_bytes(target) if session is None else 0
    spark = RunSession(target, session=session, ends_process=ends_process)
    events = EventStream([] if on_event is None else [on_event])
    context = RunContext(observer, state, {}, events, spark, uuid.uuid4().hex)
    observed = observer.look([table for table in tables if table.expect])
    errors: dict[str, LancestatError] = {}
    with ExitStack() as stack:
        stack.enter_context(events.with_warnings())
        runner = stack.enter_context(table_runner(context, partial(assess_table, observer)))
        stack.enter_context(spark)
        prover = _Prover(context, observed, runner.scan, in_process)
        for table in tables_of(observed.nodes):
            try:
                prover.prove(table)
            except LancestatError as error:
                errors[table.name] = error
    return errors


@dataclass(frozen=True, slots=True)
class _Prover:
    context: RunContext
    observed: Observed
    scan: ScanTable
    in_process_bytes: int

    def prove(self, table: Table) -> None:
        """Decide what is unknown of one table.

        Raises:
            LancestatError: it cannot be read.
        """
        tables = TableObserver(self.observed)
        assessment = tables.assess(table)
        state, other = self.context.state, self._other
        facts = self._facts(assessment, {})
        proofs = dict(read_proofs(state.folder, assessment.identity))
        unknown = [
            each
            for each in table.expect
            if judge(each, facts).verdict is CheckVerdict.UNKNOWN
            and known_proof(each, proofs, assessment, other) is None
        ]
        if not unknown:
            return
        read = self._facts(assessment, self._partials(tables, assessment, unknown))
        try:
            for expectation in unknown:
                result = judge(expectation, read)
                if result.verdict is CheckVerdict.UNKNOWN:
                    result = self._by_spark(expectation, assessment, result)
                if result.verdict is not CheckVerdict.UNKNOWN:
                    proof = Proof(
                        expectation=expectation_digest(expectation, assessment),
                        content=content_of(expectation, assessment, other),
                        holds=result.verdict is CheckVerdict.PROVED,
                        detail=result.detail,
                        made_at=self.context.clock(),
                    )
                    proofs[proof.expectation] = proof
        finally:
            # What was found before reading failed or was interrupted is not read again.
            declared = {expectation_digest(each, assessment) for each in table.expect}
            kept = [proof for digest, proof in proofs.items() if digest in declared]
            with state.writing():
                write_proofs(state.folder, assessment.identity, kept)

    @property
    def _other(self) -> OtherTable:
        return other_tables(self.observed)

    def _facts(
        self, assessment: TableAssessment, partials: Mapping[frozenset[str], Known]
    ) -> ReadFacts:
        return ReadFacts(assessment, groups_of(self.context.state), self._other, partials)

    def _partials(
        self,
        tables: TableObserver,
        assessment: TableAssessment,
        expectations: Sequence[Expectation],
    ) -> Mapping[frozenset[str], Known]:
        """Return the partials of all rows that may decide expectations, by columns."""
        of_types = (
            each for each in expectations if assessment.types.keys() >= {*each.check.columns}
        )
        wanted = _wanted(assessment.spec, of_types)
        if wanted is None:
            return {}
        needed = tables.assess(wanted)
        for _ in range(2):
            # Between the two, a run may fold what the index had.
            with suppress(PartialsGoneError):
                changes = tables.changes(needed)
                return self._read(read_missing(needed, changes, self.in_process_bytes))
        changes = replace(tables.changes(needed), index=NOTHING_STORED)
        return self._read(read_missing(needed, changes, self.in_process_bytes))

    def _read(self, action: TableAction) -> Mapping[frozenset[str], Known]:
        workspace = TableWorkspace(self.context, action, self.scan)
        for stage in action.stages:
            self.context.events.emit(StageReached(action.node, StageProgress(stage)))
            match stage:
                case ReusePartials():
                    workspace.reuse(stage.coverage)
                case ReadFragments():
                    workspace.read(stage)
        return {
            frozenset(columns): Known(partial, is_whole=True)
            for columns, partial in workspace.partials().items()
        }

    def _by_spark(
        self, expectation: Expectation, assessment: TableAssessment, result: CheckResult
    ) -> CheckResult:
        """Decide an expectation by a query on Spark over all rows, where there is one for it."""
        check, what = expectation.check, f"checking {expectation.name}"
        other = self._other(check.table) if isinstance(check, References) else None
        if isinstance(check, Between | AcceptedValues) or (
            isinstance(check, References) and other is None
        ):
            return result
        from lancestat.spark.jobs import jobs_of
        from lancestat.spark.versions import is_connect

        with self.context.spark.working(what) as (session, group):
            if is_connect(session):
                detail = f"{result.detail}; rows are not compared over Spark Connect"
                return replace(result, detail=detail)
            with jobs_of(session).group(group, f"lancestat: {assessment.spec.name}: {what}"):
                frame = self._rows(session, assessment, check.columns)
                if isinstance(check, NotNull | MaxNullShare):
                    nulls, rows = frame.where("c0 IS NULL").count(), assessment.snapshot.rows
                    partial = replace(EMPTY_PARTIAL, rows=rows, nulls=nulls)
                    found = {frozenset(check.columns): Known(partial, is_whole=True)}
                    return judge(expectation, self._facts(assessment, found))
                theirs = None
                if isinstance(check, References) and other is not None:
                    theirs = self._rows(session, other, check.to)
                holds, detail = _queried(check, frame, theirs)
            for read in filter(None, (assessment, other)):
                # The version that was read is of another dataset if that took its place meanwhile.
                pin = read.snapshot.pin
                open_pinned(pin, storage_options=self.context.options.of(pin.uri))
        verdict = CheckVerdict.PROVED if holds else CheckVerdict.REFUTED
        return replace(result, verdict=verdict, detail=detail)

    def _rows(
        self, session: SparkSession, assessment: TableAssessment, columns: Columns
    ) -> DataFrame:
        """Return columns of the rows as they were observed, under the names `c0`, `c1`, ..."""
        from lancestat.query.read.relation import read_table

        pin = assessment.snapshot.pin
        options = self.context.options.of(pin.uri)
        frame = read_table(session, pin.uri, version=pin.version, storage_options=options)
        named = ("`{}` AS c{}".format(name.replace("`", "``"), i) for i, name in enumerate(columns))
        return frame.selectExpr(*named)


def _queried(check: Check, frame: DataFrame, theirs: DataFrame | None) -> tuple[bool, str]:
    """Return whether an expectation of some rows holds, and what was found."""
    from pyspark.sql.functions import expr

    is_there = " AND ".join(f"{name} IS NOT NULL" for name in frame.columns)
    match check:
        case Unique():
            rows = frame.where(is_there).groupBy(*frame.columns).count()
            repeated = rows.where("count > 1").limit(1).count()
            return (
                not repeated,
                "at least two rows are equal" if repeated else "no two rows are equal",
            )
        case DistinctBetween(min=low, max=high):
            number = frame.where(is_there).distinct().count()
            found = count(number, "distinct value is", "distinct values are")
            return is_within(number, low, high), f"{found} there"
        case References():
            assert theirs is not None, "what is referred to was opened"
            others = theirs.toDF(*(f"o{index}" for index, _ in enumerate(theirs.columns)))
            is_same = " AND ".join(f"c{i} = o{i}" for i, _ in enumerate(frame.columns))
            missing = frame.where(is_there).join(others, expr(is_same), "left_anti").count()
            refer = count(missing, "row refers", "rows refer")
            return not missing, f"{refer} to nothing" if missing else "every row has its row"
    raise AssertionError(f"no query decides {check}")


def _wanted(table: Table, expectations: Iterable[Expectation]) -> Table | None:
    """Return a table that needs the partials that may decide expectations, None for none."""
    names: dict[str, ColumnPattern] = {}
    keys: list[Columns] = []
    listed: list[str] = []
    limit = 1
    for expectation in expectations:
        check = expectation.check
        if isinstance(check, References):
            continue
        names |= {name: ColumnPattern(name, expectation.location) for name in check.columns}
        match check:
            case Unique(columns=columns):
                keys.append(columns)
            case AcceptedValues(column=name, values=values):
                listed.append(name)
                limit = max(limit, len(values) + 1)
            case DistinctBetween(column=name, min=low, max=high):
                listed.append(name)
                limit = max(limit, (low or 0) + 1, (high or 0) + 1)
    if not names:
        return None
    common = CommonValues(min(limit, MOST_COMMON_VALUES), columns=tuple(dict.fromkeys(listed)))
    return replace(
        table,
        columns=ColumnSelection(all=False, rules=(ColumnRule(tuple(names.values())),)),
        histogram=False,
        groups=(),
        keys=tuple(keys),
        references=(),
        common_values=common if listed else None,
        publish=Publish.NONE,
        expect=(),
    )
