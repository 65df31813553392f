"""What every task of a join does around its work."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from lancestat.errors import LancestatError, RunError
from lancestat.lake.clean import clean, secret_values
from lancestat.lake.open import is_failure
from lancestat.spark.scan_task import prepare_worker
from lancestat.spark.worker_error import MORE_MEMORY, WorkerError

# What tasks do, as errors call it.
SEARCHING = "searching for neighbours"
WRITING = "writing the result"


@contextmanager
def working(threads: int, storage_options: Mapping[str, str], doing: str) -> Iterator[None]:
    """Around what a task does: a worker made ready, and errors that cross to the driver.

    `doing` is what fails when something fails that has no error of its own.
    """
    prepare_worker(threads, "lancestat.spark.knn.materialize")
    try:
        yield
    except WorkerError:
        # Of an earlier stage in the same task.
        raise
    except LancestatError as error:
        raise WorkerError.carrying(error) from None
    except BaseException as error:
        if not is_failure(error):
            raise
        reason = clean(f"{type(error).__name__}: {error}", secret_values(storage_options))
        hint = MORE_MEMORY if isinstance(error, MemoryError) else None
        failed = RunError("LS553", f"{doing} failed: {reason}", hint=hint)
        raise WorkerError.carrying(failed) from error
