"""Tables as a kind of node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, ClassVar

from lancestat.runs.node import Observed
from lancestat.spark.session import in_process_bytes
from lancestat.spec.model import ProjectSpec, Table, Target
from lancestat.state.retention import GarbageReport
from lancestat.state.values import StateReader, table_identity
from lancestat.tables.observe import TableObserver
from lancestat.tables.stored import TableRecord, decode_record

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lancestat.review.values import PropertyChange
    from lancestat.runs.evaluator import RunContext
    from lancestat.tables.review import TableChange
    from lancestat.tables.run import TableRunner


@dataclass(frozen=True, slots=True)
class TableNodes:
    """Tables, whose statistics are kept up to date; the field is as `TableObserver` has it."""

    computes: ClassVar[bool] = False
    in_process_bytes: int = 0

    def under(self, target: Target, session: SparkSession | None) -> TableNodes:
        return TableNodes(in_process_bytes(target) if session is None else 0)

    def lance_uris(self, spec: ProjectSpec, node: Table) -> tuple[str, ...]:
        return (node.uri,)

    def record_key(self, node: Table) -> str:
        return table_identity(node.uri)

    def decode_record(self, stored: str) -> TableRecord:
        return decode_record(stored)

    def planner(self, observed: Observed) -> TableObserver:
        return TableObserver(observed, self.in_process_bytes)

    def runner(self, context: RunContext) -> AbstractContextManager[TableRunner]:
        # Only runs need what reads fragments.
        from lancestat.tables.run import table_runner

        return table_runner(context)

    def figures_of(self, stored: Mapping[str, object]) -> None:
        return None

    def result_seen(self, observed: Observed, node: Table) -> object:
        return None

    def remove_past(self, spec: ProjectSpec, nodes: Sequence[Table], now: datetime) -> None:
        """Do nothing: versions of tables are their owners'."""

    def change(
        self, old: Table | None, new: Table | None, changed: tuple[PropertyChange, ...]
    ) -> TableChange:
        from lancestat.tables.review import TableChange

        return TableChange(old, new, changed)

    def collect_garbage(
        self, spec: ProjectSpec, state: StateReader, report: GarbageReport, now: datetime
    ) -> GarbageReport:
        return report
