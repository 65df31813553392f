from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from lancestat.cli.main import cli
from lancestat.errors import Location
from lancestat.project import Project
from lancestat.runs.actions import Plan
from lancestat.runs.events import Listener
from lancestat.runs.result import RunResult
from lancestat.spec.graph import select as select_nodes
from lancestat.spec.model import Node, Policy, ProjectSpec, Table, Target
from lancestat.state.garbage import GarbageReport
from lancestat.tables.table_status import TableStatus
from tests.tables.plans import plan as make_plan

Lancestat = Callable[..., Result]


@pytest.fixture(autouse=True)
def _untouched_logging() -> Iterator[None]:
    logger = logging.getLogger("lancestat")
    handlers, level = logger.handlers, logger.level
    yield
    logger.handlers = handlers
    logger.setLevel(level)


@pytest.fixture
def lancestat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lancestat:
    """Run the command line in an empty folder; environment variables as keywords."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)

    def run(*args: str, **environment: str) -> Result:
        return CliRunner().invoke(cli, args, env=environment, prog_name="lancestat")

    return run


def spec(target: Target | None = None) -> ProjectSpec:
    place = Location("specs/shop.yml", 3, 5)
    orders = Table("orders", "orders.lance", place, tags=("nightly",), description="One per order.")
    lazy = Table(
        "part", "part.lance", Location("specs/shop.yml", 9, 5), policy=Policy("any", None, True)
    )
    return ProjectSpec("shop", Path(), target or Target("dev", "state"), (orders, lazy), {})


@dataclass
class FakeProject:
    """A stub of a project that records its calls."""

    spec: ProjectSpec = field(default_factory=spec)
    planned: Plan = field(default_factory=make_plan)
    result: RunResult = field(default_factory=lambda: RunResult("shop", "dev", ()))
    table_status: TableStatus | None = None
    report: GarbageReport = field(default_factory=lambda: GarbageReport(0, 0, 0, 0))
    failure: BaseException | None = None
    loaded: dict[str, object] = field(default_factory=dict)
    asked: dict[str, object] = field(default_factory=dict)

    def discover(self) -> ProjectSpec:
        return self.spec

    def nodes(
        self,
        select: Sequence[str] | None = None,
        exclude: Sequence[str] | None = None,
        discover: bool = True,
    ) -> tuple[Node, ...]:
        return select_nodes(self.spec, select, exclude)

    def plan(
        self,
        select: Sequence[str] | None,
        exclude: Sequence[str] | None,
        *,
        full_refresh: bool,
        max_bytes: int | None,
        max_minutes: float | None,
    ) -> Plan:
        if self.failure:
            raise self.failure
        self.asked |= {"select": select, "exclude": exclude, "full_refresh": full_refresh}
        self.asked |= {"max_bytes": max_bytes, "max_minutes": max_minutes}
        return self.planned

    def run(
        self, plan: Plan, *, on_event: Listener, ends_process: bool, **options: object
    ) -> RunResult:
        assert plan is self.planned
        assert on_event is not None
        self.asked |= options
        return self.result

    def show(self, table: str) -> TableStatus:
        assert self.table_status is not None
        assert table == self.table_status.table
        return self.table_status

    def collect_garbage(self, *, dry_run: bool = False) -> GarbageReport:
        self.asked["dry_run"] = dry_run
        return replace(self.report, is_dry_run=dry_run)


@pytest.fixture
def project(monkeypatch: pytest.MonkeyPatch) -> FakeProject:
    """Load the stub of a project from every folder."""
    fake = FakeProject()

    def load(
        project_dir: Path, target: str | None = None, vars: dict[str, object] | None = None
    ) -> FakeProject:
        fake.loaded |= {"project_dir": project_dir, "target": target, "vars": vars}
        return fake

    monkeypatch.setattr(Project, "load", load)
    return fake
