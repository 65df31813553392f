"""The kinds of nodes: the only module that lists them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lancestat.joins.duplicates.node import DuplicatesNodes
from lancestat.joins.node import JoinNodes
from lancestat.runs.node import NodeTypes
from lancestat.spec.model import NodeKind, Target
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
