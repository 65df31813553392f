"""The locations of the state's datasets: `<uri>/v1/<kind>-<generation>.lance`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property

from lancestat.errors import LakeError
from lancestat.formats import StringEnum
from lancestat.lake.files import store_of
from lancestat.lake.open import probe, store_options
from lancestat.lake.storage import Storage, storage_at
from lancestat.state.failure import is_lance_failure, unreachable
from lancestat.state.identity import canonical_uri

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
