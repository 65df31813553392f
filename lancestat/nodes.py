"""The kinds of nodes: the only module that lists them."""

from __future__ import annotations

from lancestat.joins.node import JoinNodes
from lancestat.runs.node import NodeTypes
from lancestat.spec.model import NodeKind
from lancestat.tables.node import TableNodes

NODE_TYPES: NodeTypes = {
    NodeKind.TABLE.value: TableNodes(),
    NodeKind.KNN_JOIN.value: JoinNodes(),
}
