"""Reports about the table of a world."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Any

from lancestat.report.gather import gather
from lancestat.report.tables import TableReport
from lancestat.spec.model import ProjectSpec, Table
from tests.runs.world import World


@dataclass
class Gathering:
    """Looks at a world as it is now, under a declaration that may differ from the world's own."""

    world: World

    def __post_init__(self) -> None:
        # Commits have the time at which they are made.
        self.world.clock.now = datetime.now(timezone.utc)

    def spec(self, *tables: Table) -> ProjectSpec:
        return replace(self.world.observer.spec, nodes=tables)

    def table(self, **changes: Any) -> Table:
        return replace(self.world.table, **changes)

    def report(
        self,
        *,
        with_fragments: bool = False,
        with_histograms: bool = False,
        runs: int = 30,
        **changes: Any,
    ) -> TableReport:
        table = self.table(**changes)
        gathered = gather(
            self.spec(table),
            self.world.state,
            self.world.clock,
            [table],
            with_fragments=with_fragments,
            with_histograms=with_histograms,
            runs=runs,
        )
        [report] = gathered.nodes
        assert isinstance(report, TableReport)
        return report

    def committed_at(self, version: int) -> datetime:
        at: datetime = self.world.dataset.checkout_version(version).get_version()["timestamp"]
        return at.astimezone(timezone.utc)
