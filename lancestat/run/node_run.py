"""One node's part of a run, whatever kind it is of."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

from lancestat.errors import LakeError
from lancestat.lake.fingerprint import Fingerprint
from lancestat.lake.open import REPLACED_CODES
from lancestat.plan.actions import Action, Blocked, Skip
from lancestat.plan.join_actions import Await, Join
from lancestat.plan.render_json import node_json
from lancestat.run.join_run import JoinRunner
from lancestat.run.result import NodeResult, Status
from lancestat.run.table_run import MAX_ATTEMPTS, Outcome, TableRunner
from lancestat.state.values import JoinRecord, TableRecord

_log = logging.getLogger("lancestat.run")


@dataclass(frozen=True, slots=True)
class NodeEnded:
    """How a node ended, and what is to be remembered of it.

    `live` are the fingerprints of the version of a table that was read.
    """

    result: NodeResult
    record: TableRecord | JoinRecord | None = None
    live: frozenset[Fingerprint] = frozenset()


@dataclass(frozen=True, slots=True)
class NodeRunner:
    """Carries out the actions of a plan.

    `replan` looks at a node again and says what to do now: when what the node awaits has ended, and
    when a side of a join was replaced while it was read. Its second argument says whether
    everything is to be made again.
    """

    tables: TableRunner
    joins: JoinRunner
    replan: Callable[[str, bool], Action]

    @property
    def run_id(self) -> str:
        """Names the run."""
        return self.tables.run_id

    def run(self, action: Action) -> NodeEnded:
        """Carry out one action; the result does not tell yet how long it took.

        Raises:
            LancestatError: the node failed.
        """
        for _ in range(MAX_ATTEMPTS - 1):
            try:
                return self._run(action)
            except LakeError as error:
                if not isinstance(action, Join | Await) or error.code not in REPLACED_CODES:
                    raise
                _log.info("'%s' is planned again: %s", action.node, error.message)
                action = self.replan(action.node, False)
        return self._run(action)

    def _run(self, action: Action) -> NodeEnded:
        if isinstance(action, Await):
            action = self.replan(action.node, action.full_refresh)
        done = replace(planned(action), status=Status.SUCCESS)
        if isinstance(action, Blocked):
            raise action.error
        if isinstance(action, Skip):
            return NodeEnded(done)
        if isinstance(action, Join):
            ended = self.joins.run(action)
            result = replace(done, version_published=ended.version_published, join=ended.figures)
            return NodeEnded(result, ended.record)
        outcome = self.tables.run(action)
        return NodeEnded(_published(done, outcome), outcome.record, outcome.live)


def _published(done: NodeResult, outcome: Outcome) -> NodeResult:
    figures = outcome.figures
    return replace(
        done,
        fragments_total=figures.fragments_total,
        fragments_scanned=outcome.scanned.fragments,
        rows_total=figures.rows_total,
        rows_scanned=outcome.scanned.rows,
        version_read=figures.version_read,
        version_published=outcome.version_published,
    )


def planned(action: Action) -> NodeResult:
    """A node of a plan, as the JSON of `lancestat plan` shows it."""
    return NodeResult.from_json(node_json(action))
