"""A table of a project that changes at random, and the histories of its changes."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import lance
import pyarrow as pa
import pytest

from lancestat import Project
from lancestat.joins.search.work import JoinWork
from lancestat.joins.spark.engine import SparkJoin
from lancestat.runs.actions import OnStage
from lancestat.runs.result import NodeResult
from lancestat.spec.catalog import UriOptions
from tests.histories.readers import Finding, Readers
from tests.histories.rows import SCHEMA, conformed, lance_rows, make_rows
from tests.histories.statistics import check_mended, check_statistics
from tests.interpreted import INTERPRETED
from tests.runs.world import few_groups, scan_locally
from tests.tables.alterations import alter_entries

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_POLICIES = (
    "false",
    "true",
    "{max_versions: 2}",
    "{max_changed_rows: 10%}",
    "{max_changed_rows: 40%, max_versions: 9}",
    "{max_age: 1h}",
)
_ROWS_PER_FILE = 20


@dataclass
class HistoryWorld:
    """A project over the table `t`, whose declaration some steps change, and a table `r` to join.

    `epoch` counts how often another dataset took the table's place; `cleaned` how often versions
    were removed.
    """

    folder: Path
    epoch: int = 0
    cleaned: int = 0
    columns_made: int = 0
    # Versions in which published entries were altered, since the table took its place.
    altered: list[int] = field(default_factory=list)
    results: list[NodeResult] = field(default_factory=list)
    # What runs are given to run in.
    session: SparkSession | None = None

    @property
    def uri(self) -> str:
        """The table."""
        return str(self.folder / "t.lance")

    @property
    def dataset(self) -> lance.LanceDataset:
        """The table as it is now."""
        return lance.dataset(self.uri)

    def create(self, random: Random) -> None:
        """The project and its first rows."""
        (self.folder / "specs").mkdir(parents=True)
        (self.folder / "lancestat_project.yml").write_text(
            "name: history\n"
            "default_target: dev\n"
            "targets:\n"
            "  dev:\n"
            "    state: state\n"
            "    scratch: scratch\n"
            '    spark: {master: "local[2]", min_bytes: 0}\n'
        )
        self.declare("true", "manifest", "always", histogram=False)
        write(self.uri, make_rows(random, random.randrange(1, 90)))

    def declare(self, stale: str, publish: str, refresh: str, *, histogram: bool) -> None:
        """Write the project's YAML."""
        (self.folder / "specs" / "t.yml").write_text(
            "tables:\n"
            "  - name: t\n"
            "    uri: t.lance\n"
            f"    publish: {publish}\n"
            f"    histogram: {str(histogram).lower()}\n"
            f"    policy: {{allow.stale: {stale}, refresh: {refresh}}}\n"
            "knn_joins:\n"
            "  - name: near\n"
            "    left: {table: t, vector: v, select: [id]}\n"
            "    right: {table: t, vector: v, select: [id]}\n"
            "    k: 1\n"
            "    min_right_rows: 0\n"
            "    output: {lance: near.lance}\n"
        )

    @property
    def project(self) -> Project:
        """Return the project of the current declarations."""
        return Project.load(self.folder)

    def run(self, *nodes: str, full_refresh: bool = False) -> None:
        """Run nodes of the project; how they ended is kept."""
        project = self.project
        plan = project.plan(list(nodes), full_refresh=full_refresh)
        self.results += project.run(plan, session=self.session).nodes

    def replace(self, place: Path) -> None:
        """Move another dataset to the table's place."""
        shutil.rmtree(self.uri, ignore_errors=True)
        place.rename(self.uri)
        self.took_place()

    def took_place(self) -> None:
        """Note that another dataset has taken the table's place."""
        self.epoch += 1
        self.altered.clear()


def write(uri: str, rows: pa.Table, mode: str = "create") -> None:
    """Write rows in several fragments."""
    lance.write_dataset(rows, uri, mode=mode, max_rows_per_file=_ROWS_PER_FILE)


Step = Callable[[HistoryWorld, Random], None]


def _append(world: HistoryWorld, random: Random) -> None:
    rows = make_rows(random, random.randrange(1, 30))
    write(world.uri, conformed(rows, world.dataset.schema, random), "append")


def _append_few(world: HistoryWorld, random: Random) -> None:
    rows = make_rows(random, 1)
    write(world.uri, conformed(rows, world.dataset.schema, random), "append")


def _overwrite(world: HistoryWorld, random: Random) -> None:
    # Lance gives all fields new ids: to readers of statistics, every column is another.
    write(world.uri, make_rows(random, random.randrange(1, 60)), "overwrite")


def _delete(world: HistoryWorld, random: Random) -> None:
    low = random.randrange(400)
    world.dataset.delete(f"id >= {low} and id < {low + random.choice((1, 5, 40))}")


def _update(world: HistoryWorld, random: Random) -> None:
    low = random.randrange(400)
    column, value = random.choice((("s", "'changed'"), ("x", "1000.5"), ("k", "99")))
    if column in world.dataset.schema.names:
        world.dataset.update({column: value}, where=f"id >= {low} and id < {low + 9}")


def _merge_insert(world: HistoryWorld, random: Random) -> None:
    rows = conformed(make_rows(random, random.randrange(1, 20)), world.dataset.schema, random)
    merge = world.dataset.merge_insert("id")
    merge.when_matched_update_all().when_not_matched_insert_all().execute(rows)


def _compact(world: HistoryWorld, random: Random) -> None:
    world.dataset.optimize.compact_files(target_rows_per_fragment=random.choice((30, 1000)))


def _index(world: HistoryWorld, random: Random) -> None:
    names = [name for name in world.dataset.schema.names if name in SCHEMA.names and name != "v"]
    kind = random.choice(("ZONEMAP", "ZONEMAP", "BTREE", "BITMAP"))
    world.dataset.create_scalar_index(random.choice(names), kind, replace=True)


def _optimize_indices(world: HistoryWorld, random: Random) -> None:
    world.dataset.optimize.optimize_indices()


def _drop_index(world: HistoryWorld, random: Random) -> None:
    names = [index.name for index in world.dataset.describe_indices()]
    if names:
        world.dataset.drop_index(random.choice(names))


def _add_column(world: HistoryWorld, random: Random) -> None:
    world.columns_made += 1
    value = random.choice(("id * 2", "7", "cast(null as int)"))
    world.dataset.add_columns({f"extra{world.columns_made}": value})


def _movable(world: HistoryWorld) -> list[str]:
    return [name for name in world.dataset.schema.names if name not in ("id", "v")]


def _drop_column(world: HistoryWorld, random: Random) -> None:
    names = _movable(world)
    if names:
        world.dataset.drop_columns([random.choice(names)])


def _rename(world: HistoryWorld, random: Random) -> None:
    names = _movable(world)
    if names:
        world.columns_made += 1
        new = f"renamed{world.columns_made}"
        world.dataset.alter_columns({"path": random.choice(names), "name": new})


def _alter_type(world: HistoryWorld, random: Random) -> None:
    fields = [
        column
        for column in world.dataset.schema
        if pa.types.is_int32(column.type) and column.name != "v"
    ]
    if fields:
        chosen = random.choice(fields).name
        for index in world.dataset.describe_indices():
            if chosen in index.field_names:
                world.dataset.drop_index(index.name)
        world.dataset.alter_columns({"path": chosen, "data_type": pa.int64()})


def _readd_column(world: HistoryWorld, random: Random) -> None:
    names = [name for name in _movable(world) if name in ("k", "x")]
    if names:
        name = random.choice(names)
        type = {"k": "int", "x": "double"}[name]
        world.dataset.drop_columns([name])
        world.dataset.add_columns({name: f"cast(id + {random.randrange(10**6)} as {type})"})


def _swap_columns(world: HistoryWorld, random: Random) -> None:
    names = world.dataset.schema.names
    if {"k", "x"} <= set(names):
        # drop x, rename k to x, add k.
        world.dataset.drop_columns(["x"])
        world.dataset.alter_columns({"path": "k", "name": "x"})
        world.dataset.add_columns({"k": f"cast(id + {random.randrange(1000)} as int)"})


def _tag(world: HistoryWorld, random: Random) -> None:
    name, version = random.choice("ab"), random.randrange(1, world.dataset.version + 1)
    tags = world.dataset.tags
    known = {version["version"] for version in world.dataset.versions()}
    if version in known:
        (tags.update if name in tags.list() else tags.create)(name, version)


def _branch(world: HistoryWorld, random: Random) -> None:
    world.columns_made += 1
    branch = world.dataset.create_branch(f"branch{world.columns_made}")
    rows = conformed(make_rows(random, 5), branch.schema, random)
    lance.write_dataset(rows, branch, mode="append")


def _clone(world: HistoryWorld, random: Random) -> None:
    """Make a shallow clone and change it, which must not affect readers of `t`."""
    world.columns_made += 1
    place = str(world.folder / f"clone{world.columns_made}.lance")
    world.dataset.shallow_clone(place, world.dataset.version)
    write(place, conformed(make_rows(random, 4), world.dataset.schema, random), "append")


def _restore(world: HistoryWorld, random: Random) -> None:
    versions = [version["version"] for version in world.dataset.versions()]
    lance.dataset(world.uri, version=random.choice(versions)).restore()


def _alter_entries(world: HistoryWorld, random: Random) -> None:
    if alter_entries(world.dataset, random):
        world.altered.append(world.dataset.version)


def _restore_altered(world: HistoryWorld, random: Random) -> None:
    """Bring altered entries back, which a run may have mended meanwhile."""
    known = {version["version"] for version in world.dataset.versions()}
    versions = [version for version in world.altered if version in known]
    if versions:
        lance.dataset(world.uri, version=random.choice(versions)).restore()
        world.altered.append(world.dataset.version)


def _deep_clone(world: HistoryWorld, random: Random) -> None:
    """Put a deep clone in the table's place."""
    place = world.folder / "deep.lance"
    world.dataset.deep_clone(str(place), world.dataset.version)
    write(str(place), conformed(make_rows(random, 4), world.dataset.schema, random), "append")
    world.replace(place)


def _shallow_clone(world: HistoryWorld, random: Random) -> None:
    """Put a shallow clone in the table's place, which goes elsewhere and keeps its files."""
    world.columns_made += 1
    base = world.folder / f"base{world.columns_made}.lance"
    Path(world.uri).rename(base)
    dataset = lance.dataset(str(base))
    dataset.shallow_clone(world.uri, dataset.version)
    world.took_place()
    if random.random() < 0.5:
        write(world.uri, conformed(make_rows(random, 4), dataset.schema, random), "append")


def _swap(world: HistoryWorld, random: Random) -> None:
    """Swap the table with a copy of it that has gone its own way, by renaming their folders."""
    other, aside = world.folder / "other.lance", world.folder / "aside.lance"
    if not other.exists():
        shutil.copytree(world.uri, other)
        copy = lance.dataset(str(other))
        write(str(other), conformed(make_rows(random, 4), copy.schema, random), "append")
        if random.random() < 0.5:
            alter_entries(lance.dataset(str(other)), random)
        return
    Path(world.uri).rename(aside)
    other.rename(world.uri)
    aside.rename(other)
    world.took_place()


def _clean_up(world: HistoryWorld, random: Random) -> None:
    world.dataset.cleanup_old_versions(older_than=timedelta(0), error_if_tagged_old_versions=False)
    world.cleaned += 1


def _configure(world: HistoryWorld, random: Random) -> None:
    world.dataset.update_config({"owner": str(random.randrange(9))})


def _run(world: HistoryWorld, random: Random) -> None:
    world.run("t", full_refresh=random.random() < 0.1)


def _declare(world: HistoryWorld, random: Random) -> None:
    world.declare(
        random.choice(_POLICIES),
        random.choice(("manifest", "manifest", "none")),
        random.choice(("always", "when_stale")),
        histogram=random.random() < 0.3,
    )


def _lose_state(world: HistoryWorld, random: Random) -> None:
    shutil.rmtree(world.folder / "state", ignore_errors=True)


def _back_up(world: HistoryWorld, random: Random) -> None:
    place = world.folder / "backup.lance"
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(world.uri, place)


def _restore_backup(world: HistoryWorld, random: Random) -> None:
    place = world.folder / "backup.lance"
    if place.exists():
        shutil.rmtree(world.uri)
        shutil.copytree(place, world.uri)
        world.took_place()


def _recreate(world: HistoryWorld, random: Random) -> None:
    """Recreate the table, half of the time up to the version that it had."""
    version = world.dataset.version
    shutil.rmtree(world.uri)
    write(world.uri, make_rows(random, random.randrange(1, 90)))
    world.took_place()
    if random.random() < 0.5:
        while world.dataset.version < version:
            write(world.uri, make_rows(random, 3), "append")


# Steps and their weights.
STEPS: dict[str, tuple[Step, int]] = {
    "append": (_append, 8),
    "append a row": (_append_few, 5),
    "overwrite": (_overwrite, 1),
    "delete": (_delete, 6),
    "update": (_update, 5),
    "merge-insert": (_merge_insert, 4),
    "compact": (_compact, 5),
    "index": (_index, 6),
    "optimize indices": (_optimize_indices, 2),
    "drop index": (_drop_index, 1),
    "add column": (_add_column, 2),
    "drop column": (_drop_column, 2),
    "rename column": (_rename, 2),
    "alter type": (_alter_type, 2),
    "re-add column": (_readd_column, 3),
    "swap columns": (_swap_columns, 2),
    "tag": (_tag, 2),
    "branch": (_branch, 2),
    "clone": (_clone, 2),
    "restore": (_restore, 4),
    "clean up": (_clean_up, 1),
    "configure": (_configure, 1),
    "run": (_run, 14),
    "declare": (_declare, 5),
    "lose state": (_lose_state, 2),
    "back up": (_back_up, 3),
    "restore backup": (_restore_backup, 4),
    "recreate": (_recreate, 4),
    "alter entries": (_alter_entries, 9),
    "restore altered entries": (_restore_altered, 5),
    "take a deep clone": (_deep_clone, 2),
    "take a shallow clone": (_shallow_clone, 2),
    "swap with a copy": (_swap, 4),
}


def draw_step(random: Random) -> str:
    """The name of a step."""
    return random.choices(list(STEPS), [weight for _, weight in STEPS.values()])[0]


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
            if steps[0][1] % 2:
                stack.enter_context(few_groups(2))
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
        scan_locally(patch, open_join=open_join)
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
