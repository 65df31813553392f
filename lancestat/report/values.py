"""Everything that is known of a project's nodes, as values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from lancestat import display
from lancestat.errors import LancestatError
from lancestat.formats import StringEnum
from lancestat.joins.record import JoinRecord
from lancestat.redact import EMPTY_REDACTOR, Redactor
from lancestat.runs.actions import SourceFindings
from lancestat.runs.node_result import NodeResult
from lancestat.spec.model import KnnJoin, Table
from lancestat.tables.statistics.histogram import Histogram
from lancestat.tables.table_status import TableStatus


class Health(StringEnum):
    """Whether a node is well; `error` is outside of its policy, failed or unreadable."""

    OK = "ok"
    WARN = "warn"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class NodeRunReport:
    """One run of a node."""

    run_id: str
    command: str
    target: str
    finished_at: datetime
    result: NodeResult

    def __repr__(self) -> str:
        done = f"{self.result.name}: {self.result.action}, {self.result.status.value}"
        return display.summary(self, f"{self.command} {self.run_id}, {done}")


@dataclass(frozen=True, slots=True)
class FragmentReport:
    """A fragment of a table; `covered` of the wanted columns have partials of it in the state.

    `rows` are live ones, `size_bytes` is that of its data files, None where it is not
    recorded.
    """

    id: int
    rows: int
    deleted_rows: int
    files: int
    size_bytes: int | None
    covered: int


def _node_summary(node: NodeReport) -> str:
    what = ", ".join((node.health.value, *node.problems))
    return display.summary(node, f"{node.spec.name}: {what}")


@dataclass(frozen=True, slots=True)
class TableReport:
    """A table: its status as `show` prints it, and facts from the state and its history.

    `health` sums up, `problems` says in sentences what is wrong. `verdict` and `reason` are the
    guard's words under the declared policy; where the dataset cannot be opened they are `refuse`
    and `unreadable`, and `blocked` where it lacks a declared column or one cannot have
    statistics: `error` says why and `status` is None. `changed_at` is when rows last changed,
    as far as the history goes back, and `freshness` judges its age by the declared bounds, None
    where there are none. `runs` are the newest first, of this node alone.
    """

    spec: Table
    health: Health
    problems: tuple[str, ...]
    verdict: str
    reason: str
    status: TableStatus | None
    error: LancestatError | None = None
    changed_at: datetime | None = None
    freshness: Health | None = None
    histograms: Mapping[str, Histogram] = field(default_factory=dict)
    fragments: tuple[FragmentReport, ...] = ()
    runs: tuple[NodeRunReport, ...] = ()

    __repr__ = _node_summary


@dataclass(frozen=True, slots=True)
class JoinReport:
    """A join: whether its result holds, and what was last made.

    `verdict` is `current` (a run would skip it), `behind` (a run would do something, for `reasons`
    as plans spell them), `absent` (no result yet) or `blocked` (`error` says why). `results` are
    the newest runs that wrote a result, however many others there were since.
    """

    spec: KnnJoin
    health: Health
    problems: tuple[str, ...]
    verdict: str
    reasons: tuple[str, ...]
    record: JoinRecord | None
    error: LancestatError | None = None
    runs: tuple[NodeRunReport, ...] = ()
    results: tuple[NodeRunReport, ...] = ()

    __repr__ = _node_summary


NodeReport = TableReport | JoinReport


@dataclass(frozen=True, slots=True)
class ProjectReport:
    """A project under one target, at one moment; `reads` names the nodes that each node reads.

    `former_runs` are runs of nodes that the project no longer has, none where nodes were selected.
    `sources` is what the sources of the project have, None where it has none. It prints as
    `lancestat status` does, and has a row per node.
    """

    name: str
    target: str
    made_at: datetime
    nodes: tuple[NodeReport, ...]
    reads: Mapping[str, tuple[str, ...]]
    redactor: Redactor = field(default=EMPTY_REDACTOR, repr=False, compare=False)
    former_runs: tuple[NodeRunReport, ...] = ()
    sources: SourceFindings | None = None

    def __repr__(self) -> str:
        numbers = Counter(node.health for node in self.nodes)
        counts = [f"{numbers[health]} {health.value}" for health in Health if numbers[health]]
        what = ", ".join(counts) or "no nodes"
        return display.summary(self, f"{self.name}, target {self.target}: {what}")

    __str__ = display.as_text
    _repr_html_ = display.as_html
    to_arrow = display.to_arrow
    to_pandas = display.to_pandas
    to_polars = display.to_polars

    @property
    def health(self) -> Health:
        """The worst of all nodes."""
        order = list(Health)
        return max((node.health for node in self.nodes), key=order.index, default=Health.OK)
