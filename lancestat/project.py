"""The Python interface: a project that can be planned, run and reported on."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lancestat.arguments import (
    check,
    check_loading,
    check_name,
    check_names,
    check_path,
    check_session,
    check_whole,
)
from lancestat.errors import LancestatError
from lancestat.logs import redact_logs, without_secrets
from lancestat.spec import PAGES, graph
from lancestat.spec.load import load_project
from lancestat.spec.model import Node, ProjectSpec, tables_of
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
    from lancestat.runs.result import PastRun, RunResult, UnfinishedNodes
    from lancestat.state.garbage import GarbageReport
    from lancestat.state.history import HistoryPoint
    from lancestat.state.store import LanceState
    from lancestat.tables.table_status import TableStatus
    from lancestat.tables.unpublish import UnpublishResult


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
        return graph.select(
            self.spec,
            select,
            exclude,
            states=lambda: graph.node_states(
                self.spec, self.state.digests(self.spec.name, self.spec.target.name)
            ),
        )

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
        observer = self._observer().within(max_bytes, max_minutes)
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
        from lancestat.runs.plan_file import PlanOptions, PlanStore

        check_path("path", path)
        self.discover()
        budget = self.spec.target.budget.bounded(max_bytes, max_minutes)
        options = PlanOptions.of(select, exclude, full_refresh, budget)
        return PlanStore(self._observer(), self.nodes, __version__).save(Path(path), options)

    def load_plan(self, path: str | Path) -> Plan:
        """Return the plan from a file, if nothing that it depends on has changed since.

        Args:
            path: A file that `save_plan` or `lancestat plan --out` wrote.

        Raises:
            PlanOutOfDate: The project, a dataset or the state has changed; the message lists the
                nodes.
            PlanFileError: The file is not a plan, or belongs to another project, target or release.
        """
        from lancestat.runs.plan_file import PlanStore

        check_path("path", path)
        self.discover()
        return PlanStore(self._observer(), self.nodes, __version__).load(Path(path))

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
        from lancestat.pipelines.execution import executor
        from lancestat.runs.actions import check_plan

        check_plan(plan, select, exclude, max_bytes, max_minutes)
        if plan is None:
            self.discover()
        observer = self._observer(session)
        run = executor(observer, self.state, threads, fail_fast, on_event, session, ends_process)
        if plan is None:
            observer = observer.within(max_bytes, max_minutes)
            plan = observer.plan(self.nodes(select, exclude), full_refresh=full_refresh)
        return run(plan, "run")

    def runs(self, limit: int | None = None) -> tuple[PastRun, ...]:
        """Return the target's runs: those in progress, then past ones, newest first.

        Args:
            limit: The maximum number of runs; None returns all that the state remembers.
        """
        from lancestat.nodes import NODE_TYPES
        from lancestat.runs.result import past_runs

        check_whole("limit", limit, 0)
        return past_runs(self.state, self.spec, limit, NODE_TYPES)

    def unfinished(self) -> UnfinishedNodes:
        """Return the nodes that failed, or were not run, in the target's newest recorded run."""
        from lancestat.runs.result import unfinished

        return unfinished(self.state, self._discovered())

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
        from lancestat.pipelines.execution import executor
        from lancestat.runs.result import UnfinishedNodes

        is_right = unfinished is None or isinstance(unfinished, UnfinishedNodes)
        check("unfinished", unfinished, is_right, "what `unfinished` returns")
        remaining = unfinished or self.unfinished()
        nodes = remaining.among(self._discovered().nodes)
        observer = self._observer(session)
        run = executor(observer, self.state, threads, fail_fast, on_event, session, ends_process)
        observer = observer.within(max_bytes, max_minutes)
        plan = observer.plan(nodes, full_refresh=remaining.full_refresh)
        return run(plan, "retry")

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
        declared = self._discovered().table(table)
        if columns is not None:
            check_names("columns", columns)
        if columns is None and not all_columns:
            # What is asked for by name is done, whatever it costs.
            plan = self._observer().plan(self.nodes(table))
            return self.run(plan, on_event=on_event, session=session)
        from lancestat.tables.node import table_to_analyze

        selected = table_to_analyze(self._observer(), declared, columns, is_case_sensitive)
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
        views = attach_views(spark, opened, self.spec.target.reader, options)
        catalogs = self.attach_catalogs(spark)
        if has_rule(spark):
            self.run_nearest_by(spark)
        return replace(catalogs, views=views.views, failed=views.failed)

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
        return attach_catalogs(spark, self._declared_tables, wanted)

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
        from lancestat.report.tables import observed_status

        return observed_status(self._observer(), table)

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

            observer, tables = self._observer(session), tables_of(self.nodes(select, exclude))
            errors = prove_tables(observer, self.state, tables, on_event, session, ends_process)
        return CheckReport(self.report(select, exclude, runs=1), errors)

    def report_tables(self, wanted: Collection[str]) -> dict[str, pa.Table]:
        """Return what is known about all nodes as Arrow tables.

        Args:
            wanted: Names of tables to return: `statistics`, `runs`, `fragments`, `history`.
        """
        from lancestat.report.gather import named_tables, report_tables_of

        tables = named_tables(wanted)
        return report_tables_of(self._discovered(), self.state, self._clock, tables)

    def history(self, table: str) -> tuple[HistoryPoint, ...]:
        """Return what runs found of a table, oldest first, each with the figures of its columns.

        The time before its first run is told by the versions that the dataset still has. Of old
        runs some are kept: the last of each day, week and month.

        Args:
            table: The name of a declared table.
        """
        from lancestat.report.history import table_history

        return table_history(self._observer(), table)

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
        from lancestat.query.workload.tables import advise

        return advise(self._observer(), paths, min_queries, min_q_error)

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
        from lancestat.lake.files import remove_drafts
        from lancestat.nodes import NODE_TYPES
        from lancestat.report.site_folder import MARKER
        from lancestat.runs.execute import collect_garbage

        self._discovered()
        if not dry_run:
            remove_drafts(self.spec.root.resolve() / PAGES / MARKER)
        return collect_garbage(self.spec, self.state, NODE_TYPES, self._clock(), dry_run)

    def _observer(self, session: SparkSession | None = None) -> Observer:
        from lancestat.nodes import observer_of

        return observer_of(self._discovered(), self.state, self._clock, session)


def checks_in_words(*arguments: Any) -> Mapping[str, str]:
    """Do as `report.findings.checks_in_words`; datasets are opened only where that is needed."""
    from lancestat.report import findings

    return findings.checks_in_words(*arguments)
