"""The kinds of nodes: the only module that lists them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING

from lancestat.joins.duplicates.node import DuplicatesNodes
from lancestat.joins.node import JoinNodes
from lancestat.runs.node import NodeTypes
from lancestat.runs.observe import Observer
from lancestat.spark.session import start_seconds
from lancestat.spec.model import NodeKind, ProjectSpec, Target
from lancestat.state.store import StateReader
from lancestat.tables.node import TableNodes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lancestat.review.evidence import ReviewedTypes

NODE_TYPES: ReviewedTypes = {
    NodeKind.TABLE.value: TableNodes(),
    NodeKind.KNN_JOIN.value: JoinNodes(),
    NodeKind.DUPLICATES.value: DuplicatesNodes(),
}


def node_types(target: Target, session: SparkSession | None = None) -> NodeTypes:
    """Return the kinds of nodes as they are under a target, or in a session if one is given."""
    return {kind: type.under(target, session) for kind, type in NODE_TYPES.items()}


def observer_of(
    spec: ProjectSpec,
    state: StateReader,
    clock: Callable[[], datetime],
    session: SparkSession | None = None,
) -> Observer:
    """Return what observes a project's nodes of all kinds, to be run in a session if given."""

    def uses() -> Mapping[str, int]:
        from lancestat.query.workload.tables import recorded_uses

        return recorded_uses(spec)

    start = start_seconds(spec.target) if session is None else 0.0
    types = node_types(spec.target, session)
    return Observer(spec, state, clock, types, spark_start_seconds=start, uses=uses)
