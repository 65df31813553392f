"""Removes what lancestat wrote into the manifests of tables."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from typing_extensions import assert_never

from lancestat import display
from lancestat.errors import LakeError, TableKeepsChanging
from lancestat.lake.commit import Conflict, Landed, LandedLate
from lancestat.lake.open import observe_snapshots
from lancestat.lake.snapshot import Snapshot
from lancestat.redact import Audience
from lancestat.runs.evaluator import MAX_ATTEMPTS
from lancestat.runs.locate import located, require_sole_writer
from lancestat.runs.result import NodeFailure, Status, nodes_failed
from lancestat.runs.scheduler import THREADS, known_error
from lancestat.spec.model import KnnJoin, Node, ProjectSpec, Publish, Table
from lancestat.tables.manifest.publication import commit
from lancestat.tables.unpublish_plan import UnpublishedNode, blocked, plan_removal, skip_join


@dataclass(frozen=True, slots=True)
class UnpublishResult:
    """What `unpublish` did, or with `is_dry_run` would do. It prints as the command does."""

    project: str
    target: str
    nodes: tuple[UnpublishedNode, ...]
    is_dry_run: bool

    def __repr__(self) -> str:
        counts = Counter("failed" if node.error else node.action for node in self.nodes)
        what = ", ".join(f"{number} {end}" for end, number in counts.items()) or "no nodes"
        target = f"{self.project}, target {self.target}"
        return display.summary(self, f"{target}: {self.status}, {what}")

    __str__ = display.as_text

    @property
    def status(self) -> Status:
        """`error` when any node failed, else `planned` for a dry run and `success` after one."""
        if any(node.error for node in self.nodes):
            return Status.ERROR
        return Status.PLANNED if self.is_dry_run else Status.SUCCESS

    @property
    def ok(self) -> bool:
        """Whether no node failed."""
        return self.status is not Status.ERROR

    @property
    def failures(self) -> tuple[NodeFailure, ...]:
        """The nodes that failed, each with the code, message, hint and location of its error."""
        return tuple(
            NodeFailure(node.name, error.code, error.message, error.hint, error.location)
            for node in self.nodes
            if (error := node.error) is not None
        )

    def raise_for_status(self) -> None:
        """Do nothing if no node failed.

        Raises:
            NodesFailed: Nodes failed; the message has the first line of each failure.
        """
        hint = "`failures` of the result has all of each; what was removed stays removed"
        if not self.ok:
            raise nodes_failed(self.failures, len(self.nodes), hint)


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
            return blocked(node, shown.placed(node.location))
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
            if isinstance(observed, LakeError):
                raise observed
            node, change = plan_removal(table, observed)
            if not change.updates:
                return removed or node
            # Also to a table of which runs write nothing.
            require_sole_writer(self.spec, replace(table, publish=Publish.MANIFEST))
            if self.dry_run:
                return node
            outcome = commit(change, storage_options=self.spec.options.of(table.uri))
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
