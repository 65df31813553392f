"""Lets a process scan and join by itself, where `lancestat` would start Spark."""

from __future__ import annotations

import lance
import pyarrow as pa
import pytest

from lancestat.errors import JobFailed
from lancestat.joins.scratch.folder import scratch
from lancestat.joins.search.work import JoinOutcome, JoinWork
from lancestat.runs.stages import OnStage
from tests.joins.joined import joined, opened, rows_of
from tests.runs.local import scan_locally

# Where joins of this process put a copy of their left side, as Spark's do with files.
SCRATCH = "LANCESTAT_TEST_SCRATCH"


def arm() -> None:
    """For the rest of the process."""
    scan_locally(pytest.MonkeyPatch(), lambda node: None, opened(join))


def join(work: JoinWork, on_stage: OnStage) -> JoinOutcome:
    """Join in this process, with the left rows in scratch meanwhile."""
    import os

    try:
        rows: pa.Table = rows_of(work.left, None)
        with scratch(os.environ[SCRATCH], f"local-{os.getpid()}") as place:
            lance.write_dataset(rows, f"{place.uri}/left.lance")
            return joined(work)
    except (OSError, ValueError, RuntimeError) as error:
        # Jobs of Spark report errors of Lance in a task like this.
        raise JobFailed(f"joining '{work.node}' failed: {error}") from None
