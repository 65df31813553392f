"""All surfaces that report a table's statistics without Spark, and their invariants."""

from __future__ import annotations

from dataclasses import dataclass

from lancestat.project import Project
from lancestat.query.table import DeclaredTables, ReadSettings, ReadTable, open_table
from lancestat.report.tables import TableReport
from lancestat.runs.actions import Action, Reason, Skip
from lancestat.spec.model import Publish, StaleBounds
from lancestat.tables.judgement import Verdict
from lancestat.tables.wire import GuardReason
from tests.tables.judged import JudgedTable, policy

# Whether statistics are used, the reason as a word, and the reason as a sentence.
Answer = tuple[bool, str, str]


@dataclass(frozen=True)
class Surfaces:
    """The verdicts of all surfaces on a table under one policy."""

    table: JudgedTable

    def project(self) -> Project:
        world = self.table.world
        project = Project(world.observer.spec, clock=world.clock)
        project._state = world.state
        return project

    def read(self) -> Verdict:
        """Return the verdict of a view of `attach` and of `lancestat sql`."""
        world = self.table.world
        tables = DeclaredTables(world.observer.spec, world.state, world.clock)
        [opened] = tables.open([world.table]).values()
        assert isinstance(opened, ReadTable)
        return opened.verdict(ReadSettings(), world.clock())

    def read_by_uri(self, allow_stale: bool) -> Verdict:
        """Return the verdict of `read_table` without a project."""
        opened = open_table(self.table.dataset.uri)
        return opened.verdict(ReadSettings(allow_stale=allow_stale), self.table.world.clock())

    def answers(self) -> dict[str, Answer]:
        """By surface; `status` and `docs` are made of the report, as is the system view."""
        project = self.project()
        status, read = project.show(self.table.world.name), self.read()
        [report] = project.report().nodes
        assert isinstance(report, TableReport)
        assert report.status is not None
        by_surface = {
            "show": (status.use, status.reason, status.detail),
            "reader": (read.use, read.reason.value, read.detail),
            "report": (report.verdict == "use", report.reason, report.status.detail),
        }
        for row in project.report_tables(["statistics"])["statistics"].to_pylist():
            by_surface[f"view, {row['column']}"] = (
                row["verdict"] == "use",
                row["reason"],
                row["detail"],
            )
        return by_surface

    def action(self) -> Action:
        return self.table.world.action()


def check_surfaces(table: JudgedTable, allow_stale: bool | StaleBounds) -> Verdict:
    """Check that all surfaces give the same verdict, and that it is true; return it."""
    table.world.policy = policy(allow_stale)
    surfaces = Surfaces(table)
    answers = surfaces.answers()
    assert len(set(answers.values())) == 1, answers
    verdict = surfaces.read()
    if isinstance(allow_stale, bool) and table.world.publish is Publish.MANIFEST:
        assert surfaces.read_by_uri(allow_stale) == verdict
    check_action(table, surfaces.action(), verdict)
    check_truth(table, allow_stale, verdict)
    return verdict


def check_action(table: JudgedTable, action: Action, verdict: Verdict) -> None:
    """Check that a run skips statistics that readers may use, and only these."""
    assert action.error is None, action
    accepted = action.reasons == (Reason.POLICY_ACCEPTS,)
    if accepted or table.world.publish is Publish.NONE:
        # What only the state keeps is brought up to date whenever the table moved on.
        assert not accepted or verdict.reason is GuardReason.STALE_ACCEPTED
        return
    wanted = {field.name for field in table.dataset.schema}
    if verdict.statistics is not None and set(verdict.statistics.columns) == wanted:
        assert isinstance(action, Skip), action
        assert verdict.reason is GuardReason.CURRENT
        assert action.reasons == (Reason.UNCHANGED,)


def check_truth(table: JudgedTable, allow_stale: bool | StaleBounds, verdict: Verdict) -> None:
    """Check that used statistics describe the rows, within the bounds of the policy."""
    if verdict.statistics is None:
        return
    tag, names = verdict.statistics.version_tag, verdict.statistics.columns
    changed = table.truly_changed(tag, names)
    bound = table.statistics().changed_rows
    if verdict.reason is GuardReason.CURRENT:
        assert changed == 0.0
    if bound is not None:
        assert changed <= bound + 1e-9
    if isinstance(allow_stale, StaleBounds) and allow_stale.max_changed_rows is not None:
        assert changed <= allow_stale.max_changed_rows + 1e-9
