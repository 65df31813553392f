"""Commits to Lance datasets: an operation, its preconditions, and its outcome.

Lance commits to whatever dataset is at a URI by then, and rebases the operation onto compatible
concurrent commits. Other preconditions are requirements (as in pyiceberg's `table/update`), which
are checked right before the commit. What can still change in between is checked afterwards, and
such a commit is reverted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING

from lancestat.errors import DatasetReplaced, LakeError, UnannouncedVersion
from lancestat.lake.catalog_tables import CatalogOptions
from lancestat.lake.error_mapping import Cause, cause_of
from lancestat.lake.files import store_options
from lancestat.lake.open import by_catalog, observe_dataset, open_pinned, replacement
from lancestat.lake.snapshot import Pin, pin_of
from lancestat.redact import redact_line, secret_values

if TYPE_CHECKING:
    import pyarrow as pa
    from lance import LanceDataset, LanceOperation


MESSAGE_PROPERTY = "__lance_commit_message"
VERSION_PROPERTY = "lancestat.version"
RUN_PROPERTY = "lancestat.run"

# Lance's own default.
_RETRIES = 20
_LOOKS = 5
_PAUSE_SECONDS = 0.4


def commit_properties(message: str, run: str | None) -> dict[str, str]:
    """Return properties by which a commit names its purpose, its run and this lancestat."""
    # Not at the top, for the time that commands take to start.
    from importlib.metadata import version

    # The package's own module lies above this layer, so its version comes from the distribution.
    lancestat = version("lancestat")
    properties = {
        MESSAGE_PROPERTY: f"lancestat {lancestat}: {message}",
        VERSION_PROPERTY: lancestat,
    }
    return properties if run is None else {**properties, RUN_PROPERTY: run}


@dataclass(frozen=True, slots=True)
class Landed:
    """The change made a version, the one right after that for which it was made unless `is_late`.

    Where other commits came first, Lance moved the change behind them.
    """

    uri: str
    dataset: LanceDataset = field(repr=False)
    is_late: bool = False

    @property
    def version(self) -> int:
        """The version that the change made."""
        version: int = self.dataset.version
        return version

    @property
    def pin(self) -> Pin:
        """The pin of that version."""
        return pin_of(self.dataset, self.uri)


@dataclass(frozen=True, slots=True)
class Conflict:
    """Nothing was committed, or it was undone: the dataset is not what the change requires."""

    detail: str


CommitOutcome = Landed | Conflict


@dataclass(frozen=True, slots=True)
class VersionIs:
    """The latest version is the one that was read, or a later one if `or_later`."""

    pin: Pin
    or_later: bool = False

    def violation(self, storage_options: Mapping[str, str] | None) -> str | None:
        """Return why the dataset does not meet it before the commit, None where it does."""
        latest = observe_dataset(self.pin.uri, storage_options=storage_options).version
        read = self.pin.version
        if latest == read or (self.or_later and latest > read):
            return None
        return f"version {read} was read, the table is at version {latest}"

    def violation_after(self, storage_options: Mapping[str, str] | None) -> str | None:
        """Return why the dataset that got the commit does not meet it, None where it may."""
        return None


@dataclass(frozen=True, slots=True)
class SameDataset:
    """The dataset is the one that was read, not another that has taken its place.

    With `or_cleaned_up` a version that is gone after the commit counts as cleaned up, and the
    dataset as the same: Lance commits nothing to a dataset that lacks the version that was read.
    """

    pin: Pin
    or_cleaned_up: bool = False

    def violation(self, storage_options: Mapping[str, str] | None) -> str | None:
        try:
            open_pinned(self.pin, storage_options=storage_options)
        except DatasetReplaced:
            return _REPLACED
        return None

    def violation_after(self, storage_options: Mapping[str, str] | None) -> str | None:
        failure = replacement(self.pin, storage_options)
        if failure is None:
            return None
        is_gone = not isinstance(failure, DatasetReplaced)
        return None if is_gone and self.or_cleaned_up else _REPLACED


Requirement = VersionIs | SameDataset

_REPLACED = "the table was replaced: another dataset has taken its place"


def commit(
    uri: str,
    operation: LanceOperation.BaseOperation,
    read_version: int,
    requirements: Sequence[Requirement] = (),
    *,
    properties: Mapping[str, str] | None = None,
    storage_options: Mapping[str, str] | None = None,
    undo: Callable[[LanceDataset], object] | None = None,
) -> CommitOutcome:
    """Commit an operation made for `read_version` (0: a new dataset) if its requirements hold.

    Lance rebases it onto compatible commits, up to 20 times. It is not rebased if it requires one
    version, nor if it is an Overwrite, which Lance considers compatible with any commit. `undo`
    gets the dataset at the version that the change made, to revert it; `SameDataset` needs it.
    Raises whatever Lance does for any failure but a conflict.
    """
    for requirement in requirements:
        detail = requirement.violation(storage_options)
        if detail is not None:
            return Conflict(detail)
    retries = _retries(operation, requirements)
    outcome = _commit(uri, operation, read_version, retries, properties, storage_options)
    if not isinstance(outcome, Conflict) and undo is not None:
        for requirement in requirements:
            detail = requirement.violation_after(storage_options)
            if detail is not None:
                undo(outcome.dataset)
                return Conflict(detail)
    return outcome


def _retries(operation: LanceOperation.BaseOperation, requirements: Sequence[Requirement]) -> int:
    from lance import LanceOperation

    is_strict = any(
        isinstance(requirement, VersionIs) and not requirement.or_later
        for requirement in requirements
    )
    is_overwrite = isinstance(operation, LanceOperation.Overwrite)
    return 0 if is_strict or is_overwrite else _RETRIES


def _commit(
    uri: str,
    operation: LanceOperation.BaseOperation,
    read_version: int,
    max_retries: int,
    properties: Mapping[str, str] | None,
    storage_options: Mapping[str, str] | None,
) -> CommitOutcome:
    import lance

    transaction = lance.Transaction(
        read_version=read_version,
        operation=operation,
        transaction_properties=dict(properties or {}) or None,
    )
    try:
        dataset = lance.LanceDataset.commit(
            uri,
            transaction,
            storage_options=store_options(uri, storage_options),
            max_retries=max_retries,
            **by_catalog(storage_options),
        )
    except Exception as error:
        is_conflict = cause_of(error, uri) is Cause.CONFLICT
        if is_conflict and _is_unannounced(uri, read_version, storage_options):
            raise unannounced(uri, read_version + 1, storage_options) from None
        if is_conflict or (read_version == 0 and _exists(uri, storage_options)):
            return Conflict(redact_line(str(error), secret_values(storage_options)))
        raise
    return Landed(uri, dataset, is_late=dataset.version != read_version + 1)


def unannounced(
    uri: str, version: int, storage_options: Mapping[str, str] | None
) -> UnannouncedVersion:
    """Return the error for a version that the catalog which owns the versions does not know."""
    return UnannouncedVersion(
        f"version {version} lies in the folder of "
        f"{redact_line(uri, secret_values(storage_options))}, and the catalog that owns its "
        "versions does not know it",
        hint="it was committed past the catalog, or its announcement was cut off",
    )


def _is_unannounced(uri: str, read_version: int, storage_options: Mapping[str, str] | None) -> bool:
    if not (isinstance(storage_options, CatalogOptions) and storage_options.is_managed):
        return False
    for _ in range(_LOOKS):
        latest = observe_dataset(uri, storage_options=storage_options).version
        if latest != read_version:
            return False
        # Another writer's version may be in its place and a moment later in the catalog.
        time.sleep(_PAUSE_SECONDS)
    return True


def _exists(uri: str, storage_options: Mapping[str, str] | None) -> bool:
    try:
        observe_dataset(uri, storage_options=storage_options)
    except LakeError:
        return False
    return True


class BatchSource:
    """A stream of one schema that counts its rows and keeps the exception raised inside it."""

    def __init__(self, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
        self.schema = schema
        self.rows = 0
        self._batches = iter(batches)
        self._only: pa.RecordBatch | None = None
        self._taken = 0
        self._error: BaseException | None = None

    def reader(self) -> pa.RecordBatchReader:
        """Return the stream, to be read once, or again after `rewind`."""
        import pyarrow as pa

        return pa.RecordBatchReader.from_batches(self.schema, self)

    def rewind(self) -> bool:
        """Start again, which is possible while no more than one batch was taken."""
        if self._taken > 1 or self._error is not None:
            return False
        if self._only is not None:
            self._batches = chain([self._only], self._batches)
        self._taken = self.rows = 0
        return True

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        try:
            for batch in self._batches:
                self.rows += batch.num_rows
                self._taken += 1
                self._only = batch if self._taken == 1 else None
                yield _conform(batch, self.schema)
        except GeneratorExit:
            raise
        except BaseException as error:
            self._error = error
            raise

    @contextmanager
    def own_errors(self) -> Iterator[None]:
        """Raise the stream's own error instead of the one that its reader made of it."""
        try:
            yield
        except BaseException:
            if self._error is not None:
                raise self._error from None
            raise


def _conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    import pyarrow as pa

    if batch.schema.equals(schema):
        return pa.RecordBatch.from_arrays(batch.columns, schema=schema)
    return batch.cast(schema)
