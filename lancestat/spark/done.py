"""Tells the driver which slices are read, as tasks end."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyspark.accumulators import AccumulatorParam

from lancestat.plan.actions import Scan

# Fragments and bytes of one table read so far; called from a thread of Spark's.
OnProgress = Callable[[int, int], None]


class Done(AccumulatorParam[list[int]]):  # type: ignore[misc]
    """Accumulates the indices of scans of which a slice was read.

    Spark applies a task's updates once, when the task succeeds, whatever retries it took. On the
    driver `listener` receives them at that moment; it does not travel to the workers.
    """

    def __init__(self, listener: Callable[[Sequence[int]], None] | None = None) -> None:
        self.listener = listener

    def __reduce__(self) -> tuple[type[Done], tuple[()]]:
        return Done, ()

    def zero(self, value: list[int]) -> list[int]:
        """Nothing read."""
        return []

    def addInPlace(self, value1: list[int], value2: list[int]) -> list[int]:  # noqa: N802
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
