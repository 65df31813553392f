"""One history: steps drawn from a seed, and the checks of every reader after each of them."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import lance
import pytest

from lancestat.joins.search.work import JoinWork
from lancestat.joins.spark.engine import SparkJoin
from lancestat.runs.actions import OnStage
from lancestat.spec.catalog import UriOptions
from lancestat.state.partials import MOST_GROUPS
from lancestat.tables import coverage
from tests.histories.readers import Finding, Readers
from tests.histories.rows import lance_rows
from tests.histories.statistics import check_mended, check_statistics
from tests.histories.world import STEPS, HistoryWorld, draw_step
from tests.interpreted import INTERPRETED
from tests.runs.local import scan_locally

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LONGEST = 14
SETTINGS = {**INTERPRETED, "spark.sql.adaptive.enabled": "false"}
# Errors by which Lance refuses a step, such as an index over no rows.
REFUSED = (OSError, ValueError, RuntimeError, KeyError)

# A step and the seed of its random choices.
Drawn = tuple[str, int]


@dataclass
class Counts:
    """Counts of reads, refusals and steps."""

    histories: int = 0
    steps: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    reads: int = 0
    refusals: int = 0
    checks: int = 0
    joins: int = 0


@dataclass(frozen=True, slots=True)
class Outcome:
    """The steps of a history up to the first finding, if there is one."""

    steps: tuple[Drawn, ...]
    findings: tuple[Finding, ...]


def draw_history(seed: int) -> tuple[Drawn, ...]:
    """The steps of a history; the same seed draws the same ones."""
    random = Random(seed)
    count = random.randrange(4, LONGEST + 1)
    drawn = [(draw_step(random), random.randrange(2**32)) for _ in range(count)]
    return (("create", random.randrange(2**32)), *drawn)


def run_history(
    spark: SparkSession,
    steps: Sequence[Drawn],
    counts: Counts,
    *,
    with_join: bool = False,
    remote: SparkSession | None = None,
) -> Outcome:
    """Go through steps in a folder of their own, and stop at the first finding.

    Args:
        spark: Reads the table.
        steps: From `draw_history`.
        counts: To add to.
        with_join: Whether the table is joined with itself in the end.
        remote: A session of Spark Connect, in which tables are analyzed and joined.
    """
    folder = Path(tempfile.mkdtemp(prefix="lancestat-history-"))
    world = HistoryWorld(folder, session=remote)
    readers = Readers(spark, world)
    counts.histories += 1
    try:
        # Tables are small: half of the histories have groups of more than one fragment.
        with ExitStack() as stack:
            if remote is None:
                stack.enter_context(_engine(spark, folder))
            patch = stack.enter_context(pytest.MonkeyPatch.context())
            patch.setattr(coverage, "MOST_GROUPS", 2 if steps[0][1] % 2 else MOST_GROUPS)
            for place, (name, seed) in enumerate(steps):
                is_last = place == len(steps) - 1
                findings = _step(world, readers, counts, name, seed, is_last)
                if is_last and with_join and not findings:
                    counts.joins += 1
                    findings = _joined(world)
                if findings:
                    return Outcome(tuple(steps[: place + 1]), tuple(findings))
        return Outcome(tuple(steps), ())
    finally:
        counts.reads += readers.reads
        counts.refusals += readers.refusals
        shutil.rmtree(folder, ignore_errors=True)


def _step(
    world: HistoryWorld, readers: Readers, counts: Counts, name: str, seed: int, is_last: bool
) -> list[Finding]:
    random = Random(seed)
    counts.steps[name] += 1
    if name == "create":
        world.create(random)
    else:
        try:
            STEPS[name][0](world, random)
        except REFUSED as error:
            counts.refused[f"{name}: {str(error).splitlines()[0][:160]}"] += 1
    failed = [result for result in world.results if result.status != "success"]
    if failed:
        return [Finding(f"a run of '{failed[0].node}'", f"{failed[0].status}: {failed[0].message}")]
    counts.checks += 1
    findings = [*check_statistics(world), *readers.make(random)]
    if name == "run":
        findings += check_mended(world)
    if findings or not (is_last or random.random() < 0.35):
        return findings
    findings = readers.ask(random, 8 if is_last else 3)
    # `lancestat sql` would take the session of Spark Connect, and refuse it.
    with_sql = is_last and world.session is None
    return findings + readers.ask_sql(random) if with_sql else findings


def _joined(world: HistoryWorld) -> list[Finding]:
    """A join of the table with itself finds every row itself, at no distance."""
    world.run("near")
    result = world.results[-1]
    if result.status != "success":
        return [Finding("a join of the table with itself", f"{result.status}: {result.message}")]
    rows = lance_rows(world.uri, world.dataset.version)
    pairs = lance.dataset(str(world.folder / "near.lance")).to_table().to_pydict()
    expected = sorted(rows["id"].to_pylist())
    neighbours = (sorted(pairs["id"]), sorted(pairs["id_right"]), set(pairs["_distance"]) <= {0.0})
    if neighbours == (expected, expected, True):
        return []
    return [
        Finding("a join of the table with itself", f"it gives {neighbours}, for rows {expected}")
    ]


@contextmanager
def _engine(spark: SparkSession, folder: Path) -> Iterator[None]:
    """Runs read fragments in this process, and join on the Spark that there is."""

    def open_join(work: JoinWork, on_stage: OnStage) -> AbstractContextManager[SparkJoin]:
        from lancestat.joins.spark.engine import Engine

        return Engine(spark, str(folder / "scratch"), "history", UriOptions({}), on_stage).open(
            work
        )

    with pytest.MonkeyPatch.context() as patch:
        scan_locally(patch, lambda node: None, open_join)
        yield


def shrink(
    spark: SparkSession,
    steps: Sequence[Drawn],
    *,
    with_join: bool,
    remote: SparkSession | None = None,
) -> Outcome:
    """Return a shorter history that also fails: steps are left out one after the other."""

    def tried(some: Sequence[Drawn]) -> Outcome:
        return run_history(spark, some, Counts(), with_join=with_join, remote=remote)

    best = tried(steps)
    place = len(best.steps) - 2
    while best.findings and place > 0:
        shorter = tried([*best.steps[:place], *best.steps[place + 1 :]])
        if shorter.findings:
            best = shorter
        place = min(place, len(best.steps) - 1) - 1
    return best
