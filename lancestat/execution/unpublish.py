"""Removes what lancestat wrote into the manifests of tables."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from typing_extensions import assert_never

from lancestat.errors import LakeError, LancestatError, TableKeepsChanging
from lancestat.execution.evaluator import MAX_ATTEMPTS
from lancestat.execution.scheduler import THREADS, known_error
from lancestat.lake.commit import Conflict, Landed, LandedLate
from lancestat.lake.observe import observe_snapshots
from lancestat.lake.snapshot import Snapshot
from lancestat.manifest.publication import remove
from lancestat.plan.locate import located, require_sole_writer
from lancestat.plan.node_result import Status
from lancestat.plan.unpublish import UnpublishedNode, blocked, plan_removal, skip_join
from lancestat.redact import Audience
from lancestat.spec.catalog import table_name_of
from lancestat.spec.model import KnnJoin, Node, ProjectSpec, Publish, Table


@dataclass(frozen=True, slots=True)
class UnpublishResult:
    """What `unpublish` did, or with `is_dry_run` would do."""

    project: str
    target: str
    nodes: tuple[UnpublishedNode, ...]
    is_dry_run: bool

    @property
    def status(self) -> Status:
        """`error` when any node failed, else `planned` for a dry run and `success` after one."""
        if any(node.error for node in self.nodes):
            return Status.ERROR
        return Status.PLANNED if self.is_dry_run else Status.SUCCESS


def unpublish(spec: ProjectSpec, nodes: Sequence[Node], *, dry_run: bool) -> UnpublishResult:
    """Remove what lancestat wrote into tables, each in one commit that changes nothing else.

    One table's failure does not stop the others. Neither Spark nor the state is needed.

    Args:
        spec: The project, its sources looked up.
        nodes: Those to take statistics from; joins among them are left as they are.
        dry_run: Only look.
    """
    spec, nodes = located(spec, nodes)
    uris = {node.uri: node.uri for node in nodes if isinstance(node, Table)}
    run = _Unpublishing(spec, observe_snapshots(uris.items(), spec.options, THREADS), dry_run)
    with ThreadPoolExecutor(max_workers=THREADS) as pool:
        done = tuple(pool.map(run.node, nodes))
    return UnpublishResult(spec.name, spec.target.name, done, dry_run)


@dataclass(frozen=True, slots=True)
class _Unpublishing:
    spec: ProjectSpec
    snapshots: Mapping[str, Snapshot | LakeError]
    dry_run: bool

    def node(self, node: Node) -> UnpublishedNode:
        started = time.monotonic()
        try:
            match node:
                case KnnJoin():
                    done = skip_join(node)
                case Table():
                    done = self._table(node)
                case _:
                    assert_never(node)
        except Exception as error:
            shown = self.spec.redactor.error(known_error(error), Audience.PERSON)
            return blocked(node, shown)
        if self.dry_run:
            return done
        elapsed = round(time.monotonic() - started, 3)
        return replace(done, status=Status.SUCCESS, elapsed_seconds=elapsed)

    def _table(self, table: Table) -> UnpublishedNode:
        """Remove the entries of one table, looking at it again where it has moved on meanwhile.

        Raises:
            LancestatError: it cannot be done.
        """
        removed: UnpublishedNode | None = None
        observed = self.snapshots[table.uri]
        for _ in range(MAX_ATTEMPTS):
            node, removal = plan_removal(table, _readable(table, observed))
            if not removal.keys:
                return removed or node
            self._require_sole_writer(table)
            if self.dry_run:
                return node
            outcome = remove(removal, storage_options=self.spec.options.of(table.uri))
            match outcome:
                case Landed():
                    return replace(node, version_committed=outcome.version)
                case LandedLate():
                    # What came in between may have brought entries back, as a restored version.
                    removed = replace(node, version_committed=outcome.version)
                case Conflict():
                    pass
                case _:
                    assert_never(outcome)
            uris = [(table.name, table.uri)]
            [observed] = observe_snapshots(uris, self.spec.options).values()
        raise TableKeepsChanging(
            f"the table changed during each of {MAX_ATTEMPTS} attempts to remove its statistics",
            hint="run again when the table is quieter",
        )

    def _require_sole_writer(self, table: Table) -> None:
        """Refuse to write past a catalog, also to a table of which runs write nothing."""
        try:
            require_sole_writer(self.spec, replace(table, publish=Publish.MANIFEST))
        except LancestatError as error:
            raise error.placed(table.location) from None


def _readable(table: Table, observed: Snapshot | LakeError) -> Snapshot:
    if not isinstance(observed, LakeError):
        return observed
    is_located = table_name_of(table.uri) is None
    raise observed if is_located else observed.placed(table.location)
