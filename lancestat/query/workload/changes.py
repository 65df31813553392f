"""Proposals as changes of spec files, in their own text."""

from __future__ import annotations

import difflib
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import yaml

from lancestat.errors import LancestatError, NotWritten
from lancestat.lake.files import new_draft, remove_drafts
from lancestat.query.workload.advice import Advice, Change, Proposal
from lancestat.query.workload.edit import CannotEditError, SpecText, Value, flow
from lancestat.spec.catalog import table_name_of
from lancestat.spec.files import Files, Folder
from lancestat.spec.model import Table
from lancestat.state.values import canonical_uri

_CONTEXT_LINES = 2


@dataclass(frozen=True, slots=True)
class EditedFiles:
    """The files of a project with other texts in place of some, by name."""

    files: Folder
    texts: Mapping[str, str] = field(default_factory=dict)

    def has(self, name: str) -> bool:
        return self.files.has(name)

    def read(self, name: str) -> bytes:
        text = self.texts.get(name)
        return self.files.read(name) if text is None else text.encode()

    def below(self, folder: str) -> Iterable[str] | None:
        return self.files.below(folder)


def with_changes(
    advice: Advice, folder: Folder, tables: Sequence[Table], check: Callable[[Files], object]
) -> tuple[Advice, EditedFiles]:
    """Return advice with the diff of its proposals, and the files as they would be.

    A proposal that a file cannot take is left for people (`Advice.by_hand`).

    Args:
        advice: The proposals.
        folder: The files of the project.
        tables: The declared tables.
        check: Loads a project from files, and raises InvalidProject where they are wrong.
    """
    by_name = {table.name: table for table in tables}
    try:
        files, by_hand = _all_edited(advice, EditedFiles(folder), by_name, lambda files: None)
        check(files)
    except LancestatError:
        # One of them is to blame: each is checked by itself.
        files, by_hand = _all_edited(advice, EditedFiles(folder), by_name, check)
    return replace(advice, diff=_diff(files), by_hand=by_hand), files


def _all_edited(
    advice: Advice,
    files: EditedFiles,
    tables: Mapping[str, Table],
    check: Callable[[Files], object],
) -> tuple[EditedFiles, tuple[tuple[Proposal, str], ...]]:
    by_hand: list[tuple[Proposal, str]] = []
    for proposal in advice.proposals:
        try:
            _require_columns(proposal, (other for other, _ in by_hand))
            edited = _edited(files, tables[proposal.table], proposal, advice.found)
            check(edited)
        except CannotEditError as error:
            by_hand.append((proposal, str(error)))
        except LancestatError as error:
            by_hand.append((proposal, f"would not be valid: {error.message}"))
        else:
            files = edited
    return files, tuple(by_hand)


def _require_columns(proposal: Proposal, by_hand: Iterable[Proposal]) -> None:
    """Refuse what needs statistics of columns that people have to add."""
    for other in by_hand:
        is_added = other.change is Change.COLUMN and other.table == proposal.table
        if is_added and other.columns[0] in proposal.columns:
            raise CannotEditError(f"it needs column {other.columns[0]}")


def _edited(
    files: EditedFiles, table: Table, proposal: Proposal, found: Mapping[str, str]
) -> EditedFiles:
    name = table.location.file
    try:
        text = SpecText(files.read(name).decode())
    except UnicodeDecodeError:
        raise CannotEditError(f"{name} is not in UTF-8") from None
    try:
        if table.source is not None and table.name not in text.names():
            # As it was written: edits of tables above it move a source.
            _declare(text, SpecText(files.files.read(name).decode()), table, found[table.name])
        _apply(text, _index(text, table.name), proposal)
    except CannotEditError as error:
        raise CannotEditError(f"{name} {error}") from None
    return EditedFiles(files.files, {**files.texts, name: text.text})


def _declare(text: SpecText, written: SpecText, table: Table, uri: str) -> None:
    """Declare a table that a source has found, in the file of the source, with its defaults."""
    source = written.source(table.location)
    name = table_name_of((table.declared or table).uri)
    if name is None:
        raise CannotEditError("has a table of a source that has no name there")
    if "catalog" in source:
        place = ("table", flow(str(name)))
    else:
        below = uri.removeprefix(f"{canonical_uri(name.catalog)}/")
        if below == uri:
            raise CannotEditError(f"has a source that finds {table.name} in another folder")
        place = ("uri", flow(f"{source['uri'].value.rstrip('/')}/{below}"))
    text.add_table([("name", flow(table.name)), place, *written.entries(source.get("defaults"))])


def write_files(files: EditedFiles) -> tuple[str, ...]:
    """Write the texts of spec files, each whole, and return the names of those that changed.

    All are written beside the files before the first takes its place.

    Raises:
        NotWritten: A file cannot be written.
    """
    changed = sorted(
        name for name, text in files.texts.items() if text.encode() != files.files.read(name)
    )
    drafts: dict[Path, Path] = {}
    written: list[str] = []
    # A link stays one.
    paths = {name: (files.files.root / name).resolve() for name in changed}
    try:
        for name, path in paths.items():
            remove_drafts(path)
            drafts[path] = new_draft(path)
            drafts[path].write_bytes(files.texts[name].encode())
            drafts[path].chmod(stat.S_IMODE(path.stat().st_mode))
        for name, path in paths.items():
            drafts[path].replace(path)
            written.append(name)
    except OSError as error:
        already = f" ({', '.join(written)} changed before)" if written else ""
        reason = error.strerror or error
        raise NotWritten(f"cannot write to {path}: {reason}{already}") from None
    finally:
        for draft in drafts.values():
            draft.unlink(missing_ok=True)
    return tuple(changed)


def _index(text: SpecText, name: str) -> int:
    """Return the place of a table in `tables`."""
    try:
        names = text.names()
    except yaml.YAMLError:
        names = []
    if names.count(name) != 1:
        raise CannotEditError("does not name the table as it stands")
    return names.index(name)


def _apply(text: SpecText, index: int, proposal: Proposal) -> None:
    match proposal.change:
        case Change.COLUMN:
            _add_column(text, index, *proposal.columns)
        case Change.UNUSED:
            _remove_column(text, index, *proposal.columns)
        case Change.HISTOGRAM:
            if text.value(index, ["histogram"]) is None:
                text.add_key(index, [], "histogram", True)
            else:
                text.replace(index, ["histogram"], True)
        case Change.GROUP:
            _add_item(text, index, "groups", list(proposal.columns))
        case Change.KEY:
            _add_item(text, index, "keys", list(proposal.columns))
        case Change.REFERENCE:
            reference = {
                "columns": list(proposal.columns),
                "table": proposal.other or proposal.table,
                "to": list(proposal.other_columns),
            }
            _add_item(text, index, "references", reference)
        case Change.COMMON_VALUES:
            _add_common_values(text, index, *proposal.columns)


def _add_item(text: SpecText, index: int, key: str, item: Value) -> None:
    if text.value(index, [key]) is None:
        text.add_key(index, [], key, [item])
    else:
        text.append(index, [key], [item])


def _add_common_values(text: SpecText, index: int, name: str) -> None:
    if text.value(index, ["common_values"]) is None:
        text.add_key(index, [], "common_values", {"columns": [name]})
    else:
        text.append(index, ["common_values", "columns"], [name])


def _add_column(text: SpecText, index: int, name: str) -> None:
    """Take a column out of what is excluded, or put it beside those that are listed."""
    columns = text.value(index, ["columns"])
    if columns is None:
        raise CannotEditError("lists no columns")
    if isinstance(columns, yaml.SequenceNode):
        text.append(index, ["columns"], [name])
        return
    if name in text.scalars(index, ["columns", "exclude"]):
        if len(text.scalars(index, ["columns", "exclude"])) == 1:
            raise CannotEditError(f"excludes '{name}' alone; remove 'exclude'")
        text.remove(index, ["columns", "exclude"], frozenset([name]))
        return
    if text.value(index, ["columns", "include"]) is None:
        raise CannotEditError("lists no columns by name")
    text.append(index, ["columns", "include"], [name])


def _remove_column(text: SpecText, index: int, name: str) -> None:
    """Take a column out of those that are listed, or exclude it."""
    columns = text.value(index, ["columns"])
    if columns is None:
        text.add_key(index, [], "columns", {"exclude": [name]})
    elif isinstance(columns, yaml.SequenceNode):
        text.remove(index, ["columns"], frozenset([name]))
    elif isinstance(columns, yaml.ScalarNode):
        text.replace(index, ["columns"], {"exclude": [name]})
    elif name in text.scalars(index, ["columns", "include"]):
        text.remove(index, ["columns", "include"], frozenset([name]))
    elif text.value(index, ["columns", "exclude"]) is not None:
        text.append(index, ["columns", "exclude"], [name])
    else:
        text.add_key(index, ["columns"], "exclude", [name])


def _diff(files: EditedFiles) -> str:
    """Return the change of all files as a unified diff."""
    lines: list[str] = []
    for name, text in sorted(files.texts.items()):
        before = files.files.read(name).decode().splitlines()
        names = f"a/{name}", f"b/{name}"
        lines += difflib.unified_diff(
            before, text.splitlines(), *names, lineterm="", n=_CONTEXT_LINES
        )
    return "\n".join(lines)
