"""The declared tables that a workload is about: by which names plans know them, what they hold."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from lancestat.errors import LakeError, LancestatError
from lancestat.lake.fingerprint import ByteEstimator, field_key
from lancestat.query.workload.advice import KnownTable
from lancestat.runs.observe import Observer
from lancestat.spec.catalog import table_name_of
from lancestat.spec.model import Table
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
