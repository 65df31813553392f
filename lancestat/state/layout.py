"""The locations of the state's datasets: `<uri>/v1/<kind>-<generation>.lance`."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from lancestat.errors import LakeError
from lancestat.formats import StringEnum
from lancestat.lake.files import local_path, store_of
from lancestat.lake.open import probe, store_options
from lancestat.lake.storage import storage_at
from lancestat.state.failure import Failure, failure_of, is_lance_failure, unreachable
from lancestat.state.identity import canonical_uri

if TYPE_CHECKING:
    from lance.file import LanceFileSession

LAYOUT = 1
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
        """The URI that Lance opens."""
        return f"{self._root}/{location.path}"

    def layouts(self) -> list[int]:
        """The layouts that exist, lowest first."""
        return sorted(
            int(match[1]) for name in self._children("") if (match := _LAYOUT_NAME.fullmatch(name))
        )

    def locations(self, layout: int = LAYOUT) -> list[DatasetLocation]:
        """The datasets of a layout, sound or not, oldest generation first."""
        return sorted(
            DatasetLocation(layout, Kind(match[1]), int(match[2]))
            for name in self._children(f"v{layout}")
            if (match := _DATASET_NAME.fullmatch(name))
        )

    def manifests(self, location: DatasetLocation) -> int:
        """Count the versions of a dataset that are kept."""
        try:
            listed = self._session.list_with_delimiter(f"{location.path}/_versions").objects
        except BaseException as error:
            raise self._error(error) from None
        return sum(name.endswith(".manifest") for name in listed)

    def size_bytes(self, location: DatasetLocation) -> int:
        """Bytes of a local dataset; 0 on object stores, whose listing has no sizes."""
        root = self._local_root
        files = (root / location.path).rglob("*") if root else ()
        return sum(file.stat().st_size for file in files if file.is_file())

    def remove(self, location: DatasetLocation) -> None:
        """Delete all files of a dataset, sound or not."""
        if self._local_root:
            shutil.rmtree(self._local_root / location.path, ignore_errors=True)
            return
        try:
            for path in self._session.list(location.path):
                self._session.delete_file(path)
        except BaseException as error:
            raise self._error(error) from None

    def files(self, location: DatasetLocation) -> frozenset[str]:
        """Paths of all files of a dataset, below it: those of writers that go on, too."""
        root = self._local_root
        if root:
            # Lance leaves out the files that it has not finished.
            paths = (root / location.path).rglob("*")
            folder = root / location.path
            return frozenset(
                path.relative_to(folder).as_posix() for path in paths if path.is_file()
            )
        try:
            listed = self._session.list(location.path)
        except BaseException as error:
            raise self._error(error) from None
        return frozenset(path.partition(f"{location.path}/")[2] for path in listed)

    def remove_files(self, location: DatasetLocation, paths: Iterable[str]) -> None:
        """Delete files of a dataset, which may be gone already."""
        try:
            storage = storage_at(self.uri, self.options)
            for path in sorted(paths):
                storage.remove_file(f"{location.path}/{path}")
        except BaseException as error:
            raise self._error(error) from None

    @contextmanager
    def reached(self) -> Iterator[None]:
        """Raise `StateUnreachable` for what Lance or the storage raises in the block."""
        try:
            yield
        except BaseException as error:
            raise self._error(error) from None

    @cached_property
    def lance_options(self) -> dict[str, str] | None:
        """The storage options for Lance; may hold secrets."""
        return store_options(self.uri, self.options)

    @cached_property
    def _root(self) -> str:
        return str(self._local_root or self.uri.rstrip("/"))

    @cached_property
    def _local_root(self) -> Path | None:
        path = local_path(self.uri)
        return path.absolute() if path else None

    @cached_property
    def _session(self) -> LanceFileSession:
        from lance.file import LanceFileSession

        store = store_of(self.uri)
        if store:
            try:
                probe(store, self.options)
            except LakeError as error:
                raise unreachable(self.uri, error, self.options) from None
        return LanceFileSession(self._root, storage_options=self.lance_options)

    def _children(self, path: str) -> list[str]:
        try:
            prefixes = self._session.list_with_delimiter(path or None).common_prefixes
        except BaseException as error:
            if is_lance_failure(error) and failure_of(error) is Failure.ABSENT:
                return []
            raise self._error(error) from None
        return [prefix.rstrip("/").rpartition("/")[2] for prefix in prefixes]

    def _error(self, error: BaseException) -> BaseException:
        return unreachable(self.uri, error, self.options) if is_lance_failure(error) else error
