"""Removes what nothing in the state needs: rows of undeclared nodes, superseded datasets, files."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lancestat import display
from lancestat.formats import count
from lancestat.state.proofs import remove_proofs
from lancestat.state.retention import compact, drop_rows
from lancestat.state.run_records import stored_targets
from lancestat.state.stored_table import DatasetLocation, Kind, StoredTable

if TYPE_CHECKING:
    from lance import LanceDataset

    from lancestat.state.store import LanceState, StateReader

# Folders with files that a commit names; what Lance writes on its own behalf it cleans up itself.
_OF_COMMITS = ("data/", "_deletions/")


@dataclass(frozen=True, slots=True)
class GarbageReport:
    """The garbage that was removed, or would be. It prints as `lancestat gc` does.

    `partials_dropped` and `runs_dropped` count rows: sets of partials and parts of summaries, and
    nodes of runs. `generations_dropped` counts datasets. `bytes` is their size, of rows by their
    share; on object stores it excludes whole datasets. `scratch_dropped` counts folders of killed
    joins, `scratch_left` those with scratch's marker that could not be removed, and
    `indexes_dropped` kept IVF indexes of right sides.
    """

    partials_dropped: int
    runs_dropped: int
    generations_dropped: int
    bytes: int
    scratch_dropped: int = 0
    scratch_left: int = 0
    indexes_dropped: int = 0
    is_dry_run: bool = field(default=False, compare=False)

    @property
    def removed(self) -> str:
        """What was removed, or would be: `2 sets of partials, 1 scratch folder`, or nothing."""
        counts = (
            count(self.partials_dropped, "set of partials", "sets of partials"),
            count(self.runs_dropped, "run entry", "run entries"),
            count(self.generations_dropped, "superseded dataset"),
            count(self.scratch_dropped, "scratch folder"),
            count(self.indexes_dropped, "kept index", "kept indexes"),
        )
        return ", ".join(text for text in counts if not text.startswith("0 "))

    @property
    def verb(self) -> str:
        return "would remove" if self.is_dry_run else "removed"

    def __repr__(self) -> str:
        return display.summary(self, f"{self.verb} {self.removed or 'nothing'}")

    __str__ = display.as_text


@dataclass(frozen=True, slots=True)
class Owner:
    """The target of a project that removes garbage; `nodes` names its nodes and sources."""

    project: str
    target: str
    nodes: Collection[str] = ()

    def has(self, row: Mapping[str, Any]) -> bool:
        """Whether a row of a run is of this target."""
        return row["target"] in stored_targets(self.project, self.target)


def collect_state_garbage(
    state: LanceState,
    declared: frozenset[str],
    dry_run: bool,
    *,
    owner: Owner | None = None,
) -> GarbageReport:
    """Remove what the state holds of tables that are not `declared`, and superseded datasets.

    `declared` are the identities of all declared tables and results. With an `owner`, what others
    have recorded stays, and what nodes that it no longer has recorded without a table goes too.
    """
    needed = declared if owner is None else declared | recorded_by_others(state, owner, "table")
    undeclared = [
        (stored, *_undeclared(stored, declared if stored.kind is Kind.RUNS else needed, owner))
        for stored in state.tables
    ]
    dropped = {stored.kind: len(ids) for stored, ids, _ in undeclared}
    superseded = list(_superseded(state))
    with state.folder.reached():
        generations = sum(state.folder.storage.size_bytes(location.path) for location in superseded)
    report = GarbageReport(
        partials_dropped=dropped[Kind.PARTIALS] + dropped[Kind.SUMMARIES],
        runs_dropped=dropped[Kind.RUNS] + dropped[Kind.HISTORY],
        generations_dropped=len(superseded),
        is_dry_run=dry_run,
        bytes=sum(size_bytes for _, _, size_bytes in undeclared) + generations,
    )
    if dry_run:
        return report
    if any(stored.location() for stored in state.tables):
        with state.writing():
            for stored, ids, _ in undeclared:
                if ids:
                    drop_rows(stored, ids)
                    compact(stored, every_fragment=True)
                stored.remove_old_versions(state.retention)
    with state.folder.reached():
        for location in superseded:
            state.folder.storage.remove(location.path)
    for stored in state.tables:
        _remove_uncommitted(state, stored)
    remove_proofs(state.folder, needed)
    return report


def _remove_uncommitted(state: LanceState, stored: StoredTable) -> None:
    """Remove the files of a dataset that existed when no writer ran, and that no version names.

    The order matters: files are listed first, which excludes those of later writers; then nothing
    is removed while a writer runs; then versions are read, which name the files of writers that
    ended since.
    """
    location = stored.location()
    if location is None:
        return
    folder = state.folder
    with folder.reached():
        paths = folder.storage.all_files(location.path)
    files = {path for path in paths if path.startswith(_OF_COMMITS)}
    if state.writers.may_be_held():
        return
    named = stored.read(_named_files, None, latest=True)
    if named is not None:
        with folder.reached():
            for path in sorted(files - named):
                folder.storage.remove_file(f"{location.path}/{path}")


def _named_files(dataset: LanceDataset) -> set[str] | None:
    """The data and deletion files of all versions that there are."""
    named: set[str] = set()
    for version in dataset.versions():
        for fragment in dataset.checkout_version(version["version"]).get_fragments():
            named.update(f"data/{file.path}" for file in fragment.metadata.files)
            deleted = fragment.deletion_file()
            if deleted is not None:
                named.add(deleted)
    return named


def _undeclared(
    stored: StoredTable, declared: frozenset[str], owner: Owner | None
) -> tuple[list[int], int]:
    """Return the ids of rows of what is not declared, and their share of the dataset's bytes."""

    def read(dataset: LanceDataset) -> tuple[list[int], int]:
        more = ("target", "node") if stored.kind is Kind.RUNS else ()
        rows = dataset.to_table(columns=["id", "table", *more]).to_pylist()
        ids = [row["id"] for row in rows if not _is_declared(row, declared, owner)]
        sizes = (
            file.file_size_bytes or 0
            for fragment in dataset.get_fragments()
            for file in fragment.metadata.files
        )
        return ids, sum(sizes) * len(ids) // max(len(rows), 1)

    nothing: tuple[list[int], int] = [], 0
    return stored.read(read, nothing, latest=True)


def recorded_by_others(state: StateReader, owner: Owner, column: str) -> frozenset[str]:
    """Return the values of a column of what other targets and projects have recorded."""

    def read(dataset: LanceDataset) -> frozenset[str]:
        rows = dataset.to_table(columns=[column, "target"]).to_pylist()
        return frozenset(row[column] for row in rows if row[column] and not owner.has(row))

    nothing: frozenset[str] = frozenset()
    return state.run_table.read(read, nothing, latest=True)


def _is_declared(row: Mapping[str, Any], declared: frozenset[str], owner: Owner | None) -> bool:
    if owner is not None and "target" in row and not owner.has(row):
        return True
    if row["table"] is not None:
        return row["table"] in declared
    return owner is None or row.get("node") is None or row["node"] in owner.nodes


def _superseded(state: LanceState) -> Iterable[DatasetLocation]:
    """Datasets of older generations, and those set aside.

    The newest generation stays even when it does not open for lack of a manifest: another run may
    be creating it.
    """
    locations = state.folder.locations()
    for stored in state.tables:
        of_kind = [location for location in locations if location.kind is stored.kind]
        yield from of_kind[:-1]
        yield from (location for location in of_kind[-1:] if stored.is_aside(location))
