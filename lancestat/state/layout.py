"""The folder of a state: its datasets `<uri>/v2/<kind>-<generation>.lance`, and failures there."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property

from lancestat.errors import LakeError, LancestatError, StateContended, StateError, StateUnreachable
from lancestat.formats import StringEnum
from lancestat.lake.error_mapping import Cause, cause_of, is_of_file_names, is_of_store, is_panic
from lancestat.lake.files import store_of
from lancestat.lake.open import probe, store_options
from lancestat.lake.storage import Storage, storage_at
from lancestat.redact import redact_line, secret_values
from lancestat.state.identity import canonical_uri


class Failure(Enum):
    """The meaning of a failure of Lance for the dataset that was read or written."""

    ABSENT = "absent"
    EXISTS = "exists"
    CONFLICT = "conflict"
    UNREACHABLE = "unreachable"
    CORRUPT = "corrupt"


_LIBRARIES = {"lance", "pyarrow"}
_FAILURES = {
    Cause.CONFLICT: Failure.CONFLICT,
    Cause.EXISTS: Failure.EXISTS,
    Cause.ABSENT: Failure.ABSENT,
    Cause.TRUNCATED: Failure.CORRUPT,
}
# Damage, unless the store reports it: a dataset that may be sound must not be set aside.
_DAMAGE = {Cause.UNSUPPORTED, Cause.NOT_FOUND, Cause.DAMAGED, Cause.UNKNOWN}


def failure_of(error: BaseException) -> Failure:
    """Return what an exception of Lance means for the dataset that was read or written."""
    cause = cause_of(error)
    if cause in _DAMAGE and not is_of_store(error):
        return Failure.CORRUPT
    return _FAILURES.get(cause, Failure.UNREACHABLE)


def is_lance_failure(error: BaseException) -> bool:
    """Return whether Lance may have raised `error`: not a mistake in our own code.

    A path that Python cannot encode says nothing of what is stored there.
    """
    if is_of_file_names(error):
        return False
    if isinstance(error, (ValueError, OSError, RuntimeError)) or is_panic(error):
        return True
    return type(error).__module__.split(".")[0] in _LIBRARIES


def message_of(error: BaseException, options: Mapping[str, str]) -> str:
    """Return the message of an error without places in Lance's source, and without secrets."""
    message = error.message if isinstance(error, LancestatError) else str(error)
    return redact_line(message, secret_values(options))


def unreachable(uri: str, error: BaseException, options: Mapping[str, str]) -> StateError:
    """Return the error for a state that may well be sound but cannot be read or written now."""
    return StateUnreachable(
        f"the state at {canonical_uri(uri)} cannot be reached: {message_of(error, options)}",
        hint="check the target's state, its storage_options and the permissions there",
    )


def contended(uri: str) -> StateError:
    """Return the error for a commit that lost to others again and again."""
    return StateContended(
        f"the state at {canonical_uri(uri)} could not be written: other runs kept committing first",
        hint="run again; nothing is lost but time",
    )


LAYOUT = 2
_LAYOUT_NAME = re.compile(r"v(\d+)")
_DATASET_NAME = re.compile(r"(partials|runs|summaries)-(\d+)\.lance")


class Kind(StringEnum):
    """The datasets of the state."""

    PARTIALS = "partials"
    RUNS = "runs"
    SUMMARIES = "summaries"


@dataclass(frozen=True, slots=True, order=True)
class DatasetLocation:
    """One dataset of the state: its layout, kind and generation."""

    layout: int
    kind: Kind
    generation: int

    @property
    def path(self) -> str:
        """Relative to the state's URI."""
        return f"v{self.layout}/{self.kind.value}-{self.generation}.lance"


@dataclass(frozen=True, repr=False)
class StateFolder:
    """The folder or object-store prefix that holds a state; `options` may hold secrets."""

    uri: str
    options: Mapping[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"StateFolder({canonical_uri(self.uri)!r})"

    def dataset_uri(self, location: DatasetLocation) -> str:
        """Return the URI that Lance opens."""
        return storage_at(self.uri, self.options).uri(location.path)

    def layouts(self) -> list[int]:
        """Return the layouts that exist, lowest first."""
        with self.reached():
            names = self.storage.children("")
        return sorted(int(match[1]) for name in names if (match := _LAYOUT_NAME.fullmatch(name)))

    def locations(self, layout: int = LAYOUT) -> list[DatasetLocation]:
        """Return the datasets of a layout, sound or not, oldest generation first."""
        with self.reached():
            names = self.storage.children(f"v{layout}")
        return sorted(
            DatasetLocation(layout, Kind(match[1]), int(match[2]))
            for name in names
            if (match := _DATASET_NAME.fullmatch(name))
        )

    def manifests(self, location: DatasetLocation) -> int:
        """Count the versions of a dataset that are kept."""
        with self.reached():
            names = self.storage.files(f"{location.path}/_versions")
        return sum(name.endswith(".manifest") for name in names)

    @contextmanager
    def reached(self) -> Iterator[None]:
        """Raise `StateUnreachable` for what Lance or the storage raises in the block."""
        try:
            yield
        except BaseException as error:
            if not (isinstance(error, LakeError) or is_lance_failure(error)):
                raise
            raise unreachable(self.uri, error, self.options) from None

    @cached_property
    def lance_options(self) -> dict[str, str] | None:
        """The storage options for Lance; may hold secrets."""
        return store_options(self.uri, self.options)

    @cached_property
    def storage(self) -> Storage:
        """The files of the state, once its object store has answered."""
        store = store_of(self.uri)
        if store:
            probe(store, self.options)
        return storage_at(self.uri, self.options)
