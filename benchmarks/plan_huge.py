"""A plan over one table of 100,000 fragments of 200 columns.

    python benchmarks/plan_huge.py [--tiny] [PART ...]

simulated   The planner alone, over a table that exists as values only. Each case runs in a process
            of its own, so that its peak memory is its own.
real        `lancestat plan`, over a table and a state that are real but for the data files, which
            are only named.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

from measure import LANCESTAT, Measures, peak_megabytes, process, run, run_case, timed

if TYPE_CHECKING:
    from lancestat.lake.history import Effect
    from lancestat.lake.snapshot import Fragment, Snapshot
    from lancestat.project import Project
    from lancestat.state.values import PartialIndex
    from lancestat.tables.judgement import TableChanges

NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)
CASES_SIMULATED = ("nothing stored", "one fragment appended", "one column added")


def simulated(folder: Path, tiny: bool) -> Iterator[tuple[str, float]]:
    """The planner over a simulated table."""
    for name in CASES_SIMULATED:
        for what, value in run_case(name, folder, tiny).items():
            yield f"{name}: {what}", value


def huge_size(tiny: bool) -> tuple[int, int]:
    """Fragments and columns of the huge table."""
    return (500, 20) if tiny else (100_000, 200)


def table_of(fragments: int, columns: int, *, added: bool = False) -> Snapshot:
    """A table as its manifest would show it; an added column is in files of its own."""
    import pyarrow as pa

    from lancestat.lake.snapshot import DataFile, Field, Fragment, Snapshot, spark_type

    types = [pa.int64(), pa.string(), pa.float64(), pa.date32()]
    fields = tuple(
        Field(number, f"column_{number}", type, True, spark_type(type))
        for number, type in ((number, types[number % 4]) for number in range(columns))
    )
    old = tuple(range(columns - added))
    new = (columns - 1,)

    def fragment(number: int) -> Fragment:
        files = [DataFile(f"{number:040x}.lance", old, 10_000_000, None)]
        if added:
            files.append(DataFile(f"{number:039x}x.lance", new, 50_000, None))
        return Fragment(number, 100_000, 0, tuple(files), None, ())

    every = tuple(fragment(number) for number in range(fragments))
    return Snapshot("huge.lance", 2, fields, every, {}, NOW)


def plan_nothing_stored(folder: Path, tiny: bool) -> Measures:
    """Plan a table of which nothing is stored."""
    from lancestat.tables.planner import NOTHING_STORED

    now = table_of(*huge_size(tiny))
    return decided(now, None, lambda: background(now, None, NOTHING_STORED))


def plan_fragment_appended(folder: Path, tiny: bool) -> Measures:
    """Plan a table with one appended fragment."""
    from lancestat.lake.history import Effect

    now = table_of(*huge_size(tiny))
    base = replace(now, version=1, fragments=now.fragments[:-1])
    index = index_of(base)
    return decided(now, base, lambda: background(now, base, index, Effect.APPENDED), scans=1)


def plan_column_added(folder: Path, tiny: bool) -> Measures:
    """Plan a table with one added column."""
    from lancestat.lake.history import Effect

    fragments, columns = huge_size(tiny)
    now = table_of(fragments, columns, added=True)
    base = replace(
        now,
        version=1,
        fields=now.fields[:-1],
        fragments=tuple(replace(fragment, files=fragment.files[:1]) for fragment in now.fragments),
    )
    index = index_of(base)
    return decided(now, base, lambda: background(now, base, index, Effect.COLUMNS_WRITTEN))


def decided(
    now: Snapshot,
    base: Snapshot | None,
    gather: Callable[[], TableChanges],
    scans: int | None = None,
) -> Measures:
    """Measure appraising and deciding, and check the decision."""
    from lancestat.errors import Location
    from lancestat.presentation.views import Page, PlanView, load_format
    from lancestat.runs.actions import Plan
    from lancestat.spec.model import Table
    from lancestat.tables.action import TableAction
    from lancestat.tables.judgement import assess
    from lancestat.tables.planner import decide

    table = Table("huge", "huge.lance", Location("specs/huge.yml", 1, 1))
    if base is not None:
        now = replace(now, config=published(base))
    before = peak_megabytes()
    appraise_seconds, assessment = timed(lambda: assess(table, "huge", now, None))
    gather_seconds, gathered = timed(gather)
    decide_seconds, action = timed(lambda: decide(assessment, gathered))
    plan = Plan("huge", "dev", (action,))

    def render() -> None:
        view = PlanView(plan, {})
        for name in ("text", "json"):
            load_format(name).render(view, Page())

    render_seconds, _ = timed(render)
    assert base is None or action.verb == "refresh"
    if isinstance(action, TableAction):
        assert len(action.scans) == (scans or len(now.fragments))
    return {
        "appraise, s": appraise_seconds,
        "fingerprints now and then, s": gather_seconds,
        "decide, s": decide_seconds,
        "render as text and JSON, s": render_seconds,
        "peak MB before, the simulated table itself": before,
        "peak MB": peak_megabytes(),
    }


def published(base: Snapshot) -> dict[str, str]:
    """Return the manifest entries of a table whose statistics were published at `base`."""
    from lancestat.lake.fingerprint import schema_hash
    from lancestat.tables.statistics.column_statistics import column_statistics_of
    from lancestat.tables.statistics.column_type import column_type
    from lancestat.tables.statistics.partial import EMPTY_PARTIAL
    from lancestat.tables.wire import encode_statistics

    columns = {}
    for field in base.fields:
        type = column_type(field.type)
        assert type is not None
        columns[field.name] = (type, column_statistics_of(EMPTY_PARTIAL, type))
    return encode_statistics(
        columns,
        rows=base.rows,
        schema_hash=schema_hash(base.fields),
        computed_at_version=base.version + 1,
        computed_at=NOW,
    )


def index_of(base: Snapshot) -> PartialIndex:
    """Return the index of the state for a table that was read whole."""
    from lancestat.lake.fingerprint import column_groups
    from lancestat.state.values import PartialIndex

    groups = column_groups(base, base.fields)
    return PartialIndex({group.fingerprint: group.fields for group in groups}, {})


def background(
    now: Snapshot, base: Snapshot | None, index: PartialIndex, *effects: Effect
) -> TableChanges:
    """Return the changes that `tables.observe` would gather."""
    from lancestat.lake.fingerprint import column_groups, table_digest
    from lancestat.lake.history import Commit, History
    from lancestat.tables.judgement import TableChanges, TableStatistics

    commits = tuple(Commit(now.version, effect, "Some") for effect in effects)
    groups = tuple(column_groups(now, now.fields))
    return TableChanges(
        groups=groups,
        digest=table_digest(groups, now.fields),
        base_digest=table_digest(column_groups(base, base.fields), base.fields) if base else None,
        history=History(base.version if base else now.version, now.version, commits),
        rewrites=(),
        verdict=TableStatistics(now).verdict(NOW),
        index=index,
    )


def real(folder: Path, tiny: bool) -> Iterator[tuple[str, float]]:
    """`lancestat plan` over a table whose manifest and state are real."""
    (folder / "specs").mkdir()
    (folder / "lancestat_project.yml").write_text(
        "name: huge\ndefault_target: dev\ntargets: {dev: {state: .lancestat/state}}\n"
    )
    (folder / "specs" / "huge.yml").write_text("tables: [{name: huge, uri: ./huge.lance}]\n")
    for case, expected in (
        ("nothing stored", "analyze"),
        ("nothing changed", "skip"),
        ("one fragment appended", "1 of "),
    ):
        run_case(f"make: {case}", folder, tiny)
        ended = process([LANCESTAT, "plan"], folder)
        assert expected in ended.stdout, ended.stdout
        yield f"lancestat plan, {case}, s", ended.seconds
        yield f"lancestat plan, {case}, peak MB", ended.peak_megabytes


def make_table(folder: Path, tiny: bool) -> Measures:
    """Commit the fragments of a table."""
    import lance
    import pyarrow as pa

    now = table_of(*huge_size(tiny))
    schema = pa.schema([(field.name, field.type) for field in now.fields])
    fragments = [metadata(fragment) for fragment in now.fragments]
    operation = lance.LanceOperation.Overwrite(schema, fragments)
    lance.LanceDataset.commit(str(folder / "huge.lance"), operation)
    return {}


def make_published(folder: Path, tiny: bool) -> Measures:
    """Publish statistics and store their partials, as a run would."""
    project, now = seen(folder)
    from lancestat.lake.commit import Landed
    from lancestat.tables.carriers import commit, publication

    entries = published(now)
    landed = commit(publication(now.pin, entries, now.config))
    assert isinstance(landed, Landed)
    remember_partials(project, now)
    remember_run(project, now, entries)
    return {}


def make_appended(folder: Path, tiny: bool) -> Measures:
    """Append a fragment."""
    import lance

    _, now = seen(folder)
    new = replace(now.fragments[0], id=0)
    file = replace(new.files[0], path="appended.lance")
    operation = lance.LanceOperation.Append([metadata(replace(new, files=(file,)))])
    lance.LanceDataset.commit(now.uri, operation, read_version=now.version)
    return {}


def metadata(fragment: Fragment) -> object:
    """A fragment as Lance commits it."""
    from lance.fragment import DataFile, FragmentMetadata

    [file] = fragment.files
    ids = list(file.field_ids)
    data_file = DataFile(file.path, ids, list(range(len(ids))), 2, 0, file.size_bytes)
    return FragmentMetadata(fragment.id, [data_file], fragment.physical_rows)


def seen(folder: Path) -> tuple[Project, Snapshot]:
    """The project, and its table as it is."""
    from lancestat.lake.open import observe_dataset, snapshot
    from lancestat.project import Project

    project = Project.load(folder)
    [table] = project.spec.tables
    return project, snapshot(observe_dataset(table.uri))


def remember_partials(project: Project, now: Snapshot) -> None:
    """Rows of partials as a run leaves them, but empty: a plan reads their keys alone."""
    import pyarrow as pa

    from lancestat.lake.fingerprint import column_groups
    from lancestat.state.partials import join_fields, partial_schema
    from lancestat.state.values import table_identity

    def batches() -> Iterator[pa.RecordBatch]:
        groups = column_groups(now, now.fields)
        for start in range(0, len(groups), 1_000):
            rows = [
                {
                    "id": start + number,
                    "table": table_identity(now.uri),
                    "fingerprints": group.fingerprint,
                    "fields": join_fields(group.fields),
                    "partials": [b""] * len(group.fields),
                    "written_at": NOW,
                }
                for number, group in enumerate(groups[start : start + 1_000])
            ]
            yield pa.RecordBatch.from_pylist(rows, partial_schema())

    project.state.partial_table.append(batches())


def remember_run(project: Project, now: Snapshot, entries: dict[str, str]) -> None:
    """The record of the run that published."""
    from lancestat.lake.fingerprint import column_groups, schema_hash, table_digest
    from lancestat.state.values import NodeRun, RunRecord, table_identity
    from lancestat.tables.stored import TableRecord

    record = TableRecord(
        table=table_identity(now.uri),
        node="huge",
        version=now.version + 1,
        published=True,
        content_digest=table_digest(column_groups(now, now.fields), now.fields),
        schema_hash=schema_hash(now.fields),
        rows=now.rows,
        fragments=len(now.fragments),
        computed_at=NOW,
        columns=tuple(field.name for field in now.fields),
        values=entries,
        bounds={},
        manifest=now.pin.manifest,
    )
    node = NodeRun("huge", "table", "", {}, record.stored())
    project.state.add_run(RunRecord("1", "run", "dev", NOW, NOW, "success", (node,)))


CASES = {
    "nothing stored": plan_nothing_stored,
    "one fragment appended": plan_fragment_appended,
    "one column added": plan_column_added,
    "make: nothing stored": make_table,
    "make: nothing changed": make_published,
    "make: one fragment appended": make_appended,
}


if __name__ == "__main__":
    run(__doc__, {"simulated": simulated, "real": real}, CASES)
