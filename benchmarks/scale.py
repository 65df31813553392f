"""Tables of many fragments: what runs cost, and what the driver and the state hold.

    python benchmarks/scale.py [--tiny] [PART ...]

runs    A first run over 4,000 fragments of 250 rows and 30 columns, another after 1,000 more were
        appended, and one after a row of one fragment was deleted, on a Spark that is warm.
cluster The first of these runs on `local-cluster` with 1, 2 and 4 workers of one core.
plan    The planner over a table that exists as values only, at growing numbers of fragments. Each
        case runs in a process of its own, so that its peak memory is its own.
driver  What the driver does beside the scan: it stores the partials of a first run over 100,000
        fragments of 20 columns, with and without a `state_budget`, merges them and sums them up by
        groups; and the same after 1,000 more fragments. The state is on disk, the table exists as
        values only, and tasks are played by a few partials of real columns.
wide    The same of 200 columns, with a `state_budget`.
state   The bytes of partials of real columns, and the time to encode, decode and merge them; what
        that makes for the whole table is multiplied, not measured.

Times of `plan`, `driver` and `state` are those of the processor.
"""

from __future__ import annotations

import struct
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from measure import Case, Measures, Part, peak_megabytes, run, run_case
from plan_huge import background, index_of, published, table_of

if TYPE_CHECKING:
    import pyarrow as pa

    from lancestat.lake.history import Effect
    from lancestat.lake.snapshot import Snapshot
    from lancestat.state.store import LanceState
    from lancestat.tables.action import ReadFragments, Scan, TableVersion
    from lancestat.tables.analyze import Scanned, ScanPartials
    from lancestat.tables.statistics.partial import ColumnPartial

T = TypeVar("T")
DRIVEN = {False: (100_000, 1_000), True: (1_100, 60)}
# Partials of a type of columns by which others are played.
PLAYED = {False: 200, True: 10}
DRIVEN_COLUMNS, WIDE_COLUMNS = {False: 20, True: 4}, {False: 200, True: 8}
# Where an encoded partial of 10,000 rows has their number: behind the form, the number of parts,
# and the tag and length of this one.
ROWS_AT = 7
# At first, and appended.
SMALL_FRAGMENTS = {False: (4_000, 1_000), True: (20, 10)}
ROWS_EACH = 250
WORKERS = {False: (1, 2, 4), True: (1,)}
FRAGMENTS = {False: (10_000, 100_000, 1_000_000), True: (50, 100, 200)}
COLUMNS = {False: 1_000, True: 8}
ROWS = {False: 100_000, True: 100}


def timed(action: Callable[[], T]) -> tuple[float, T]:
    """Seconds of the processor, which one thread uses, and the result."""
    began = time.process_time()
    result = action()
    return time.process_time() - began, result


def runs(folder: Path, tiny: bool) -> Iterator[tuple[str, float]]:
    """Runs over a table that is on disk."""
    yield from run_case("runs", folder, tiny).items()


def cluster(folder: Path, tiny: bool) -> Iterator[tuple[str, float]]:
    """A first run on clusters of workers with one core each."""
    for workers in WORKERS[tiny]:
        place = folder / str(workers)
        place.mkdir()
        for name, value in run_case(f"{workers} workers", place, tiny).items():
            yield f"{workers} workers, {name}", value


def small_fragments(workers: int | None, folder: Path, tiny: bool) -> Measures:
    """Write a table, run lancestat over it, change it, and run again; on workers only once."""
    import lance

    from lancestat import Project

    fragments, more = SMALL_FRAGMENTS[tiny]
    uri = str(folder / "t.lance")
    lance.write_dataset(columns_of(fragments * ROWS_EACH, 0), uri, max_rows_per_file=ROWS_EACH)
    master = "" if workers is None else f', master: "local-cluster[{workers},1,1024]"'
    (folder / "lancestat_project.yml").write_text(
        f"name: small\ntargets: {{dev: {{spark: {{min_bytes: 0{master}}}}}}}\n"
    )
    (folder / "specs").mkdir()
    declared = "tables: [{name: t, uri: t.lance}, {name: warm, uri: warm.lance}]\n"
    (folder / "specs/t.yml").write_text(declared)
    lance.write_dataset(columns_of(40 * ROWS_EACH, 0), str(folder / "warm.lance"))
    project = Project.load(folder)
    measures: dict[str, float] = {}

    def measured(what: str) -> None:
        began, processor = time.perf_counter(), time.process_time()
        result = project.run(select="t")
        assert result.status == "success", result
        measures[f"{what}, s"] = time.perf_counter() - began
        measures[f"{what}, processor of the driver, s"] = time.process_time() - processor
        measures[f"{what}, fragments read"] = result.nodes[0].fragments_scanned

    # Spark and its workers have started.
    spark = project.spark()
    spark.range(8).count()
    assert project.run(select="warm").status == "success"
    measured("first run")
    if workers is not None:
        spark.stop()
        return measures
    files = (folder / ".lancestat").rglob("*")
    measures["state, MB"] = sum(file.stat().st_size for file in files if file.is_file()) / 1e6
    appended = columns_of(more * ROWS_EACH, fragments * ROWS_EACH)
    lance.write_dataset(appended, uri, mode="append", max_rows_per_file=ROWS_EACH)
    measured("after an append")
    lance.dataset(uri).delete("c0 = 7")
    measured("after a deletion")
    spark.stop()
    return measures


def columns_of(rows: int, first: int) -> pa.Table:
    """Return rows of 30 columns of five kinds, numbered on from `first`."""
    import numpy as np
    import pyarrow as pa

    chosen = np.random.default_rng(first)
    kinds: list[Callable[[int], pa.Array]] = [
        lambda column: pa.array(np.arange(first, first + rows) * 7 + column),
        lambda column: pa.array(chosen.integers(0, 50, rows)),
        lambda column: pa.array(chosen.normal(size=rows)),
        lambda column: pa.array([f"v{number}" for number in chosen.integers(0, 5_000, rows)]),
        lambda column: pa.array(chosen.integers(0, 20_000, rows).astype("i4")).cast(pa.date32()),
    ]
    return pa.table({f"c{column}": kinds[column % 5](column) for column in range(30)})


def plans(folder: Path, tiny: bool) -> Iterator[tuple[str, float]]:
    """The planner at each size."""
    for number, fragments in enumerate(FRAGMENTS[tiny]):
        for what in ("first", "appended"):
            for name, value in run_case(f"{what} {number}", folder, tiny).items():
                yield f"{what} run, {fragments:,} fragments: {name}", value


def plan(number: int, is_first: bool, folder: Path, tiny: bool) -> Measures:
    """Plan a table that is new, or to which a fragment was appended, and cut its first job."""
    from dataclasses import replace

    from lancestat.errors import Location
    from lancestat.lake.history import Effect
    from lancestat.spec.model import Table
    from lancestat.tables.action import TableAction
    from lancestat.tables.judgement import assess
    from lancestat.tables.planner import NOTHING_STORED, decide
    from lancestat.tables.work_items import jobs, split

    now = table_of(FRAGMENTS[tiny][number], COLUMNS[tiny])
    base, index, effects = None, NOTHING_STORED, ()
    if not is_first:
        base = replace(now, version=1, fragments=now.fragments[:-1])
        index, effects = index_of(base), (Effect.APPENDED,)
        now = replace(now, config=published(base))
    table = Table("huge", "huge.lance", Location("specs/huge.yml", 1, 1))
    before = peak_megabytes()
    assess_seconds, assessment = timed(lambda: assess(table, "huge", now, None))
    gather_seconds, changes = timed(lambda: background(now, base, index, *effects))
    decide_seconds, action = timed(lambda: decide(assessment, changes))
    assert isinstance(action, TableAction)
    cut_seconds, cut = timed(lambda: [len(scans) for scans in jobs(action.scans)])
    first_job = action.scans[: cut[0]]
    split_seconds, items = timed(lambda: split(first_job, 1_000))
    assert sum(cut) == (len(now.fragments) if is_first else 1)
    return {
        "plan, s": assess_seconds + gather_seconds + decide_seconds,
        "cut into jobs, s": cut_seconds,
        "jobs": len(cut),
        "cut a job into tasks, s": split_seconds,
        "tasks of a job": len(items),
        "peak MB before, the simulated table itself": before,
        "peak MB": peak_megabytes(),
    }


def drivers(cases: Sequence[str], folder: Path, tiny: bool) -> Iterator[tuple[str, float]]:
    """The driver's part of runs."""
    for case in cases:
        (folder / case).mkdir()
        for name, value in run_case(case, folder / case, tiny).items():
            yield f"{case}, {name}", value


def drive(sizes: Mapping[bool, int], has_budget: bool, folder: Path, tiny: bool) -> Measures:
    """Store, merge and sum up the partials of a first run, and of one after an append."""
    from dataclasses import replace

    from lancestat.lake.history import Effect
    from lancestat.state.store import open_state
    from lancestat.tables.folding import PARTIAL_BYTES

    (fragments, more), columns = DRIVEN[tiny], sizes[tiny]
    now = table_of(fragments + more, columns)
    before = replace(now, version=1, fragments=now.fragments[:fragments])
    # As much as a part of the partials take.
    part = 2 if tiny else 8
    budget = fragments * columns * PARTIAL_BYTES // part if has_budget else None
    pool = encoded_partials(PLAYED[tiny])
    state = open_state(str(folder / "state"))
    first_seconds, _ = timed(lambda: driven(state, before, None, (), budget, pool))
    index = state.partial_index("huge")
    rows = len(index.singles) + len(index.groups)
    each = sum(map(len, chain.from_iterable(pool))) / sum(map(len, pool))
    later = replace(now, config=published(before))
    effects = (Effect.APPENDED,)
    later_seconds, scanned = timed(lambda: driven(state, later, before, effects, budget, pool))
    assert scanned == more
    return {
        f"first run over {fragments:,} fragments, s": first_seconds,
        "partials stored": rows * columns,
        "their size before Lance compresses them, GB": rows * columns * each / 1e9,
        f"after {more:,} more, s": later_seconds,
        "peak MB": peak_megabytes(),
    }


def driven(
    state: LanceState,
    now: Snapshot,
    before: Snapshot | None,
    effects: Sequence[Effect],
    budget: int | None,
    pool: Sequence[Sequence[bytes]],
) -> int:
    """Run the stages of a table but for reading and publishing; return the scans there were."""
    from collections import Counter
    from types import SimpleNamespace
    from typing import Any, cast

    from lancestat.errors import Location
    from lancestat.spec.model import Table
    from lancestat.tables.action import MergePartials, ReadFragments, ReusePartials, TableAction
    from lancestat.tables.folding import fold_to_fit
    from lancestat.tables.judgement import assess
    from lancestat.tables.planner import NOTHING_STORED, decide
    from lancestat.tables.run import TableWorkspace
    from lancestat.tables.summary import store_summary

    assessment = assess(Table("huge", "huge.lance", Location("s.yml", 1, 1)), "huge", now, None)
    index = state.partial_index("huge") if before else NOTHING_STORED
    action = decide(assessment, background(now, before, index, *effects))
    if budget is not None:
        action = fold_to_fit({"huge": action}, budget, None, {})["huge"]
    assert isinstance(action, TableAction)
    context = SimpleNamespace(state=state, stored=Counter(), clock=lambda: now.committed_at)

    class Workspace(TableWorkspace):
        """Does not refuse what is played, which is of other numbers of rows than the table."""

        def partials(self) -> Mapping[tuple[str, ...], ColumnPartial]:
            finished = self._finished()
            return {names: finished[key] for key, names in self.table.needs.items()}

    work = Workspace(cast("Any", context), action, partial(played, pool))
    for stage in action.stages:
        match stage:
            case ReusePartials():
                work.reuse(stage.coverage)
            case ReadFragments():
                work.read(stage)
            case MergePartials():
                work.merge(now.version)
    store_summary(
        state,
        action.table,
        work.coverage,
        action.table.pin,
        at_hand=work.at_hand,
        is_new=before is None,
    )
    return len(action.scans)


def played(
    pool: Sequence[Sequence[bytes]], node: str, table: TableVersion, stage: ReadFragments
) -> Iterator[Scanned]:
    """Yield what the jobs of a stage would, of a few partials instead of the fragments' own."""
    from itertools import groupby

    from lancestat.state.partials import group_width
    from lancestat.tables.analyze import Scanned
    from lancestat.tables.work_items import jobs

    width = group_width({group.fragment_id for group in table.groups})

    def together(scans: Sequence[Scan], width: int) -> list[ScanPartials]:
        groups = groupby(scans, key=lambda scan: scan.fragment_id // width)
        return [
            (
                tuple(group),
                {
                    key: varied(pool[int(key.partition(":")[0]) % 4][number % len(pool[0])], number)
                    for key in scans[0].fields
                },
            )
            for number, group in groups
        ]

    for scans in jobs(stage.scans, fold=table.fold):
        yield Scanned(together(scans, table.fold), together(scans, width))


def varied(encoded: bytes, number: int) -> bytes:
    """Return a partial of another number of rows: Lance stores equal bytes once."""
    body = encoded[:ROWS_AT] + struct.pack("<H", 256 + number % 60_000) + encoded[ROWS_AT + 2 : -4]
    return body + struct.pack("<I", zlib.crc32(body))


@cache
def encoded_partials(number: int) -> list[list[bytes]]:
    """Return encoded partials of four types of columns, so many of each."""
    import numpy as np
    import pyarrow as pa

    from lancestat.tables.statistics.kernel import analyze
    from lancestat.tables.statistics.partial import encode

    made: list[list[bytes]] = [[], [], [], []]
    for start in range(number):
        numbers = np.arange(start * 9_973, start * 9_973 + 10_000)
        rows = pa.table(
            {
                "integer": pa.array(numbers),
                "text": pa.array([f"value {number}" for number in numbers]),
                "double": pa.array(numbers / 7),
                "date": pa.array((numbers % 20_000).astype("i4")).cast(pa.date32()),
            }
        )
        for column, one in zip(made, analyze(rows.to_batches(), rows.schema).values(), strict=True):
            column.append(encode(one))
    return made


def state(folder: Path, tiny: bool) -> Iterator[tuple[str, float]]:
    """Partials of columns of four types, all values different."""
    yield from run_case("partials", folder, tiny).items()


def partials(folder: Path, tiny: bool) -> Measures:
    """Encode, decode and merge the partials of a fragment."""
    import pyarrow as pa

    from lancestat.tables.statistics.kernel import analyze
    from lancestat.tables.statistics.partial import decode, encode, merge
    from lancestat.tables.work_items import PARTIALS_PER_JOB

    numbers = range(ROWS[tiny])
    rows = pa.table(
        {
            "integer": pa.array(numbers, pa.int64()),
            "text": pa.array([f"value {number}" for number in numbers]),
            "double": pa.array([number / 7 for number in numbers]),
            "date": pa.array([number % 20_000 for number in numbers], pa.int32()).cast(pa.date32()),
        }
    )
    fragment = analyze(rows.to_batches(), rows.schema)
    repeats = 5 if tiny else 500
    count = repeats * len(fragment)
    encode_seconds, encoded = timed(
        lambda: [encode(column) for _ in range(repeats) for column in fragment.values()]
    )
    size_bytes = sum(map(len, encoded)) / count
    by_column = [encoded[start :: len(fragment)] for start in range(len(fragment))]
    decode_seconds, decoded = timed(
        lambda: [[decode(content) for content in column] for column in by_column]
    )
    merge_seconds, _ = timed(lambda: [merge(column) for column in decoded])
    cells = FRAGMENTS[tiny][-1] * COLUMNS[tiny]
    return {
        "bytes of a partial": size_bytes,
        "encode a partial, us": 1e6 * encode_seconds / count,
        "decode a partial, us": 1e6 * decode_seconds / count,
        "merge a partial, us": 1e6 * merge_seconds / count,
        "multiplied: results of a job in the driver, MB": PARTIALS_PER_JOB * size_bytes / 1e6,
        "multiplied: partials of the largest table in the state, GB": cells * size_bytes / 1e9,
        "multiplied: the driver decodes and merges all of them, h": cells
        * (decode_seconds + merge_seconds)
        / count
        / 3600,
    }


CASES: dict[str, Case] = (
    {
        "partials": partials,
        "runs": partial(small_fragments, None),
        "no budget": partial(drive, DRIVEN_COLUMNS, False),
        "a budget": partial(drive, DRIVEN_COLUMNS, True),
        "200 columns": partial(drive, WIDE_COLUMNS, True),
    }
    | {
        f"{what} {number}": partial(plan, number, what == "first")
        for number in range(len(FRAGMENTS[False]))
        for what in ("first", "appended")
    }
    | {
        f"{workers} workers": partial(small_fragments, workers)
        for sizes in WORKERS.values()
        for workers in sizes
    }
)
PARTS: dict[str, Part] = {
    "runs": runs,
    "cluster": cluster,
    "plan": plans,
    "driver": partial(drivers, ("no budget", "a budget")),
    "wide": partial(drivers, ("200 columns",)),
    "state": state,
}


if __name__ == "__main__":
    run(__doc__, PARTS, CASES)
