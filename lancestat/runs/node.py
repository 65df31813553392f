"""What a kind of node is to plans, runs, records and reviews: the protocol of `NodeType`.

`tables` and `joins` implement it, and `lancestat.nodes` registers what they have. Nothing in this
package asks a node or an action of which kind it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

from lancestat.errors import LakeError
from lancestat.lake.fingerprint import Fingerprint
from lancestat.lake.snapshot import Snapshot
from lancestat.runs.actions import Action, NodeFigures
from lancestat.runs.result import NodeResult
from lancestat.spec.model import Node, ProjectSpec, Target
from lancestat.state.store import StateReader
from lancestat.state.values import StoredRecord, result_identity

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lancestat.runs.execute import RunContext
    from lancestat.state.garbage import GarbageReport

N_contra = TypeVar("N_contra", bound=Node, contravariant=True)


class NodeRecord(Protocol):
    """What the state remembers of a node."""

    @property
    def node(self) -> str:
        """The name of the node."""


@dataclass(frozen=True, slots=True)
class Observed:
    """What nodes are planned by, with datasets in place of tables of catalogs.

    `snapshots` are those of datasets by URI, `records` by kind of node those by key. Everything is
    made again under `full_refresh`; without `uses_stored` partials in the state do not count.
    """

    spec: ProjectSpec
    nodes: tuple[Node, ...]
    state: StateReader
    clock: Callable[[], datetime]
    snapshots: Mapping[str, Snapshot | LakeError]
    records: Mapping[str, Mapping[str, NodeRecord]]
    full_refresh: bool = False
    uses_stored: bool = True

    def record_of(self, node: Node) -> Any:
        """Return the record of a node of a kind with the default `record_key`, None without one."""
        kind = node.kind.value
        return self.records[kind].get(result_identity(kind, node.dataset_uri))


class NodePlanner(Protocol[N_contra]):
    """Plans nodes of one kind by what was observed; may be shared by threads."""

    def plan(self, node: N_contra) -> Action:
        """Plan one node; one that cannot be planned is blocked."""

    def noted(self, planned: Mapping[str, Action]) -> Mapping[str, Action]:
        """Return the actions of a plan, with notes on what those of this kind share."""
        return planned


@dataclass(frozen=True, slots=True)
class NodeEnded:
    """The outcome of a node, and the record of it for the state.

    `live` has by dataset the fingerprints of the version that was read, and `versions` by URI that
    of each Lance dataset. `history` is what is kept of the node for its history: JSON. `needed` has
    by dataset the fields of partials where the state has to be small, and keeps no others.
    `is_in_record` says that the record is the only place that has the result.
    """

    result: NodeResult
    record: StoredRecord | None = None
    history: Mapping[str, object] = field(default_factory=dict)
    live: Mapping[str, frozenset[Fingerprint]] = field(default_factory=dict)
    versions: Mapping[str, int] = field(default_factory=dict)
    needed: Mapping[str, frozenset[str]] = field(default_factory=dict)
    is_in_record: bool = False


class NodeRunner(Protocol):
    """Runs actions of one kind, in threads of one run."""

    def run(self, action: Any) -> NodeEnded | Action:
        """Carry out an action; the elapsed time of the result is not set yet.

        Returns:
            The end of the node, or another action to go on with where it was planned again.

        Raises:
            LancestatError: the node failed.
            Cancelled: it was stopped; nothing is published of it.
        """

    def pause(self) -> None:
        """Stop with `Cancelled` what a later run goes on with from there, and refuse more of it."""
        return

    def cancel(self) -> None:
        """Stop all that goes on, and refuse more, but for the jobs of the run's Spark."""
        return


class NodeType(Protocol[N_contra]):
    """A kind of node, as it is under a target. What has a body here, a kind need not have.

    `computes` is set where its runs are long computations on Spark.
    """

    computes: ClassVar[bool] = False

    def under(self, target: Target, session: SparkSession | None) -> NodeType[N_contra]:
        """Return the same kind with what follows from a target, or from a given session."""
        return self

    def lance_uris(self, spec: ProjectSpec, node: N_contra) -> tuple[str, ...]:
        """Return the URIs of the Lance datasets that a node reads."""
        return named_uris(spec, node.refs, node.input_uris)

    def record_key(self, node: N_contra) -> str:
        """Return the key of a node's record in the state: targets may give one node many results.

        Tables of catalogs are located in the node.
        """
        return result_identity(node.kind.value, node.dataset_uri)

    def decode_record(self, stored: str) -> NodeRecord:
        """Return the record of its stored form; raises ValueError on anything else."""

    def planner(self, observed: Observed) -> NodePlanner[N_contra]:
        """Return what plans nodes by what was observed of them."""

    def runner(self, context: RunContext) -> AbstractContextManager[NodeRunner]:
        """Return what runs the actions of one run; leaving it ends what it has started."""

    def figures_of(self, stored: Mapping[str, object]) -> NodeFigures | None:
        """Return the figures in a node's stored result, None for a kind without its own."""
        return None

    def result_seen(self, observed: Observed, node: N_contra) -> object:
        """Return what identifies the result that readers of a node see, None where it has none."""
        return None

    def remove_past(self, spec: ProjectSpec, nodes: Sequence[N_contra], now: datetime) -> None:
        """Remove what nodes that were just run do not keep any longer."""
        return

    def collect_garbage(
        self, spec: ProjectSpec, state: StateReader, report: GarbageReport, now: datetime
    ) -> GarbageReport:
        """Remove leftovers outside of the state, or only count them where the report is dry.

        Returns:
            The report with what was found added.
        """
        return report


def read_uris(spec: ProjectSpec, node: Node) -> tuple[str, ...]:
    """Return what a node reads: datasets, folders, patterns of files."""
    return named_uris(spec, node.refs, node.input_uris)


def named_uris(spec: ProjectSpec, refs: Sequence[str], uris: Sequence[str]) -> tuple[str, ...]:
    """Return some URIs with those that nodes of some names stand for."""
    named = (node.dataset_uri for ref in refs if (node := spec.node(ref)) is not None)
    return tuple(dict.fromkeys((*named, *uris)))


NodeTypes = Mapping[str, NodeType[Any]]
