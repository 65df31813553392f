"""Observes joins: which nodes read their results, what their sides and outputs hold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from lancestat.errors import (
    KeysDiffer,
    LakeError,
    LancestatError,
    OverlappingOutputs,
    SidesDiffer,
    VectorLengthMismatch,
)
from lancestat.knn.request import output_names
from lancestat.knn.work import OutputFormat, OutputState, PinnedTable
from lancestat.lake.files import store_of
from lancestat.lake.open import probe
from lancestat.lake.snapshot import Snapshot
from lancestat.output.result import current
from lancestat.plan.actions import Action, Blocked, is_pending
from lancestat.plan.join_planner import JoinAssessment, decide_join, remembered_result
from lancestat.plan.join_sides import JoinInput, JoinSide, SideReader, datasets_of, side_of
from lancestat.plan.locate import require_sole_writer
from lancestat.spec.catalog import table_name_of
from lancestat.spec.digest import node_digest
from lancestat.spec.model import KnnJoin, Node, ProjectSpec, Table, Target, joins_of
from lancestat.spec.spark_master import local_cores
from lancestat.state.identity import canonical_uri
from lancestat.state.values import JoinRecord

SIDES = ("left", "right")


def read_uris(spec: ProjectSpec, node: Node) -> tuple[str, ...]:
    """Return what a node reads: datasets, folders, patterns of files."""
    return _uris(spec, node.refs, node.input_uris)


def lance_uris(spec: ProjectSpec, node: Node) -> tuple[str, ...]:
    """The URIs of the Lance datasets that a node reads."""
    if isinstance(node, Table):
        return (node.uri,)
    sides = (side_of(node, name) for name in SIDES)
    return tuple(dataset.uri for side in sides for dataset in datasets_of(spec, side))


def side_uris(spec: ProjectSpec, join: KnnJoin, name: str) -> tuple[str, ...]:
    """Return the URIs of what a side of a join reads."""
    side = side_of(join, name)
    return _uris(spec, side.refs, () if side.uri is None else (side.uri,))


def _uris(spec: ProjectSpec, refs: Sequence[str], uris: Sequence[str]) -> tuple[str, ...]:
    named = (node.dataset_uri for ref in refs if (node := spec.node(ref)) is not None)
    return tuple(dict.fromkeys((*named, *uris)))


def join_dependencies(spec: ProjectSpec, nodes: Iterable[Node]) -> Mapping[str, tuple[str, ...]]:
    """Return by node the joins of `nodes` whose results it reads, however URIs are written."""
    nodes = tuple(nodes)
    writers = {canonical_uri(join.output_uri): join.name for join in joins_of(nodes)}
    joins_read: dict[str, tuple[str, ...]] = {}
    for node in nodes:
        uris = map(canonical_uri, read_uris(spec, node))
        named = dict.fromkeys(writers[uri] for uri in uris if uri in writers)
        joins_read[node.name] = tuple(name for name in named if name != node.name)
    return joins_read


def in_order(
    joins: Sequence[KnnJoin], dependencies: Mapping[str, tuple[str, ...]]
) -> tuple[KnnJoin, ...]:
    """Sort joins so that each comes after those whose results it reads."""
    by_name = {join.name: join for join in joins}
    done: dict[str, KnnJoin] = {}

    def visit(name: str, trail: tuple[str, ...]) -> None:
        if name in done or name in trail:
            return
        for other in dependencies[name]:
            visit(other, (*trail, name))
        done[name] = by_name[name]

    for join in joins:
        visit(join.name, ())
    return tuple(done.values())


def check_output(spec: ProjectSpec, join: KnnJoin) -> None:
    """Check that a join does not write to what it reads.

    Raises:
        OverlappingOutputs: the result would lie in, on or around an input.
    """
    output = canonical_uri(join.output_uri)
    for name in SIDES:
        for uri in side_uris(spec, join, name):
            read = canonical_uri(uri)
            nested = f"{output}/".startswith(f"{read}/") or f"{read}/".startswith(f"{output}/")
            if nested or fnmatchcase(join.output_uri, uri):
                side = JoinSide(join, name)
                raise OverlappingOutputs(
                    f"the result of knn join '{join.name}' would be written to what {side} reads",
                    location=join.location,
                    hint="give the output a place of its own",
                )


@dataclass(frozen=True, slots=True)
class JoinObserver:
    """Plans joins by the snapshots of the Lance datasets that they read, by URI."""

    spec: ProjectSpec
    snapshots: Mapping[str, Snapshot | LakeError]
    records: Mapping[str, JoinRecord]
    has_nearest_by_join: bool = True

    def plan(self, join: KnnJoin, *, full_refresh: bool = False) -> Action:
        """Plan one join; one that cannot run is blocked."""
        try:
            action = decide_join(self._assess(join), full_refresh=full_refresh)
            if is_pending(action) and join.output_format == OutputFormat.LANCE.value:
                require_sole_writer(self.spec, join)
            return action
        except LancestatError as error:
            return Blocked(join.name, join.kind.value, error.placed(join.location))

    def _assess(self, join: KnnJoin) -> JoinAssessment:
        check_output(self.spec, join)
        reader = SideReader(self.spec, self.snapshots)
        left, right = (reader.observe(JoinSide(join, name)) for name in SIDES)
        _check_together(join, left, right)
        record, digest = self.records.get(join.name), node_digest(join)
        return JoinAssessment(
            spec=join,
            digest=digest,
            left=left,
            right=right,
            record=record,
            output=self._output(join, remembered_result(record, digest)),
            cores=planned_cores(self.spec.target),
            has_nearest_by_join=self.has_nearest_by_join,
        )

    def _output(self, join: KnnJoin, remembered: str | None) -> OutputState | None:
        if table_name_of(join.output_uri) is not None:
            # A table that its catalog does not have yet.
            return None
        options, store = self.spec.options.of(join.output_uri), store_of(join.output_uri)
        format = OutputFormat(join.output_format)
        if store is not None and format is OutputFormat.LANCE:
            probe(store, options)
        return current(format, join.output_uri, options, remembered)


def _check_together(join: KnnJoin, left: JoinInput, right: JoinInput) -> None:
    """Check that the sides fit each other, as far as is known before they are read.

    Raises:
        UsageError: names of columns clash, as `output_names`.
        VectorLengthMismatch: the sides have vectors of different lengths.
        KeysDiffer: keys cannot be compared.
        SidesDiffer: the sides are different rows, though each row is to be told from itself.
    """
    output_names(left.columns or (), right.columns or (), with_rank=join.rank)
    tables = (left.work.table, right.work.table)
    if join.self_location is not None and not are_same_table(*tables):
        key = "exclude_self" if join.exclude_self else "pairs: unordered"
        raise JoinSide(join, "left").error(
            SidesDiffer,
            f"'{key}' of knn join '{join.name}' needs one Lance table on both sides",
            "declare the same 'table' or 'lance' dataset for both",
            join.self_location,
        )
    if left.key_types is not None and right.key_types is not None:
        from lancestat.knn.groups import compared_key_types

        try:
            keys = JoinSide(join, "left").keys, JoinSide(join, "right").keys
            compared_key_types(*keys, left.key_types, right.key_types)
        except KeysDiffer as error:
            raise error.placed(join.on_location) from None
    lengths = (left.dimension, right.dimension)
    if None not in lengths and lengths[0] != lengths[1]:
        raise JoinSide(join, "left").error(
            VectorLengthMismatch,
            f"the vectors of knn join '{join.name}' have {lengths[0]} elements on the left "
            f"and {lengths[1]} on the right",
        )


def are_same_table(left: PinnedTable | None, right: PinnedTable | None) -> bool:
    """Whether two sides are one table at one version."""
    return left is not None and right is not None and left.pin == right.pin


def planned_cores(target: Target) -> int:
    """Return how many tasks run at once on a local target, 0 where only the cluster knows."""
    cores = local_cores(target.master or "")
    if cores is None:
        return 0
    per_task = target.spark_conf.get("spark.task.cpus", "1")
    return max(1, cores // int(per_task)) if per_task.isdecimal() and int(per_task) else cores
