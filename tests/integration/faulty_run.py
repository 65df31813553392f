"""The command line, with faults in its workers and around its commit.

python -m tests.integration.faulty_run FOLDER STRATEGY run ...
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lancestat.cli.main import main
from lancestat.joins import planner as join_planner
from lancestat.joins.output.lance_output import LanceOutput
from lancestat.joins.scratch.kept_indexes import IndexManifest, IndexStore, StoredIndex
from lancestat.joins.scratch.kept_neighbours import NeighbourStore
from lancestat.joins.search.cost_model import Decision, Strategy
from lancestat.joins.spark import cells, engine, sides
from tests.integration.faulty_daemon import strike, striking

Set = Callable[[Any, str, Any], None]


def force(strategy: str, set: Set = setattr) -> None:
    """Force a strategy of joins.

    Small files too are read by tasks and written to scratch; small joins are split and shuffled.
    """

    def choose(_: object, size: Any, __: object) -> Decision:
        return Decision(Strategy(strategy), "asked for", lists=3, kept=size.kept)

    set(sides, "SMALLEST_JOB", -1)
    set(cells, "DRIVER_LINES", -1)
    set(cells, "SHUFFLE_SECONDS", 0)
    set(engine, "read_in_place", lambda *_: None)
    set(join_planner, "choose", choose)


def arm(folder: Path, strategy: str, set: Set = setattr) -> None:
    """Force a strategy of joins, and pause before and after their commit on request."""
    replace = striking(folder, "committed", LanceOutput.replace)

    def paused(*arguments: Any) -> Any:
        strike(folder, "commit")
        return replace(*arguments)

    set(LanceOutput, "replace", paused)
    change = striking(folder, "committed", LanceOutput.update)

    def paused_update(*arguments: Any) -> Any:
        strike(folder, "commit")
        return change(*arguments)

    set(LanceOutput, "update", paused_update)
    finish = NeighbourStore.finish

    def kept(self: NeighbourStore, *arguments: Any) -> None:
        strike(folder, "keep")
        finish(self, *arguments)

    set(NeighbourStore, "finish", kept)
    force(strategy, set)
    update = IndexStore.update

    def published(self: IndexStore, kept: StoredIndex, manifest: IndexManifest) -> StoredIndex:
        strike(folder, "publish")
        done = update(self, kept, manifest)
        strike(folder, "published")
        return done

    set(IndexStore, "update", published)


if __name__ == "__main__":
    folder, strategy, *sys.argv[1:] = sys.argv[1:]
    arm(Path(folder), strategy)
    main()
