"""Tells the driver how far a join's job is, as tasks end."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from lancestat.knn.stages import OnStage, Stage, StageProgress
from lancestat.spark.done import Done

if TYPE_CHECKING:
    from pyspark import Accumulator, SparkContext

# Stage, rows and pairs that a task got through.
_Step = tuple[Stage, int, int]


class Meter:
    """Adds up what tasks got through, and passes it on.

    Args:
        on_stage: Told each time that a task ends.
        totals: How many rows each stage has to get through.
    """

    def __init__(self, on_stage: OnStage, totals: Mapping[Stage, int]) -> None:
        self._on_stage: OnStage | None = on_stage
        self._totals = totals
        self._rows: Counter[Stage] = Counter()
        self._pairs = 0
        self._started = time.monotonic()

    def accumulator(self, context: SparkContext) -> Accumulator[list[_Step]]:
        """What tasks add their steps to."""
        return context.accumulator([], Done(self._listen))

    def _listen(self, steps: Sequence[_Step]) -> None:
        for stage, rows, pairs in steps:
            self._rows[stage] += rows
            self._pairs += pairs
        if self._on_stage is None:
            return
        try:
            for stage in {stage for stage, _, _ in steps}:
                self._on_stage(self._progress(stage))
        except Exception:
            # Spark's scheduler waits for this thread: a broken display must not stop the run.
            self._on_stage = None

    def _progress(self, stage: Stage) -> StageProgress:
        rate = None
        if stage is Stage.PROBE:
            rate = self._pairs / max(1e-9, time.monotonic() - self._started)
        return StageProgress(stage, self._rows[stage], self._totals.get(stage), rate)
