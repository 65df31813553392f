"""Reads the scans of a table into partials: in threads of this process, or in Spark jobs."""

from __future__ import annotations

import os
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate, chain
from types import TracebackType
from typing import TYPE_CHECKING

from lancestat.errors import Cancelled, FragmentNotAnalyzed, LancestatError
from lancestat.lake.open import portable
from lancestat.lake.snapshot import Pin
from lancestat.redact import redact_line, secret_values
from lancestat.spark.failure import WorkerError, job_error
from lancestat.spark.session import RunSession, task_threads
from lancestat.spark.versions import prepare_worker
from lancestat.spec.catalog import UriOptions
from lancestat.spec.model import LOCAL_ATTEMPTS, Target, local_cores
from lancestat.state.partials import group_width
from lancestat.state.values import partial_key
from lancestat.tables.action import Scan, TableVersion
from lancestat.tables.statistics.key_proof import MOST_HASHES
from lancestat.tables.statistics.partial import ColumnPartial, decode, encode, merge
from lancestat.tables.work_items import (
    PARTIALS_PER_JOB,
    ScanRange,
    WorkItem,
    jobs,
    most_divisions,
    split,
    together,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from lance import LanceDataset

    from lancestat.tables.statistics.kernel import Request

# Fragments and bytes of one table read so far; called from a thread of the engine's.
OnProgress = Callable[[int, int], None]
# Receives the scans of ranges that have been read.
Listener = Callable[[Sequence[int]], None]


class ScanProgress:
    """Fragments and bytes read so far of one table."""

    def __init__(self, on_progress: OnProgress) -> None:
        self._on_progress = on_progress
        self._fragments: set[int] = set()
        self._bytes = 0
        self._is_failing = False

    def listener(self, scans: Sequence[Scan], parts: Mapping[int, int]) -> Listener:
        """Return a listener for the finished parts of one job; `parts` is their number per scan."""
        left = dict(parts)

        def add(done: Sequence[int]) -> None:
            for index in done:
                left[index] -= 1
                self._bytes += scans[index].size_bytes // parts[index]
                if left[index] == 0:
                    self._fragments.add(scans[index].fragment_id)
            try:
                if not self._is_failing:
                    self._on_progress(len(self._fragments), self._bytes)
            except Exception:
                # Spark's scheduler waits for this thread: the run must not stop.
                self._is_failing = True

        return add


# One range of a scan, with its partials by field key.
RangePartials = tuple[ScanRange, Mapping[str, ColumnPartial]]


@dataclass(frozen=True, slots=True)
class ReadRanges:
    """Ranges that were read.

    `stored` has each range once, with encoded partials by field key; those of whole fragments that
    the state has together are together. `merged` has what whole fragments of one group have
    together, where these are several.
    """

    parts: WorkItem
    stored: tuple[Together, ...]
    merged: tuple[Together, ...] = ()


# The scans of some ranges, and the encoded partials of all these rows by field key.
Together = tuple[tuple[int, ...], Mapping[str, bytes]]


def _together(
    ranges: Sequence[RangePartials], width: int, alone: Container[int] = (), least: int = 1
) -> tuple[Together, ...]:
    """Merge and encode the partials of whole fragments whose ids are in one range of a width.

    Other ranges, and those of the scans `alone`, are left by themselves. What fewer than `least`
    have together is left out.
    """
    groups: dict[tuple[int, int], list[RangePartials]] = defaultdict(list)
    for number, (part, partials) in enumerate(ranges):
        is_alone = not part.is_whole or width == 1 or part.scan in alone
        place = (0, number) if is_alone else (1, part.rows.fragment_id // width)
        groups[place].append((part, partials))
    return tuple(
        (
            tuple(part.scan for part, _ in group),
            {key: encode(merge(partials[key] for _, partials in group)) for key in group[0][1]},
        )
        for group in groups.values()
        if len(group) >= least
    )


@dataclass(frozen=True, slots=True)
class ScanTask:
    """Reads work items of one pinned table; pickled into the Spark job.

    `columns` names the columns of each stored key that a scan of the job reads. `keeps_hashes` says
    whether proofs of keys get hashes. `width` is how many ids of fragments a group has, and `fold`
    that of fragments which the state has together, less the scans `alone`.
    """

    pin: Pin
    columns: Mapping[str, tuple[str, ...]]
    storage_options: Mapping[str, str] = field(repr=False)
    threads: int = 1
    keeps_hashes: bool = False
    width: int = 1
    fold: int = 1
    alone: frozenset[int] = frozenset()

    def __call__(self, items: Iterable[WorkItem]) -> Iterator[ReadRanges]:
        """Yield the partials of every range of every item.

        Raises:
            WorkerError: anything went wrong; its text carries the `LancestatError` to the driver.
        """
        prepare_worker(self.threads, "lancestat.tables.statistics.kernel")
        try:
            for parts in chain.from_iterable(map(together, items)):
                yield self.read_all(parts)
        except LancestatError as error:
            raise WorkerError.carrying(error) from None

    def read_all(self, parts: WorkItem) -> ReadRanges:
        """Return the partials of ranges that `together` put together; raises as `read` does."""
        if len(parts) == 1:
            return self._read_ranges([self.read(parts[0])])
        from lancestat.spark.fragment_reader import read_fragments
        from lancestat.tables.statistics.column_type import default_width
        from lancestat.tables.statistics.segments import reduce_segments

        ids = [part.rows.fragment_id for part in parts]
        partials: list[dict[str, ColumnPartial]] = [{} for _ in parts]
        with self._reading(f"fragments {ids[0]} to {ids[-1]}"):
            dataset, requests, schema = self._asked(parts[0])
            widths = {field.name: default_width(field.type) for field in schema}
            rows = sum(part.count for part in parts)
            size_bytes = sum(part.count * part.row_bytes for part in parts)
            for some in _divided(requests, widths, rows, size_bytes):
                read, lengths = read_fragments(dataset, ids, _columns(some), self.storage_options)
                found = reduce_segments(read, lengths, read.schema, some)
                for known, more in zip(partials, found, strict=True):
                    known.update(more)
        return self._read_ranges(list(zip(parts, partials, strict=True)))

    def _read_ranges(self, ranges: Sequence[RangePartials]) -> ReadRanges:
        stored = _together(ranges, self.fold, self.alone)
        merged = _together(ranges, self.width, least=2)
        return ReadRanges(tuple(part for part, _ in ranges), stored, merged)

    def read(self, part: ScanRange) -> RangePartials:
        """Return the partials of one range.

        Raises:
            LakeError: its dataset was replaced, or cannot be opened.
            FragmentNotAnalyzed: its rows cannot be read or analyzed.
        """
        import pyarrow as pa

        from lancestat.spark.fragment_reader import (
            BATCH_BYTES,
            BATCH_ROWS,
            column_widths,
            read_range,
        )
        from lancestat.tables.statistics.kernel import reduce_batches

        with self._reading(f"fragment {part.rows.fragment_id}"):
            dataset, requests, schema = self._asked(part)
            names, options, row_bytes = tuple(schema.names), self.storage_options, part.row_bytes
            if most_divisions(len(names)) == 1:
                batches = read_range(dataset, part.rows, names, options, row_bytes=row_bytes)
                return part, reduce_batches(batches, schema, requests)
            widths = column_widths(dataset, part.rows, names, options, row_bytes)
            partials: dict[str, ColumnPartial] = {}
            for some in _divided(requests, widths, part.count):
                names = _columns(some)
                width = max(1, sum(widths[name] for name in names))
                rows = max(1, min(BATCH_ROWS, BATCH_BYTES // width))
                batches = read_range(dataset, part.rows, names, options, batch_rows=rows)
                of_some = pa.schema([schema.field(name) for name in names])
                partials.update(reduce_batches(batches, of_some, some))
            return part, partials

    def _asked(self, part: ScanRange) -> tuple[LanceDataset, Requests, pa.Schema]:
        """Return the dataset, what the kernel is asked of a range by key, and the columns."""
        import pyarrow as pa

        from lancestat.spark.fragment_reader import pinned_dataset

        requests = {
            key: request_of(key, self.columns[key], keeps_hashes=self.keeps_hashes)
            for key in sorted(part.fields)
        }
        dataset, names = pinned_dataset(self.pin, self.storage_options), set(_columns(requests))
        return dataset, requests, pa.schema([f for f in dataset.schema if f.name in names])

    @contextmanager
    def _reading(self, what: str) -> Iterator[None]:
        try:
            yield
        except LancestatError:
            raise
        except Exception as error:
            secrets = secret_values(self.storage_options)
            cause = redact_line(f"{type(error).__name__}: {error}", secrets)
            subject = f"{what} of {self.pin.uri} at version {self.pin.version}"
            raise FragmentNotAnalyzed(f"{subject} cannot be analyzed: {cause}") from error


Requests = dict[str, "Request"]


def _columns(requests: Requests) -> tuple[str, ...]:
    return tuple(dict.fromkeys(chain.from_iterable(r.columns for r in requests.values())))


def _divided(
    requests: Requests, widths: Mapping[str, int], rows: int, size_bytes: int = 0
) -> list[Requests]:
    """Divide requests such that the columns of each part come in few batches, of many rows.

    A call of the kernel for few rows takes longer than these. `widths` has the bytes of a value by
    column, in the order in which files have them, and each part those of columns side by side, of
    about as many bytes. Requests of several columns, or of a column more than once, are all in the
    first. `size_bytes` is what all rows take at least where they are read at once, whatever widths
    are.
    """
    from lancestat.spark.fragment_reader import BATCH_BYTES, BATCH_ROWS

    batch_bytes = max(size_bytes, min(rows, BATCH_ROWS) * sum(widths.values()))
    count = min(-(-batch_bytes // BATCH_BYTES), most_divisions(len(widths)))
    if count <= 1:
        return [requests]
    asked = Counter(chain.from_iterable(request.columns for request in requests.values()))
    shared = {c for r in requests.values() if len(r.columns) > 1 for c in r.columns}
    shared |= {column for column, times in asked.items() if times > 1}
    ends = dict(zip(widths, accumulate(widths.values()), strict=True))
    share = max(ends.values()) / count
    divided: list[Requests] = [{} for _ in range(count)]
    for key, request in requests.items():
        [column, *others] = request.columns
        is_first = bool(others) or column in shared
        place = 0 if is_first else min(count - 1, int((ends[column] - widths[column]) / share))
        divided[place][key] = request
    return [some for some in divided if some]


def request_of(key: str, columns: tuple[str, ...], *, keeps_hashes: bool) -> Request:
    """Return what the kernel is asked for the partials of a stored key."""
    from lancestat.tables.statistics.kernel import Request

    parts = partial_key(key)
    return Request(columns, parts.quantiles, parts.common_values, parts.is_unique, keeps_hashes)


# Scans, with the encoded partials of all their rows by field key.
ScanPartials = tuple[tuple[Scan, ...], Mapping[str, bytes]]


@dataclass(frozen=True, slots=True)
class Scanned:
    """Scans that were read: as the state is to have them, and merged as far as tasks could.

    Each scan is once in both.
    """

    stored: Sequence[ScanPartials]
    merged: Sequence[ScanPartials]


# Reads all items of a job, and tells the listener the scan of each range that has been read. What
# it yields before it fails has been read all the same.
RunItems = Callable[[ScanTask, Sequence[WorkItem], Listener, str], Iterable[ReadRanges]]


def scan_table(
    node: str,
    table: TableVersion,
    all_scans: Sequence[Scan],
    storage_options: Mapping[str, str],
    run: RunItems,
    *,
    cores: int,
    threads: int = 1,
    on_progress: OnProgress,
    bytes_per_job: int | None = None,
) -> Iterator[Scanned]:
    """Read the scans of a table and yield each once, with its partials.

    A table of many partials takes several jobs, one after the other, so that the driver holds only
    some of them. The partials do not depend on where or in which order the items are read. Scans
    are split for `cores`, and a task has `threads` cores. A job reads about `bytes_per_job`, where
    that is bounded.
    """
    progress = ScanProgress(on_progress)
    width = group_width({group.fragment_id for group in table.groups})
    for scans in jobs(all_scans, PARTIALS_PER_JOB, bytes_per_job, table.fold):
        items = split(scans, cores)
        alone = _repeated(table, scans)
        task = ScanTask(
            pin=table.pin,
            columns=table.needs,
            storage_options=portable(storage_options),
            threads=threads,
            keeps_hashes=table.rows <= MOST_HASHES,
            width=max(width, table.fold),
            fold=table.fold,
            alone=alone,
        )
        parts = Counter(part.scan for item in items for part in item)
        description = f"lancestat: {node}: {len(scans)} scans in {len(items)} tasks"
        done: list[ReadRanges] = []
        try:
            for read in run(task, items, progress.listener(scans, parts), description):
                done.append(read)
        except (Exception, KeyboardInterrupt):
            yield _assemble(scans, parts, done, table.fold, alone)
            raise
        read_parts = sum(len(read.parts) for read in done)
        assert read_parts == parts.total(), "a job that succeeds has read all ranges"
        yield _assemble(scans, parts, done, table.fold, alone)


def _assemble(
    scans: Sequence[Scan],
    parts: Mapping[int, int],
    done: Sequence[ReadRanges],
    fold: int,
    alone: Container[int],
) -> Scanned:
    """Return the partials of the scans all of whose ranges are done, folded but for those alone."""
    read_together: list[Together] = []
    by_scan: dict[int, list[Mapping[str, bytes]]] = defaultdict(list)
    for read in done:
        for places, partials in read.stored:
            if len(places) > 1:
                read_together.append((places, partials))
            else:
                by_scan[places[0]].append(partials)
    read_together += (
        ((index,), {key: _whole(key, ranges) for key in scans[index].fields})
        for index, ranges in sorted(by_scan.items())
        if len(ranges) == parts[index]
    )
    stored = _folded(scans, read_together, fold, alone)
    merged = [piece for read in done for piece in read.merged]
    are_merged = {index for places, _ in merged for index in places}
    rest = [piece for piece in read_together if are_merged.isdisjoint(piece[0])]
    merged += stored if len(rest) == len(read_together) else rest
    return Scanned(_of_scans(scans, stored), _of_scans(scans, merged))


def _of_scans(scans: Sequence[Scan], pieces: Iterable[Together]) -> list[ScanPartials]:
    return [(tuple(scans[index] for index in places), partials) for places, partials in pieces]


def _folded(
    scans: Sequence[Scan], pieces: Sequence[Together], fold: int, alone: Container[int]
) -> list[Together]:
    """Merge pieces of the same columns whose fragments are in one range of `fold` ids."""
    if fold == 1:
        return list(pieces)
    ranges: dict[object, list[Together]] = defaultdict(list)
    for piece in pieces:
        first = piece[0][0]
        scan = scans[first]
        place = (scan.fragment_id // fold, scan.fields, first if first in alone else None)
        ranges[place].append(piece)
    return [
        (
            tuple(chain.from_iterable(places for places, _ in some)),
            {key: _whole(key, [partials for _, partials in some]) for key in some[0][1]},
        )
        for some in ranges.values()
    ]


def _repeated(table: TableVersion, scans: Sequence[Scan]) -> frozenset[int]:
    """Return the scans whose content several fragments have, such as a column of nulls alone.

    That is stored by itself: nothing tells which fragments it was folded with.
    """
    if table.fold == 1:
        return frozenset()
    counts = Counter(group.fingerprint for group in table.groups)
    return frozenset(index for index, scan in enumerate(scans) if counts[scan.fingerprint] > 1)


def _whole(key: str, parts: Sequence[Mapping[str, bytes]]) -> bytes:
    """Return a partial of a scan, given those of its ranges."""
    encoded = [one[key] for one in parts if key in one]
    return encoded[0] if len(encoded) == 1 else encode(merge(map(decode, encoded)))


# Receives a node's name with its fragments and bytes read so far.
Advanced = Callable[[str, int, int], None]


class ProcessScanner:
    """Scans tables in threads of this process, one for each core that the target's Spark would use.

    The ranges, the kernel and the attempts are those of a job on Spark, and so are the partials.
    """

    def __init__(
        self,
        target: Target,
        on_progress: Advanced = lambda node, fragments, size_bytes: None,
        options: UriOptions | None = None,
    ) -> None:
        self._options = options or UriOptions(target.storage_options)
        self._cores = local_cores(target.master or "") or os.cpu_count() or 1
        self._on_progress = on_progress
        self._cancelled = threading.Event()
        # All tables share the cores.
        self._pool = ThreadPoolExecutor(self._cores, "lancestat-scan")

    def __enter__(self) -> ProcessScanner:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None:
            self.cancel()
        # The run has waited for those who end soon, see `Scheduler`.
        is_interrupted = kind is not None and issubclass(kind, KeyboardInterrupt)
        self._pool.shutdown(wait=not is_interrupted, cancel_futures=True)

    def scan(self, node: str, table: TableVersion, scans: Sequence[Scan]) -> Iterator[Scanned]:
        """Read scans of a table; yield each once with its partials.

        Raises:
            LakeError: The dataset was replaced, or cannot be opened.
            FragmentNotAnalyzed: Rows cannot be read or analyzed, after all attempts.
            Cancelled: It was cancelled.
        """
        return scan_table(
            node,
            table,
            scans,
            self._options.of(table.uri),
            self._run,
            cores=self._cores,
            on_progress=partial(self._on_progress, node),
        )

    def _run(
        self, task: ScanTask, items: Sequence[WorkItem], listener: Listener, description: str
    ) -> Iterator[ReadRanges]:
        lock = threading.Lock()
        done: list[list[ReadRanges]] = [[] for _ in items]

        def read(item: WorkItem, ranges: list[ReadRanges]) -> None:
            self._read(task, item, ranges)
            with lock:
                listener([part.scan for read in ranges for part in read.parts])

        self._refuse_when_cancelled(task.pin.uri)
        futures = [self._pool.submit(read, *each) for each in zip(items, done, strict=True)]
        try:
            ended = wait(futures, return_when=FIRST_EXCEPTION).done
        finally:
            for future in futures:
                future.cancel()
        for partials in done:
            yield from tuple(partials)
        for future in ended:
            future.result()

    def _read(self, task: ScanTask, item: WorkItem, done: list[ReadRanges]) -> None:
        """Add the partials of an item's ranges to those that are done."""
        runs = tuple(together(item))
        for more_attempts in reversed(range(LOCAL_ATTEMPTS)):
            try:
                for parts in runs[len(done) :]:
                    self._refuse_when_cancelled(task.pin.uri)
                    done.append(task.read_all(parts))
                return
            except Cancelled:
                raise
            except LancestatError:
                if not more_attempts:
                    raise

    def cancel(self) -> None:
        """End every scan after the ranges that are being read, and refuse further ones."""
        self._cancelled.set()

    def _refuse_when_cancelled(self, uri: str) -> None:
        if self._cancelled.is_set():
            raise Cancelled(f"reading {uri} was cancelled")


@dataclass(slots=True)
class SparkScanner:
    """Reads fragments of tables on the Spark of a run, `bytes_per_job` at once where that is set.

    Call `scan` from one thread per table: Spark's FIFO scheduler gives free cores to the oldest job
    first, so tables that come early are through early, and a table that is being published leaves
    its cores to the others.
    """

    spark: RunSession
    options: UriOptions
    on_progress: Advanced = lambda node, fragments, size_bytes: None
    bytes_per_job: int | None = None
    _is_paused: bool = False

    def pause(self) -> None:
        """Start no further jobs: `scan` raises Cancelled after the one that runs."""
        self._is_paused = True

    def scan(self, node: str, table: TableVersion, scans: Sequence[Scan]) -> Iterator[Scanned]:
        """Read scans of a table; yield each once with its partials.

        Raises:
            LakeError: The dataset was replaced, or cannot be opened.
            FragmentNotAnalyzed: Rows cannot be read or analyzed, after Spark's own retries.
            JobFailed: The Spark job failed otherwise.
            SessionLostError: The Spark Connect server restarted; read what was not yielded again.
            Cancelled, SparkNotStarted: As `RunSession.working`.
        """
        if not scans:
            return
        what, options = f"reading {table.uri}", self.options.of(table.uri)
        if self._is_paused:
            raise Cancelled(f"{what} was stopped")
        with self.spark.working(what) as (session, group):
            from lancestat.spark.jobs import jobs_of

            spark_jobs = jobs_of(session)

            def run(
                task: ScanTask, items: Sequence[WorkItem], listener: Listener, description: str
            ) -> list[ReadRanges]:
                def read(items: Iterable[WorkItem]) -> Iterator[tuple[ReadRanges, list[int]]]:
                    for ranges in task(items):
                        yield ranges, [part.scan for part in ranges.parts]

                if self._is_paused:
                    raise Cancelled(f"{what} was stopped")
                try:
                    with spark_jobs.group(group, description):
                        return spark_jobs.run(read, items, listener)
                except Exception as error:
                    # What a worker raised comes back as it was.
                    job, secrets = f"the Spark job over {table.uri}", secret_values(options)
                    raise job_error(error, what, secrets, job=job) from None

            for scanned in scan_table(
                node,
                table,
                scans,
                options,
                run,
                cores=spark_jobs.cores,
                threads=task_threads(session),
                on_progress=partial(self.on_progress, node),
                bytes_per_job=self.bytes_per_job,
            ):
                self.spark.refuse_when_cancelled(what)
                yield scanned
