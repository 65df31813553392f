"""Runs as rows of the runs dataset, and files that stand for running processes.

The files of a commit lie in a dataset's folder before the commit names them, and those that a
killed process has left look the same. So each writer keeps a file `writers/HOST-PID-STARTED-TIME-
RANDOM` while it writes, and garbage collection removes files without a commit only where no writer
may still run.

Projects may share a state, so that targets are stored as `PROJECT/TARGET`; earlier releases stored
the name of the target alone.

A run is recorded when it ends. Until then `running/HOST-PID-STARTED-TIME-RUN` holds its record as
it would be if it ended now, with all nodes interrupted. Where that process no longer runs, this is
the run's record.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from lancestat import codec
from lancestat.lake.files import ABANDONED_AFTER, TAG, Lease, this_process
from lancestat.lake.snapshot import take_rows
from lancestat.state.stored_table import StateFolder, commit_order
from lancestat.state.values import NodeRun, RunRecord

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from lance import LanceDataset
    from numpy.typing import NDArray


# The key of a flag that is stored within a node's result, though it is no part of that.
_FULL_REFRESH = "full_refresh"


def run_schema() -> pa.Schema:
    """Columns of the runs dataset; `record` is set where `record_json` is there."""
    import pyarrow as pa

    return pa.schema(
        [
            pa.field("id", pa.int64()),
            pa.field("run_id", pa.string()),
            pa.field("command", pa.string()),
            pa.field("target", pa.string()),
            pa.field("started_at", pa.timestamp("us", "UTC")),
            pa.field("finished_at", pa.timestamp("us", "UTC")),
            pa.field("status", pa.string()),
            pa.field("node", pa.string()),
            pa.field("kind", pa.string()),
            pa.field("digest", pa.string()),
            pa.field("table", pa.string()),
            pa.field("record", pa.bool_()),
            pa.field("result_json", pa.string()),
            pa.field("record_json", pa.string()),
        ]
    )


def run_batch(run: RunRecord, schema: pa.Schema) -> pa.RecordBatch:
    """Return the rows of one run: one for each node, or a single one without a node."""
    import pyarrow as pa

    head = {field.name: getattr(run, field.name) for field in fields(run) if field.name != "nodes"}
    head["target"] = f"{head.pop('project')}/{run.target}".removeprefix("/")
    rows = [{**head, **_node_row(node)} for node in run.nodes]
    return pa.RecordBatch.from_pylist(rows or [head], schema)


def _node_row(node: NodeRun) -> dict[str, object]:
    key, record = node.record or (None, None)
    # Rows of older releases have no column for the flag, and older releases ignore the key.
    result = {**node.result, **({_FULL_REFRESH: True} if node.full_refresh else {})}
    return {
        "node": node.node,
        "kind": node.kind,
        "digest": node.digest,
        "table": key,
        "record": record is not None,
        "result_json": json.dumps(result, default=str),
        "record_json": record,
    }


def runs_of(rows: Iterable[Mapping[str, Any]]) -> list[RunRecord]:
    """Return runs from those of their rows that decode, in the order in which they first appear."""
    runs: dict[str, tuple[RunRecord, dict[str, NodeRun]]] = {}
    for row in rows:
        try:
            head = _run(row)
            node = None if row["node"] is None else _node(row)
        except ValueError:
            continue
        _, nodes = runs.setdefault(head.run_id, (head, {}))
        if node is not None:
            # Two that record a killed run at the same time each append it.
            nodes.setdefault(node.node, node)
    return [replace(head, nodes=tuple(nodes.values())) for head, nodes in runs.values()]


def _run(row: Mapping[str, Any], *nodes: NodeRun) -> RunRecord:
    project, _, target = (row["target"] or "").rpartition("/")
    head = {**row, "project": project, "target": target, "nodes": ()}
    return replace(codec.convert(head, RunRecord), nodes=nodes)


def stored_targets(project: str, target: str) -> tuple[str, str]:
    """Return how the target of runs that `RunRecord.is_of` finds may be stored."""
    return f"{project}/{target}", target


def _is_of(targets: pa.ChunkedArray, project: str, target: str) -> pa.ChunkedArray:
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.is_in(targets, pa.array(stored_targets(project, target)))


def _node(row: Mapping[str, Any]) -> NodeRun:
    result = codec.decode(row["result_json"] or "", dict[str, object])
    full_refresh = result.pop(_FULL_REFRESH, False) is True
    record = row["table"], row["record_json"]
    stored = {"result": result, "record": None if None in record else record}
    return codec.convert({**row, **stored, "full_refresh": full_refresh}, NodeRun)


Record = TypeVar("Record")

_log = logging.getLogger("lancestat.state")


def read_records(
    dataset: LanceDataset, kind: str, decode: Callable[[str], Record]
) -> dict[str, Record]:
    """The newest record of every node of a kind, by key; only those are read and decoded."""
    rows = dataset.to_table(columns=["id", "table", "record", "kind"])
    kinds = rows.column("kind").to_pylist()
    newest = _newest(rows, "table", rows.column("record"))
    positions = [p for p in newest.tolist() if kinds[p] == kind]
    if not positions:
        return {}
    stored = take_rows(dataset, positions, ["table", "record_json"])
    records: dict[str, Record] = {}
    undecodable = 0
    for row in stored.to_pylist():
        try:
            records[row["table"]] = decode(row["record_json"] or "")
        except ValueError:
            undecodable += 1
    if undecodable:
        what = kind.replace("_", " ")
        _log.warning("%d stored %s records do not decode and will be made again", undecodable, what)
    return records


def read_past_records(
    dataset: LanceDataset, kind: str, decode: Callable[[str], Record]
) -> dict[str, tuple[tuple[RunRecord, Record], ...]]:
    """All records of a kind by key, oldest first, each with its run and that node alone."""
    rows = dataset.to_table(columns=["id", "kind", "record"])
    order = commit_order(rows.column("id"))
    kinds, recorded = rows.column("kind").to_pylist(), rows.column("record").to_pylist()
    positions = [p for p in order.tolist() if recorded[p] and kinds[p] == kind]
    found: dict[str, list[tuple[RunRecord, Record]]] = {}
    for row in take_rows(dataset, positions).to_pylist() if positions else ():
        try:
            past = _run(row, _node(row)), decode(row["record_json"] or "")
        except ValueError:
            continue
        found.setdefault(row["table"], []).append(past)
    return {key: tuple(some) for key, some in found.items()}


def read_runs(dataset: LanceDataset, limit: int) -> list[RunRecord]:
    """The newest runs, newest first."""
    rows = dataset.to_table(columns=["id", "run_id"])
    order = commit_order(rows.column("id"))
    positions = order[_of_newest_runs(rows, order, limit)[order]]
    if not len(positions):
        return []
    return runs_of(take_rows(dataset, positions).to_pylist())[::-1]


def read_run_ids(dataset: LanceDataset) -> frozenset[str]:
    """The ids of all runs."""
    import pyarrow.compute as pc

    rows = dataset.to_table(columns=["run_id"])
    return frozenset(pc.unique(rows.column("run_id")).to_pylist())


def newest_first(
    recorded: Sequence[RunRecord], interrupted: Iterable[RunRecord]
) -> list[RunRecord]:
    """Put interrupted runs among recorded ones, of which the newest is the first."""
    runs = list(recorded)
    for run in sorted(interrupted, key=lambda run: run.finished_at):
        later = (place for place, other in enumerate(runs) if other.finished_at <= run.finished_at)
        runs.insert(next(later, len(runs)), run)
    return runs


def with_interrupted(
    recorded: Mapping[str, tuple[RunRecord, ...]],
    interrupted: Iterable[RunRecord],
    project: str,
    target: str,
    limit: int,
) -> Mapping[str, tuple[RunRecord, ...]]:
    """Add the outcomes of interrupted runs under a target to those by node, up to a limit each."""
    outcomes = dict(recorded)
    for run in interrupted:
        for node in run.nodes if run.is_of(project, target) else ():
            runs = newest_first(outcomes.get(node.node, ()), [replace(run, nodes=(node,))])
            outcomes[node.node] = tuple(runs[:limit])
    return outcomes


def read_digests(dataset: LanceDataset, project: str, target: str) -> dict[str, str]:
    """The digest of every node's meaning in its newest row of a target."""
    import pyarrow.compute as pc

    rows = dataset.to_table(columns=["id", "node", "target", "digest"])
    is_known = pc.and_(pc.is_valid(rows["digest"]), _is_of(rows["target"], project, target))
    newest = rows.take(_newest(rows, "node", is_known))
    return dict(zip(newest["node"].to_pylist(), newest["digest"].to_pylist(), strict=True))


def newest_record_positions(dataset: LanceDataset) -> NDArray[np.int64]:
    """Positions of the rows that hold the newest record of a table or a join, ascending."""
    rows = dataset.to_table(columns=["id", "table", "record"])
    return _newest(rows, "table", rows.column("record"))


def _newest(rows: pa.Table, key: str, eligible: pa.ChunkedArray) -> NDArray[np.int64]:
    """Positions of the newest eligible row for each value of a column, ascending."""
    import numpy as np

    order = commit_order(rows.column("id"))
    positions = order[eligible.to_numpy()[order] == True]  # noqa: E712
    encoded = rows.column(key).take(positions).combine_chunks().dictionary_encode()
    keys = encoded.indices.to_numpy(zero_copy_only=False)
    newest = np.full(len(encoded.dictionary), -1, dtype=np.int64)
    # Of equal indices the last assignment stays.
    newest[keys] = positions
    return np.sort(newest)


def newest_run_rows(dataset: LanceDataset, limit: int) -> NDArray[np.bool_]:
    """Return a mask of the rows that belong to the `limit` newest runs."""
    rows = dataset.to_table(columns=["id", "run_id"])
    return _of_newest_runs(rows, commit_order(rows.column("id")), limit)


def _of_newest_runs(rows: pa.Table, order: NDArray[np.int64], limit: int) -> NDArray[np.bool_]:
    import numpy as np

    encoded = rows.column("run_id").combine_chunks().dictionary_encode()
    runs = encoded.indices.to_numpy(zero_copy_only=False)
    latest = np.full(len(encoded.dictionary), -1, dtype=np.int64)
    latest[runs[order]] = np.arange(len(runs))
    is_newest = np.zeros(len(latest), dtype=np.bool_)
    is_newest[np.argsort(latest)[::-1][: max(limit, 0)]] = True
    return np.asarray(is_newest[runs], dtype=np.bool_)


def read_outcomes(
    dataset: LanceDataset,
    project: str,
    target: str,
    limit: int,
    *,
    recorded_kind: str | None = None,
) -> dict[str, tuple[RunRecord, ...]]:
    """By node, its `limit` newest outcomes under a target; with a kind, those that recorded it."""
    more = ["kind", "record"] if recorded_kind else []
    rows = dataset.to_table(columns=["id", "node", "target", *more])
    is_wanted = _is_of(rows["target"], project, target)
    positions = _newest_outcomes(rows, is_wanted, limit, recorded_kind=recorded_kind)
    if not positions:
        return {}
    by_node: dict[str, list[RunRecord]] = {}
    undecodable = 0
    columns = [name for name in run_schema().names if name != "record_json"]
    for row in take_rows(dataset, positions, columns).to_pylist():
        try:
            outcome = _run(row, _node({**row, "record_json": None}))
        except ValueError:
            undecodable += 1
        else:
            by_node.setdefault(row["node"], []).append(outcome)
    if undecodable:
        _log.warning("%d outcomes of runs do not decode and are left out", undecodable)
    return {node: tuple(outcomes) for node, outcomes in by_node.items()}


def _newest_outcomes(
    rows: pa.Table, is_wanted: pa.ChunkedArray, limit: int, *, recorded_kind: str | None
) -> list[int]:
    """Positions of the newest wanted rows of every node, the newest first."""
    import numpy as np
    import pyarrow.compute as pc

    encoded = rows.column("node").combine_chunks().dictionary_encode()
    nodes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    newest_first = commit_order(rows.column("id"))[::-1]
    order = newest_first[np.argsort(nodes[newest_first], kind="stable")]
    if recorded_kind:
        is_of_kind = pc.equal(rows.column("kind"), recorded_kind)
        is_wanted = pc.and_(is_wanted, pc.and_(is_of_kind, rows.column("record")))
    is_wanted = is_wanted.fill_null(False).to_numpy()
    order = order[(nodes[order] >= 0) & is_wanted[order]]
    if not len(order):
        return []
    ordered = nodes[order]
    starts = np.flatnonzero(np.diff(ordered, prepend=-1))
    ranks = np.arange(len(ordered)) - np.repeat(starts, np.diff(starts, append=len(ordered)))
    newest: list[int] = order[ranks < limit].tolist()
    return newest


@dataclass(frozen=True, slots=True)
class LeaseFolder:
    """The lease files of one kind. Methods raise StateUnreachable where the state is.

    Those of other hosts end `duration` after they were written.
    """

    state: StateFolder
    name: str
    duration: timedelta = ABANDONED_AFTER
    # Also the draft of such a file, whose owner stands at its end.
    _PATTERN = re.compile(rf"(?:\..*\.draft-)?({TAG})(?:-(\d+))?-([0-9a-f]+)")

    def add(self, started_at: float, suffix: str, text: str = "") -> str:
        """Write the lease file of this process and return its path."""
        # A look first: a write alone would make a bucket that is missing in some stores.
        self.state.locations()
        path = f"{self.name}/{this_process().tag}-{int(started_at)}-{suffix}"
        with self.state.reached():
            self.state.storage.write(path, text, make_folder=True)
        return path

    def files(self, *, is_held: bool) -> dict[str, str]:
        """Return the paths of leases by the ends of their names, held ones or those that ended."""
        with self.state.reached():
            names = sorted(self.state.storage.files(self.name))
        return {
            match[3]: f"{self.name}/{name}"
            for name in names
            if (match := self._PATTERN.fullmatch(name)) and self._lease(match).is_held() is is_held
        }

    def _lease(self, match: re.Match[str]) -> Lease:
        lease = Lease.of_tag(match[1], int(match[2]) if match[2] else None)
        return replace(lease, duration=self.duration)

    def remove(self, paths: Iterable[str]) -> None:
        """Remove lease files, and the folder once it is empty."""
        with self.state.reached():
            for path in paths:
                self.state.storage.remove_file(path)
            self.state.storage.remove_empty(self.name)

    def may_be_held(self) -> bool:
        """Return whether any of these leases may be held; those that have ended are removed."""
        self.remove(self.files(is_held=False).values())
        with self.state.reached():
            return bool(self.state.storage.files(self.name))


def mark(run: RunRecord) -> str:
    """Return the content of the file that stands for a run."""
    return codec.encode(run_batch(run, run_schema()).to_pylist())


def marked_runs(text: str) -> list[RunRecord]:
    """Return the run of such a content, nothing where it does not decode."""
    try:
        rows: list[Mapping[str, object]] = json.loads(text)
        return runs_of(rows)
    except (ValueError, TypeError, KeyError):
        return []
