"""What reading rows has proved or refuted of tables, in one file a table: `checks/TABLE.json`.

A proof holds for the content that it was made of, whatever version has that.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from lancestat import codec
from lancestat.codec import Instant
from lancestat.state.stored_table import StateFolder

_FOLDER = "checks"
_FORMAT = 1


@dataclass(frozen=True, slots=True)
class Proof:
    """Whether what is expected of a table was found to hold.

    `expectation` is the digest of what is expected, `content` that of the columns that were read.
    """

    expectation: str
    content: str
    holds: bool
    detail: str
    made_at: Instant


@dataclass(frozen=True, slots=True)
class _File:
    format: int
    proofs: tuple[Proof, ...]


def read_proofs(folder: StateFolder, table: str) -> Mapping[str, Proof]:
    """Return the proofs of a table by expectation, none where the file cannot be read as such.

    Raises:
        StateUnreachable: the state is.
    """
    with folder.reached():
        text = folder.storage.read(_path(table))
    try:
        file = codec.decode(text or "", _File)
    except ValueError:
        return {}
    return {proof.expectation: proof for proof in file.proofs if file.format == _FORMAT}


def write_proofs(folder: StateFolder, table: str, proofs: Iterable[Proof]) -> None:
    """Replace the proofs of a table.

    Raises:
        StateUnreachable: the state is.
    """
    text = codec.encode(_File(_FORMAT, tuple(proofs)))
    with folder.reached():
        folder.storage.write(_path(table), text, make_folder=True)


def remove_proofs(folder: StateFolder, kept: Collection[str]) -> None:
    """Remove the proofs of all tables but those that are kept."""
    with folder.reached():
        for name in folder.storage.files(_FOLDER):
            if name.removesuffix(".json") not in kept:
                folder.storage.remove_file(f"{_FOLDER}/{name}")
        folder.storage.remove_empty(_FOLDER)


def _path(table: str) -> str:
    return f"{_FOLDER}/{table}.json"
