"""Results as Lance datasets, whose commits are marked; past versions, and what killed runs left.

Names of data files tell nothing about who wrote them, and a task's report is lost when its job
fails. So each task leaves a *write intent*, `_lancestat/<run>/<attempt>.json`, before the data is
moved into place. What it has not finished is in the folder `_lancestat/<run>/<attempt>`.
"""

from __future__ import annotations

import json
import logging
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from itertools import islice, pairwise
from typing import TYPE_CHECKING

from lancestat import codec
from lancestat.errors import DatasetMissing, LakeError, OutputNotWritten, VersionMissing
from lancestat.joins.output.marks import (
    CHANGED,
    KEY,
    MARK_MESSAGE,
    MESSAGE,
    is_result,
    mark_for,
    objection,
    rows_digest,
    with_new_mark,
)
from lancestat.joins.output.writer import (
    GRACE,
    OutputWriter,
    Written,
    refused,
    require_outside_datasets,
    stale,
    without_rows,
    writing,
)
from lancestat.joins.record import OutputFormat, OutputState
from lancestat.lake.catalog_tables import CatalogOptions
from lancestat.lake.commit import (
    BatchSource,
    Conflict,
    Requirement,
    SameDataset,
    VersionIs,
    commit,
    commit_properties,
    unannounced,
)
from lancestat.lake.error_mapping import Cause, cause_of
from lancestat.lake.files import (
    Lease,
    Process,
    Storage,
    abandoned,
    local_path,
    parse_instant,
    process_of,
    storage_at,
    store_options,
    this_process,
)
from lancestat.lake.history import read_commit
from lancestat.lake.open import (
    observe_dataset,
    pinned_history,
    readable,
    renewed_by_catalog,
)
from lancestat.lake.snapshot import pin_of
from lancestat.redact import redact_line, secret_values

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    import pyarrow as pa
    from lance import FragmentMetadata, LanceDataset, LanceFragment, LanceOperation
    from numpy.typing import NDArray

_log = logging.getLogger("lancestat.knn")

_INTENTS = "_lancestat"
_LAST = "last.json"
# The entries of a dataset without any commit, and the file by which catalogs reserve a folder.
_UNCOMMITTED = {"data", "_transactions", "_versions", _INTENTS, ".lance-reserved"}
# Clocks of those who commit to one dataset differ by less.
_CLOCK_SKEW = timedelta(hours=1)

# An update leaves so many fragments at the end that have fewer than so many rows, and writes no
# more than so many rows anew to have fewer.
_MOST_SMALL = 16
_FULL_ROWS = 1 << 18
_MOST_REWRITTEN = 1 << 22

_ATTEMPTS = 20
_PAUSE_SECONDS = 0.05
_BATCH_ROWS = 8192


@dataclass(frozen=True, slots=True)
class LanceOutput:
    """A result in a dataset. Where a method looks at the location, it raises `OutputOccupied` for
    what no join wrote there, which is not touched, and a `LakeError` where it cannot be looked at.
    """

    uri: str
    options: Mapping[str, str]

    def begin(self, run_id: str) -> OutputWriter:
        """Prepare to write a result, and remove what killed runs left where that is certain.

        A location inside another dataset is occupied, too; OutputNotWritten where nothing can be
        written.
        """
        require_outside_datasets(self.uri, self.options)
        self.collect_garbage()
        owner = this_process()
        run = f"{owner.tag}-{secrets.token_hex(8)}"
        return OutputWriter(OutputFormat.LANCE, self.uri, run, run_id, owner, self.options)

    def collect_garbage(self) -> None:
        """Remove what killed runs left of results that were never committed, and nothing else."""
        if self.opened() is None:
            self.require_nothing()
        with self._logged():
            leased = ((intents, intents.lease) for intents in self.all_intents())
            for intents in abandoned(leased):
                self._clean_up(intents)

    def write(
        self,
        writer: OutputWriter,
        number: int,
        schema: pa.Schema,
        batches: Iterable[pa.RecordBatch],
    ) -> Written:
        """Write the rows of piece `number` of the result; a repeated attempt does no harm."""
        source = BatchSource(schema.remove_metadata(), batches)
        attempt = f"{number:06d}-{secrets.token_hex(4)}"
        with source.own_errors(), writing(self.uri, self.options):
            path = local_path(self.uri)
            if path is not None:
                fragments = self._write_aside(writer, path, attempt, source)
            else:
                fragments = self._write_fragments(source)
                self._record_intent(writer, attempt, fragments)
        content = json.dumps([fragment.to_json() for fragment in fragments])
        return Written(content, source.rows)

    def replace(
        self, writer: OutputWriter, schema: pa.Schema, written: Sequence[Written]
    ) -> OutputState:
        """Make the written pieces, in their order, the whole result, in one step.

        Of two runs that replace a result at the same time the later one wins. With OutputNotWritten
        readers still see the result before.
        """
        operation = self._replacement(schema, written)
        for attempt in range(_ATTEMPTS):
            before = self.opened()
            if before is None:
                self.require_nothing()
            landed = self._commit(writer, operation, before)
            if landed is not None:
                return self._settled(writer, landed)
            time.sleep(_PAUSE_SECONDS * attempt)
        shown = redact_line(self.uri, secret_values(self.options))
        raise OutputNotWritten(
            f"the result cannot be written to {shown}: others kept committing first",
            hint="run again when that dataset is quieter; readers still see the old result",
        )

    def replace_version(
        self,
        writer: OutputWriter,
        schema: pa.Schema,
        written: Sequence[Written],
        before: LanceDataset | None,
    ) -> OutputState:
        """Replace the result that was opened `before`, None where there was none.

        Raises:
            StaleBase: another commit has come first.
        """
        operation = self._replacement(schema, written)
        return self._settled(writer, self._commit(writer, operation, before, is_strict=True))

    def update(
        self,
        writer: OutputWriter,
        schema: pa.Schema,
        previous: OutputState,
        removed: NDArray[np.int64],
        written: Sequence[Written],
    ) -> OutputState:
        """Remove rows of the previous result by their ascending places in it, and let the written
        pieces follow the others, in one step: an Update changes the rows, a Merge moves the mark.

        StaleBase is raised when readers do not see `previous` any more, or it has other columns. No
        commit may come before the Update: it would land behind that of another run, and rows
        would be there twice. A Merge conflicts with whatever changes rows. Small fragments at the
        end, and those of which many rows are gone, are written anew (`first_rewritten`).
        """
        import numpy as np
        from lance import LanceOperation

        dataset = self.opened()
        if dataset is None:
            raise stale(self.uri, "has gone", self.options)
        state = self._state(dataset)
        if state.digest != previous.digest:
            raise stale(self.uri, "has changed", self.options)
        if not dataset.schema.remove_metadata().equals(schema.remove_metadata()):
            raise stale(self.uri, "has got other columns", self.options)
        new = _fragments(written)
        if not new and not len(removed):
            return state
        fragments = dataset.get_fragments()
        edges = np.cumsum([0, *(fragment.metadata.num_rows for fragment in fragments)])
        live = np.diff(edges - removed.searchsorted(edges))
        first = first_rewritten(live, np.array([part.physical_rows for part in fragments]))
        with writing(self.uri, self.options):
            kept, emptied = _without_lines(fragments[:first], removed)
        if live[first:].any():
            lines = removed[removed.searchsorted(edges[first]) :] - edges[first]
            batches = without_rows(_batches(fragments[first:]), lines)
            new = [*_fragments([self.write(writer, len(written), schema, batches)]), *new]
        emptied += [fragment.fragment_id for fragment in fragments[first:]]
        # Lance numbers the new fragments of an Update: indexes may cover ids that were in use.
        operation = LanceOperation.Update(emptied, kept, new)
        landed = self._commit(writer, operation, dataset, is_strict=True)
        if landed is not None:
            # An Update keeps the schema, and with it the mark.
            all_now = [fragment.metadata for fragment in landed.get_fragments()]
            marked = with_new_mark(self.uri, dataset.lance_schema, all_now)
            merge = LanceOperation.Merge(all_now, marked)
            landed = self._commit(writer, merge, landed, message=MARK_MESSAGE)
        return self._settled(writer, landed)

    def current(self) -> OutputState | None:
        """Return the result that readers see now, None when there is none."""
        dataset = self.opened()
        return None if dataset is None else self._state(dataset)

    def remove_past(self, keep: int | timedelta, now: datetime) -> int:
        """Remove results that are older than what is kept; return how many versions these were.

        The newest result is kept, with every version since, tagged versions are, and what was
        replaced less than 15 minutes ago, so that its readers can finish. `keep` says how many
        results, or for how long. The versions of a catalog that manages them are the catalog's to
        remove.
        """
        dataset = self.opened()
        if dataset is None or self._is_managed:
            return 0
        with pinned_history(pin_of(dataset, self.uri), self.options) as history:
            past = _past_versions(history, keep, now)
        if not past:
            return 0
        with writing(self.uri, self.options):
            removed = dataset.cleanup_old_versions(
                versions=past, error_if_tagged_old_versions=False
            )
        return int(removed.old_versions)

    def opened(self) -> LanceDataset | None:
        """Open the result at its latest version; None when there is none, `OutputOccupied` else."""
        dataset = self._existing()
        if dataset is None:
            return None
        try:
            reason = objection(dataset, self.uri, self.options)
        except VersionMissing:
            # Lance opens the only version of a folder, though it does not find it in the catalog.
            if not self._is_managed:
                raise
            raise unannounced(self.uri, dataset.version, self.options) from None
        if reason is not None:
            raise refused(self.uri, reason, self.options)
        return dataset

    def require_nothing(self) -> None:
        """Refuse a location without a dataset unless it is empty, or has files of no commit."""
        from lance.file import LanceFileSession

        path, options = local_path(self.uri), self.options
        if path is not None:
            if path.is_symlink() or (path.exists() and not path.is_dir()):
                raise refused(self.uri, "no folder", options)
            names = {entry.name for entry in path.iterdir()} if path.exists() else set()
        else:
            with readable(self.uri, storage_options=options):
                stored = store_options(self.uri, options)
                listed = LanceFileSession(self.uri, storage_options=stored).list_with_delimiter(
                    None
                )
            paths = [*listed.common_prefixes, *listed.objects]
            names = {path.rstrip("/").rpartition("/")[2] for path in paths}
        if names - _UNCOMMITTED:
            raise refused(self.uri, "a folder with other files", options)

    def discard(self, writer: OutputWriter) -> None:
        """Remove what the run has written and nobody has committed, and its intents.

        What cannot be removed is logged.
        """
        with self._logged():
            intents = _read_intents(self._storage, writer.folder)
            if intents is not None:
                self._clean_up(intents)

    def all_intents(self) -> Iterator[WriteIntents]:
        """Yield the intents of all runs, those that go on included."""
        for run in self._storage.children(_INTENTS):
            intents = _read_intents(self._storage, run)
            if intents is not None:
                yield intents

    def _existing(self) -> LanceDataset | None:
        try:
            return observe_dataset(self.uri, storage_options=self.options)
        except DatasetMissing:
            return None

    def _write_aside(
        self, writer: OutputWriter, path: Path, attempt: str, source: BatchSource
    ) -> list[FragmentMetadata]:
        """Write beside the intents, and move the files in once an intent names them.

        What a killed worker leaves there goes with the intents. An object store shows only whole
        files.
        """
        self._record_intent(writer, attempt, [])
        run = f"{_INTENTS}/{writer.folder}"
        aside = path / run / attempt
        try:
            fragments = _fragments_of(source, str(aside), "create", self.options)
        except BaseException:
            self._storage.remove(f"{run}/{attempt}", _LAST)
            self._storage.remove_file(f"{run}/{attempt}.json")
            self._storage.remove_empty(run)
            self._storage.remove_empty(_INTENTS)
            raise
        for name in self._record_intent(writer, attempt, fragments):
            (path / "data").mkdir(exist_ok=True)
            (aside / "data" / name).rename(path / "data" / name)
        return fragments

    def _record_intent(
        self, writer: OutputWriter, attempt: str, fragments: Sequence[FragmentMetadata]
    ) -> list[str]:
        """Record the data files of fragments, in place of those recorded before; return names."""
        files = [file.path for fragment in fragments for file in fragment.files]
        intent = {
            "format_version": 1,
            "files": files,
            "written_at": datetime.now(timezone.utc).isoformat(),
            "owner": codec.builtins(writer.owner),
        }
        path = f"{_INTENTS}/{writer.folder}/{attempt}.json"
        self._storage.write(path, json.dumps(intent), make_folder=True)
        return files

    def _write_fragments(self, source: BatchSource) -> list[FragmentMetadata]:
        if self.opened() is not None:
            return _fragments_of(source, self.uri, "overwrite", self.options)
        try:
            # Lance warns of a dataset that is missing unless it is to be created.
            return _fragments_of(source, self.uri, "create", self.options)
        except OSError as error:
            # Another run was first. Lance looks at one batch before it looks for the dataset.
            if cause_of(error, self.uri) is not Cause.EXISTS or not source.rewind():
                raise
            return _fragments_of(source, self.uri, "overwrite", self.options)

    def _replacement(
        self, schema: pa.Schema, written: Sequence[Written]
    ) -> LanceOperation.BaseOperation:
        from lance import LanceOperation

        fragments = _fragments(written)
        mark = mark_for(self.uri, schema, fragments)
        marked = schema.with_metadata({**(schema.metadata or {}), KEY: mark})
        return LanceOperation.Overwrite(marked, fragments)

    def _commit(
        self,
        writer: OutputWriter,
        operation: LanceOperation.BaseOperation,
        before: LanceDataset | None,
        *,
        is_strict: bool = False,
        message: str = MESSAGE,
    ) -> LanceDataset | None:
        """Return the dataset after the commit, None when another commit came first.

        `before` is the result that was looked at, None where there is no dataset yet. With
        `is_strict` no commit at all may come in between.
        """
        uri, options = self.uri, self.options

        def put_back(landed: LanceDataset) -> None:
            observe_dataset(uri, version=landed.version - 1, storage_options=options).restore()
            raise refused(uri, "another table than a moment before", options)

        required: list[Requirement] = []
        if before is not None:
            pin = pin_of(before, uri)
            required = [SameDataset(pin, or_cleaned_up=True), *([VersionIs(pin)] * is_strict)]
        with writing(uri, options):
            outcome = commit(
                uri,
                operation,
                0 if before is None else before.version,
                required,
                properties=commit_properties(message, writer.run_id),
                storage_options=options,
                undo=put_back,
            )
        return None if isinstance(outcome, Conflict) else outcome.dataset

    def _settled(self, writer: OutputWriter, landed: LanceDataset | None) -> OutputState:
        """Return the state of what was committed; raises StaleBase where another came first."""
        if landed is None:
            raise stale(self.uri, "has changed", self.options)
        self.discard(writer)
        return self._state(landed)

    def _state(self, dataset: LanceDataset) -> OutputState:
        """Return the state of an open result, which publishing statistics does not change."""
        digest = rows_digest(dataset, self.uri, self.options)
        if digest is None:
            raise refused(self.uri, CHANGED, self.options)
        return OutputState(dataset.count_rows(), digest, dataset.version)

    def _clean_up(self, intents: WriteIntents) -> None:
        """Remove the files of a run that no version has, and its intents."""
        dataset, storage = self._existing(), self._storage
        # A commit whose answer got lost, or after which the run was killed, was made all the same.
        since = intents.since - _CLOCK_SKEW
        committed: set[str] = set()
        unannounced: set[str] = set()
        if dataset is not None and not self._is_managed:
            committed = _files_since(dataset, since, self.options, ())
        elif dataset is not None:
            committed = _files_since(dataset, since, self.options, (VersionMissing,))
            # Versions that lie in the folder, whether the catalog knows them or not.
            past_catalog, skipped = dict(self.options), (VersionMissing, DatasetMissing)
            unannounced = _files_since(dataset, since, past_catalog, skipped)
        for path in sorted(intents.files - committed - unannounced):
            storage.remove_file(f"data/{path}")
        if intents.files & unannounced - committed:
            # The catalog may take that version on, or its manifest is removed: a later run sees.
            return
        storage.remove(f"{_INTENTS}/{intents.run}", _LAST)
        storage.remove_empty(_INTENTS)
        if dataset is None:
            # The folders of a dataset that was never committed.
            storage.remove_empty("data")
            storage.remove_empty("")

    @contextmanager
    def _logged(self) -> Iterator[None]:
        """Log failures of a clean-up, which a later run repeats."""
        try:
            yield
        except Exception as error:
            hidden = secret_values(self.options)
            shown, reason = redact_line(self.uri, hidden), redact_line(str(error), hidden)
            _log.warning("what a run left in %s was not removed: %s", shown, reason)

    @property
    def _storage(self) -> Storage:
        return storage_at(self.uri, self.options)

    @property
    def _is_managed(self) -> bool:
        return isinstance(self.options, CatalogOptions) and self.options.is_managed


def _files_since(
    dataset: LanceDataset,
    since: datetime,
    options: Mapping[str, str],
    skipped: tuple[type[LakeError], ...],
) -> set[str]:
    """Return data files of the latest version and of all that were committed since some time.

    Versions that cannot be opened for a reason among `skipped` are left out.
    """
    files: set[str] = set()
    for version in dataset.versions():
        number, committed_at = version["version"], version["timestamp"].astimezone(timezone.utc)
        if number == dataset.version or committed_at >= since:
            with suppress(*skipped):
                other = observe_dataset(dataset.uri, version=number, storage_options=options)
                for fragment in other.get_fragments():
                    files.update(file.path for file in fragment.metadata.files)
    return files


def _fragments_of(
    source: BatchSource, uri: str, mode: str, options: Mapping[str, str]
) -> list[FragmentMetadata]:
    from lance.fragment import write_fragments

    fragments = write_fragments(
        source.reader(),
        uri,
        schema=source.schema,
        mode=mode,
        storage_options=store_options(uri, options),
        **renewed_by_catalog(options),
    )
    return list(fragments)


def _fragments(written: Sequence[Written]) -> list[FragmentMetadata]:
    from lance import FragmentMetadata

    return [
        FragmentMetadata.from_json(json.dumps(fragment))
        for piece in written
        for fragment in json.loads(piece.content)
    ]


def first_rewritten(live: NDArray[np.int64], physical: NDArray[np.int64]) -> int:
    """Return from which fragment on an update writes rows anew, which keeps them in their order.

    Of the `physical` rows of each fragment, so many will be `live`. Up to `_MOST_SMALL` small
    fragments may be at the end, and as many rows may be deleted as are left.
    """
    import numpy as np

    first, some = len(live), live > 0
    end = first - int((live[::-1] < _FULL_ROWS).cumprod().sum())
    if np.count_nonzero(some[end:]) > _MOST_SMALL:
        behind = live[::-1].cumsum()[::-1]
        first = max(end, int(np.count_nonzero(behind > _MOST_REWRITTEN)))
    if physical[some].sum() > 2 * live.sum():
        first = min(first, int((some & (physical > live)).argmax()))
    return first


def _batches(fragments: Iterable[LanceFragment]) -> Iterator[pa.RecordBatch]:
    for fragment in fragments:
        yield from fragment.scanner(batch_size=_BATCH_ROWS).to_batches()


def _without_lines(
    fragments: Iterable[LanceFragment], removed: NDArray[np.int64]
) -> tuple[list[FragmentMetadata], list[int]]:
    """Return fragments without rows at some places of a scan, and ids of those without any."""
    from lancestat.spark.fragment_reader import physical_offsets

    start, kept, emptied = 0, [], []
    for fragment in fragments:
        metadata: FragmentMetadata | None = fragment.metadata
        stop = start + fragment.metadata.num_rows
        first, last = removed.searchsorted((start, stop)).tolist()
        if last > first:
            offsets = removed[first:last] - start
            if fragment.metadata.deletion_file is not None:
                offsets = physical_offsets(fragment, None)[offsets]
            metadata = fragment.delete_rows(offsets.tolist())
        if metadata is None:
            emptied.append(fragment.fragment_id)
        else:
            kept.append(metadata)
        start = stop
    return kept, emptied


def _past_versions(dataset: LanceDataset, keep: int | timedelta, now: datetime) -> list[int]:
    """Return the versions before the oldest result that is kept, but for those in use until now.

    The newest result is kept in any case.
    """
    committed = {
        version["version"]: version["timestamp"].astimezone(timezone.utc)
        for version in dataset.versions()
    }
    newest_first = sorted(committed, reverse=True)
    results = (number for number in newest_first if is_result(read_commit(dataset, number)))
    newest = next(results, None)
    if newest is None:
        return []
    if isinstance(keep, int):
        older = list(islice(results, keep - 1))
    else:
        older = [number for number in results if committed[number] >= now - keep]
    first = min([newest, *older])
    return [
        number
        for number, following in pairwise(sorted(committed))
        if number < first and committed[following] < now - GRACE
    ]


@dataclass(frozen=True, slots=True)
class WriteIntents:
    """The intents of one run: the names of its data files, since when, and its driver's process."""

    run: str
    files: frozenset[str]
    since: datetime
    owner: Process

    @property
    def lease(self) -> Lease:
        """While it is held, somebody may still commit or discard these files."""
        return Lease(self.owner, self.since)


def _read_intents(storage: Storage, run: str) -> WriteIntents | None:
    """Return the intents of a run, None where there are none that can be read.

    Of a run that was killed before its first one, or removing its last one, the name tells the
    process, if it is one of this host.
    """
    try:
        names = storage.files(f"{_INTENTS}/{run}")
        texts = [
            storage.read(f"{_INTENTS}/{run}/{name}") for name in names if name.endswith(".json")
        ]
        stored = [json.loads(text or "null") for text in texts]
        if not stored:
            owner = process_of(run.rpartition("-")[0])
            now = datetime.now(timezone.utc)
            return None if owner is None else WriteIntents(run, frozenset(), now, owner)
        return WriteIntents(
            run,
            frozenset(file for intent in stored for file in intent["files"]),
            min(parse_instant(intent["written_at"]) for intent in stored),
            codec.convert(stored[0]["owner"], Process),
        )
    except (KeyError, TypeError, ValueError):
        return None
