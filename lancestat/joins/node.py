"""KNN joins as a kind of node."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, ClassVar

from lancestat.errors import LancestatError
from lancestat.formats import count
from lancestat.joins.action import JoinFigures
from lancestat.joins.observe import JoinObserver, declared_indexes, lance_uris
from lancestat.joins.output import result as output
from lancestat.joins.record import JoinRecord, decode_record
from lancestat.joins.scratch.folder import known_roots
from lancestat.joins.scratch.garbage import ScratchGarbage
from lancestat.joins.scratch.kept_indexes import IndexStore, owner_prefix
from lancestat.joins.search.work import OutputFormat
from lancestat.runs.locate import located
from lancestat.runs.node import Observed
from lancestat.spark.start import joins_by_nearest_by
from lancestat.spec.catalog import table_name_of
from lancestat.spec.model import KnnJoin, ProjectSpec, Target, joins_of
from lancestat.state.garbage_collection import GarbageReport
from lancestat.state.identity import canonical_uri, join_identity
from lancestat.state.values import StateReader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lancestat.joins.review import JoinChange
    from lancestat.joins.run import JoinRunner
    from lancestat.review.values import PropertyChange
    from lancestat.runs.evaluator import RunContext

_log = logging.getLogger("lancestat.run")


@dataclass(frozen=True, slots=True)
class JoinNodes:
    """KNN joins, whose results are kept up to date; the fields are as `JoinObserver` has them."""

    computes: ClassVar[bool] = True
    has_nearest_by_join: bool = True
    indexes: IndexStore | None = None

    def under(self, target: Target, session: SparkSession | None) -> JoinNodes:
        # The first is the one that a run of this target uses.
        roots = known_roots(target.scratch, target.spark_conf)
        return JoinNodes(
            joins_by_nearest_by(target, session),
            IndexStore(roots[0], target.storage_options) if roots else None,
        )

    def lance_uris(self, spec: ProjectSpec, node: KnnJoin) -> tuple[str, ...]:
        return lance_uris(spec, node)

    def record_key(self, node: KnnJoin) -> str:
        return join_identity(node.name)

    def decode_record(self, stored: str) -> JoinRecord:
        return decode_record(stored)

    def planner(self, observed: Observed) -> JoinObserver:
        return JoinObserver(observed, self.has_nearest_by_join, self.indexes)

    @contextmanager
    def runner(self, context: RunContext) -> Iterator[JoinRunner]:
        # Only runs need what joins on Spark.
        from lancestat.joins.run import JoinOpener, JoinRunner

        opener = JoinOpener(context.spark, context.spec.target, context.options)
        yield JoinRunner(context, opener.open)

    def figures_of(self, stored: Mapping[str, object]) -> JoinFigures:
        return JoinFigures.from_json(stored)

    def result_seen(self, observed: Observed, node: KnnJoin) -> object:
        if table_name_of(node.output_uri) is not None:
            return None
        format = OutputFormat(node.output_format)
        options = observed.spec.options.of(node.output_uri)
        result = output.current(format, node.output_uri, options)
        return None if result is None else (result.rows, result.digest, result.generation)

    def remove_past(self, spec: ProjectSpec, nodes: Sequence[KnnJoin], now: datetime) -> None:
        """Remove the results that are past now that joins have written others."""
        keeping = [join for join in nodes if join.keep is not None]
        if keeping:
            spec, moved = located(spec, keeping)
            remove_past_results(spec, joins_of(moved), now)

    def change(
        self, old: KnnJoin | None, new: KnnJoin | None, changed: tuple[PropertyChange, ...]
    ) -> JoinChange:
        from lancestat.joins.review import JoinChange

        return JoinChange(old, new, changed)

    def collect_garbage(
        self, spec: ProjectSpec, state: StateReader, report: GarbageReport, now: datetime
    ) -> GarbageReport:
        """Drop leftovers in outputs, scratch of the target and of this user's sessions, indexes."""
        if not report.is_dry_run:
            _collect_output_garbage(spec)
            remove_past_results(spec, spec.joins, now)
        return _with_scratch(report, spec, now)


def _collect_output_garbage(spec: ProjectSpec) -> None:
    for join in spec.joins:
        if table_name_of(join.output_uri) is not None:
            # It has not been written yet.
            continue
        try:
            format = OutputFormat(join.output_format)
            options = spec.options.of(join.output_uri)
            output.collect_garbage(format, join.output_uri, options)
        except LancestatError as error:
            # The join reports the error when it runs.
            _log.warning("the output of '%s' was left as it is: %s", join.name, error.message)


def remove_past_results(
    spec: ProjectSpec,
    joins: Iterable[KnnJoin],
    now: datetime,
) -> None:
    """Remove the results of joins that their `keep` takes for past; log what cannot be removed.

    Args:
        spec: The project, its tables of catalogs located.
        joins: Those whose results are looked at.
        now: The time from which ages count.
    """
    for join in joins:
        if join.keep is None or table_name_of(join.output_uri) is not None:
            continue
        format = OutputFormat(join.output_format)
        options = spec.options.of(join.output_uri)
        try:
            removed = output.remove_past(format, join.output_uri, options, join.keep, now)
        except LancestatError as error:
            _log.warning("older results of '%s' were left: %s", join.name, error.message)
        else:
            if removed:
                _log.info("'%s': %s of older results removed", join.name, count(removed, "version"))


def _with_scratch(report: GarbageReport, spec: ProjectSpec, now: datetime) -> GarbageReport:
    target = spec.target
    dry_run = report.is_dry_run
    owner, usable = owner_prefix(canonical_uri(target.state)), declared_indexes(spec)
    for root in known_roots(target.scratch, target.spark_conf):
        store = IndexStore(root, target.storage_options)
        garbage = ScratchGarbage(store, now, dry_run).collect(owner, usable)
        for uri, reason in garbage.left:
            _log.warning("scratch %s was left: %s", uri, reason)
        report = replace(
            report,
            indexes_dropped=report.indexes_dropped + garbage.indexes,
            scratch_dropped=report.scratch_dropped + len(garbage.folders),
            scratch_left=report.scratch_left + len(garbage.left),
            bytes=report.bytes + garbage.size_bytes,
        )
    return report
