"""Gather what planning a join looks at: its sides, its result, and what the state knows."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from lancestat.errors import LakeError, LancestatError
from lancestat.knn.names import output_names
from lancestat.knn.output import current
from lancestat.knn.work import OutputFormat, OutputState
from lancestat.lake.open import probe
from lancestat.lake.snapshot import Snapshot
from lancestat.lake.uri import store_of
from lancestat.plan.actions import Action, Blocked
from lancestat.plan.join_columns import Place
from lancestat.plan.join_input import JoinInput
from lancestat.plan.join_planner import JoinAppraisal, decide_join, remembered_result
from lancestat.plan.join_reads import check_output
from lancestat.plan.join_side import SideReader
from lancestat.spec.digest import node_digest
from lancestat.spec.model import KnnJoin, ProjectSpec, Target
from lancestat.state.values import JoinRecord

_LOCAL = re.compile(r"local(?:\[(\d+|\*)(?:,\s*\d+)?\])?")


@dataclass(frozen=True, slots=True)
class JoinObserver:
    """Looks at joins on behalf of the planner; `snapshots` has the Lance datasets by URI."""

    spec: ProjectSpec
    snapshots: Mapping[str, Snapshot | LakeError]
    records: Mapping[str, JoinRecord]

    def plan(self, join: KnnJoin, *, full_refresh: bool = False) -> Action:
        """Plan one join; one that cannot run is blocked."""
        try:
            return decide_join(self._appraise(join), full_refresh=full_refresh)
        except LancestatError as error:
            return Blocked(join.name, join.kind.value, error.placed(join.location))

    def _appraise(self, join: KnnJoin) -> JoinAppraisal:
        check_output(self.spec, join)
        reader = SideReader(self.spec, self.snapshots)
        left, right = (reader.look(Place(join, side)) for side in ("left", "right"))
        _check_together(join, left, right)
        record, digest = self.records.get(join.name), node_digest(join)
        return JoinAppraisal(
            spec=join,
            digest=digest,
            left=left,
            right=right,
            record=record,
            output=self._output(join, remembered_result(record, digest)),
            cores=planned_cores(self.spec.target),
        )

    def _output(self, join: KnnJoin, remembered: str | None) -> OutputState | None:
        options, store = self.spec.target.storage_options, store_of(join.output_uri)
        format = OutputFormat(join.output_format)
        if store is not None and format is OutputFormat.LANCE:
            probe(store, options)
        return current(format, join.output_uri, options, remembered)


def _check_together(join: KnnJoin, left: JoinInput, right: JoinInput) -> None:
    """See that the sides fit each other, as far as is known before they are read.

    Raises:
        UsageError: LS450 to LS452 about names (`knn.names`), LS456 vectors of different lengths.
    """
    output_names(left.columns or (), right.columns or (), with_rank=join.rank)
    lengths = (left.dimension, right.dimension)
    if None not in lengths and lengths[0] != lengths[1]:
        raise Place(join, "left").error(
            "LS456",
            f"the vectors of knn join '{join.name}' have {lengths[0]} elements on the left "
            f"and {lengths[1]} on the right",
        )


def planned_cores(target: Target) -> int:
    """How many tasks will run at once on a local target, 0 where only the cluster knows."""
    found = _LOCAL.fullmatch(target.spark_master or target.spark_conf.get("spark.master", ""))
    if found is None:
        return 0
    threads = found.group(1) or "1"
    cores = os.cpu_count() or 1 if threads == "*" else int(threads)
    per_task = target.spark_conf.get("spark.task.cpus", "1")
    return max(1, cores // int(per_task)) if per_task.isdecimal() and int(per_task) else cores
