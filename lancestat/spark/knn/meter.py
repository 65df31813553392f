"""Tells the driver how far a join's job is, as tasks end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lancestat.knn.stages import OnStage, Stage, StageProgress
from lancestat.spark.done import Done

if TYPE_CHECKING:
    from pyspark import Accumulator, SparkContext


@dataclass(frozen=True, slots=True)
class Step:
    """Rows and pairs that a task got through, and the seconds that its pairs took."""

    stage: Stage
    rows: int
    pairs: int = 0
    seconds: float = 0.0


class Meter:
    """Adds up what tasks got through, and passes it on.

    Args:
        on_stage: Told each time that a task ends.
        totals: How many rows each stage has to get through.
        tasks: How many run at once.
    """

    def __init__(self, on_stage: OnStage, totals: Mapping[Stage, int], tasks: int) -> None:
        self._on_stage: OnStage | None = on_stage
        self._totals = totals
        self._rows: Counter[Stage] = Counter()
        self._tasks = tasks
        self._pairs = 0
        self._seconds = 0.0

    def accumulator(self, context: SparkContext) -> Accumulator[list[Step]]:
        """What tasks add their steps to."""
        return context.accumulator([], Done(self._listen))

    def _listen(self, steps: Sequence[Step]) -> None:
        for step in steps:
            self._rows[step.stage] += step.rows
            self._pairs += step.pairs
            self._seconds += step.seconds
        if self._on_stage is None:
            return
        try:
            for stage in {step.stage for step in steps}:
                self._on_stage(self._progress(stage))
        except Exception:
            # Spark's scheduler waits for this thread: a broken display must not stop the run.
            self._on_stage = None

    def _progress(self, stage: Stage) -> StageProgress:
        rate = None
        if stage is Stage.PROBE and self._seconds:
            rate = self._pairs * self._tasks / self._seconds
        return StageProgress(stage, self._rows[stage], self._totals.get(stage), rate)
