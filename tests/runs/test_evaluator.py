"""The stages of joins, and plans whose assumptions turn out to be wrong."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import pytest

from lancestat.errors import ListsLost, StaleBase
from lancestat.joins.action import BuildIndex, CommitResult, JoinAction, PrepareSides, Probe
from lancestat.joins.planner import plan_join
from lancestat.joins.record import JoinCounts, OutputFormat, OutputState
from lancestat.joins.run import JoinEvaluation
from lancestat.joins.search.cost_model import Decision, JoinSize, KeptIndex, Strategy
from lancestat.joins.search.work import (
    Increment,
    JoinOutcome,
    JoinRequest,
    JoinWork,
    PinnedTable,
    RightContent,
    Scope,
    SideSource,
)
from lancestat.joins.spark.engine import SparkJoin
from lancestat.lake.snapshot import Pin
from lancestat.runs.actions import OnStage, StageProgress

EXACT = JoinRequest(3)
APPROXIMATE = JoinRequest(3, recall=0.9)
OUTPUT = OutputState(30, "made", 2)
COUNTS = JoinCounts(10, 10, 0, 0)
FEW, MANY = JoinSize(100, 50, 8), JoinSize(20_000, 20_000_000, 8)


@dataclass
class Session:
    """A session that records the executed stages."""

    sizes: JoinSize
    works: list[JoinWork] = field(default_factory=list)
    done: list[str] = field(default_factory=list)
    finds_rows: bool = True
    reaches_recall: bool = True
    has_last_result: bool = True
    has_layout: bool = True
    in_place: tuple[str, ...] = ()
    cores: int = 2
    outcome: JoinOutcome = field(default_factory=lambda: JoinOutcome("any", COUNTS, OUTPUT, 100))

    @contextmanager
    def open(self, work: JoinWork, on_stage: OnStage) -> Iterator[SparkJoin]:
        self.works.append(work)
        yield self
        self.done.append("closed")

    def prepare_sides(self, stage: PrepareSides) -> Session:
        self.done.append("prepare")
        return self

    @property
    def size(self) -> JoinSize:
        return replace(self.sizes, kept=None if self.works[-1].is_fresh else self.sizes.kept)

    def build_index(self, stage: BuildIndex) -> bool:
        self.done.append("build index")
        return self.finds_rows

    def use_index(self) -> None:
        self.done.append("use index")
        if not self.has_layout:
            raise ListsLost("the kept index has gone")

    def measure_index(self) -> bool:
        self.done.append("measure")
        return self.reaches_recall

    def probe(self, stage: Probe, commit: CommitResult) -> None:
        self.done.append(f"probe {stage.strategy.value}")
        if stage.scope is Scope.NEW_RIGHT and not self.has_last_result:
            raise StaleBase("the result has gone")

    def commit(self, stage: CommitResult) -> None:
        self.done.append("append" if stage.appends else "update" if stage.updates else "replace")


def action(request: JoinRequest, planned: JoinSize, scope: Scope = Scope.FULL) -> JoinAction:
    table = PinnedTable("t", Pin("t.lance", 1, "m"), ())
    left, right = SideSource("v", ("id",), table), SideSource("w", ("id",), table)
    work = JoinWork("near", request, left, right, OutputFormat.LANCE, "near.lance")
    if scope is not Scope.FULL:
        increment = Increment(scope, frozenset(), frozenset(), OUTPUT, COUNTS)
        work = replace(work, increment=increment)
    decision = Decision(Strategy.EXACT, "") if scope.is_update else None
    return plan_join(work, planned, cores=2, new_rows=(5, 0), decision=decision)


def run(planned: JoinAction, session: Session) -> tuple[JoinAction, list[StageProgress]]:
    progress: list[StageProgress] = []
    done, _ = JoinEvaluation(session.open, progress.append).run(planned)
    return done, progress


@pytest.mark.parametrize(
    ("request_", "sizes", "scope", "stages"),
    [
        (EXACT, FEW, Scope.FULL, ["prepare", "probe spark", "replace"]),
        (EXACT, MANY, Scope.FULL, ["prepare", "probe exact", "replace"]),
        (EXACT, FEW, Scope.NEW_LEFT, ["prepare", "probe exact", "append"]),
        (EXACT, FEW, Scope.NEW_RIGHT, ["prepare", "probe exact", "update"]),
        (APPROXIMATE, MANY, Scope.FULL, ["prepare", "build index", "probe ivf", "replace"]),
        (
            APPROXIMATE,
            replace(MANY, left_rows=10, has_index=True),
            Scope.FULL,
            ["prepare", "measure", "probe index", "replace"],
        ),
    ],
)
def test_a_join_goes_through_the_stages_of_its_plan(
    request_: JoinRequest,
    sizes: JoinSize,
    scope: Scope,
    stages: list[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    planned = action(request_, sizes, scope)
    session = Session(sizes)
    done, progress = run(planned, session)
    assert session.done == [*stages, "closed"]
    assert tuple(reached.stage for reached in progress) == done.stages
    if scope is Scope.FULL:
        assert done == planned
    assert not caplog.records


def test_facts_that_contradict_a_decision_replan_the_join(
    caplog: pytest.LogCaptureFixture,
) -> None:
    planned = action(APPROXIMATE, FEW)
    assert planned.decision.strategy == "spark"
    session = Session(MANY)
    with caplog.at_level(logging.INFO, "lancestat.run"):
        done, progress = run(planned, session)
    assert session.done == ["prepare", "build index", "probe ivf", "replace", "closed"]
    assert done.figures.strategy == "ivf"
    [record] = caplog.records
    assert record.levelno == logging.WARNING
    lists = f"ivf in {done.decision.lists:,} lists"
    assert record.getMessage() == f"'near' is planned again: {lists}, {done.decision.why}"
    assert tuple(reached.stage for reached in progress) == done.stages
    assert progress[-2].stage == Probe(Strategy.IVF, Scope.FULL, done.decision.pairs)


def test_a_decision_without_sizes_is_expected_to_change(caplog: pytest.LogCaptureFixture) -> None:
    planned = action(APPROXIMATE, JoinSize(None, None, None))
    assert planned.decision.strategy == "ivf"
    session = Session(FEW)
    with caplog.at_level(logging.INFO, "lancestat.run"):
        run(planned, session)
    assert session.done == ["prepare", "probe spark", "replace", "closed"]
    assert [record.levelno for record in caplog.records] == [logging.INFO]


@pytest.mark.parametrize(
    ("sizes", "wrong", "stage", "why"),
    [
        (
            replace(MANY, left_rows=10, has_index=True),
            {"reaches_recall": False},
            "measure",
            "the index does not reach the recall",
        ),
        (MANY, {"finds_rows": False}, "build index", "no right row can match"),
    ],
)
def test_an_unsuitable_strategy_falls_back_to_exact_search(
    sizes: JoinSize,
    wrong: dict[str, bool],
    stage: str,
    why: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    session = Session(sizes, **wrong)  # type: ignore[arg-type]
    done, _ = run(action(APPROXIMATE, sizes), session)
    assert session.done == ["prepare", stage, "probe exact", "replace", "closed"]
    assert (done.figures.strategy, done.decision.why) == ("exact", why)
    assert [record.getMessage() for record in caplog.records] == [
        f"'near' is planned again: exact, {why}"
    ]


KEPT = KeptIndex(200, MANY.right_rows or 0, 0)


@pytest.mark.parametrize(("new_rows", "stage"), [(0, "reuse index"), (5, "extend index")])
def test_a_kept_layout_is_reused_or_extended(new_rows: int, stage: str) -> None:
    sizes = replace(MANY, kept=replace(KEPT, new_rows=new_rows))
    planned, session = action(APPROXIMATE, sizes), Session(sizes)
    done, _ = run(planned, session)
    assert done == planned
    assert session.done == ["prepare", "use index", "probe ivf", "replace", "closed"]


def test_a_layout_that_is_found_or_has_gone_since_the_plan_is_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO, "lancestat.run"):
        run(action(APPROXIMATE, MANY), Session(replace(MANY, kept=KEPT)))
        run(action(APPROXIMATE, replace(MANY, kept=KEPT)), Session(MANY))
    found, gone = (record.getMessage() for record in caplog.records)
    assert found.startswith("'near' is planned again: ivf in 200 lists, about ")
    assert "a kept IVF index of" in found and "a kept index of" not in gone


def test_a_join_whose_kept_layout_cannot_be_read_is_planned_without_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    sizes = replace(MANY, kept=KEPT)
    planned = action(APPROXIMATE, sizes)
    with_content = replace(planned.work.right, content=RightContent("key", ()))
    planned = replace(planned, work=replace(planned.work, right=with_content))
    session = Session(sizes, has_layout=False)
    done, _ = run(planned, session)
    assert [work.is_fresh for work in session.works] == [False, True]
    assert session.done == [
        "prepare", "use index", "prepare", "build index", "probe ivf", "replace", "closed",
    ]  # fmt: skip
    assert done.decision.kept is None
    assert "without the kept index: the kept index has gone" in caplog.text


def test_a_join_whose_last_result_is_gone_is_planned_in_full(
    caplog: pytest.LogCaptureFixture,
) -> None:
    session = Session(FEW, has_last_result=False)
    done, _ = run(action(EXACT, FEW, Scope.NEW_RIGHT), session)
    assert [work.scope for work in session.works] == [Scope.NEW_RIGHT, Scope.FULL]
    assert session.done == [
        "prepare", "probe exact", "prepare", "probe spark", "replace", "closed",
    ]  # fmt: skip
    assert done.work.scope is Scope.FULL
    assert "is planned again, in full: the result has gone" in caplog.text


def test_a_full_join_whose_result_was_replaced_fails() -> None:
    class Failing(Session):
        def commit(self, stage: CommitResult) -> None:
            raise StaleBase("the result has been replaced")

    with pytest.raises(StaleBase):
        run(action(EXACT, FEW), Failing(FEW))


def test_a_parquet_side_is_planned_and_reported_as_read_in_place(
    caplog: pytest.LogCaptureFixture,
) -> None:
    planned = action(EXACT, MANY)
    parquet = SideSource("w", ("id",), format="parquet", uri="right.parquet")
    work = replace(planned.work, right=parquet)
    planned = plan_join(work, MANY, cores=2)
    assert planned.stages[0] == PrepareSides(("right",), unless_light=("right",))
    session = Session(MANY, in_place=("right",))
    with caplog.at_level(logging.INFO, "lancestat.run"):
        done, _ = run(planned, session)
    assert done.stages[0] == PrepareSides(())
    assert session.done == ["prepare", "probe exact", "replace", "closed"]
    assert [record.getMessage() for record in caplog.records] == [
        "'near': the right side is read in place"
    ]
