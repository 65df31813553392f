"""Evaluates the actions of a plan: what is the same for every kind of node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from threading import Event

from lancestat.errors import Cancelled, Location
from lancestat.runs.actions import Action, Blocked, Deferred, Skip
from lancestat.runs.node import NodeEnded, NodeRunner
from lancestat.runs.observe import Observer
from lancestat.runs.result import Progress, Status, planned
from lancestat.spark.session import RunSession
from lancestat.spec.catalog import UriOptions
from lancestat.spec.model import ProjectSpec
from lancestat.state.values import StateWriter

# How often a node is carried out at most that is changed by others meanwhile.
MAX_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class RunContext:
    """What the runners of all kinds of nodes share in one run.

    Args:
        observer: Plans nodes again.
        state: What is remembered of nodes.
        digests: The digests of the nodes' meanings.
        progress: Receives the stages that nodes reach, and how far they are in them.
        spark: The session of the run.
        run_id: Names the run.
        stored: By node, how many fragments this run has read and stored.
        stopped: Set where nodes begin no further stage.
        publishing: The nodes whose results are being published, or were just now; who takes in the
            end of such a node removes it.
    """

    observer: Observer
    state: StateWriter
    digests: Mapping[str, str]
    progress: Progress
    spark: RunSession
    run_id: str
    stored: Counter[str] = field(default_factory=Counter)
    stopped: Event = field(default_factory=Event)
    publishing: set[str] = field(default_factory=set)

    @property
    def spec(self) -> ProjectSpec:
        return self.observer.spec

    @property
    def options(self) -> UriOptions:
        """How to reach datasets."""
        return self.spec.options

    @property
    def clock(self) -> Callable[[], datetime]:
        return self.observer.clock

    def location(self, name: str) -> Location | None:
        """Return where a node is declared."""
        node = self.spec.node(name)
        return None if node is None else node.location

    def refuse_when_stopped(self, node: str) -> None:
        """Raise `Cancelled` once nodes begin no further stage."""
        if self.stopped.is_set():
            raise Cancelled(f"'{node}' was stopped")


@dataclass(frozen=True, slots=True)
class Evaluator:
    """Evaluates actions; `runners` has those of each kind of node."""

    context: RunContext
    runners: Mapping[str, NodeRunner]

    def run(self, action: Action) -> NodeEnded:
        """Evaluate one action; the elapsed time of the result is not set yet.

        Raises:
            LancestatError: the node failed.
            Cancelled: it was stopped; nothing is published of it.
        """
        match action:
            case Skip():
                return NodeEnded(replace(planned(action), status=Status.SUCCESS))
            case Blocked():
                raise action.error
            case Deferred():
                observer = self.context.observer
                return self.run(observer.plan_again(action.node, full_refresh=action.full_refresh))
        ended = self.runners[action.kind].run(action)
        return ended if isinstance(ended, NodeEnded) else self.run(ended)
