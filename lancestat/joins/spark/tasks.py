"""Tasks of joins: the division of pairs among them, errors that leave them, and their progress."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from math import sqrt

from lancestat.errors import JobFailed, LancestatError
from lancestat.joins.action import JoinStage, Probe
from lancestat.joins.search.cost_model import BLOCK_FLOPS, READ_BYTES
from lancestat.joins.search.work import Rows
from lancestat.lake.error_mapping import is_error_or_panic
from lancestat.redact import redact_line, secret_values
from lancestat.runs.stages import OnStage, StageProgress
from lancestat.spark.failure import MORE_MEMORY, WorkerError
from lancestat.spark.python import prepare_worker

# Left vectors and the neighbours found for them, which a task holds at once.
CHUNK_BYTES = 64 << 20
# Fewer queries than this make poor use of what is read of the right side.
SMALLEST_CHUNK = 512
# The cost of merging: another stage of tasks, or the driver's time.
SHUFFLE_SECONDS, DRIVER_SECONDS = 0.15, 0.02
# Neighbours that the driver merges and fetches itself.
DRIVER_LINES = 4096
# A left row's neighbours are held as position and distance, and once more while they are merged.
NEIGHBOUR_BYTES = 2 * (8 + 4)


@dataclass(frozen=True, slots=True)
class Grid:
    """Every chunk of left rows meets every part of the right side; the chunks are in row order.

    With one part there is nothing to merge, and no shuffle; `merges_on_driver` goes with one chunk
    that has few neighbours.
    """

    chunks: tuple[Rows, ...]
    parts: int
    merges_on_driver: bool = False

    def without_parts(self, cores: int) -> Grid:
        """Return a grid of the same left rows and the whole right side, with a chunk per core."""
        if self.parts == 1:
            return self
        rows = Rows(self.chunks[0].start, self.chunks[-1].stop)
        return Grid(tuple(cut(rows, max(1, min(cores, len(rows))))), 1)


def grid(left: Rows, right_rows: int, *, dimension: int, k: int, cores: int) -> Grid:
    """Choose cells that keep all cores busy, within the memory of a task for the left side.

    With at least `SMALLEST_CHUNK` left rows for each core every task streams the whole right side;
    with fewer the right side is split, and the neighbours are merged, unless one task is through
    before that would be worth it.
    """
    row_bytes = 4 * dimension + NEIGHBOUR_BYTES * min(k, max(1, right_rows))
    largest = max(1, CHUNK_BYTES // row_bytes)
    fewest = -(-len(left) // largest)
    for_all_cores = min(cores, len(left) // SMALLEST_CHUNK)
    # Whole rounds: no core waits for the last chunks.
    count = max(fewest, for_all_cores) if fewest <= 1 else -(-fewest // cores) * cores
    count = max(1, min(count, len(left)))
    parts = max(1, min(1 if count >= cores else -(-cores // count), right_rows))
    is_small = count == 1 and len(left) * min(k, right_rows) <= DRIVER_LINES
    merging = DRIVER_SECONDS if is_small else SHUFFLE_SECONDS
    if _seconds(len(left), right_rows, dimension) * (1 - 1 / parts) < merging:
        parts = 1
    return Grid(tuple(cut(left, count)), parts, is_small and parts > 1)


def list_grid(
    left: Rows, right_rows: int, shares: Grid, *, dimension: int, k: int, cores: int
) -> Grid:
    """Choose cells for a right side in lists, each of which some left row of any chunk visits.

    Every chunk reads the lists again. So where memory allows fewer chunks than cores, and what that
    spares of reading is worth merging, the lists are split instead.

    Args:
        left: The left rows.
        right_rows: The rows in lists.
        shares: What is chosen for other strategies.
        dimension: Of the vectors.
        k: The number of neighbours.
        cores: The number of tasks that run at once.
    """
    row_bytes = 4 * dimension + NEIGHBOUR_BYTES * min(k, max(1, right_rows))
    fewest = max(1, -(-len(left) // max(1, CHUNK_BYTES // row_bytes)))
    if fewest >= min(cores, len(shares.chunks)) or shares.parts > 1:
        return shares
    again = (len(shares.chunks) - fewest) * 4 * dimension * right_rows / READ_BYTES
    if again / cores < SHUFFLE_SECONDS:
        return shares
    return Grid(tuple(cut(left, fewest)), -(-cores // fewest))


def _seconds(left_rows: int, right_rows: int, dimension: int) -> float:
    """Estimate the seconds that one core needs to read the right side and compare it."""
    elements = right_rows * dimension
    return 2 * left_rows * elements / BLOCK_FLOPS + 4 * elements / READ_BYTES


def cut(rows: Rows, count: int) -> Sequence[Rows]:
    """Split `rows` into `count` ranges of nearly equal length, in order."""
    edges = [rows.start + len(rows) * number // count for number in range(count + 1)]
    return [Rows(start, stop) for start, stop in pairwise(edges)]


def cut_by_pairs(rows: Rows, count: int) -> Sequence[Rows]:
    """Split `rows` into ranges, in order, with nearly as many pairs of a row and one behind it.

    There are `count` of them, or fewer where rows are few, but one at least.
    """
    ends = (round(len(rows) * (1 - sqrt(1 - number / count))) for number in range(count + 1))
    edges = sorted({rows.start + end for end in ends})
    return [Rows(start, stop) for start, stop in pairwise(edges)] or [rows]


@dataclass(frozen=True, slots=True)
class TaskProgress:
    """Rows and pairs that a task has processed, and the seconds that its pairs took."""

    stage: JoinStage
    rows: int
    pairs: int = 0
    seconds: float = 0.0


class ProgressMeter:
    """Sums the progress of tasks, and passes it on.

    Args:
        on_stage: Called each time that a task ends.
        totals: The number of rows of each stage.
        tasks: The number of tasks that run at once.
    """

    def __init__(self, on_stage: OnStage, totals: Mapping[JoinStage, int], tasks: int) -> None:
        self._on_stage: OnStage | None = on_stage
        self._totals = totals
        self._rows: Counter[JoinStage] = Counter()
        self._tasks = tasks
        self._pairs = 0
        self._seconds = 0.0

    def listen(self, steps: Sequence[TaskProgress]) -> None:
        for step in steps:
            self._rows[step.stage] += step.rows
            self._pairs += step.pairs
            self._seconds += step.seconds
        if self._on_stage is None:
            return
        try:
            for stage in dict.fromkeys(step.stage for step in steps):
                self._on_stage(self._progress(stage))
        except Exception:
            # Spark's scheduler waits for this thread: a broken display must not stop the run.
            self._on_stage = None

    def _progress(self, stage: JoinStage) -> StageProgress:
        rate = None
        if isinstance(stage, Probe) and self._seconds:
            rate = self._pairs * self._tasks / self._seconds
        return StageProgress(stage, self._rows[stage], self._totals.get(stage), rate)


# Descriptions of what tasks do, for errors.
SEARCHING = "searching for neighbours"
WRITING = "writing the result"


@contextmanager
def worker_task(threads: int, storage_options: Mapping[str, str], doing: str) -> Iterator[None]:
    """Prepare the worker for a task, and make errors of the block ones that reach the driver.

    `doing` describes the task in errors that are not LancestatErrors.
    """
    prepare_worker(threads, "lancestat.joins.spark.materialize")
    try:
        yield
    except WorkerError:
        # It comes from an earlier stage in the same task.
        raise
    except LancestatError as error:
        raise WorkerError.carrying(error) from None
    except BaseException as error:
        if not is_error_or_panic(error):
            raise
        reason = redact_line(f"{type(error).__name__}: {error}", secret_values(storage_options))
        hint = MORE_MEMORY if isinstance(error, MemoryError) else None
        failed = JobFailed(f"{doing} failed: {reason}", hint=hint)
        raise WorkerError.carrying(failed) from error
