"""What a workload means for the declared tables: what is known of them, their uses, and advice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

from lancestat.arguments import check, check_whole, is_number
from lancestat.errors import LakeError, LancestatError, NoQueryLog
from lancestat.formats import visible
from lancestat.lake.fingerprint import ByteEstimator, field_key
from lancestat.query.workload.advice import Advice, KnownTable, needed, propose
from lancestat.query.workload.spark_events import read_workload
from lancestat.runs.discover import located
from lancestat.runs.observe import Observer
from lancestat.spec.catalog import table_name_of
from lancestat.spec.model import ProjectSpec, Table, Target
from lancestat.state.values import canonical_uri
from lancestat.tables.judgement import TableAssessment
from lancestat.tables.node import TableObserver
from lancestat.tables.statistics.column_statistics import HISTOGRAM_KINDS

# Sketches of distinct values are off by 3 % at most, nearly always.
_NEARLY_ALL = 0.95


def known_tables(
    observer: Observer, tables: Iterable[Table]
) -> tuple[list[KnownTable], dict[str, LancestatError]]:
    """Return what is known of tables, and of those that cannot be opened the errors, by name."""
    observed = observer.look(tuple(tables))
    found: list[KnownTable] = []
    failed: dict[str, LancestatError] = {}
    for table in observed.nodes:
        if not isinstance(table, Table):
            continue
        try:
            found.append(_known(TableObserver(observed).assess(table)))
        except LakeError as error:
            failed[table.name] = error.placed(table.location)
        except LancestatError as error:
            failed[table.name] = error
    return found, failed


def _known(assessment: TableAssessment) -> KnownTable:
    snapshot = assessment.snapshot
    keys = {field.name: field_key(field) for field in snapshot.fields}
    bytes_read = ByteEstimator(snapshot.fields)

    def first_read(columns: Collection[str]) -> int:
        wanted = frozenset(keys[name] for name in columns)
        return sum(bytes_read.estimate(fragment, wanted) for fragment in snapshot.fragments)

    types = assessment.types
    ranged = frozenset(name for name, type in types.items() if type.kind in HISTOGRAM_KINDS)
    return KnownTable(
        assessment.spec,
        frozenset(assessment.resolved.names),
        frozenset(types),
        ranged,
        {field.name: field.spark_type or str(field.type) for field in snapshot.fields},
        frozenset(_identifying(assessment)),
        snapshot.rows,
        first_read,
    )


def _identifying(assessment: TableAssessment) -> Iterator[frozenset[str]]:
    """Yield the columns and groups without nulls that have about as many values as rows."""
    published = assessment.published
    if published is None or not published.rows:
        return
    fewest = _NEARLY_ALL * published.rows
    for name, column in {**published.columns, **assessment.kept}.items():
        if (column.distinct or 0) >= fewest and column.nulls == 0 and name in assessment.types:
            yield frozenset([name])
    for names, group in published.joint.items():
        if group.distinct >= fewest and group.nulls == 0 and names <= assessment.types.keys():
            yield names


def _logs_of(paths: Iterable[str | Path], target: Target) -> list[Path]:
    """Return the logs to read: those that are named, or the one that sessions write.

    Raises:
        NoQueryLog: No log is named, and the target does not `listen`, or has recorded none.
    """
    named = [Path(path) for path in paths]
    if named:
        return named
    if target.query_log is None:
        raise NoQueryLog(
            f"no log to read: name one, or set 'listen' in the target '{target.name}', so that "
            "sessions record their queries"
        )
    recorded = Path(target.query_log)
    if not recorded.exists():
        raise NoQueryLog(
            f"no session has recorded queries in {visible(str(recorded))} yet",
            hint="run queries with `lancestat sql`, or in a session to which tables are attached",
        )
    return [recorded]


def advise(
    observer: Observer, paths: Iterable[str | Path], min_queries: int, min_q_error: float
) -> Advice:
    """Return what the queries in logs ask of the declarations; see `Project.advise`."""
    check_whole("min_queries", min_queries, 1)
    is_factor = is_number(min_q_error) and min_q_error >= 1
    check("min_q_error", min_q_error, is_factor, "a number, 1 or more")
    tables = observer.spec.tables
    reader = read_workload(_logs_of(paths, observer.spec.target))
    scanned = reader.workload.tables
    known, failed = known_tables(observer, tables)
    # Tables of catalogs have been located; others cannot be opened.
    opened = {table.spec.name: table.spec for table in known}
    names = declared_names(scanned, (opened.get(table.name, table) for table in tables))
    workload = reader.workload.renamed(names)
    monitors = observer.spec.monitors
    named = {pair for table in tables for pair in table.needed_columns(monitors)}
    proposals = propose(workload, known, named, min_queries=min_queries)
    helpful = needed(proposals, min_q_error)
    return Advice(
        project=observer.spec.name,
        target=observer.spec.target.name,
        logs=reader.logs,
        queries=workload.queries,
        first=workload.first,
        last=workload.last,
        proposals=helpful,
        undeclared={name: use.queries for name, use in scanned.items() if name not in names},
        unopened={name: error.message for name, error in failed.items()},
        left_out=reader.left_out_words,
        unneeded=len(proposals) - len(helpful),
        found={
            name: canonical_uri(table.uri)
            for name, table in opened.items()
            if table.source is not None
        },
        has_estimates=workload.has_estimates,
    )


def recorded_uses(spec: ProjectSpec) -> Mapping[str, int]:
    """Return by table how many queries used it, as far as sessions have recorded them."""
    folder = spec.target.query_log
    if folder is None or not Path(folder).exists():
        return {}
    scanned = read_workload([Path(folder)]).workload.tables
    uses = Counter[str]()
    for name, table in declared_names(scanned, located(spec, ())[0].tables).items():
        uses[table] += scanned[name].queries
    return uses


def declared_names(scanned: Iterable[str], tables: Iterable[Table]) -> Mapping[str, str]:
    """Return which declared table each table of plans is, by its name there.

    Plans have the name of a view that lancestat attached, the name in a catalog, or the URI.
    """
    names: dict[str, str] = {}
    for table in tables:
        catalog = table_name_of((table.declared or table).uri)
        named = [] if catalog is None else [str(catalog).replace("`", "")]
        for name in (table.name, canonical_uri(table.uri), *named):
            names.setdefault(name, table.name)
    known = {name: canonical_uri(name) if "/" in name else name for name in scanned}
    return {name: names[key] for name, key in known.items() if key in names}
