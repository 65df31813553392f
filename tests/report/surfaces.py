"""All ways to ask about a table's statistics that need no Spark, and what has to hold for them."""

from __future__ import annotations

from dataclasses import dataclass

from lancestat.manifest.guard import GuardReason, Verdict
from lancestat.optimizer.table import DeclaredTables, ReadTable, Settings, open_table
from lancestat.plan.actions import Action, Reason, Skip
from lancestat.project import Project
from lancestat.report.values import TableReport
from lancestat.spec.model import Publish, StaleBounds
from tests.execution.judged import JudgedTable, policy

# Whether statistics are used, the word for why, and the sentence for people.
Answer = tuple[bool, str, str]


@dataclass(frozen=True)
class Surfaces:
    """What all ways to ask say of a table under one policy."""

    table: JudgedTable

    def project(self) -> Project:
        world = self.table.world
        project = Project(world.observer.spec, clock=world.clock)
        project._state = world.state
        return project

    def read(self) -> Verdict:
        """What a view of `attach` and of `lancestat sql` is given."""
        world = self.table.world
        tables = DeclaredTables(world.observer.spec, world.state, world.clock)
        [opened] = tables.open([world.table]).values()
        assert isinstance(opened, ReadTable)
        return opened.judge(Settings(), world.clock())

    def read_by_uri(self, allow_stale: bool) -> Verdict:
        """What `read_table` gives to somebody who knows of no project."""
        opened = open_table(self.table.dataset.uri)
        return opened.judge(Settings(allow_stale=allow_stale), self.table.world.clock())

    def answers(self) -> dict[str, Answer]:
        """By surface; `status` and `docs` are made of the report, as is the system view."""
        project = self.project()
        shown, read = project.show(self.table.world.name), self.read()
        [report] = project.report().nodes
        assert isinstance(report, TableReport)
        assert report.shown is not None
        found = {
            "show": (shown.use, shown.reason, shown.detail),
            "reader": (read.use, read.reason.value, read.detail),
            "report": (report.verdict == "use", report.reason, report.shown.detail),
        }
        for row in project.report_tables(["statistics"])["statistics"].to_pylist():
            found[f"view, {row['column']}"] = (
                row["verdict"] == "use",
                row["reason"],
                row["detail"],
            )
        return found

    def action(self) -> Action:
        return self.table.world.action()


def check_surfaces(table: JudgedTable, allow_stale: bool | StaleBounds) -> Verdict:
    """One answer on all of them, and a true one."""
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
    """A run leaves alone what readers may use, and nothing that they refuse."""
    assert isinstance(action, Skip) or not hasattr(action, "error"), action
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
    """What is used describes the rows that are read, as nearly as the policy says."""
    if verdict.statistics is None:
        return
    tag, names = verdict.statistics.version_tag, verdict.statistics.columns
    changed = table.truly_changed(tag, names)
    said = table.statistics().changed_rows
    if verdict.reason is GuardReason.CURRENT:
        assert changed == 0.0
    if said is not None:
        assert changed <= said + 1e-9
    if isinstance(allow_stale, StaleBounds) and allow_stale.max_changed_rows is not None:
        assert changed <= allow_stale.max_changed_rows + 1e-9
