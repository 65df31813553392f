"""What a run tells while it goes on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from lancestat.knn.stages import StageProgress
from lancestat.run.result import NodeResult


@dataclass(frozen=True, slots=True)
class TableProgress:
    """How much of a table there is to read."""

    node: str
    fragments: int
    size_bytes: int


class Progress(Protocol):
    """Receives progress; calls may come from several threads."""

    def started(self, tables: Sequence[TableProgress], joins: Sequence[str]) -> None:
        """Tables are about to be read, and joins to be run."""
        ...

    def advanced(self, node: str, fragments_done: int, bytes_done: int) -> None:
        """Totals read so far of one table."""
        ...

    def joined(self, node: str, stage: StageProgress) -> None:
        """How far a join is."""
        ...

    def finished(self, result: NodeResult) -> None:
        """A node ended, well or not."""
        ...


class Silent:
    """Progress that nobody looks at."""

    def started(self, tables: Sequence[TableProgress], joins: Sequence[str]) -> None:
        """Say nothing."""

    def advanced(self, node: str, fragments_done: int, bytes_done: int) -> None:
        """Say nothing."""

    def joined(self, node: str, stage: StageProgress) -> None:
        """Say nothing."""

    def finished(self, result: NodeResult) -> None:
        """Say nothing."""
