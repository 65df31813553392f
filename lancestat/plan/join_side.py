"""Looks at the sides of joins: Lance tables, files, queries."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lancestat.errors import LakeError
from lancestat.knn.work import PinnedTable, SideWork
from lancestat.lake.content import fragment_contents, leaves, rows_digest
from lancestat.lake.open import open_pinned, pinned_reads
from lancestat.lake.snapshot import Snapshot
from lancestat.lake.vector_index import index_metric
from lancestat.plan.join_columns import Place, check_columns
from lancestat.plan.join_files import look_into
from lancestat.plan.join_input import JoinInput
from lancestat.spec.model import KnnJoin, KnnSide, ProjectSpec, Table

if TYPE_CHECKING:
    import lance


@dataclass(frozen=True, slots=True)
class Dataset:
    """A Lance dataset that a side reads; `name` is what SQL calls it."""

    name: str
    uri: str


def side_of(join: KnnJoin, name: str) -> KnnSide:
    """The left or the right side."""
    return join.left if name == "left" else join.right


def datasets_of(spec: ProjectSpec, side: KnnSide) -> tuple[Dataset, ...]:
    """The Lance datasets that a side reads: the one that it is, or those that its query names."""
    if side.sql is not None or side.table is not None:
        named = [(ref, spec.node(ref)) for ref in dict.fromkeys(side.refs)]
        return tuple(
            Dataset(ref, node.uri if isinstance(node, Table) else node.output_uri)
            for ref, node in named
            if isinstance(node, Table) or (node is not None and node.output_format == "lance")
        )
    is_lance = side.format == "lance" and side.uri is not None and not side.options
    return (Dataset(side.uri, side.uri),) if is_lance and side.uri is not None else ()


def _sql_settings(conf: Mapping[str, str]) -> list[tuple[str, str]]:
    """What gives the text of a query its meaning, beside the tables; catalogs may hold secrets."""
    return sorted(
        (key, value)
        for key, value in conf.items()
        if key.startswith("spark.sql.") and not key.startswith("spark.sql.catalog.")
    )


@dataclass(frozen=True, slots=True)
class SideReader:
    """Looks at sides on behalf of the planner, at the versions that `snapshots` has by URI."""

    spec: ProjectSpec
    snapshots: Mapping[str, Snapshot | LakeError]

    def look(self, place: Place) -> JoinInput:
        """What a side of a join is now.

        Raises:
            LakeError: a dataset cannot be opened.
            UsageError: LS454 or LS455 about columns (`check_columns`), LS457 there are no files,
                LS458 a query names the result of a join that is no Lance dataset.
        """
        side = side_of(place.join, place.side)
        datasets, options = datasets_of(self.spec, side), self.spec.target.storage_options
        if side.sql is not None:
            return self._query(place, side, side.sql, datasets)
        if datasets:
            return self._table(place, side, datasets[0])
        node = None if side.table is None else self.spec.node(side.table)
        if isinstance(node, KnnJoin):
            return look_into(place, side, node.output_uri, node.output_format, options)
        assert side.uri is not None and side.format is not None
        return look_into(place, side, side.uri, side.format, options)

    def _table(self, place: Place, side: KnnSide, dataset: Dataset) -> JoinInput:
        found = self._snapshot(dataset)
        types = {field.name: field.type for field in found.fields}
        dimension = check_columns(place, side, dataset.uri, types)
        select = tuple(types) if side.select is None else side.select
        with self._opened(found) as opened:
            contents = fragment_contents(found, leaves(opened, (side.vector, *select)))
            index = index_metric(opened, side.vector) if place.side == "right" else None
        return JoinInput(
            work=SideWork(side.vector, select, table=PinnedTable.at(found, dataset.name)),
            digest=rows_digest(contents),
            fragments=contents,
            columns=select,
            rows=found.rows,
            dimension=dimension,
            index=index,
        )

    def _query(
        self, place: Place, side: KnnSide, sql: str, datasets: Sequence[Dataset]
    ) -> JoinInput:
        for ref in set(side.refs) - {dataset.name for dataset in datasets}:
            raise place.error(
                "LS458",
                f"the query of {place} names '{ref}', whose result is no Lance dataset",
                f"give '{ref}' a Lance output, or read its files as a side",
            )
        views = []
        digest = hashlib.blake2b(sql.encode(), digest_size=16)
        digest.update(json.dumps(_sql_settings(self.spec.target.spark_conf)).encode())
        for dataset in datasets:
            found = self._snapshot(dataset)
            with self._opened(found) as opened:
                contents = fragment_contents(found, leaves(opened, opened.schema.names))
            views.append(PinnedTable.at(found, dataset.name))
            digest.update(f"\0{dataset.name}\0{rows_digest(contents)}".encode())
        location = side.sql_location or place.join.location
        work = SideWork(side.vector, side.select, sql=sql, views=tuple(views), location=location)
        return JoinInput(work, digest.hexdigest(), columns=side.select)

    def _snapshot(self, dataset: Dataset) -> Snapshot:
        found = self.snapshots[dataset.uri]
        if isinstance(found, LakeError):
            raise found
        return found

    @contextmanager
    def _opened(self, found: Snapshot) -> Iterator[lance.LanceDataset]:
        options = self.spec.target.storage_options
        with pinned_reads(found.pin, options):
            yield open_pinned(found.pin, storage_options=options)
