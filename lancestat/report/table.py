"""Reports of tables."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from lancestat.errors import LakeError, LancestatError
from lancestat.lake.changed_at import rows_changed_at
from lancestat.lake.open import pinned_history
from lancestat.lake.snapshot import Snapshot
from lancestat.plan.observation import Appraisal
from lancestat.plan.observe import Observer, Survey
from lancestat.plan.shown import show
from lancestat.read.groups import load_groups
from lancestat.report.fragments import fragment_coverage
from lancestat.report.health import (
    failed,
    freshness_of,
    outdated,
    refused,
    uncovered,
    unreadable,
    worst,
)
from lancestat.report.values import Health, NodeRunReport, TableReport
from lancestat.spec.model import Table
from lancestat.state.values import PartialIndex
from lancestat.stats.histogram import Histogram, equi_height

_log = logging.getLogger("lancestat.report")


@dataclass(frozen=True, slots=True)
class TableReporter:
    """Makes reports of tables from a survey; may be shared by threads."""

    observer: Observer
    survey: Survey
    now: datetime
    with_histograms: bool = False

    def report(
        self, table: Table, runs: tuple[NodeRunReport, ...], index: PartialIndex | None = None
    ) -> TableReport:
        """The report of one table, also of one that cannot be opened.

        Args:
            table: Which.
            runs: Its runs, newest first.
            index: What the state has stored; without it fragments are not looked at.
        """
        try:
            return self._report(table, runs, index)
        except LancestatError as error:
            problems = [unreadable(error), *failed(runs, self.now, error)]
            return TableReport(
                spec=table,
                health=Health.ERROR,
                problems=tuple(each.sentence for each in problems),
                verdict="refuse",
                reason="unreadable",
                shown=None,
                error=error,
                runs=runs,
            )

    def _report(
        self, table: Table, runs: tuple[NodeRunReport, ...], index: PartialIndex | None
    ) -> TableReport:
        appraisal = self._appraisal(table)
        coverage = None if index is None else fragment_coverage(appraisal, index)
        covered = coverage.columns if coverage else None
        shown = show(appraisal, self.now, covered)
        changed_at = self._changed_at(appraisal.snapshot)
        problems = [
            *refused(shown),
            *failed(runs, self.now),
            *outdated(table.freshness, changed_at, self.now),
            *uncovered(shown),
        ]
        return TableReport(
            spec=table,
            health=worst(problems),
            problems=tuple(each.sentence for each in problems),
            verdict="use" if shown.use else "refuse",
            reason=shown.reason,
            shown=shown,
            changed_at=changed_at,
            freshness=freshness_of(table.freshness, changed_at, self.now),
            histograms=self._histograms(appraisal),
            fragments=coverage.fragments if coverage else (),
            runs=runs,
        )

    def _appraisal(self, table: Table) -> Appraisal:
        found = self.survey.snapshots[table.uri]
        if isinstance(found, LakeError):
            raise found
        return self.observer.appraisal(table, found, self.survey.records, self.now)

    def _changed_at(self, found: Snapshot) -> datetime | None:
        options = self.observer.spec.target.storage_options
        try:
            with pinned_history(found.pin, options) as dataset:
                return rows_changed_at(dataset)
        except LakeError as error:
            _log.warning("when rows last changed is not known: %s", error.message)
            return None

    def _histograms(self, appraisal: Appraisal) -> Mapping[str, Histogram]:
        if not (self.with_histograms and appraisal.histograms):
            return {}
        known = load_groups(self.observer.state, appraisal.identity, appraisal.snapshot)
        names = [field.name for field in appraisal.wanted if field.name in appraisal.histograms]
        known.load(names)
        made = {
            name: equi_height(partial, appraisal.types[name])
            for name in names
            if (partial := known.partial(name)) is not None
        }
        return {name: histogram for name, histogram in made.items() if histogram is not None}
