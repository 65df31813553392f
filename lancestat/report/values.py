"""Everything that is known of a project's nodes, as values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Protocol

from lancestat import display
from lancestat.errors import LancestatError
from lancestat.formats import StringEnum, age
from lancestat.redact import EMPTY_REDACTOR, Redactor
from lancestat.runs.actions import SourceFindings
from lancestat.runs.result import PastRun, Status
from lancestat.spec.model import Node


class Health(StringEnum):
    """Whether a node is well; `error` is outside of its policy, failed or unreadable."""

    OK = "ok"
    WARN = "warn"
    ERROR = "error"


class NodeReport(Protocol):
    """What is known of a node: each kind of node has a dataclass of these, and of more."""

    @property
    def spec(self) -> Any:
        """The declaration of the node."""
        ...

    @property
    def health(self) -> Health: ...
    @property
    def problems(self) -> tuple[str, ...]:
        """What is wrong, in sentences."""
        ...

    @property
    def verdict(self) -> str: ...
    @property
    def error(self) -> LancestatError | None:
        """Why the node cannot be observed."""
        ...

    @property
    def runs(self) -> tuple[PastRun, ...]:
        """The runs of the node, the newest first."""
        ...

    @property
    def made_at(self) -> datetime | None:
        """When what the node keeps was made."""
        ...

    @property
    def changed_at(self) -> datetime | None:
        """When rows last changed, as far as that is known of this kind of node."""
        ...

    @property
    def words(self) -> Mapping[str, str]:
        """The columns of `lancestat status` that this kind has: `verdict` and others."""
        ...

    def cells(self) -> dict[str, object]:
        """Return the cells of the node's row that this kind has."""
        ...

    def to_json(self, now: datetime) -> dict[str, object]:
        """Return the members of the node's object in the JSON of `status` that this kind has."""
        ...


@dataclass(frozen=True, slots=True)
class ReportOptions:
    """What reports are to have besides: fragments of tables, and their histograms."""

    with_fragments: bool = False
    with_histograms: bool = False


class Reporter(Protocol):
    """Makes reports of the nodes of one kind; may be shared by threads."""

    def prepare(self, nodes: Sequence[Node]) -> None:
        """Read at once what the reports of some nodes need; called before they are made."""
        ...

    def report(self, node: Any, runs: tuple[PastRun, ...]) -> NodeReport:
        """Return the report of a node, with its runs, also of one that cannot be observed."""
        ...


def node_summary(node: NodeReport) -> str:
    """Return the `repr` of the report of a node."""
    what = ", ".join((node.health.value, *node.problems))
    return display.summary(node, f"{node.spec.name}: {what}")


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
    former_runs: tuple[PastRun, ...] = ()
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


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that is wrong, in a sentence, and how bad it is."""

    health: Health
    sentence: str


def problem(health: Health, text: str) -> Problem:
    """Return a problem on one line that begins and ends like a sentence."""
    line = " ".join(text.split())
    end = "" if line.endswith((".", "!", "?")) else "."
    return Problem(health, f"{line[:1].upper()}{line[1:]}{end}")


def worst(problems: Iterable[Problem]) -> Health:
    """The health of a node with these problems."""
    order = list(Health)
    return max((problem.health for problem in problems), key=order.index, default=Health.OK)


def unreadable(error: LancestatError) -> Problem:
    """Return the problem of a node that cannot be observed."""
    location = f" {error.location}" if error.location else ""
    hint = f" ({error.hint})" if error.hint else ""
    return problem(Health.ERROR, f"{error.code}{location}: {error.message}{hint}")


def failed(
    runs: Sequence[PastRun], now: datetime, error: LancestatError | None = None
) -> list[Problem]:
    """A last run that failed, unless it failed of what is still wrong: `error`.

    One that was interrupted is a warning: nothing says that the node is wrong.
    """
    if runs and runs[0].result.status is Status.INTERRUPTED:
        ago = age(max(now - runs[0].ended_at, timedelta()))
        text = f"its last run was interrupted {ago} ago: {runs[0].result.message}"
        return [problem(Health.WARN, text)]
    if not runs or runs[0].result.status is not Status.ERROR:
        return []
    if error is not None and error.message in (runs[0].result.message or ""):
        return []
    ago = age(max(now - runs[0].ended_at, timedelta()))
    lines = runs[0].result.text.splitlines() or ["it did not say why"]
    return [problem(Health.ERROR, f"its last run failed {ago} ago: {lines[0]}")]


def seconds_since(instant: datetime | None, now: datetime) -> float | None:
    """Return an age as JSON has it."""
    return None if instant is None else max(0.0, (now - instant).total_seconds())
