"""A state of its own for a test."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from datetime import datetime, timezone

from lancestat.state.store import RETENTION, LanceState
from lancestat.state.stored_table import StateFolder


class FreshState(LanceState):
    """An empty state in a folder that goes with it."""

    def __init__(self) -> None:
        folder = tempfile.mkdtemp(prefix="lancestat-test-state-")
        super().__init__(StateFolder(folder), RETENTION, lambda: datetime.now(timezone.utc))
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
