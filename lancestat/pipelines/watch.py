"""Runs what is due, again and again, for as long as it is let.

Between runs it asks each dataset for its latest version, which is one request and opens nothing. A
plan is made when one has changed, and now and then without that: policies count time, and not all
that joins read has versions.
"""

from __future__ import annotations

import json
import logging
import subprocess
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from uuid import uuid4

from lancestat.errors import LancestatError, StateWatched
from lancestat.lake.files import renewed
from lancestat.lake.open import LatestVersions
from lancestat.nodes import NODE_TYPES
from lancestat.runs.actions import Plan, has_work
from lancestat.runs.discover import located
from lancestat.runs.result import RunResult, Status
from lancestat.spec.model import Node, ProjectSpec
from lancestat.state.run_records import LeaseFolder
from lancestat.state.store import LanceState

_log = logging.getLogger("lancestat.watch")

PLANNED_EVERY = timedelta(minutes=10)
"""A plan is made at least so often."""

MOST_BETWEEN = timedelta(hours=1)
"""What fails again and again is tried at least so often."""

LEASE = timedelta(minutes=10)
"""A process of another host counts as watching for so long after its last sign of life."""


@dataclass(frozen=True)
class Outcome:
    """What came of planning the nodes and running those that were due.

    Attributes:
        failed: Whether a node that was run has failed, by its name.
        blocked: Why a node cannot be planned, by its name.
        error: Why there was no run at all.
    """

    failed: Mapping[str, bool] = field(default_factory=dict)
    blocked: Mapping[str, str] = field(default_factory=dict)
    error: str | None = None


def run_due(
    plan: Callable[[], Plan], execute: Callable[[Plan], RunResult], waiting: Collection[str]
) -> Outcome:
    """Plan nodes, and run those that are due and not among the `waiting` ones."""
    try:
        planned = plan()
        blocked = {
            action.node: f"{action.error.code}: {action.error.message}"
            for action in planned.actions
            if action.error is not None
        }
        due = tuple(
            action for action in planned.actions if has_work(action) and action.node not in waiting
        )
        nodes = execute(replace(planned, actions=due)).nodes if due else ()
    except LancestatError as error:
        return Outcome(error=f"{error.code}: {error.message}")
    ended = (node for node in nodes if node.status is not Status.DEFERRED)
    return Outcome({node.name: node.status is not Status.SUCCESS for node in ended}, blocked)


def run_apart(command: Sequence[str], waiting: Collection[str]) -> Outcome:
    """Return the outcome of `run_due` in a process of its own, whose memory ends with it.

    The command gets a file, from which it reads what is `waiting` and to which it writes the
    outcome: see `answer`. What ends this process while it waits, ends that one first.
    """
    try:
        with tempfile.TemporaryDirectory(prefix="lancestat-watch-") as folder:
            file = Path(folder) / "round.json"
            file.write_text(json.dumps(sorted(waiting)), encoding="utf-8")
            # Ctrl-C in a terminal would reach both, and a second signal kills.
            with subprocess.Popen([*command, str(file)], start_new_session=True) as process:
                try:
                    code = process.wait()
                except KeyboardInterrupt:
                    process.terminate()
                    process.wait()
                    raise
            if code:
                return Outcome(error=f"a round ended with exit code {code}")
            return Outcome(**json.loads(file.read_text(encoding="utf-8")))
    except OSError as error:
        return Outcome(error=f"a round cannot begin: {error}")


def answer(file: Path, round: Callable[[Collection[str]], Outcome]) -> None:
    """Do a round for `run_apart`."""
    outcome = round(json.loads(file.read_text(encoding="utf-8")))
    file.write_text(json.dumps(asdict(outcome)), encoding="utf-8")


@dataclass
class Watcher:
    """Watches nodes of a project.

    Args:
        nodes: Returns the project and the nodes that are watched.
        run_due: Plans them and runs those that are due, but for those that are named.
        interval: What lies between two looks. What fails is tried again after twice as long each
            time.
        clock: Returns the time.
    """

    nodes: Callable[[], tuple[ProjectSpec, Sequence[Node]]]
    run_due: Callable[[Collection[str]], Outcome]
    interval: timedelta
    clock: Callable[[], datetime]
    _latest: LatestVersions | None = None
    _versions: Mapping[str, int | None] = field(default_factory=dict)
    _planned_at: datetime | None = None
    # By node, how often it has failed, and when it is tried again.
    _failed: dict[str, tuple[int, datetime]] = field(default_factory=dict)
    _blocked: dict[str, str] = field(default_factory=dict)

    def rounds(self) -> Iterator[timedelta]:
        """Look and run what is due, once for each item; items are how long to wait then."""
        failures = 0
        while True:
            try:
                error = self._round()
            except LancestatError as raised:
                error = f"{raised.code}: {raised.message}"
            if error:
                _log.warning("%s", error)
            failures = failures + 1 if error else 0
            yield self._pause(failures)

    def _pause(self, failures: int) -> timedelta:
        longer: timedelta = self.interval * (1 << min(failures, 16))
        return max(self.interval, min(longer, MOST_BETWEEN))

    def _round(self) -> str | None:
        now = self.clock()
        versions = self._latest.get() if self._latest else None
        is_retried = any(at <= now for _, at in self._failed.values())
        is_late = self._planned_at is None or now - self._planned_at >= PLANNED_EVERY
        if versions is not None and versions == self._versions and not (is_late or is_retried):
            return None
        if is_late:
            # Sources may have new tables, and catalogs other places of them.
            self._latest = self._opened()
            versions = self._latest.get()
        outcome = self.run_due({node for node, (_, at) in self._failed.items() if at > now})
        if outcome.error is None:
            self._planned_at = now
            # What changes while the plan is made or run is seen in the next round.
            self._versions = versions or {}
            self._tell_blocked(outcome.blocked)
            # What had failed, and is not due any more, is mended or removed.
            self._failed = {
                node: (times, at)
                for node, (times, at) in self._failed.items()
                if at > now or node in outcome.failed
            }
        for node, has_failed in outcome.failed.items():
            self._note(node, has_failed=has_failed)
        return outcome.error

    def _note(self, node: str, *, has_failed: bool) -> None:
        times, _ = self._failed.pop(node, (0, None))
        if has_failed:
            self._failed[node] = times + 1, self.clock() + self._pause(times + 1)

    def _tell_blocked(self, blocked: Mapping[str, str]) -> None:
        """Warn of nodes that cannot be planned, once for each reason."""
        for node, why in blocked.items():
            if self._blocked.get(node) != why:
                _log.warning("'%s' is blocked, %s", node, why)
        self._blocked = dict(blocked)

    def _opened(self) -> LatestVersions:
        spec, nodes = located(*self.nodes())
        uris = {
            uri: spec.options.of(uri)
            for node in nodes
            for uri in NODE_TYPES[node.kind.value].lance_uris(spec, node)
        }
        return LatestVersions(uris)


RENEWED_EVERY = timedelta(minutes=1)


@contextmanager
def sole_watcher(state: LanceState, clock: Callable[[], datetime]) -> Iterator[None]:
    """Be the one process that watches a state while the block runs.

    Raises:
        StateWatched: another process does.
        StateUnreachable: the state cannot be reached.
    """
    leases = LeaseFolder(state.folder, "watching", LEASE)
    held: list[str] = []

    def renew() -> None:
        former = held[:]
        held[:] = [leases.add(clock().timestamp(), uuid4().hex[:12])]
        leases.remove(former)

    def failed(error: Exception) -> None:
        _log.warning("that this process watches is not recorded: %s", error)

    leases.remove(leases.files(is_held=False).values())
    others = leases.files(is_held=True)
    renew()
    try:
        # Of two that begin at once, each sees the other, and neither goes on.
        if others or len(leases.files(is_held=True)) > 1:
            raise StateWatched(
                "another process watches this state",
                hint="stop it first; one on another host that was killed counts for ten minutes",
            )
        # A run may take longer than the lease.
        with renewed(renew, RENEWED_EVERY, failed):
            yield
    finally:
        leases.remove(held)
