"""Results as Lance datasets: one commit each."""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from importlib.metadata import version
from typing import TYPE_CHECKING

from lancestat.errors import LakeError, RunError
from lancestat.knn.work import OutputFormat, OutputState
from lancestat.lake.batch_source import BatchSource
from lancestat.lake.error_mapping import Refusal
from lancestat.lake.files import local_path
from lancestat.lake.observe import snapshot
from lancestat.lake.open import observe_dataset, readable, replacement, store_options
from lancestat.lake.snapshot import pin_of
from lancestat.lake.storage import storage_at
from lancestat.lake.temporary_files import this_process
from lancestat.manifest.publication import MESSAGE_PROPERTY, RUN_PROPERTY, VERSION_PROPERTY
from lancestat.output.errors import refused, stale, writing
from lancestat.output.lance_mark import MESSAGE, marked, marked_again, objection
from lancestat.output.result import OutputWriter, Written
from lancestat.output.write_intents import (
    FOLDER,
    Receipts,
    all_receipts,
    leave,
    new_attempt,
    new_run,
    receipts_of,
    throw_away,
    withdraw,
)
from lancestat.redact import clean, secret_values

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa
    from lance import FragmentMetadata, LanceDataset, LanceOperation

_log = logging.getLogger("lancestat.knn")

_ATTEMPTS = 20
_PAUSE_SECONDS = 0.05
_BATCH_ROWS = 8192
# What a dataset has that nobody has committed to.
_UNCOMMITTED = {"data", "_transactions", "_versions", FOLDER}
# Clocks of those who commit to one dataset differ by less.
_CLOCK_SKEW = timedelta(hours=1)


def begin(
    uri: str, run_id: str, options: Mapping[str, str], remembered: str | None
) -> OutputWriter:
    """See `output.begin`; nothing is made yet."""
    sweep(uri, options, remembered)
    owner = this_process()
    return OutputWriter(OutputFormat.LANCE, uri, new_run(), run_id, owner, options, remembered)


def sweep(uri: str, options: Mapping[str, str], remembered: str | None) -> None:
    """See `output.sweep`: receipts name what there is."""
    if _opened(uri, options, remembered) is None:
        _require_nothing(uri, options)
    with _logged(uri, options):
        for left in all_receipts(uri, options):
            if left.is_abandoned(datetime.now(timezone.utc)):
                _clean_up(uri, left, options)


def write(
    writer: OutputWriter, number: int, schema: pa.Schema, batches: Iterable[pa.RecordBatch]
) -> Written:
    """See `OutputWriter.write`: fragments with data files in the dataset's own folder."""
    uri, options = writer.uri, writer.storage_options
    source = BatchSource(schema.remove_metadata(), batches)
    with source.own_errors(), writing(uri, options):
        path = local_path(uri)
        if path is not None:
            made = _write_aside(writer, path, number, source)
        else:
            made = _write_fragments(writer, source)
            _leave(writer, new_attempt(number), made)
    content = json.dumps([fragment.to_json() for fragment in made])
    return Written(content, source.rows)


def replace(writer: OutputWriter, schema: pa.Schema, written: Sequence[Written]) -> OutputState:
    """See `output.replace`: an Overwrite."""
    from lance import LanceOperation

    fragments = _fragments(written)
    operation = LanceOperation.Overwrite(marked(writer.uri, schema, fragments), fragments)
    for attempt in range(_ATTEMPTS):
        before = _opened(writer.uri, writer.storage_options, writer.remembered)
        if before is None:
            _require_nothing(writer.uri, writer.storage_options)
        landed = _commit(writer, operation, before)
        if landed is not None:
            _settle(writer)
            return _state(landed, writer.uri, writer.storage_options)
        time.sleep(_PAUSE_SECONDS * attempt)
    raise RunError(
        "LS571",
        f"the result cannot be written to {_told(writer)}: others kept committing first",
        hint="run again when that dataset is quieter; readers still see the old result",
    )


def append(
    writer: OutputWriter, schema: pa.Schema, previous: OutputState, written: Sequence[Written]
) -> OutputState:
    """See `output.append`: a Merge, which lists all fragments.

    An Append would land behind that of another run, and rows would be there twice; a Merge
    conflicts with whatever changes rows.
    """
    from lance import LanceOperation

    uri, options = writer.uri, writer.storage_options
    dataset = _opened(uri, options, writer.remembered)
    if dataset is None:
        raise stale(uri, "has gone", options)
    found = _state(dataset, uri, options)
    if found.digest != previous.digest:
        raise stale(uri, "has changed", options)
    if not dataset.schema.remove_metadata().equals(schema.remove_metadata()):
        raise stale(uri, "has got other columns", options)
    fragments = [each.metadata for each in dataset.get_fragments()]
    new = _fragments(written)
    if not new:
        return found
    first = max((fragment.id for fragment in fragments), default=-1) + 1
    for id, fragment in enumerate(new, first):
        fragment.id = id
    fragments += new
    merged = marked_again(uri, dataset.lance_schema, fragments)
    operation = LanceOperation.Merge(fragments, merged)
    landed = _commit(writer, operation, dataset)
    if landed is None:
        raise stale(uri, "has changed", options)
    _settle(writer)
    return _state(landed, uri, options)


def discard(writer: OutputWriter, written: Sequence[Written]) -> None:
    """See `output.discard`: receipts name more than what was reported."""
    _settle(writer)


def current(uri: str, options: Mapping[str, str], remembered: str | None) -> OutputState | None:
    """See `output.current`."""
    dataset = _opened(uri, options, remembered)
    return None if dataset is None else _state(dataset, uri, options)


def read_rows(
    state: OutputState, start: int, stop: int, options: Mapping[str, str]
) -> Iterator[pa.RecordBatch]:
    """See `output.read_rows`."""
    try:
        dataset = observe_dataset(state.uri, version=state.version, storage_options=options)
    except LakeError as error:
        if error.code in (Refusal.MISSING.value, Refusal.VERSION_GONE.value):
            raise stale(state.uri, "has gone", options) from None
        raise
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


def _opened(uri: str, options: Mapping[str, str], remembered: str | None) -> LanceDataset | None:
    """The dataset at its latest version, None when there is none; LS570 when it is no result."""
    dataset = _found(uri, options)
    if dataset is None:
        return None
    is_remembered = remembered is not None and _state(dataset, uri, options).digest == remembered
    reason = objection(dataset, uri, options, is_remembered)
    if reason is not None:
        raise refused(uri, reason, options)
    return dataset


def _found(uri: str, options: Mapping[str, str]) -> LanceDataset | None:
    try:
        return observe_dataset(uri, storage_options=options)
    except LakeError as error:
        if error.code == Refusal.MISSING.value:
            return None
        raise


def _require_nothing(uri: str, options: Mapping[str, str]) -> None:
    """Refuse a place without a dataset unless it is empty, or holds what was never committed."""
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
        names |= set(listed.objects)
    if names - _UNCOMMITTED:
        raise refused(uri, "a folder with other files", options)


def _write_aside(
    writer: OutputWriter, path: Path, number: int, source: BatchSource
) -> list[FragmentMetadata]:
    """Write beside the receipts, and move the files in once there is a receipt that names them.

    Lance writes under passing names, which a killed worker leaves; there they go with the receipts.
    An object store shows nothing that is not whole.
    """
    run, attempt, options = writer.folder, new_attempt(number), writer.storage_options
    _leave(writer, attempt, [])
    aside = path / FOLDER / run / attempt
    try:
        made = _fragments_of(source, str(aside), "create", options)
    except BaseException:
        withdraw(writer.uri, run, attempt, options)
        raise
    for name in _leave(writer, attempt, made):
        (path / "data").mkdir(exist_ok=True)
        (aside / "data" / name).rename(path / "data" / name)
    return made


def _leave(writer: OutputWriter, attempt: str, made: Sequence[FragmentMetadata]) -> Sequence[str]:
    """Leave a receipt for the data files of fragments, whose names are returned."""
    files = [file.path for fragment in made for file in fragment.files]
    leave(writer.uri, writer.folder, attempt, files, writer.owner, writer.storage_options)
    return files


def _write_fragments(writer: OutputWriter, source: BatchSource) -> list[FragmentMetadata]:
    uri, options = writer.uri, writer.storage_options
    if _opened(uri, options, writer.remembered) is not None:
        return _fragments_of(source, uri, "overwrite", options)
    try:
        # Lance warns of a dataset that is missing unless it is to be created.
        return _fragments_of(source, uri, "create", options)
    except OSError as error:
        # Another run was first. Lance looks at one batch before it looks for the dataset.
        if not _is_there_already(error) or not source.rewind():
            raise
        return _fragments_of(source, uri, "overwrite", options)


def _fragments_of(
    source: BatchSource, uri: str, mode: str, options: Mapping[str, str]
) -> list[FragmentMetadata]:
    from lance.fragment import write_fragments

    made = write_fragments(
        source.reader(),
        uri,
        schema=source.schema,
        mode=mode,
        storage_options=store_options(uri, options),
    )
    return list(made)


def _is_there_already(error: OSError) -> bool:
    return "already exists" in str(error)


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
    """The dataset after the commit, None when another commit came first.

    Args:
        writer: Where.
        operation: What to commit.
        before: The result that was looked at, None where there is no dataset yet.

    Raises:
        RunError: LS570 another dataset had taken the place of that result, and has been put back.
    """
    if before is None:
        return _try_commit(writer, operation, 0)
    pin = pin_of(before, writer.uri)
    landed = _try_commit(writer, operation, pin.version)
    found = None if landed is None else replacement(pin, writer.storage_options)
    # A version that is gone was cleaned up: a dataset without it would not have taken the commit.
    if landed is not None and found is not None and found.code == Refusal.REPLACED.value:
        _put_back(writer, landed.version - 1)
        raise refused(writer.uri, "another table than a moment before", writer.storage_options)
    return landed


def _put_back(writer: OutputWriter, version: int) -> None:
    """Restore a version of a dataset that a commit was never meant for.

    Lance commits to whatever is at a URI, and that can change after the last look.
    """
    uri, options = writer.uri, writer.storage_options
    with writing(uri, options):
        observe_dataset(uri, version=version, storage_options=options).restore()


def _try_commit(
    writer: OutputWriter, operation: LanceOperation.BaseOperation, read_version: int
) -> LanceDataset | None:
    import lance
    from lance.commit import CommitConflictError

    lancestat = version("lancestat")
    transaction = lance.Transaction(
        read_version=read_version,
        operation=operation,
        transaction_properties={
            MESSAGE_PROPERTY: f"lancestat {lancestat}: {MESSAGE}",
            VERSION_PROPERTY: lancestat,
            RUN_PROPERTY: writer.run_id,
        },
    )
    options = store_options(writer.uri, writer.storage_options)
    with writing(writer.uri, writer.storage_options):
        try:
            # Lance retries by itself, and an Overwrite then replaces commits that nobody has seen.
            is_overwrite = isinstance(operation, lance.LanceOperation.Overwrite)
            retries = 0 if is_overwrite else _ATTEMPTS
            return lance.LanceDataset.commit(
                writer.uri, transaction, storage_options=options, max_retries=retries
            )
        except CommitConflictError:
            return None
        except OSError:
            # Another run made the dataset first.
            if read_version == 0 and _found(writer.uri, writer.storage_options) is not None:
                return None
            raise


def _state(dataset: LanceDataset, uri: str, options: Mapping[str, str]) -> OutputState:
    """A digest over columns and fragments in their order: what decides the rows and their places.

    Neither versions nor ids of fragments do, nor the config, so that statistics can be published
    to a result.
    """
    found = snapshot(dataset, uri, options)
    digest = hashlib.blake2b(digest_size=16)
    columns = [[field.id, field.name, str(field.type)] for field in found.fields]
    digest.update(json.dumps(columns).encode())
    for each in found.fragments:
        files = [[file.path, file.base_id, file.field_ids] for file in each.files]
        overlays = [[overlay.file.path, overlay.coverage] for overlay in each.overlays]
        line = [files, each.physical_rows, each.deletion_file, overlays]
        digest.update(json.dumps(line).encode())
    return OutputState(
        OutputFormat.LANCE, uri, found.rows, digest.hexdigest(), version=found.version
    )


def _settle(writer: OutputWriter) -> None:
    """Remove what the run has written and nobody has committed, and its receipts."""
    with _logged(writer.uri, writer.storage_options):
        left = receipts_of(writer.uri, writer.folder, writer.storage_options)
        if left is not None:
            _clean_up(writer.uri, left, writer.storage_options)


def _clean_up(uri: str, left: Receipts, options: Mapping[str, str]) -> None:
    """Remove the files of a run that no version has, and its receipts."""
    dataset = _found(uri, options)
    # A commit whose answer got lost, or after which the run was killed, has been made all the same.
    kept = _files_since(dataset, left.since - _CLOCK_SKEW, options) if dataset is not None else ()
    storage = storage_at(uri, options)
    for path in sorted(left.files.difference(kept)):
        storage.remove_file(f"data/{path}")
    throw_away(uri, left.run, options)
    if dataset is None:
        # What is left of a dataset that never was.
        storage.remove_empty("data")
        storage.remove_empty("")


def _files_since(
    dataset: LanceDataset, since: datetime, options: Mapping[str, str]
) -> Iterator[str]:
    """Data files of the latest version and of all that were committed since some time."""
    for each in dataset.versions():
        number, at = each["version"], each["timestamp"].astimezone(timezone.utc)
        if number == dataset.version or at >= since:
            seen = observe_dataset(dataset.uri, version=number, storage_options=options)
            for fragment in seen.get_fragments():
                yield from (file.path for file in fragment.metadata.files)


@contextmanager
def _logged(uri: str, options: Mapping[str, str]) -> Iterator[None]:
    """Around what a later run may do as well."""
    try:
        yield
    except Exception as error:
        secrets = secret_values(options)
        reason = clean(str(error), secrets)
        _log.warning("what a run left in %s was not removed: %s", clean(uri, secrets), reason)


def _told(writer: OutputWriter) -> str:
    return clean(writer.uri, secret_values(writer.storage_options))
