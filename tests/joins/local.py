"""Declared joins by the engine itself, whose jobs run in this process and not on Spark."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

from lancestat.joins.search.work import JoinWork
from lancestat.joins.spark import engine as engines
from lancestat.joins.spark import prepared_join
from lancestat.joins.spark.engine import Engine, SparkJoin
from lancestat.runs.actions import OnStage, Skip
from lancestat.spec.catalog import UriOptions
from tests.joins.joined import JoinWorld, in_order


@dataclass(frozen=True)
class LocalJobs:
    """The jobs of two cores, whose tasks run one after the other."""

    cores: int = 2
    application: str = "local"

    @contextmanager
    def group(self, name: str, description: str) -> Iterator[None]:
        yield

    def inherited(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return function

    def cancel(self, name: str, is_over: Callable[[], bool]) -> None: ...

    def run(self, task: Any, items: Sequence[Any], listener: Any = None) -> list[Any]:
        results = []
        for item in items:
            for result, reports in task(iter([item])):
                results.append(result)
                if listener is not None:
                    listener(reports)
        return results

    def run_merged(
        self, task: Any, merging: Any, items: Sequence[Any], listener: Any = None
    ) -> list[Any]:
        merged: dict[int, Any] = {}
        for number, value in self.run(task, items, listener):
            merged[number] = merging.merge(merged[number], value) if number in merged else value
        return self.run(merging.task, list(merged.items()), listener)


@contextmanager
def local_jobs() -> Iterator[None]:
    """Let joins run their jobs in this process."""
    import pytest

    with pytest.MonkeyPatch.context() as patch:
        for module in (engines, prepared_join):
            patch.setattr(module, "jobs_of", lambda _: LocalJobs())
        patch.setattr(prepared_join, "task_threads", lambda _: 1)
        yield


@contextmanager
def opened_locally(scratch: str, work: JoinWork, on_stage: OnStage) -> Iterator[SparkJoin]:
    spark: Any = None
    engine = Engine(spark, scratch, uuid.uuid4().hex, UriOptions({}), on_stage)
    with local_jobs(), engine.open(work) as join:
        yield join


class LocalWorld(JoinWorld):
    """A world whose joins the engine itself runs in this process."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.declare(min_right_rows=0)

    def open_join(self, work: JoinWork, on_stage: OnStage) -> AbstractContextManager[SparkJoin]:
        self.works.append(work)
        if self.before is not None:
            self.before(work)
        return opened_locally(self.scratch, work, on_stage)

    def converge(self) -> None:
        """Run once, which leaves nothing to do, and makes the rows of a join in full."""
        assert self.run().status == "success"
        assert isinstance(self.action(), Skip)
        assert in_order(self.rows()) == in_order(self.expected())
