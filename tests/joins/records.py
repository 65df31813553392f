"""What a state has recorded of joins."""

from __future__ import annotations

from collections.abc import Mapping

from lancestat.joins.record import JoinRecord, decode_record
from lancestat.spec.model import NodeKind
from lancestat.state.store import StateReader


def join_records(state: StateReader) -> Mapping[str, JoinRecord]:
    """Return the newest record of every join, by the name of its node."""
    records = state.records(NodeKind.KNN_JOIN.value, decode_record)
    return {record.node: record for record in records.values()}
