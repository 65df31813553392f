"""The Python interface: a project that can be planned, run and reported on."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from functools import cached_property, wraps
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, TypeVar

from lancestat import __version__
from lancestat.errors import LancestatError, UnknownTable, did_you_mean
from lancestat.logs import redact_logs
from lancestat.redact import Audience
from lancestat.spec import PAGES
from lancestat.spec.digest import node_digest
from lancestat.spec.load import load_project
from lancestat.spec.model import (
    ColumnSelection,
    Node,
    ProjectSpec,
    Refresh,
    Table,
    tables_of,
)
from lancestat.spec.selection import select as select_nodes

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from lancestat.execution.execute import Execution
    from lancestat.execution.past_runs import PastRun
    from lancestat.execution.result import Progress, RunResult, UnfinishedNodes
    from lancestat.execution.unpublish import UnpublishResult
    from lancestat.optimizer.table import DeclaredTables
    from lancestat.plan.actions import Plan
    from lancestat.plan.observe import Observer
    from lancestat.plan.plan_store import PlanStore
    from lancestat.plan.table_status import TableStatus
    from lancestat.report.values import ProjectReport
    from lancestat.review.values import Diff
    from lancestat.spark.read.relation import Attachment
    from lancestat.state.garbage_collection import GarbageReport
    from lancestat.state.store import LanceState

T = TypeVar("T")

_log = logging.getLogger("lancestat.project")


def _without_secrets(cls: type[T]) -> type[T]:
    """Make the public methods of a class with a `spec` raise errors that hold no secret."""
    for name, member in list(vars(cls).items()):
        if isinstance(member, FunctionType) and not name.startswith("_"):
            setattr(cls, name, _redacting(member))
    return cls


def _redacting(method: FunctionType) -> Callable[..., object]:
    @wraps(method)
    def redacting(self: Project, *args: object, **kwargs: object) -> object:
        try:
            return method(self, *args, **kwargs)
        except LancestatError as error:
            redacted = self.spec.redactor.error(error, Audience.PERSON)
            if str(redacted) == str(error):
                raise
            redacted = redacted.with_traceback(error.__traceback__)
        # Outside of the handler, so that the error which holds the secret is not its context.
        raise redacted

    return redacting


@_without_secrets
class Project:
    """A loaded project under one target."""

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
        """Read and check a project's folder; no dataset is opened.

        Args:
            project_dir: The folder with `lancestat_project.yml`.
            target: One of the project's targets, its default when None.
            vars: Overrides of the project's `vars`.

        Raises:
            InvalidProject: with everything that is wrong, each with its place.
        """
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
        """Return what a change of a project means: nodes, risks, columns, bytes to read.

        Args:
            project_dir: The folder with `lancestat_project.yml`; relative URIs lead from there.
            base: A git revision, a folder, or `REVISION...` for where the work left it.
            head: A git revision or a folder, the folder as it is when None.
            target: One of the project's targets on both sides, its default when None.
            vars: Overrides of the project's `vars` on both sides.
            with_datasets: Whether datasets are opened, to name columns and to estimate bytes.

        Raises:
            InvalidProject: a side has errors, each with its place there.
            UsageError: a side is not there.
        """
        from lancestat.review.diff import review

        return review(
            Path(project_dir), base, head, target=target, vars=vars, with_datasets=with_datasets
        )

    @cached_property
    def state(self) -> LanceState:
        """The state, which is remembered between runs; opened when first used."""
        from lancestat.state.store import open_state

        if self._state is not None:
            return self._state
        return open_state(self.spec.target.state, self.spec.target.storage_options)

    def discover(self) -> ProjectSpec:
        """Look up the sources, take their tables as nodes and return the project with them.

        `plan`, `run` without a plan and `save_plan` do this anew, other methods where it has not
        been done yet. A project without sources stays as it is. A source that cannot be looked up
        is a node that fails.
        """
        if self._declared.sources:
            from lancestat.plan.discover import discovered

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
        """The selected nodes in the order of the project, all when nothing is selected.

        Args:
            select: Which nodes, all when None.
            exclude: Which to leave out.
            discover: Whether sources are looked up for their tables, unless that has been done.

        Raises:
            UsageError: a selector is wrong or matches nothing.
            StateError: a selector needs the state, which cannot be reached.
        """
        if discover:
            self._discovered()
        return select_nodes(self.spec, select, exclude, states=self._node_states)

    def plan(
        self,
        select: str | Sequence[str] | None = None,
        exclude: str | Sequence[str] | None = None,
        *,
        full_refresh: bool = False,
    ) -> Plan:
        """Return what `run` would do and why; opens datasets, starts no Spark.

        Raises:
            UsageError: a selector is wrong or matches nothing.
            StateError: the state cannot be reached.
        """
        self.discover()
        return self._observer.plan(self.nodes(select, exclude), full_refresh=full_refresh)

    def save_plan(
        self,
        path: str | Path,
        select: str | Sequence[str] | None = None,
        exclude: str | Sequence[str] | None = None,
        *,
        full_refresh: bool = False,
    ) -> Plan:
        """Plan, and write the plan to a file for `load_plan`; an older plan there is replaced.

        Raises:
            PlaceOccupied: something else is at `path`.
            NotWritten: it cannot be written.
            UsageError, StateError: as for `plan`.
        """
        from lancestat.plan.saved import PlanOptions

        self.discover()
        return self._plan_store.save(Path(path), PlanOptions.of(select, exclude, full_refresh))

    def load_plan(self, path: str | Path) -> Plan:
        """Return the plan of a file if the project, the datasets and the state are still the same.

        It is made again, under the options that it was made with, and has to come out the same.

        Raises:
            PlanOutOfDate: something has moved on; the message names every node and how it moved.
            PlanFileError: the file is no such plan, or that of another project, target or release.
        """
        self.discover()
        return self._plan_store.load(Path(path))

    def run(
        self,
        plan: Plan | None = None,
        *,
        threads: int | None = None,
        fail_fast: bool = False,
        full_refresh: bool = False,
        progress: Progress | None = None,
        session: SparkSession | None = None,
        ends_process: bool = False,
    ) -> RunResult:
        """Execute a plan, of all nodes when None; Spark starts only for joins and large reads.

        A node that fails raises nothing: `project.run().raise_for_status()` raises where any did.

        Args:
            plan: From `plan`; a new one over all nodes when None.
            threads: How many nodes are worked on at once.
            fail_fast: Start nothing new once a node has failed.
            full_refresh: Where no plan is given: read everything again.
            progress: Receives fragments and bytes read, stages of joins, and nodes that ended.
            session: The session to use, classic or of Spark Connect, in place of this thread's or
                the target's. Plans of `plan` may read tables in this process all the same.
            ends_process: The process ends next, and need not wait until Spark has stopped.
        """
        if plan is None:
            self.discover()
        self._discovered()
        execution = self._execution(threads, fail_fast, progress, session, ends_process)
        plan = plan or execution.observer.plan(self.nodes(), full_refresh=full_refresh)
        return execution.execute(plan, "run")

    def runs(self, limit: int | None = None) -> tuple[PastRun, ...]:
        """Return past runs of the target, newest first, after those that go on now.

        Args:
            limit: How many, all that the state remembers when None.

        Raises:
            StateError: the state cannot be reached.
        """
        from lancestat.execution.past_runs import past_runs

        return past_runs(self.state, self.spec.target.name, limit)

    def unfinished(self) -> UnfinishedNodes:
        """Return the nodes that failed or were not run in the newest recorded run of the target.

        Raises:
            StateError: the state cannot be reached.
        """
        from lancestat.execution.result import unfinished

        names = frozenset(node.name for node in self._discovered().nodes)
        names |= {f"source:{source.label}" for source in self.spec.sources}
        return unfinished(self.state, self.spec.target.name, names)

    def retry(
        self,
        unfinished: UnfinishedNodes | None = None,
        *,
        threads: int | None = None,
        fail_fast: bool = False,
        progress: Progress | None = None,
        session: SparkSession | None = None,
        ends_process: bool = False,
    ) -> RunResult:
        """Plan and run again what the last run did not finish; in full where it was to be in full.

        As after `run`, `raise_for_status` of the result raises where nodes failed.

        Args:
            unfinished: From `unfinished`; looked up when None.
            threads: See `run`.
            fail_fast: See `run`.
            progress: See `run`.
            session: See `run`.
            ends_process: See `run`.
        """
        remaining = unfinished or self.unfinished()
        failed = {name.removeprefix("source:") for name in remaining.nodes if ":" in name}
        nodes = tuple(
            node
            for node in self._discovered().nodes
            if node.name in remaining.nodes or (isinstance(node, Table) and node.source in failed)
        )
        execution = self._execution(threads, fail_fast, progress, session, ends_process)
        plan = execution.observer.plan(nodes, full_refresh=remaining.full_refresh)
        return execution.execute(plan, "retry")

    def analyze(
        self,
        table: str,
        columns: Sequence[str] | None = None,
        *,
        all_columns: bool = False,
        is_case_sensitive: bool = False,
        progress: Progress | None = None,
        session: SparkSession | None = None,
    ) -> RunResult:
        """Run one table, as `ANALYZE TABLE` does; what is known already is not read again.

        Args:
            table: A declared name.
            columns: These, and those that have statistics already, instead of the declared ones.
            all_columns: All that can be analyzed instead of the declared ones.
            is_case_sensitive: Whether the case of `columns` counts.
            progress: See `run`.
            session: See `run`.

        Raises:
            UsageError: no such table is declared, or a column is not there or cannot be analyzed.
            LancestatError: the dataset cannot be opened.
        """
        declared = self._table(table)
        if columns is None and not all_columns:
            plan = self._observer.plan(self.nodes(table))
            return self.run(plan, progress=progress, session=session)
        everything = replace(
            declared,
            columns=ColumnSelection(),
            policy=replace(declared.policy, refresh=Refresh.ALWAYS),
        )
        selected = everything
        if columns is not None:
            from lancestat.plan.named_columns import named_columns

            assessment, _ = self._observer.assess(everything)
            named = named_columns(assessment, columns, is_case_sensitive=is_case_sensitive)
            selected = replace(everything, columns=named)
        nodes = tuple(selected if node is declared else node for node in self.spec.nodes)
        # Its sources have been looked up.
        spec = replace(self.spec, nodes=nodes, sources=())
        other = Project(spec, clock=self._clock, state=self.state)
        return other.run(other.plan(table), progress=progress, session=session)

    def spark(self) -> SparkSession:
        """A session of the target with the cost-based optimizer on, and what `attach` gives it.

        Joins by NEAREST BY over vectors run on lancestat's engine there, in `scratch` of the
        target; `spark.lancestat.nearestBy.enabled` turns that off.

        Raises:
            SparkConnectSession: the target or the process has a session without a JVM.
            RunError: Spark does not start.
        """
        from lancestat.spark.session.start import classic_session, optimizer_settings

        session = classic_session(self.spec.target, "lancestat")
        for key, value in optimizer_settings(self.spec.target.spark_conf).items():
            session.conf.set(key, value)
        self.attach(session)
        self.run_nearest_by(session)
        return session

    def run_nearest_by(self, spark: SparkSession) -> None:
        """Let a session run joins by NEAREST BY over vectors on lancestat's engine.

        Nothing happens before Spark 4.2, which has no such joins.

        Args:
            spark: A classic session.

        Raises:
            RunError: the session cannot be used.
        """
        from lancestat.execution.nearest_by import install

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
        """Give a session the declared tables, with their statistics, and the target's catalogs.

        Declared tables become temporary views of their names. Each view stays at the version that
        is the latest now; attach again to see later ones. A table that cannot be opened is logged
        and left out. The session's configuration is not touched: column statistics are used while
        its `spark.sql.cbo.enabled` is true.

        Catalogs of the target become catalogs of the session: `spark.table("lake.sales.orders")` is
        the latest version when the query is planned. A catalog that the session has by that name
        goes on answering, and what it reads of declared tables has statistics.

        Args:
            spark: A classic session.
            select: Which tables become views, all when None.
            exclude: Which to leave out.
            options: Of all scans of the views, as for `lancestat.read_table`.

        Raises:
            UsageError: a selector is wrong or matches nothing.
            RunError: the session cannot be used.
        """
        from lancestat.execution.nearest_by import has_rule
        from lancestat.spark.read.relation import attach_views
        from lancestat.spark.session.compiler import compiling

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
        """Give a session the target's catalogs as `attach` does, and make no views.

        Raises:
            RunError: the session cannot be used.
        """
        from lancestat.spark.read.relation import Attachment

        wanted = tuple(self._declared.target.catalogs)
        if not wanted:
            return Attachment(())
        from lancestat.spark.read.session_catalogs import attach_catalogs

        self._discovered()
        attached = attach_catalogs(spark, self._declared_tables, wanted)
        failed = {name: error for name, error in attached.items() if error is not None}
        for error in failed.values():
            _log.warning("%s", error.message)
        catalogs = tuple(name for name in attached if name not in failed)
        return Attachment((), catalogs=catalogs, failed_catalogs=failed)

    def detach(self, spark: SparkSession) -> None:
        """Undo `attach`: drop the views of declared tables, and restore the session's catalogs.

        What else has such a name is left alone. DataFrames that were made before can still be read.

        Raises:
            RunError: the session cannot be used.
        """
        from lancestat.spark.read.session_catalogs import detach

        views = [table.name for table in self.spec.tables]
        detach(spark, tuple(self._declared.target.catalogs), views)

    @property
    def _declared_tables(self) -> DeclaredTables:
        from lancestat.optimizer.table import DeclaredTables

        return DeclaredTables(self.spec, self.state, self._clock)

    def show(self, table: str) -> TableStatus:
        """The statistics of one declared table, and the guard's verdict under its policy.

        Raises:
            UsageError: no table of that name is declared.
            LancestatError: the dataset cannot be opened.
        """
        from lancestat.plan.table_status import table_status
        from lancestat.report.gather import fragment_coverage

        assessment, changes = self._observer.assess(self._table(table))
        covered = fragment_coverage(assessment, changes.index).columns
        return table_status(assessment, self._clock(), covered, self.spec.redactor)

    def report(
        self,
        select: str | Sequence[str] | None = None,
        exclude: str | Sequence[str] | None = None,
        *,
        with_fragments: bool = False,
        with_histograms: bool = False,
        runs: int | None = None,
    ) -> ProjectReport:
        """Return what is known of nodes at this moment: health, statistics, freshness, last runs.

        Args:
            select: Which nodes, all when None.
            exclude: Which to leave out.
            with_fragments: Also every fragment of every table.
            with_histograms: Also the histograms of tables that ask for them.
            runs: How many runs of each node are read; a few when None.

        Raises:
            UsageError: a selector is wrong or matches nothing.
            StateError: the state cannot be reached.
        """
        from lancestat.report.gather import RUNS, gather

        self._discovered()
        return gather(
            self.spec,
            self.state,
            self._clock,
            self.nodes(select, exclude),
            with_fragments=with_fragments,
            with_histograms=with_histograms,
            runs=RUNS if runs is None else runs,
        )

    def report_tables(self, wanted: Collection[str]) -> dict[str, pa.Table]:
        """Return what is known of all nodes as Arrow tables: `statistics`, `runs`, `fragments`.

        Args:
            wanted: Which of them.

        Raises:
            ValueError: there is no such table.
            StateError: the state cannot be reached.
        """
        from lancestat.report.gather import gather
        from lancestat.report.rows import ALL, ReportTable, report_tables, runs_by_node

        self._discovered()
        return report_tables(
            frozenset(map(ReportTable, wanted)),
            report=lambda: gather(
                self.spec, self.state, self._clock, self.spec.tables, with_fragments=True, runs=0
            ),
            runs=lambda: runs_by_node(self.state, self.spec.target.name, ALL),
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
            select: Which tables, all when None.
            exclude: Which to leave out.
            dry_run: Only return what would be removed.

        Raises:
            UsageError: a selector is wrong or matches nothing.
        """
        from lancestat.execution.unpublish import unpublish

        self.discover()
        return unpublish(self.spec, self.nodes(select, exclude), dry_run=dry_run)

    def collect_garbage(self, *, dry_run: bool = False) -> GarbageReport:
        """Remove state of nodes that are no longer declared, and what killed processes have left.

        Raises:
            StateError: The state cannot be reached.
            RunError: A scratch root cannot be listed.
        """
        from lancestat.execution.garbage_collection import collect_garbage
        from lancestat.report.site.build import clear_drafts

        self._discovered()
        if not dry_run:
            clear_drafts(self.spec.root.resolve() / PAGES)
        return collect_garbage(self.spec, self.state, now=self._clock(), dry_run=dry_run)

    def sweep(self, *, dry_run: bool = False) -> GarbageReport:
        """Do the same as `collect_garbage`, by the name of earlier releases."""
        return self.collect_garbage(dry_run=dry_run)

    @property
    def _digests(self) -> dict[str, str]:
        return {node.name: node_digest(node) for node in self.spec.nodes}

    def _node_states(self) -> dict[str, str]:
        known = self.state.digests()
        return {
            name: "new" if name not in known else "same" if known[name] == digest else "modified"
            for name, digest in self._digests.items()
        }

    @property
    def _observer(self) -> Observer:
        return self._observer_for(None)

    def _observer_for(self, session: SparkSession | None) -> Observer:
        from lancestat.plan.observe import Observer
        from lancestat.scratch.layouts import LayoutStore
        from lancestat.spark.knn.scratch_root import known_roots
        from lancestat.spark.session.choice import (
            in_process_bytes,
            joins_by_nearest_by,
            start_seconds,
        )

        target = self.spec.target
        # The first is the one that a run of this target uses.
        roots = known_roots(target.scratch, target.spark_conf)
        return Observer(
            self.spec,
            self.state,
            self._clock,
            in_process_bytes=in_process_bytes(target) if session is None else 0,
            has_nearest_by_join=joins_by_nearest_by(target, session),
            layouts=LayoutStore(roots[0], target.storage_options) if roots else None,
            spark_start_seconds=start_seconds(target) if session is None else 0.0,
        )

    @property
    def _plan_store(self) -> PlanStore:
        from lancestat.plan.plan_store import PlanStore

        return PlanStore(self._observer, self.nodes, __version__)

    def _execution(
        self,
        threads: int | None,
        fail_fast: bool,
        progress: Progress | None,
        session: SparkSession | None,
        ends_process: bool,
    ) -> Execution:
        from lancestat.execution.execute import Execution
        from lancestat.execution.result import SilentProgress

        receiver = progress or SilentProgress()
        observer = self._observer_for(session)
        return Execution(
            observer, self.state, self._digests, receiver, threads, fail_fast, session, ends_process
        )

    def _table(self, name: str) -> Table:
        node = self._discovered().node(name)
        if isinstance(node, Table):
            return node
        if node is not None:
            raise UnknownTable(
                f"'{name}' is a KNN join, and only tables have statistics",
                hint="declare a table over its result",
            )
        names = [table.name for table in self.spec.tables]
        raise UnknownTable(f"no table '{name}' is declared", hint=did_you_mean(name, names))
