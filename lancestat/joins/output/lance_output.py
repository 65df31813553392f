"""Results as Lance datasets: one commit each; past versions, and what killed runs left."""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta, timezone
from itertools import islice, pairwise
from typing import TYPE_CHECKING

from lancestat.errors import DatasetMissing, OutputNotWritten, VersionMissing
from lancestat.joins.output.lance_mark import (
    MESSAGE,
    is_result,
    objection,
    with_mark,
    with_new_mark,
)
from lancestat.joins.output.write_intents import (
    FOLDER,
    WriteIntents,
    all_intents,
    intents_of,
    new_attempt,
    new_run,
    record_intent,
    remove_intents,
    withdraw_intent,
)
from lancestat.joins.output.writer import GRACE, OutputWriter, Written, refused, stale, writing
from lancestat.joins.search.work import OutputFormat, OutputState
from lancestat.lake.catalogs import CatalogOptions
from lancestat.lake.commit import (
    BatchSource,
    Conflict,
    SameDataset,
    commit,
    commit_properties,
    unannounced,
)
from lancestat.lake.error_mapping import Cause, cause_of
from lancestat.lake.files import abandoned, local_path, storage_at, store_options, this_process
from lancestat.lake.history import read_commit
from lancestat.lake.open import (
    observe_dataset,
    pinned_history,
    readable,
    renewed_by_catalog,
    snapshot,
)
from lancestat.lake.snapshot import pin_of
from lancestat.redact import redact_line, secret_values

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa
    from lance import FragmentMetadata, LanceDataset, LanceOperation

_log = logging.getLogger("lancestat.knn")

_ATTEMPTS = 20
_PAUSE_SECONDS = 0.05
_BATCH_ROWS = 8192
# The entries of a dataset without any commit, and the file by which catalogs reserve a folder.
_UNCOMMITTED = {"data", "_transactions", "_versions", FOLDER, ".lance-reserved"}


def begin(uri: str, run_id: str, options: Mapping[str, str]) -> OutputWriter:
    collect_garbage(uri, options)
    owner = this_process()
    return OutputWriter(OutputFormat.LANCE, uri, new_run(), run_id, owner, options)


def collect_garbage(uri: str, options: Mapping[str, str]) -> None:
    """See `result.collect_garbage`: write intents name what there is."""
    if _opened(uri, options) is None:
        _require_nothing(uri, options)
    with _logged(uri, options):
        leased = ((intents, intents.lease) for intents in all_intents(uri, options))
        for intents in abandoned(leased):
            clean_up(uri, intents, options)


def write(
    writer: OutputWriter, number: int, schema: pa.Schema, batches: Iterable[pa.RecordBatch]
) -> Written:
    uri, options = writer.uri, writer.storage_options
    source = BatchSource(schema.remove_metadata(), batches)
    with source.own_errors(), writing(uri, options):
        path = local_path(uri)
        if path is not None:
            fragments = _write_aside(writer, path, number, source)
        else:
            fragments = _write_fragments(writer, source)
            _record_intent(writer, new_attempt(number), fragments)
    content = json.dumps([fragment.to_json() for fragment in fragments])
    return Written(content, source.rows)


def replace(writer: OutputWriter, schema: pa.Schema, written: Sequence[Written]) -> OutputState:
    from lance import LanceOperation

    fragments = _fragments(written)
    operation = LanceOperation.Overwrite(with_mark(writer.uri, schema, fragments), fragments)
    for attempt in range(_ATTEMPTS):
        before = _opened(writer.uri, writer.storage_options)
        if before is None:
            _require_nothing(writer.uri, writer.storage_options)
        landed = _commit(writer, operation, before)
        if landed is not None:
            _settle(writer)
            return _state(landed, writer.uri, writer.storage_options)
        time.sleep(_PAUSE_SECONDS * attempt)
    raise OutputNotWritten(
        f"the result cannot be written to {_redacted_uri(writer)}: others kept committing first",
        hint="run again when that dataset is quieter; readers still see the old result",
    )


def append(
    writer: OutputWriter, schema: pa.Schema, previous: OutputState, written: Sequence[Written]
) -> OutputState:
    """See `result.append`: a Merge, which lists all fragments.

    An Append would land behind that of another run, and rows would be there twice; a Merge
    conflicts with whatever changes rows.
    """
    from lance import LanceOperation

    uri, options = writer.uri, writer.storage_options
    dataset = _opened(uri, options)
    if dataset is None:
        raise stale(uri, "has gone", options)
    state = _state(dataset, uri, options)
    if state.digest != previous.digest:
        raise stale(uri, "has changed", options)
    if not dataset.schema.remove_metadata().equals(schema.remove_metadata()):
        raise stale(uri, "has got other columns", options)
    fragments = [fragment.metadata for fragment in dataset.get_fragments()]
    new = _fragments(written)
    if not new:
        return state
    first = max((fragment.id for fragment in fragments), default=-1) + 1
    for id, fragment in enumerate(new, first):
        fragment.id = id
    fragments += new
    merged = with_new_mark(uri, dataset.lance_schema, fragments)
    operation = LanceOperation.Merge(fragments, merged)
    landed = _commit(writer, operation, dataset)
    if landed is None:
        raise stale(uri, "has changed", options)
    _settle(writer)
    return _state(landed, uri, options)


def discard(writer: OutputWriter, written: Sequence[Written]) -> None:
    _settle(writer)


def current(uri: str, options: Mapping[str, str]) -> OutputState | None:
    dataset = _opened(uri, options)
    return None if dataset is None else _state(dataset, uri, options)


def read_rows(
    state: OutputState, start: int, stop: int, options: Mapping[str, str]
) -> Iterator[pa.RecordBatch]:
    try:
        dataset = observe_dataset(state.uri, version=state.version, storage_options=options)
    except (DatasetMissing, VersionMissing):
        raise stale(state.uri, "has gone", options) from None
    if _state(dataset, state.uri, options).digest != state.digest:
        raise stale(state.uri, "has been replaced", options)
    with readable(state.uri, version=state.version, storage_options=options):
        first = 0
        for fragment in dataset.get_fragments():
            rows = fragment.metadata.num_rows
            skipped, end = max(start - first, 0), min(stop - first, rows)
            first += rows
            if skipped < end:
                yield from fragment.scanner(
                    offset=skipped, limit=end - skipped, batch_size=_BATCH_ROWS
                ).to_batches()
            if first >= stop:
                return


def remove_past(
    uri: str,
    options: Mapping[str, str],
    keep: int | timedelta,
    now: datetime,
) -> int:
    """See `result.remove_past`: results are versions of a dataset, and those after them.

    The versions of a catalog that manages them are the catalog's to remove.
    """
    dataset = _opened(uri, options)
    if dataset is None or is_managed(options):
        return 0
    with pinned_history(pin_of(dataset, uri), options) as history:
        past = past_versions(history, keep, now)
    if not past:
        return 0
    with writing(uri, options):
        removed = dataset.cleanup_old_versions(versions=past, error_if_tagged_old_versions=False)
    return int(removed.old_versions)


def _opened(uri: str, options: Mapping[str, str]) -> LanceDataset | None:
    """Open the result at its latest version; None when there is none, `OutputOccupied` else."""
    dataset = existing(uri, options)
    if dataset is None:
        return None
    try:
        reason = objection(dataset, uri, options)
    except VersionMissing:
        # Lance opens the only version of a folder, though it does not find it in the catalog.
        if not is_managed(options):
            raise
        raise unannounced(uri, dataset.version, options) from None
    if reason is not None:
        raise refused(uri, reason, options)
    return dataset


def _require_nothing(uri: str, options: Mapping[str, str]) -> None:
    """Refuse a place without a dataset unless it is empty, or has only files of no commit."""
    from lance.file import LanceFileSession

    path = local_path(uri)
    if path is not None:
        if path.is_symlink() or (path.exists() and not path.is_dir()):
            raise refused(uri, "no folder", options)
        names = {entry.name for entry in path.iterdir()} if path.exists() else set()
    else:
        with readable(uri, storage_options=options):
            session = LanceFileSession(uri, storage_options=store_options(uri, options))
            listed = session.list_with_delimiter(None)
        names = {name.rstrip("/").rpartition("/")[2] for name in listed.common_prefixes}
        names |= {name.rpartition("/")[2] for name in listed.objects}
    if names - _UNCOMMITTED:
        raise refused(uri, "a folder with other files", options)


def _write_aside(
    writer: OutputWriter, path: Path, number: int, source: BatchSource
) -> list[FragmentMetadata]:
    """Write beside the intents, and move the files in once there is an intent that names them.

    Lance writes under passing names, which a killed worker leaves; there they go with the intents.
    An object store shows nothing that is not whole.
    """
    run, attempt, options = writer.folder, new_attempt(number), writer.storage_options
    _record_intent(writer, attempt, [])
    aside = path / FOLDER / run / attempt
    try:
        fragments = _fragments_of(source, str(aside), "create", options)
    except BaseException:
        withdraw_intent(writer.uri, run, attempt, options)
        raise
    for name in _record_intent(writer, attempt, fragments):
        (path / "data").mkdir(exist_ok=True)
        (aside / "data" / name).rename(path / "data" / name)
    return fragments


def _record_intent(
    writer: OutputWriter, attempt: str, fragments: Sequence[FragmentMetadata]
) -> Sequence[str]:
    """Record the data files of fragments, and return their names."""
    files = [file.path for fragment in fragments for file in fragment.files]
    record_intent(writer.uri, writer.folder, attempt, files, writer.owner, writer.storage_options)
    return files


def _write_fragments(writer: OutputWriter, source: BatchSource) -> list[FragmentMetadata]:
    uri, options = writer.uri, writer.storage_options
    if _opened(uri, options) is not None:
        return _fragments_of(source, uri, "overwrite", options)
    try:
        # Lance warns of a dataset that is missing unless it is to be created.
        return _fragments_of(source, uri, "create", options)
    except OSError as error:
        # Another run was first. Lance looks at one batch before it looks for the dataset.
        if cause_of(error, uri) is not Cause.EXISTS or not source.rewind():
            raise
        return _fragments_of(source, uri, "overwrite", options)


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


def _commit(
    writer: OutputWriter, operation: LanceOperation.BaseOperation, before: LanceDataset | None
) -> LanceDataset | None:
    """Return the dataset after the commit, None when another commit came first.

    Args:
        writer: Where.
        operation: What to commit.
        before: The result that was looked at, None where there is no dataset yet.
    """
    uri, options = writer.uri, writer.storage_options

    def put_back(landed: LanceDataset) -> None:
        observe_dataset(uri, version=landed.version - 1, storage_options=options).restore()
        raise refused(uri, "another table than a moment before", options)

    read_version = 0 if before is None else before.version
    properties = commit_properties(MESSAGE, writer.run_id)
    with writing(uri, options):
        outcome = commit(
            uri,
            operation,
            read_version,
            [] if before is None else [SameDataset(pin_of(before, uri), or_cleaned_up=True)],
            properties=properties,
            storage_options=options,
            undo=put_back,
        )
    return None if isinstance(outcome, Conflict) else outcome.dataset


def _state(dataset: LanceDataset, uri: str, options: Mapping[str, str]) -> OutputState:
    """Return the state of an open result.

    Its digest is over columns and fragments in their order, which decide the rows and their
    places. Versions, ids of fragments and the config do not, so that statistics can be published
    to a result.
    """
    read = snapshot(dataset, uri, options)
    digest = hashlib.blake2b(digest_size=16)
    columns = [[field.id, field.name, str(field.type)] for field in read.fields]
    digest.update(json.dumps(columns).encode())
    for fragment in read.fragments:
        files = [[file.path, file.base_id, file.field_ids] for file in fragment.files]
        overlays = [[overlay.file.path, overlay.coverage] for overlay in fragment.overlays]
        line = [files, fragment.physical_rows, fragment.deletion_file, overlays]
        digest.update(json.dumps(line).encode())
    return OutputState(OutputFormat.LANCE, uri, read.rows, digest.hexdigest(), version=read.version)


def _settle(writer: OutputWriter) -> None:
    """Remove what the run has written and nobody has committed, and its intents."""
    with _logged(writer.uri, writer.storage_options):
        intents = intents_of(writer.uri, writer.folder, writer.storage_options)
        if intents is not None:
            clean_up(writer.uri, intents, writer.storage_options)


@contextmanager
def _logged(uri: str, options: Mapping[str, str]) -> Iterator[None]:
    """Log failures of a clean-up, which a later run repeats."""
    try:
        yield
    except Exception as error:
        secrets = secret_values(options)
        reason = redact_line(str(error), secrets)
        _log.warning("what a run left in %s was not removed: %s", redact_line(uri, secrets), reason)


def _redacted_uri(writer: OutputWriter) -> str:
    return redact_line(writer.uri, secret_values(writer.storage_options))


def past_versions(dataset: LanceDataset, keep: int | timedelta, now: datetime) -> list[int]:
    """Return the versions before the oldest result that is kept, but for those in use until now.

    Args:
        dataset: A result, open at its latest version.
        keep: How many results to keep, or for how long. The newest one is kept in any case.
        now: The time from which ages count.
    """
    committed = {
        version["version"]: version["timestamp"].astimezone(timezone.utc)
        for version in dataset.versions()
    }
    results = _results(dataset, committed)
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


def _results(dataset: LanceDataset, committed: Mapping[int, datetime]) -> Iterator[int]:
    """Yield the versions that joins have committed, the newest first."""
    for number in sorted(committed, reverse=True):
        if is_result(read_commit(dataset, number)):
            yield number


# Clocks of those who commit to one dataset differ by less.
_CLOCK_SKEW = timedelta(hours=1)


def clean_up(uri: str, intents: WriteIntents, options: Mapping[str, str]) -> None:
    """Remove the files of a run that no version has, and its intents."""
    dataset = existing(uri, options)
    # A commit whose answer got lost, or after which the run was killed, has been made all the same.
    since = intents.since - _CLOCK_SKEW
    committed = set() if dataset is None else set(_files_since(dataset, since, options))
    unannounced = set() if dataset is None else _unannounced_since(dataset, since, options)
    storage = storage_at(uri, options)
    for path in sorted(intents.files - committed - unannounced):
        storage.remove_file(f"data/{path}")
    if intents.files & unannounced - committed:
        # The catalog may take that version on, or its manifest is removed: a later run sees.
        return
    remove_intents(uri, intents.run, options)
    if dataset is None:
        # The folders of a dataset that was never committed.
        storage.remove_empty("data")
        storage.remove_empty("")


def _files_since(
    dataset: LanceDataset, since: datetime, options: Mapping[str, str]
) -> Iterator[str]:
    """Yield data files of the latest version and of all that were committed since some time.

    Of a dataset whose versions a catalog owns, those that the catalog does not know are left out.
    """
    for number in _versions_since(dataset, since):
        try:
            other = observe_dataset(dataset.uri, version=number, storage_options=options)
        except VersionMissing:
            if not is_managed(options):
                raise
            continue
        yield from _files_of(other)


def _unannounced_since(
    dataset: LanceDataset, since: datetime, options: Mapping[str, str]
) -> set[str]:
    """Return data files of versions that lie in the folder, whether the catalog knows them or not.

    There are none where no catalog owns the versions.
    """
    if not is_managed(options):
        return set()
    past_catalog = dict(options)
    files: set[str] = set()
    for number in _versions_since(dataset, since):
        with suppress(VersionMissing, DatasetMissing):
            other = observe_dataset(dataset.uri, version=number, storage_options=past_catalog)
            files.update(_files_of(other))
    return files


def _versions_since(dataset: LanceDataset, since: datetime) -> Iterator[int]:
    for version in dataset.versions():
        number, committed_at = version["version"], version["timestamp"].astimezone(timezone.utc)
        if number == dataset.version or committed_at >= since:
            yield number


def _files_of(dataset: LanceDataset) -> Iterator[str]:
    for fragment in dataset.get_fragments():
        yield from (file.path for file in fragment.metadata.files)


def is_managed(options: Mapping[str, str]) -> bool:
    return isinstance(options, CatalogOptions) and options.is_managed


def existing(uri: str, options: Mapping[str, str]) -> LanceDataset | None:
    try:
        return observe_dataset(uri, storage_options=options)
    except DatasetMissing:
        return None
