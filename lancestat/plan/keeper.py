"""Keeps plans in files, and gives them back as long as they hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from lancestat.errors import UsageError
from lancestat.plan.actions import Plan
from lancestat.plan.moves import moves
from lancestat.plan.observe import Observer
from lancestat.plan.plan_file import (
    check_made_for,
    check_writable,
    moved,
    read_plan_file,
    write_plan_file,
)
from lancestat.plan.saved import Options, SavedPlan, Saver
from lancestat.spec.model import Node

# Nodes by what selects and what excludes them.
SelectNodes = Callable[[Sequence[str] | None, Sequence[str] | None], Sequence[Node]]


@dataclass(frozen=True, slots=True)
class PlanKeeper:
    """Saves and loads the plans of one project under one target; `version` is lancestat's own."""

    observer: Observer
    select: SelectNodes
    version: str

    def save(self, path: Path, options: Options) -> Plan:
        """Plan, and write the plan to a file.

        Raises:
            PlanFileError: LS621 something else is at `path`, or it cannot be written.
            UsageError: a selector is wrong or matches nothing.
            StateError: the state cannot be reached.
        """
        check_writable(path)
        plan, saved = self._make(options)
        write_plan_file(path, saved)
        return plan

    def load(self, path: Path) -> Plan:
        """Plan again what a file has, provided that it comes out the same.

        Raises:
            PlanMoved: LS620 it does not.
            PlanFileError: LS622 to LS624 the file is no such plan, or that of another project,
                target or release.
            StateError: the state cannot be reached.
        """
        spec = self.observer.spec
        then = read_plan_file(path)
        check_made_for(path, then, project=spec.name, target=spec.target.name, version=self.version)
        try:
            plan, now = self._make(then.options.restored(spec.redactor))
        except UsageError as error:
            raise moved(path, [f"its selection: {error.message}"]) from None
        found = moves(then, now)
        if found:
            raise moved(path, found)
        return plan

    def _make(self, options: Options) -> tuple[Plan, SavedPlan]:
        nodes = self.select(options.select, options.exclude)
        survey = self.observer.survey(nodes, full_refresh=options.full_refresh)
        saver = Saver(self.observer.spec, self.version, self.observer.clock)
        return survey.plan, saver.save(survey, options)
