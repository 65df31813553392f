"""What the state stores of joins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lancestat import codec
from lancestat.codec import Instant
from lancestat.joins.measures import (
    JOIN_MEASURES,
    UNMEASURED,
    Accuracy,
    JoinCounts,
    JoinDistances,
    JoinGroups,
)
from lancestat.spec.model import NodeKind
from lancestat.state.identity import join_identity
from lancestat.state.values import StateReader, StoredRecord


@dataclass(frozen=True, slots=True)
class InputRecord:
    """The record of a side of a join when it was last read.

    `digest` is over its content in row order. A Lance table has `fragments` that hold rows, the
    highest of whose ids is `last_fragment`; other sides have none. `rows` is None where they
    were not counted. Of a query, `unproven` says what kept the run from proving that equal digests
    mean equal rows: nothing when that is proven, None when that was not checked.
    """

    digest: str
    fragments: int = 0
    last_fragment: int = -1
    rows: int | None = None
    unproven: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class ResultRecord:
    """The identity of a join's result where it was written (`search.work.OutputState`)."""

    rows: int
    digest: str
    version: int | None = None
    generation: str | None = None


@dataclass(frozen=True, slots=True)
class JoinRecord:
    """The last result that a run made of a join.

    `node` is its name in the project, `digest` that of its meaning. `distances` are those that the
    run wrote, and `groups` what the last run that compared all rows found of keys; both are None
    in records of releases that did not store them.
    """

    node: str
    digest: str
    left: InputRecord
    right: InputRecord
    result: ResultRecord
    counts: JoinCounts[int]
    strategy: str
    finished_at: Instant
    accuracy: Accuracy = UNMEASURED
    distances: JoinDistances | None = None
    groups: JoinGroups | None = None


def join_records(state: StateReader) -> Mapping[str, JoinRecord]:
    """Return the newest record of every join, by the name of its node."""
    records = state.records(NodeKind.KNN_JOIN.value, decode_record)
    return {record.node: record for record in records.values()}


def stored_record(record: JoinRecord) -> StoredRecord:
    """Return the stored form of a record."""
    members = codec.flattened(codec.builtins(record), *JOIN_MEASURES)
    key = join_identity(record.node)
    return StoredRecord(key, codec.encode(members, separators=(",", ":")))


def decode_record(stored: str) -> JoinRecord:
    """Return the record of its stored form; raises ValueError on anything else."""
    return codec.convert(codec.nested(codec.decode(stored, dict), *JOIN_MEASURES), JoinRecord)
