"""What OpenLineage gets of a run: events of the run and of its nodes, and the datasets in them.

It imports OpenLineage's client, and is imported where that is configured (`pipelines.lineage`).
Nothing in an event is secret, and what comes from the environment is shown as its template.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import Any, cast
from uuid import UUID

import attr
import msgspec
from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
from openlineage.client.facet_v2 import (
    DatasetFacet,
    InputDatasetFacet,
    OutputDatasetFacet,
    RunFacet,
    catalog_dataset,
    column_lineage_dataset,
    data_quality_assertions_dataset,
    data_quality_metrics_dataset,
    data_quality_metrics_input_dataset,
    dataset_version_dataset,
    error_message_run,
    input_statistics_input_dataset,
    job_type_job,
    output_statistics_output_dataset,
    parent_run,
    processing_engine_run,
    schema_dataset,
    storage_dataset,
    symlinks_dataset,
    test_run,
)
from openlineage.client.uuid import generate_new_uuid

from lancestat.errors import LancestatError
from lancestat.formats import count, format_instant
from lancestat.joins.action import join_figures
from lancestat.joins.duplicates.members import IS_KEPT, RESULT_COLUMNS
from lancestat.joins.record import decode_record as decode_join
from lancestat.joins.search.work import Scope, output_names
from lancestat.lake.files import local_path
from lancestat.lake.open import observe_snapshots
from lancestat.lake.snapshot import Snapshot
from lancestat.pipelines.artifacts import unique_id
from lancestat.pipelines.column_facet import (
    FACET,
    PRODUCER,
    SCHEMA_URL,
    ColumnFacet,
    ColumnStatisticsFacet,
)
from lancestat.redact import Audience
from lancestat.runs.discover import located
from lancestat.runs.events import (
    Event,
    FragmentsRead,
    NodeFinished,
    NodeStarted,
    RunFinished,
    RunStarted,
)
from lancestat.runs.execute import stored_result
from lancestat.runs.node import NodeEnded
from lancestat.runs.result import NodeCheck, NodeResult, RunResult, Status
from lancestat.spec.catalog import table_name_of
from lancestat.spec.duplicates import Order
from lancestat.spec.model import Duplicates, KnnJoin, KnnSide, Node, ProjectSpec, Table, is_source
from lancestat.state.values import canonical_uri
from lancestat.tables.judgement import TableAssessment, assess
from lancestat.tables.node import look_back
from lancestat.tables.statistics.column_type import Kind
from lancestat.tables.stored import decode_record as decode_table
from lancestat.tables.table_status import TableStatus, table_status
from lancestat.version import __version__

_log = logging.getLogger("lancestat.lineage")

NAMESPACE = "lancestat"
"""The namespace of jobs, where `OPENLINEAGE_NAMESPACE` names no other."""

_ENDS = {Status.SUCCESS: RunState.COMPLETE, Status.ERROR: RunState.FAIL}
# Names of datasets begin with a slash there, unlike in object stores.
_ROOTED = frozenset({"hdfs", "viewfs"})
_FORMATS = frozenset({"lance", "parquet"})
_NUMBERS = {Kind.INTEGER: int, Kind.FLOAT: float}


def dataset_name(uri: str) -> tuple[str, str]:
    """Return the namespace and the name of a dataset by OpenLineage's conventions.

    See https://openlineage.io/docs/spec/naming. They hold no user, password or query.
    """
    canonical = canonical_uri(uri)
    if local_path(uri) is not None:
        return "file", canonical
    scheme, _, rest = canonical.partition("://")
    place, slash, name = rest.partition("/")
    return f"{scheme}://{place}", slash + name if scheme in _ROOTED else name


@dataclass(frozen=True, slots=True)
class _RunName:
    """A run of a job, as others refer to it."""

    namespace: str
    job: str
    id: str

    @classmethod
    def of_environment(cls, variable: str) -> _RunName | None:
        """Return the run that a variable names: `NAMESPACE/JOB/RUN_ID`."""
        text = os.environ.get(variable)
        if not text:
            return None
        try:
            namespace, job, id = text.split("/")
            return cls(namespace, job, str(UUID(id)))
        except ValueError:
            _log.warning("%s is ignored: it is not NAMESPACE/JOB/RUN_ID", variable)
            return None

    def as_parent(self, root: _RunName) -> parent_run.ParentRunFacet:
        return parent_run.ParentRunFacet(
            run=parent_run.Run(self.id),
            job=parent_run.Job(self.namespace, self.job),
            root=parent_run.Root(
                parent_run.RootRun(root.id), parent_run.RootJob(root.namespace, root.job)
            ),
        )


@dataclass(frozen=True, slots=True)
class _Dataset:
    """A dataset, and what Lance has of it at the version that was read or written."""

    namespace: str
    name: str
    facets: dict[str, DatasetFacet] = field(default_factory=dict)
    snapshot: Snapshot | None = None

    def as_input(
        self, facets: Mapping[str, InputDatasetFacet] = MappingProxyType({})
    ) -> InputDataset:
        return InputDataset(self.namespace, self.name, dict(facets), facets=self.facets)

    def as_output(
        self, facets: Mapping[str, OutputDatasetFacet] = MappingProxyType({})
    ) -> OutputDataset:
        return OutputDataset(self.namespace, self.name, dict(facets), facets=self.facets)


class RunEvents:
    """Makes the events of OpenLineage for those of one run.

    The run is a job, and each of its nodes another, whose runs have the first as their parent. A
    table that is analyzed is an input alone: its rows stay, and as an output it would feed itself.
    """

    def __init__(self, spec: ProjectSpec) -> None:
        self._spec = spec
        namespace = os.environ.get("OPENLINEAGE_NAMESPACE") or NAMESPACE
        self._run = _RunName(namespace, self._shown(f"lancestat-run-{spec.name}"), _new_id())
        self._parent = _RunName.of_environment("OPENLINEAGE_PARENT_ID")
        root = _RunName.of_environment("OPENLINEAGE_ROOT_PARENT_ID")
        self._root = root or self._parent or self._run
        self._started: dict[str, _RunName] = {}
        self._ended: set[str] = set()
        self._bytes_read: dict[str, int] = {}
        self._places: dict[str, str] = {}

    def of(self, event: Event) -> Iterator[RunEvent]:
        """Yield what OpenLineage gets of an event."""
        match event:
            case RunStarted():
                yield self._of_run(RunState.START, event.at)
            case NodeStarted(node=node, kind=kind):
                yield self._node_started(node, kind, event.at)
            case FragmentsRead(node=node, size_bytes=size_bytes):
                self._bytes_read[node] = size_bytes
            case NodeFinished(result=node_result, ended=ended):
                yield from self._node_ended(node_result, ended, event.at)
            case RunFinished(result=result):
                for left in result.nodes:
                    if left.name not in self._ended:
                        yield from self._node_ended(left, None, event.at)
                for each in result.nodes:
                    if checks := [check for check in result.checks if check.node == each.name]:
                        yield self._node_checked(each, checks, event.at)
                yield self._run_ended(result, event.at)

    def _of_run(self, state: RunState, at: datetime, error: str | None = None) -> RunEvent:
        facets = _run_facets("lancestat", __version__, error)
        if self._parent is not None:
            facets["parent"] = self._parent.as_parent(self._root)
        return self._event(state, at, self._run, "JOB", facets)

    def _run_ended(self, result: RunResult, at: datetime) -> RunEvent:
        error = None
        if result.failures:
            names = ", ".join(failure.node for failure in result.failures)
            total = count(len(result.nodes), "node")
            error = self._shown(f"{len(result.failures)} of {total} failed: {names}")
        return self._of_run(_ENDS.get(result.status, RunState.ABORT), at, error)

    def _node_started(self, name: str, kind: str, at: datetime) -> RunEvent:
        job = self._shown(unique_id(self._spec.name, kind, name))
        run = self._started[name] = _RunName(self._run.namespace, job, _new_id())
        facets: dict[str, RunFacet] = {"parent": self._run.as_parent(self._root)}
        return self._event(RunState.START, at, run, kind.upper(), facets, *self._datasets(name))

    def _node_ended(
        self, result: NodeResult, ended: NodeEnded | None, at: datetime
    ) -> Iterator[RunEvent]:
        name = result.name
        self._ended.add(name)
        if name not in self._started:
            yield self._node_started(name, result.kind, at)
        error = stored_result(self._spec, result).text
        on_spark = result.figures is not None or result.runs_on == "spark"
        engine = ("spark", _spark_version()) if on_spark else ("lancestat", __version__)
        facets = _run_facets(*engine, error or None)
        facets["parent"] = self._run.as_parent(self._root)
        state = _ENDS.get(result.status, RunState.ABORT)
        datasets = self._datasets(name, result, ended)
        yield self._event(state, at, self._started[name], result.kind.upper(), facets, *datasets)

    def _node_checked(
        self, result: NodeResult, checks: Sequence[NodeCheck], at: datetime
    ) -> RunEvent:
        """Return what is added to the run of a node that has ended: what is known of it since."""
        facets = _run_facets("lancestat", __version__)
        facets["parent"] = self._run.as_parent(self._root)
        facets["test"] = _tests(checks)
        inputs, outputs = self._datasets(result.name, result)
        if result.kind == Table.kind.value:
            for dataset in inputs:
                dataset.inputFacets = {"dataQualityAssertions": _assertions(checks)}
        run, job_type = self._started[result.name], result.kind.upper()
        return self._event(
            RunState.OTHER, at, run, job_type, _mapped(facets, self._shown), inputs, outputs
        )

    def _event(
        self,
        state: RunState,
        at: datetime,
        run: _RunName,
        job_type: str,
        facets: dict[str, RunFacet],
        inputs: Sequence[InputDataset] = (),
        outputs: Sequence[OutputDataset] = (),
    ) -> RunEvent:
        type = job_type_job.JobTypeJobFacet("BATCH", "LANCESTAT", job_type)
        event = RunEvent(
            eventType=state,
            eventTime=format_instant(at),
            run=Run(run.id, facets),
            job=Job(run.namespace, run.job, {"jobType": type}),
            inputs=_mapped([*inputs], self._shown),
            outputs=_mapped([*outputs], self._shown),
        )
        _mapped(event)
        return event

    def _shown(self, text: str) -> str:
        """Return a text as the public may see it."""
        return self._spec.redactor.text(text, Audience.PUBLIC)

    def _datasets(
        self, name: str, result: NodeResult | None = None, ended: NodeEnded | None = None
    ) -> tuple[list[InputDataset], list[OutputDataset]]:
        """Return what a node reads and writes, and of a node that has ended what is known of that.

        Of one that did not succeed, or was left as it was, that is the version at most.
        """
        record = ended.record[1] if ended is not None and ended.record is not None else None
        node = self._spec.node(name)
        if node is None or is_source(node):
            return [], []
        self._locate(node)
        match node:
            case Table():
                return self._of_table(node, result, record), []
            case KnnJoin() if result is not None and ended is not None and record is not None:
                return self._of_result(node, result, record, ended.versions)
            case KnnJoin():
                inputs = [dataset.as_input() for side in self._sides(node) for dataset in side]
                output = self._dataset(node.output_uri, node.output_format)
                return _unique(inputs), [output.as_output()] if output else []
            case Duplicates():
                return self._of_duplicates(node, result, {} if ended is None else ended.versions)
        return [], []

    def _of_duplicates(
        self, node: Duplicates, result: NodeResult | None, versions: Mapping[str, int]
    ) -> tuple[list[InputDataset], list[OutputDataset]]:
        """Return the table that near-duplicates are of, and what is written of groups and pairs."""
        table, _ = self._sides(node.pairs_join(), versions)
        version = result.version_published if result else None
        groups = self._dataset(node.output_uri, node.dataset_format, version, opened=version)
        pairs = None
        if node.pairs_uri is not None:
            pairs = self._dataset(node.pairs_uri, node.dataset_format)
        if groups is not None and version is not None:
            groups.facets["columnLineage"] = _group_lineage(node, table)
        written = [dataset.as_output() for dataset in (groups, pairs) if dataset is not None]
        return _unique(dataset.as_input() for dataset in table), written

    def _of_table(
        self, table: Table, result: NodeResult | None, record: str | None
    ) -> list[InputDataset]:
        read = result.version_read if result else None
        if result is None or record is None:
            dataset = self._dataset(table.uri, "lance", read)
            return [dataset.as_input()] if dataset else []
        # The version that was published has the same rows, and their statistics.
        dataset = self._dataset(table.uri, "lance", read, opened=result.version_published or read)
        if dataset is None:
            return []
        facets: dict[str, InputDatasetFacet] = {
            "inputStatistics": input_statistics_input_dataset.InputStatisticsInputDatasetFacet(
                rowCount=result.rows_scanned, size=self._bytes_read.get(table.name)
            )
        }
        if dataset.snapshot is not None:
            snapshot, known = dataset.snapshot, decode_table(record)
            assessment = assess(table, known.table, snapshot, known)
            status = table_status(assessment, known.computed_at)
            metrics, facets["dataQualityMetrics"] = _metrics(assessment, status)
            dataset.facets["dataQualityMetrics"] = metrics
            dataset.facets[FACET] = _column_facet(assessment, status)
        return [dataset.as_input(facets)]

    def _of_result(
        self, join: KnnJoin, result: NodeResult, record: str, versions: Mapping[str, int]
    ) -> tuple[list[InputDataset], list[OutputDataset]]:
        """Return what a join has read and written."""
        figures, sides = join_figures(result), self._sides(join, versions)
        is_whole = figures.scope == Scope.FULL.value
        rows = (figures.counts.left_rows, figures.counts.right_rows)
        inputs = []
        for declared, side, side_rows in zip((join.left, join.right), sides, rows, strict=True):
            read: dict[str, InputDatasetFacet] = {}
            if is_whole and declared.sql is None:
                module = input_statistics_input_dataset
                read["inputStatistics"] = module.InputStatisticsInputDatasetFacet(side_rows)
            inputs += [dataset.as_input(read) for dataset in side]
        version = result.version_published
        output = self._dataset(join.output_uri, join.output_format, version, opened=version)
        if output is None:
            return _unique(inputs), []
        lineage = _column_lineage(join, *sides)
        if lineage is not None:
            output.facets["columnLineage"] = lineage
        written: dict[str, OutputDatasetFacet] = {}
        if is_whole:
            # Of other results earlier runs wrote a part.
            rows_written = decode_join(record).result.rows
            written["outputStatistics"] = _output_statistics(rows_written, output.snapshot)
        return _unique(inputs), [output.as_output(written)]

    def _sides(
        self, join: KnnJoin, versions: Mapping[str, int] = MappingProxyType({})
    ) -> tuple[list[_Dataset], list[_Dataset]]:
        """Return the datasets that each side reads; what has another format has no name here."""

        def datasets(side: KnnSide) -> Iterator[_Dataset]:
            named = [node for ref in side.refs if (node := self._spec.node(ref)) is not None]
            read = [(node.dataset_uri, node.dataset_format) for node in named]
            if side.uri is not None and side.format in _FORMATS:
                read.append((side.uri, side.format))
            for uri, form in dict.fromkeys(read):
                version = versions.get(self._places.get(uri, uri))
                dataset = self._dataset(uri, form, version, opened=version)
                if dataset is not None:
                    yield dataset

        return [*datasets(join.left)], [*datasets(join.right)]

    def _locate(self, node: Node) -> None:
        """Ask the catalogs for the tables that a node names, unless they have told before."""
        spec = self._spec
        named = [node, *(other for ref in node.refs if (other := spec.node(ref)) is not None)]
        uris = {uri for each in named for uri in (*each.input_uris, each.dataset_uri)}
        if all(table_name_of(uri) is None or uri in self._places for uri in uris):
            return
        moved, _ = located(spec, [node])
        for before, after in zip(spec.nodes, moved.nodes, strict=True):
            uris_before = (*before.input_uris, before.dataset_uri)
            uris_after = (*after.input_uris, after.dataset_uri)
            pairs = zip(uris_before, uris_after, strict=True)
            self._places |= {uri: place for uri, place in pairs if place != uri}

    def _dataset(
        self, uri: str, form: str, version: int | None = None, *, opened: int | None = None
    ) -> _Dataset | None:
        """Return a dataset, None for a table that its catalog does not know (yet).

        `version` is the one that was read or written; another one may be `opened`.
        """
        place, table = self._places.get(uri, uri), table_name_of(uri)
        if table_name_of(place) is not None:
            return None
        facets: dict[str, DatasetFacet] = {
            "storage": storage_dataset.StorageDatasetFacet(form, form)
        }
        if table is not None:
            name = symlinks_dataset.Identifier(table.catalog, str(table), "TABLE")
            facets["symlinks"] = symlinks_dataset.SymlinksDatasetFacet([name])
            impl = self._spec.target.catalogs[table.catalog].impl
            facets["catalog"] = catalog_dataset.CatalogDatasetFacet("lance", impl, table.catalog)
        if version is not None:
            facets["version"] = dataset_version_dataset.DatasetVersionDatasetFacet(str(version))
        snapshot = None if opened is None else self._opened(place, opened)
        if snapshot is not None:
            facets["schema"] = _schema(snapshot)
        return _Dataset(*dataset_name(place), facets, snapshot)

    def _opened(self, uri: str, version: int) -> Snapshot | None:
        """Return a dataset at a version, None where that is gone or cannot be read."""
        observed = observe_snapshots([(uri, uri)], self._spec.options)[uri]
        with suppress(LancestatError):
            if isinstance(observed, Snapshot):
                return look_back(observed, version, self._spec.options.of(uri))[0]
        return None


def _new_id() -> str:
    return str(generate_new_uuid())


def _mapped(value: Any, text: Callable[[str], str] = str) -> Any:
    """Return a value of an event with other texts, and with lancestat as its producer.

    Objects are changed in place, and keys stay.
    """
    if isinstance(value, str):
        return text(value)
    if isinstance(value, dict):
        return {key: _mapped(item, text) for key, item in value.items()}
    if isinstance(value, list):
        return [_mapped(item, text) for item in value]
    if attr.has(type(value)):
        for name in (attribute.name for attribute in attr.fields(type(value))):
            if name in ("producer", "_producer"):
                setattr(value, name, PRODUCER)
            elif name not in ("schemaURL", "_schemaURL"):
                setattr(value, name, _mapped(getattr(value, name), text))
    return value


def _spark_version() -> str:
    import pyspark

    return str(pyspark.__version__)


def _run_facets(engine: str, version: str, error: str | None = None) -> dict[str, RunFacet]:
    facets: dict[str, RunFacet] = {
        "processing_engine": processing_engine_run.ProcessingEngineRunFacet(
            version, engine, __version__
        )
    }
    if error is not None:
        facets["errorMessage"] = error_message_run.ErrorMessageRunFacet(error, "PYTHON")
    return facets


def _tests(checks: Iterable[NodeCheck]) -> RunFacet:
    return test_run.TestRunFacet(
        [
            test_run.TestExecution(
                each.check,
                "pass" if each.passed else "fail",
                severity=each.severity,
                actual=each.detail,
            )
            for each in checks
        ]
    )


def _assertions(checks: Iterable[NodeCheck]) -> InputDatasetFacet:
    module = data_quality_assertions_dataset
    return module.DataQualityAssertionsDatasetFacet(
        [
            module.Assertion(
                # `not_null` of `not_null(o_id)`.
                each.check.partition("(")[0],
                each.passed,
                column=each.column,
                severity=each.severity,
                name=each.check,
                actual=each.detail,
            )
            for each in checks
        ]
    )


def _schema(snapshot: Snapshot) -> schema_dataset.SchemaDatasetFacet:
    return schema_dataset.SchemaDatasetFacet(
        [
            schema_dataset.SchemaDatasetFacetFields(
                column.name, column.spark_type or str(column.type), ordinal_position=number
            )
            for number, column in enumerate(snapshot.fields, 1)
        ]
    )


def _figures(assessment: TableAssessment, status: TableStatus) -> dict[str, dict[str, Any]]:
    """Return the metrics of OpenLineage by column: bounds are numbers there."""
    figures: dict[str, dict[str, Any]] = {}
    for name, column in status.columns.items():
        nulls = column.nulls
        figures[name] = {
            "nullCount": nulls,
            "distinctCount": column.distinct,
            "count": None if nulls is None else max(0, status.rows - nulls),
            "quantiles": None,
        }
        type = assessment.types.get(name)
        number = _NUMBERS.get(type.kind) if type else None
        if number is not None and column.minimum is not None and column.maximum is not None:
            figures[name] |= {"min": number(column.minimum), "max": number(column.maximum)}
    return figures


def _size(snapshot: Snapshot) -> tuple[int, int]:
    """Return the bytes and the number of the data files."""
    return snapshot.size_bytes, sum(len(fragment.files) for fragment in snapshot.fragments)


def _metrics(
    assessment: TableAssessment, status: TableStatus
) -> tuple[DatasetFacet, InputDatasetFacet]:
    """Return the metrics of a table, and the same where older consumers look for them."""
    figures = _figures(assessment, status)
    size_bytes, files = _size(assessment.snapshot)
    module, older = data_quality_metrics_dataset, data_quality_metrics_input_dataset
    return (
        module.DataQualityMetricsDatasetFacet(
            {name: module.ColumnMetrics(**members) for name, members in figures.items()},
            rowCount=status.rows,
            bytes=size_bytes,
            fileCount=files,
            captureDate=format_instant(status.computed_at) if status.computed_at else None,
        ),
        older.DataQualityMetricsInputDatasetFacet(
            {name: older.ColumnMetrics(**members) for name, members in figures.items()},
            rowCount=status.rows,
            bytes=size_bytes,
            fileCount=files,
        ),
    )


def _column_facet(assessment: TableAssessment, status: TableStatus) -> DatasetFacet:
    columns = {}
    for name, column in status.columns.items():
        type = assessment.types.get(name)
        is_number = type is not None and type.kind in _NUMBERS
        columns[name] = ColumnFacet(
            type=type.spark_type if type else None,
            min=None if is_number else column.minimum,
            max=None if is_number else column.maximum,
            average_length=column.average_length,
            maximum_length=column.maximum_length,
        )
    facet = ColumnStatisticsFacet(PRODUCER, SCHEMA_URL, columns)
    # The client writes mappings as they are.
    return cast(DatasetFacet, msgspec.to_builtins(facet))


def _output_statistics(rows: int, snapshot: Snapshot | None) -> OutputDatasetFacet:
    module = output_statistics_output_dataset
    return module.OutputStatisticsOutputDatasetFacet(rows, *(_size(snapshot) if snapshot else ()))


def _unique(inputs: Iterable[InputDataset]) -> list[InputDataset]:
    """Return each dataset once: both sides of a join may be the same."""
    by_name: dict[tuple[str, str], InputDataset] = {}
    for dataset in inputs:
        by_name.setdefault((dataset.namespace, dataset.name), dataset)
    return [*by_name.values()]


def _column_lineage(
    join: KnnJoin, left: Sequence[_Dataset], right: Sequence[_Dataset]
) -> DatasetFacet | None:
    """Return which columns those of a result come from, None where a query leaves that open."""
    module = column_lineage_dataset
    sides = [(join.left, left), (join.right, right)]
    selected = [_selected(side, datasets) for side, datasets in sides]
    if None in selected:
        return None
    left_names, right_names = (names or () for names in selected)
    try:
        names = output_names(left_names, right_names, with_rank=join.rank)
    except LancestatError:
        return None

    def inputs(columns: Iterable[tuple[int, str]], type: str, subtype: str) -> list[Any]:
        read = [
            (dataset, column)
            for side, column in columns
            for dataset in sides[side][1]
            if sides[side][0].sql is None
        ]
        return _inputs(read, type, subtype)

    pairs = [
        *((renamed, 0, name) for renamed, name in zip(names.left, left_names, strict=True)),
        *((renamed, 1, name) for renamed, name in zip(names.right, right_names, strict=True)),
    ]
    vectors = [(0, join.left.vector), (1, join.right.vector)]
    found = {
        renamed: inputs([(side, name)], "DIRECT", "IDENTITY") for renamed, side, name in pairs
    } | {measure: inputs(vectors, "DIRECT", "TRANSFORMATION") for measure in names.measures}
    keys = [(side, pair[side]) for pair in join.on for side in (0, 1)]
    return module.ColumnLineageDatasetFacet(
        {name: module.Fields(fields) for name, fields in found.items() if fields},
        inputs([*vectors, *keys], "INDIRECT", "JOIN"),
    )


def _group_lineage(node: Duplicates, table: Sequence[_Dataset]) -> DatasetFacet:
    """Return which columns of the table those of groups come from."""
    module = column_lineage_dataset
    selected = node.select
    if selected is None:
        snapshots = [dataset.snapshot for dataset in table if dataset.snapshot is not None]
        selected = tuple(column.name for snapshot in snapshots for column in snapshot.fields)

    def inputs(columns: Iterable[str], type: str, subtype: str) -> list[Any]:
        return _inputs([(one, column) for column in columns for one in table], type, subtype)

    compared = (node.vector, *node.on)
    order = (Order.parse(text).column for text in node.order_by)
    found = {name: inputs([name], "DIRECT", "IDENTITY") for name in selected}
    found |= {name: inputs(compared, "DIRECT", "TRANSFORMATION") for name in RESULT_COLUMNS}
    found[IS_KEPT] += inputs(order, "INDIRECT", "SORT")
    return module.ColumnLineageDatasetFacet(
        {name: module.Fields(fields) for name, fields in found.items() if fields},
        inputs(compared, "INDIRECT", "GROUP_BY"),
    )


def _inputs(columns: Iterable[tuple[_Dataset, str]], type: str, subtype: str) -> list[Any]:
    """Return columns of datasets, each once, from which another is made in one way."""
    module = column_lineage_dataset
    how = module.Transformation(type, subtype)
    read = dict.fromkeys((dataset.namespace, dataset.name, column) for dataset, column in columns)
    return [module.InputField(*column, [how]) for column in read]


def _selected(side: KnnSide, datasets: Sequence[_Dataset]) -> Sequence[str] | None:
    """Return the columns that a side selects, None where they are not known."""
    if side.select is not None:
        return side.select
    snapshots = [dataset.snapshot for dataset in datasets if dataset.snapshot is not None]
    if side.sql is not None or len(snapshots) != 1:
        return None
    return tuple(column.name for column in snapshots[0].fields)
