"""The Python interface: a project that can be planned, run and reported on."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lancestat.arguments import (
    check,
    check_loading,
    check_name,
    check_names,
    check_path,
    check_selectors,
    check_session,
    check_whole,
    is_number,
)
from lancestat.errors import InvalidArgument, LancestatError, UnknownTable, did_you_mean
from lancestat.logs import redact_logs, without_secrets
from lancestat.spec import PAGES
from lancestat.spec.budget import Budget
from lancestat.spec.graph import select as select_nodes
from lancestat.spec.load import load_project
from lancestat.spec.model import (
    ColumnSelection,
    Node,
    ProjectSpec,
    Refresh,
    Table,
    node_digest,
    tables_of,
)
from lancestat.version import __version__

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from lancestat.query.read.relation import Attachment
    from lancestat.query.table import DeclaredTables
    from lancestat.query.workload.advice import Advice
    from lancestat.report.checks import CheckReport
    from lancestat.report.values import ProjectReport
    from lancestat.review.values import Diff
    from lancestat.runs.actions import Plan
    from lancestat.runs.events import Listener
    from lancestat.runs.observe import Observer
    from lancestat.runs.plan_file import PlanStore
    from lancestat.runs.result import PastRun, RunResult, UnfinishedNodes
    from lancestat.state.garbage import GarbageReport
    from lancestat.state.history import HistoryPoint
    from lancestat.state.store import LanceState
    from lancestat.tables.judgement import TableAssessment
    from lancestat.tables.table_status import TableStatus
    from lancestat.tables.unpublish import UnpublishResult


_log = logging.getLogger("lancestat.project")


@without_secrets
class Project:
    """A project under one of its targets: plan it, run it, query its tables, report on it.

    `Project.load` makes one from a folder. Errors that its methods raise contain no secrets.

    Raises:
        UsageError: A selector is invalid or matches nothing, a table is not declared, or an
            argument is of a wrong kind (`InvalidArgument`) or conflicts with another.
        StateError: The state, which most methods and some selectors need, cannot be reached.
        LancestatError: A dataset cannot be opened, or a session cannot be used (`RunError`).
    """

    def __init__(
        self,
        spec: ProjectSpec,
        *,
        clock: Callable[[], datetime] = lambda: datetime.now(timezone.utc),
        state: LanceState | None = None,
    ) -> None:
        self.spec = spec
        self._declared = spec
        self._clock = clock
        self._state = state
        redact_logs(spec.redactor)

    def __repr__(self) -> str:
        return self.spec.summary(self)

    @classmethod
    def load(
        cls,
        project_dir: str | Path = ".",
        target: str | None = None,
        vars: Mapping[str, object] | None = None,
    ) -> Project:
        """Load a project from its folder and check it, without opening any dataset.

        Args:
            project_dir: The folder that contains `lancestat_project.yml`.
            target: One of the project's targets; None is the default target.
            vars: Values that override the project's `vars`.

        Raises:
            InvalidProject: The YAML has errors; the exception lists them with their locations.
            InvalidArgument: An argument is of a wrong kind.
        """
        check_loading(project_dir, target, vars)
        return cls(load_project(Path(project_dir), target=target, vars=vars))

    @staticmethod
    def diff(
        project_dir: str | Path = ".",
        base: str = "HEAD",
        head: str | None = None,
        *,
        target: str | None = None,
        vars: Mapping[str, object] | None = None,
        with_datasets: bool = True,
    ) -> Diff:
        """Compare two revisions of a project: changed nodes, risks, columns, bytes to read.

        Args:
            project_dir: The folder of `lancestat_project.yml`, where relative URIs start.
            base: A git revision, a folder, or `REVISION...` for the merge base with it.
            head: A git revision or a folder; None is the working tree.
            target: The target to compare on both sides; None is the default target.
            vars: Values that override the project's `vars` on both sides.
            with_datasets: Whether to open datasets, to list columns and to estimate bytes.

        Raises:
            InvalidProject: One of the sides has errors.
            UsageError: One of the sides does not exist, or an argument is of a wrong kind.
        """
        from lancestat.nodes import NODE_TYPES
        from lancestat.review.diff import review

        check_loading(project_dir, target, vars)
        check_name("base", base)
        check("head", head, head is None or isinstance(head, str), "a string, or None")
        return review(
            Path(project_dir),
            base,
            head,
            types=NODE_TYPES,
            check=checks_in_words,
            target=target,
            vars=vars,
            with_datasets=with_datasets,
        )

    @cached_property
    def state(self) -> LanceState:
        """The target's state: what runs remember. It is opened on first use."""
        from lancestat.state.store import open_state

        if self._state is not None:
            return self._state
        return open_state(self.spec.target.state, self.spec.target.storage_options)

    def discover(self) -> ProjectSpec:
        """Search the sources for tables, make nodes of them, and return the resulting project.

        `plan`, `save_plan`, and `run` without a plan always search, other methods once. A source
        that cannot be searched becomes a node that fails.
        """
        if self._declared.sources:
            from lancestat.runs.discover import discovered

            self.spec = discovered(self._declared)
            redact_logs(self.spec.redactor)
        return self.spec

    def _discovered(self) -> ProjectSpec:
        return self.discover() if self.spec is self._declared else self.spec

    def nodes(
        self,
        select: str | Sequence[str] | None = None,
        exclude: str | Sequence[str] | None = None,
        *,
        discover: bool = True,
    ) -> tuple[Node, ...]:
        """Return the selected nodes in the order of their declaration.

        Args:
            select: Selectors, as for `--select` of the command line; None selects all nodes.
            exclude: Selectors of nodes to leave out.
            discover: Whether to search sources for tables if that has not been done yet.
        """
        if discover:
            self._discovered()
        return select_nodes(self.spec, select, exclude, states=self._node_states)

    def manifest(self) -> dict[str, Any]:
        """Return what `manifest.json` has of all nodes, without a plan. Opens no dataset.

        Schedulers make their graph of it. It contains no secrets.
        """
        from lancestat.pipelines.artifacts import FOLDER, Artifacts

        spec = self._discovered()
        return Artifacts(lambda: spec, spec.root / FOLDER, {}).manifest()

    def plan(
        self,
        select: str | Sequence[str] | None = None,
        exclude: str | Sequence[str] | None = None,
        *,
        full_refresh: bool = False,
        max_bytes: int | None = None,
        max_minutes: float | None = None,
    ) -> Plan:
        """Return what `run` would do, and why. Datasets are opened; Spark is not started.

        Args:
            select: Selectors of nodes; None selects all.
            exclude: Selectors of nodes to leave out.
            full_refresh: Whether to plan as if nothing were known yet.
            max_bytes: How much may be read of tables, in place of the target's `budget`.
            max_minutes: How long a run may begin nodes, in place of the target's `budget`.
        """
        self.discover()
        observer = self._rationed(self._observer(), max_bytes, max_minutes)
        return observer.plan(self.nodes(select, exclude), full_refresh=full_refresh)

    def save_plan(
        self,
        path: str | Path,
        select: str | Sequence[str] | None = None,
        exclude: str | Sequence[str] | None = None,
        *,
        full_refresh: bool = False,
        max_bytes: int | None = None,
        max_minutes: float | None = None,
    ) -> Plan:
        """Plan, and write the plan to a file for `load_plan`. Replaces an older plan file.

        Args:
            path: The file to write.
            select: See `plan`.
            exclude: See `plan`.
            full_refresh: See `plan`.
            max_bytes: See `plan`.
            max_minutes: See `plan`.

        Raises:
            PlaceOccupied: There is something other than a plan file at `path`.
            NotWritten: The file cannot be written.
        """
        from lancestat.runs.plan_file import PlanOptions

        check_path("path", path)
        self.discover()
        budget = self._budget(max_bytes, max_minutes)
        options = PlanOptions.of(select, exclude, full_refresh, budget)
        return self._plan_store.save(Path(path), options)

    def load_plan(self, path: str | Path) -> Plan:
        """Return the plan from a file, if nothing that it depends on has changed since.

        Args:
            path: A file that `save_plan` or `lancestat plan --out` wrote.

        Raises:
            PlanOutOfDate: The project, a dataset or the state has changed; the message lists the
                nodes.
            PlanFileError: The file is not a plan, or belongs to another project, target or release.
        """
        check_path("path", path)
        self.discover()
        return self._plan_store.load(Path(path))

    def run(
        self,
        plan: Plan | None = None,
        select: str | Sequence[str] | None = None,
        exclude: str | Sequence[str] | None = None,
        *,
        threads: int | None = None,
        fail_fast: bool = False,
        full_refresh: bool = False,
        max_bytes: int | None = None,
        max_minutes: float | None = None,
        on_event: Listener | None = None,
        session: SparkSession | None = None,
        ends_process: bool = False,
    ) -> RunResult:
        """Execute a plan. Spark is started only for joins and large reads.

        A failed node does not raise an exception: call `raise_for_status` on the result for that.

        Args:
            plan: A plan from `plan` or `load_plan`; None plans the selected nodes.
            select: Without a plan, selectors of nodes; None selects all.
            exclude: Without a plan, selectors of nodes to leave out.
            threads: How many nodes to work on concurrently.
            fail_fast: Whether to start no further nodes after one has failed.
            full_refresh: Without a plan, whether to read everything again.
            max_bytes: Without a plan, see `plan`.
            max_minutes: Without a plan, see `plan`.
            on_event: Gets what happens (`lancestat.events`), from several threads.
            session: The classic or Spark Connect session to use, instead of the thread's or the
                target's. A plan made by `plan` may still read small tables in this process.
            ends_process: Whether the process exits next, so that nothing waits for Spark to stop.
        """
        _check_plan(plan, select, exclude, max_bytes, max_minutes)
        if plan is None:
            self.discover()
        self._discovered()
        execute, observer = self._execution(threads, fail_fast, on_event, session, ends_process)
        if plan is None:
            observer = self._rationed(observer, max_bytes, max_minutes)
            plan = observer.plan(self.nodes(select, exclude), full_refresh=full_refresh)
        return execute(plan, "run")

    def runs(self, limit: int | None = None) -> tuple[PastRun, ...]:
        """Return the target's runs: those in progress, then past ones, newest first.

        Args:
            limit: The maximum number of runs; None returns all that the state remembers.
        """
        from lancestat.nodes import NODE_TYPES
        from lancestat.runs.result import past_runs

        check_whole("limit", limit, 0)
        return past_runs(self.state, self.spec.target.name, limit, NODE_TYPES)

    def unfinished(self) -> UnfinishedNodes:
        """Return the nodes that failed, or were not run, in the target's newest recorded run."""
        from lancestat.runs.result import unfinished

        names = frozenset(node.name for node in self._discovered().nodes)
        names |= {f"source:{source.label}" for source in self.spec.sources}
        return unfinished(self.state, self.spec.target.name, names)

    def retry(
        self,
        unfinished: UnfinishedNodes | None = None,
        *,
        threads: int | None = None,
        fail_fast: bool = False,
        max_bytes: int | None = None,
        max_minutes: float | None = None,
        on_event: Listener | None = None,
        session: SparkSession | None = None,
        ends_process: bool = False,
    ) -> RunResult:
        """Plan and run again what the last run did not finish.

        After a run with `full_refresh`, the nodes are read in full again.

        Args:
            unfinished: What `unfinished` returned; None looks it up.
            threads: See `run`.
            fail_fast: See `run`.
            max_bytes: See `plan`.
            max_minutes: See `plan`.
            on_event: See `run`.
            session: See `run`.
            ends_process: See `run`.
        """
        from lancestat.runs.result import UnfinishedNodes

        is_right = unfinished is None or isinstance(unfinished, UnfinishedNodes)
        check("unfinished", unfinished, is_right, "what `unfinished` returns")
        remaining = unfinished or self.unfinished()
        failed = {name.removeprefix("source:") for name in remaining.nodes if ":" in name}
        nodes = tuple(
            node
            for node in self._discovered().nodes
            if node.name in remaining.nodes or (isinstance(node, Table) and node.source in failed)
        )
        execute, observer = self._execution(threads, fail_fast, on_event, session, ends_process)
        observer = self._rationed(observer, max_bytes, max_minutes)
        plan = observer.plan(nodes, full_refresh=remaining.full_refresh)
        return execute(plan, "retry")

    def analyze(
        self,
        table: str,
        columns: Sequence[str] | None = None,
        *,
        all_columns: bool = False,
        is_case_sensitive: bool = False,
        on_event: Listener | None = None,
        session: SparkSession | None = None,
    ) -> RunResult:
        """Analyze one table, as `ANALYZE TABLE` does. Only what is not known yet is read.

        Args:
            table: The name of a declared table.
            columns: Columns to analyze, with those that already have statistics, instead of the
                declared ones.
            all_columns: Whether to analyze all columns that can be, instead of the declared ones.
            is_case_sensitive: Whether names in `columns` are case-sensitive.
            on_event: See `run`.
            session: See `run`.

        Raises:
            UsageError: The table is not declared, or a column does not exist or cannot be analyzed.
        """
        declared = self._table(table)
        if columns is not None:
            check_names("columns", columns)
        if columns is None and not all_columns:
            # What is asked for by name is done, whatever it costs.
            plan = self._observer().plan(self.nodes(table))
            return self.run(plan, on_event=on_event, session=session)
        everything = replace(
            declared,
            columns=ColumnSelection(),
            policy=replace(declared.policy, refresh=Refresh.ALWAYS),
        )
        selected = everything
        if columns is not None:
            from lancestat.tables.judgement import named_columns
            from lancestat.tables.node import assess_table

            assessment, _ = assess_table(self._observer(), everything)
            named = named_columns(assessment, columns, is_case_sensitive=is_case_sensitive)
            selected = everything.of_columns(named)
        nodes = tuple(selected if node is declared else node for node in self.spec.nodes)
        # Its sources have been looked up.
        spec = replace(self.spec, nodes=nodes, sources=())
        other = Project(spec, clock=self._clock, state=self.state)
        plan = other._observer().plan(other.nodes(table))
        return other.run(plan, on_event=on_event, session=session)

    def spark(self) -> SparkSession:
        """Return a session of the target, with the cost-based optimizer on and tables attached.

        `NEAREST BY` joins over vectors run on lancestat's engine, and use the target's `scratch`,
        unless `spark.lancestat.nearestBy.enabled` is false.

        Raises:
            SparkConnectSession: The target or the process has a Spark Connect session.
            RunError: Spark does not start.
        """
        from lancestat.spark.session import classic_session, optimizer_settings

        session = classic_session(self.spec.target, "lancestat")
        for key, value in optimizer_settings(self.spec.target.spark_conf).items():
            session.conf.set(key, value)
        self.attach(session)
        self.run_nearest_by(session)
        return session

    def run_nearest_by(self, spark: SparkSession) -> None:
        """Let a session run `NEAREST BY` joins over vectors on lancestat's engine.

        Has no effect before Spark 4.2, which introduced these joins.

        Args:
            spark: A classic session.
        """
        from lancestat.joins.nearest_by import install

        target = self.spec.target
        install(spark, target.scratch, target.storage_options)

    def attach(
        self,
        spark: SparkSession,
        select: str | Sequence[str] | None = None,
        exclude: str | Sequence[str] | None = None,
        *,
        options: Mapping[str, str] | None = None,
    ) -> Attachment:
        """Add the declared tables, with their statistics, and the target's catalogs to a session.

        Each declared table becomes a temporary view of the version that is the latest now. One that
        cannot be opened is logged and left out. Column statistics are used if the session's
        `spark.sql.cbo.enabled` is true. Catalogs of the target become catalogs of the session,
        whose tables are the latest when a query is planned. If the session already has a catalog of
        that name, it stays, and the declared tables that it reads get statistics. If the target has
        `listen`, what the session's queries do with columns is recorded there.

        Args:
            spark: A classic session.
            select: Selectors of tables that become views; None selects all.
            exclude: Selectors of tables to leave out.
            options: Options of all scans of the views, as for `lancestat.read_table`.
        """
        from lancestat.joins.nearest_by import has_rule
        from lancestat.query.read.relation import attach_views
        from lancestat.spark.compiler import compiling

        check_session("spark", spark)
        self._discovered()
        tables = tables_of(self.nodes(select, exclude))
        with compiling(spark):
            opened = self._declared_tables.open(tables)
        attachment = attach_views(spark, opened, self.spec.target.reader, options)
        for name, error in attachment.failed.items():
            _log.warning("table '%s' is not attached: %s", name, error.message)
        catalogs = self.attach_catalogs(spark)
        if has_rule(spark):
            self.run_nearest_by(spark)
        return replace(
            attachment, catalogs=catalogs.catalogs, failed_catalogs=catalogs.failed_catalogs
        )

    def attach_catalogs(self, spark: SparkSession) -> Attachment:
        """Add the target's catalogs to a session, as `attach` does, without views.

        Args:
            spark: A classic session.
        """
        from lancestat.query.read.relation import Attachment
        from lancestat.query.workload.query_log import record_queries

        check_session("spark", spark)
        folder = self._declared.target.query_log
        if folder is not None:
            record_queries(spark, Path(folder))
        wanted = tuple(self._declared.target.catalogs)
        if not wanted:
            return Attachment(())
        from lancestat.query.read.session_catalogs import attach_catalogs

        self._discovered()
        attached = attach_catalogs(spark, self._declared_tables, wanted)
        failed = {name: error for name, error in attached.items() if error is not None}
        for error in failed.values():
            _log.warning("%s", error.message)
        catalogs = tuple(name for name in attached if name not in failed)
        return Attachment((), catalogs=catalogs, failed_catalogs=failed)

    def detach(self, spark: SparkSession) -> None:
        """Undo `attach`: drop the views of declared tables, and restore the session's catalogs.

        Other views with these names stay. Existing DataFrames can still be read.

        Args:
            spark: A classic session.
        """
        from lancestat.query.read.session_catalogs import detach
        from lancestat.query.workload.query_log import stop_recording

        views = [table.name for table in self.spec.tables]
        detach(spark, tuple(self._declared.target.catalogs), views)
        stop_recording(spark)

    @property
    def _declared_tables(self) -> DeclaredTables:
        from lancestat.query.table import DeclaredTables

        return DeclaredTables(self.spec, self.state, self._clock)

    def show(self, table: str) -> TableStatus:
        """Return a table's statistics, and the verdict of the guard under the table's policy.

        Args:
            table: The name of a declared table.
        """
        from lancestat.report.relations import groups_of, relations_of
        from lancestat.report.tables import fragment_coverage
        from lancestat.tables.node import assess_table
        from lancestat.tables.table_status import table_status

        observer = self._observer()
        assessment, changes = assess_table(observer, self._table(table))
        _, covered = fragment_coverage(assessment, changes.index)
        relations = relations_of(
            assessment, groups_of(observer.state), partial(self._assessed, observer)
        )
        return table_status(assessment, self._clock(), covered, self.spec.redactor, relations)

    def _assessed(self, observer: Observer, name: str) -> TableAssessment | None:
        """Return the assessment of a table, None where it cannot be looked at."""
        from lancestat.tables.node import assess_table

        try:
            return assess_table(observer, self._table(name))[0]
        except LancestatError:
            return None

    def report(
        self,
        select: str | Sequence[str] | None = None,
        exclude: str | Sequence[str] | None = None,
        *,
        with_fragments: bool = False,
        with_histograms: bool = False,
        with_history: bool = False,
        runs: int | None = None,
    ) -> ProjectReport:
        """Return what is known about nodes now: health, statistics, freshness, last runs.

        Args:
            select: Selectors of nodes; None selects all.
            exclude: Selectors of nodes to leave out.
            with_fragments: Whether to include every fragment of every table.
            with_histograms: Whether to include the histograms of tables that have them.
            with_history: Whether to include what runs have found at up to 32 moments.
            runs: How many runs of each node to include; None includes a few.
        """
        from lancestat.report.gather import RUNS_READ, gather

        check_whole("runs", runs, 0)
        self._discovered()
        return gather(
            self.spec,
            self.state,
            self._clock,
            self.nodes(select, exclude),
            with_fragments=with_fragments,
            with_histograms=with_histograms,
            with_history=with_history,
            runs=RUNS_READ if runs is None else runs,
        )

    def check(
        self,
        select: str | Sequence[str] | None = None,
        exclude: str | Sequence[str] | None = None,
        *,
        prove: bool = False,
        on_event: Listener | None = None,
        session: SparkSession | None = None,
        ends_process: bool = False,
    ) -> CheckReport:
        """Return whether tables are as expected, as far as that is known without reading rows.

        Args:
            select: Selectors of nodes; None selects all.
            exclude: Selectors of nodes to leave out.
            prove: Whether to read rows where nothing that is known decides.
            on_event: Called with what happens meanwhile (`lancestat.events`).
            session: The session that reads rows where need be; None starts one.
            ends_process: Whether the process ends next, so that Spark's end is not awaited.
        """
        from lancestat.report.checks import CheckReport

        errors: Mapping[str, LancestatError] = {}
        if prove:
            from lancestat.report.proof import prove as prove_tables

            self._discovered()
            errors = prove_tables(
                self._observer(session),
                self.state,
                tables_of(self.nodes(select, exclude)),
                [] if on_event is None else [on_event],
                session=session,
                ends_process=ends_process,
            )
        return CheckReport(self.report(select, exclude, runs=1), errors)

    def report_tables(self, wanted: Collection[str]) -> dict[str, pa.Table]:
        """Return what is known about all nodes as Arrow tables.

        Args:
            wanted: Names of tables to return: `statistics`, `runs`, `fragments`, `history`.
        """
        from lancestat.report.gather import ALL, ReportTable, gather, report_tables
        from lancestat.report.values import runs_by_node

        names = [table.value for table in ReportTable]
        check_names("wanted", wanted)
        for name in wanted:
            check("wanted has an item that", name, name in names, f"one of: {', '.join(names)}")
        self._discovered()
        return report_tables(
            frozenset(map(ReportTable, wanted)),
            report=lambda: gather(
                self.spec, self.state, self._clock, self.spec.tables, with_fragments=True, runs=0
            ),
            runs=lambda: runs_by_node(self.state, self.spec.target.name, ALL),
            history=self._history,
        )

    def _history(self) -> Iterator[HistoryPoint]:
        from lancestat.report.history import recorded_history

        for points in recorded_history(self.state).values():
            yield from points

    def history(self, table: str) -> tuple[HistoryPoint, ...]:
        """Return what runs found of a table, oldest first, each with the figures of its columns.

        The time before its first run is told by the versions that the dataset still has. Of old
        runs some are kept: the last of each day, week and month.

        Args:
            table: The name of a declared table.
        """
        from lancestat.report.history import recorded_history, with_versions
        from lancestat.tables.node import assess_table

        assessment, _ = assess_table(self._observer(), self._table(table))
        key, options = assessment.identity, self.spec.options.of(assessment.snapshot.uri)
        points = recorded_history(self.state, [key]).get(key, ())
        return with_versions(points, key, table, assessment.snapshot, options)

    def advise(
        self,
        paths: Sequence[str | Path] = (),
        *,
        min_queries: int = 1,
        min_q_error: float = 2,
    ) -> Advice:
        """Return proposals for the declarations, from what queries have done. Opens the tables.

        Args:
            paths: Logs of queries, and folders with such logs: event logs of Spark, and what
                attached sessions record. Without any, those of the target's `listen`.
            min_queries: How many queries have to use what a proposal adds.
            min_q_error: How far estimates have to be off, as a factor, for proposals that serve
                nothing else. Where it is not known how far they are, all are made.

        Raises:
            EventLogUnreadable: A path does not exist, or a folder cannot be listed.
            NoQueryLog: There are no paths, and the target does not `listen`, or has recorded none.
        """
        from lancestat.query.workload.tables import advise, logs_of

        check_whole("min_queries", min_queries, 1)
        is_factor = is_number(min_q_error) and min_q_error >= 1
        check("min_q_error", min_q_error, is_factor, "a number, 1 or more")
        logs = logs_of(paths, self.spec.target)
        # What sources find is known to the observer then.
        self._discovered()
        return advise(
            self._observer(),
            logs,
            min_queries=min_queries,
            min_q_error=min_q_error,
        )

    def unpublish(
        self,
        select: str | Sequence[str] | None = None,
        exclude: str | Sequence[str] | None = None,
        *,
        dry_run: bool = False,
    ) -> UnpublishResult:
        """Remove the statistics that lancestat published from tables, each in one commit.

        Statistics of other writers stay, and so does the state: the next run publishes those of
        tables with `publish: manifest` again, from what the state has stored.

        Args:
            select: Selectors of tables; None selects all.
            exclude: Selectors of tables to leave out.
            dry_run: Whether to only return what would be removed.
        """
        from lancestat.tables.unpublish import unpublish

        self.discover()
        return unpublish(self.spec, self.nodes(select, exclude), dry_run=dry_run)

    def collect_garbage(self, *, dry_run: bool = False) -> GarbageReport:
        """Remove state of nodes that are no longer declared, and files that killed processes left.

        Args:
            dry_run: Whether to only return what would be removed.

        Raises:
            RunError: A scratch root cannot be listed.
        """
        from lancestat.nodes import NODE_TYPES
        from lancestat.report.site_folder import clear_drafts
        from lancestat.runs.execute import collect_garbage

        self._discovered()
        if not dry_run:
            clear_drafts(self.spec.root.resolve() / PAGES)
        now = self._clock()
        return collect_garbage(self.spec, self.state, NODE_TYPES, now=now, dry_run=dry_run)

    @property
    def _digests(self) -> dict[str, str]:
        return {node.name: node_digest(node) for node in self.spec.nodes}

    def _node_states(self) -> dict[str, str]:
        known = self.state.digests()
        return {
            name: "new" if name not in known else "same" if known[name] == digest else "modified"
            for name, digest in self._digests.items()
        }

    def _observer(self, session: SparkSession | None = None) -> Observer:
        from lancestat.nodes import node_types
        from lancestat.runs.observe import Observer
        from lancestat.spark.session import start_seconds

        target = self.spec.target
        return Observer(
            self.spec,
            self.state,
            self._clock,
            node_types(target, session),
            spark_start_seconds=start_seconds(target) if session is None else 0.0,
        )

    def _rationed(
        self, observer: Observer, max_bytes: int | None, max_minutes: float | None
    ) -> Observer:
        """Return an observer whose plans keep to the budget."""
        budget = self._budget(max_bytes, max_minutes)
        return replace(observer, budget=budget, uses=self._uses)

    def _budget(self, max_bytes: int | None, max_minutes: float | None) -> Budget:
        check_whole("max_bytes", max_bytes, 0)
        is_span = max_minutes is None or (is_number(max_minutes) and max_minutes > 0)
        check("max_minutes", max_minutes, is_span, "a number above 0, or None")
        budget = self.spec.target.budget
        return Budget(
            bytes=budget.bytes if max_bytes is None else max_bytes,
            minutes=budget.minutes if max_minutes is None else max_minutes,
        )

    def _uses(self) -> Mapping[str, int]:
        if self.spec.target.query_log is None:
            return {}
        from lancestat.query.workload.tables import recorded_uses

        return recorded_uses(self.spec)

    @property
    def _plan_store(self) -> PlanStore:
        from lancestat.runs.plan_file import PlanStore

        observer = replace(self._observer(), uses=self._uses)
        return PlanStore(observer, self.nodes, __version__)

    def _execution(
        self,
        threads: int | None,
        fail_fast: bool,
        on_event: Listener | None,
        session: SparkSession | None,
        ends_process: bool,
    ) -> tuple[Callable[[Plan, str], RunResult], Observer]:
        from lancestat.runs.execute import execute_plan

        check_whole("threads", threads, 1)
        if session is not None:
            check_session("session", session)
        listeners = [] if on_event is None else [on_event]
        if self.spec.hooks:
            from lancestat.pipelines.hooks import HookCaller

            listeners.append(HookCaller(self.spec))
        from lancestat.pipelines.lineage import lineage_listener

        lineage = lineage_listener(self.spec)
        if lineage is not None:
            listeners.append(lineage)
        from lancestat.report.findings import checks_after

        observer = self._observer(session)
        execute = partial(
            execute_plan,
            check=partial(checks_after, spec=self.spec, state=self.state, clock=self._clock),
            observer=observer,
            state=self.state,
            digests=self._digests,
            listeners=listeners,
            threads=threads,
            fail_fast=fail_fast,
            session=session,
            ends_process=ends_process,
        )
        return execute, observer

    def _table(self, name: str) -> Table:
        check_name("table", name)
        node = self._discovered().node(name)
        if isinstance(node, Table):
            return node
        if node is not None:
            noun = node.declares.noun.replace("knn", "KNN")
            raise UnknownTable(
                f"'{name}' is a {noun}, and only tables have statistics",
                hint="declare a table over its result",
            )
        names = [table.name for table in self.spec.tables]
        hint = did_you_mean(name, names, "declared tables")
        raise UnknownTable(f"no table '{name}' is declared", hint=hint)


def _check_plan(plan: object, select: object, exclude: object, *budget: object) -> None:
    from lancestat.runs.actions import Plan

    hint = f"select={plan!r}" if isinstance(plan, str) else None
    is_right = plan is None or isinstance(plan, Plan)
    check("plan", plan, is_right, "what `plan` or `load_plan` returns", hint=hint)
    check_selectors(select=select, exclude=exclude)
    if plan is not None and not (select is None and exclude is None):
        raise InvalidArgument("select and exclude go without a plan, which has its nodes already")
    if plan is not None and any(bound is not None for bound in budget):
        raise InvalidArgument("max_bytes and max_minutes go without a plan, which has its budget")


def checks_in_words(*arguments: Any) -> Mapping[str, str]:
    """Do as `report.findings.checks_in_words`; datasets are opened only where that is needed."""
    from lancestat.report import findings

    return findings.checks_in_words(*arguments)
