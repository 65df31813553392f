"""Tells the driver what is done, as tasks end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from pyspark.accumulators import AccumulatorParam

from lancestat.plan.actions import Scan

# Fragments and bytes of one table read so far; called from a thread of Spark's.
OnProgress = Callable[[int, int], None]


T = TypeVar("T")


class Done(AccumulatorParam[list[T]], Generic[T]):  # type: ignore[misc]
    """Accumulates what tasks tell of what they have done.

    Spark applies a task's updates once, when the task succeeds, whatever retries it took. On the
    driver `listener` receives them at that moment; it does not travel to the workers.
    """

    def __init__(self, listener: Callable[[Sequence[T]], None] | None = None) -> None:
        self.listener = listener

    def __reduce__(self) -> tuple[type[Done[T]], tuple[()]]:
        return Done, ()

    def zero(self, value: list[T]) -> list[T]:
        """Nothing done."""
        return []

    def addInPlace(self, value1: list[T], value2: list[T]) -> list[T]:  # noqa: N802
        """Both; on the driver they are passed on instead of being kept."""
        if self.listener is None:
            value1.extend(value2)
        else:
            self.listener(value2)
        return value1


class Tally:
    """Totals of what is read of one table."""

    def __init__(self, on_progress: OnProgress | None) -> None:
        self._on_progress = on_progress
        self._fragments: set[int] = set()
        self._bytes = 0

    def listener(
        self, scans: Sequence[Scan], parts: Sequence[int]
    ) -> Callable[[Sequence[int]], None]:
        """What receives the done slices of one job over `scans`, each cut into so many parts."""
        left = list(parts)

        def add(done: Sequence[int]) -> None:
            for index in done:
                left[index] -= 1
                self._bytes += scans[index].size_bytes // parts[index]
                if left[index] == 0:
                    self._fragments.add(scans[index].fragment_id)
            self._tell()

        return add

    def _tell(self) -> None:
        if self._on_progress is None:
            return
        try:
            self._on_progress(len(self._fragments), self._bytes)
        except Exception:
            # Spark's scheduler waits for this thread: a broken display must not stop the run.
            self._on_progress = None
