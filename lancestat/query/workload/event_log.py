"""Spark's event logs as lines of JSON: where they lie, how they are compressed, in bounded memory.

Source: `EventLogFileWriters` and `CompressionCodec` of Spark. A log is a file, or a folder
`eventlog_v2_*` of files that were rolled over. What a file is compressed with is seen by its first
bytes, since names change: a log that is still written ends in `.inprogress`.
"""

from __future__ import annotations

import os
import re
import stat
import struct
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Protocol

from lancestat.errors import EventLogUnreadable
from lancestat.formats import count, visible

CHUNK_BYTES = 1024 * 1024
MAX_LINE_BYTES = 64 * 1024 * 1024
"""A longer line is left out: that of one plan has some megabytes at most."""

_PIECE_BYTES = 2048
_MAX_BLOCK_BYTES = 64 * 1024 * 1024
_ROLLED = "eventlog_v2_"
# Of a rolled log: events_7_app-20240102030405-0001.zstd, or with .compact behind it, once whole.
_PART = re.compile(r"events_(\d+)_(?!.*\.compact\.inprogress$)")
_COMPACT = ".compact"


@dataclass(slots=True)
class LeftOut:
    """Counts of what was left out of event logs, by reason in the plural and the singular."""

    counts: Counter[tuple[str, str]] = field(default_factory=Counter)

    def add(self, one: str, many: str, number: int = 1) -> None:
        if number:
            self.counts[one, many] += number

    def __str__(self) -> str:
        """One line for people, empty where nothing was left out."""
        return ", ".join(count(number, *nouns) for nouns, number in sorted(self.counts.items()))


CUT_OFF = "file that is cut off or damaged", "files that are cut off or damaged"
NO_LOG = "file that is no event log", "files that are no event logs"
NO_EVENT = "line that is no event", "lines that are no events"
LONG_LINE = "line longer than 64 MB", "lines longer than 64 MB"
UNREADABLE = "file that cannot be read", "files that cannot be read"
LZF = "file compressed with LZF", "files compressed with LZF"
MISSING = "missing part of a rolled log", "missing parts of rolled logs"


class TruncatedError(Exception):
    """A compressed stream ends within a block, or is damaged."""


def find_logs(paths: Iterable[Path], left_out: LeftOut) -> Iterator[tuple[Path, ...]]:
    """Yield logs, each once, as its files in the order in which they were written.

    Folders are searched to the bottom; hidden files are left out, missing ones are counted.

    Raises:
        EventLogUnreadable: A path does not exist, is no file or folder, or a folder cannot
            be listed.
    """
    missing: dict[tuple[Path, ...], int] = {}
    for path in paths:
        try:
            missing.update(_below(Path(os.path.realpath(path))))
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise EventLogUnreadable(f"cannot read {visible(str(path))}: {reason}") from None
    seen: set[Path] = set()
    # A part of a rolled log that is named by itself is one.
    for files in sorted(missing, key=len, reverse=True):
        if not seen.issuperset(files):
            seen.update(files)
            left_out.add(*MISSING, missing[files])
            yield files


def _below(path: Path) -> Iterator[tuple[tuple[Path, ...], int]]:
    """Yield logs, each with the number of its parts that are missing."""
    if not path.is_dir():
        # Opened later; what does not exist is an error at once.
        if not stat.S_ISREG(path.stat().st_mode):
            raise OSError(None, "it is neither a file nor a folder")
        yield (path,), 0
        return
    entries = sorted(entry for entry in path.iterdir() if not entry.name.startswith("."))
    if path.name.startswith(_ROLLED):
        yield _rolled(entries)
        return
    for entry in entries:
        if entry.is_dir() and not entry.is_symlink():
            yield from _below(entry)
        elif entry.is_file():
            yield (Path(os.path.realpath(entry)),), 0


def _rolled(entries: Iterable[Path]) -> tuple[tuple[Path, ...], int]:
    """Return the parts of a rolled log, and how many are missing.

    A compact part has what is left of all up to its number, which Spark removes later.
    """
    parts = sorted(
        (int(match[1]), entry.name.endswith(_COMPACT), Path(os.path.realpath(entry)))
        for entry in entries
        if (match := _PART.match(entry.name))
    )
    compact = [place for place, (_, is_compact, _) in enumerate(parts) if is_compact]
    parts = parts[compact[-1] if compact else 0 :]
    numbers = {number for number, _, _ in parts}
    first = parts[0][0] if compact else 1
    missing = max(numbers, default=0) - first + 1 - len(numbers)
    return tuple(file for _, _, file in parts), max(0, missing)


def read_lines(path: Path, left_out: LeftOut) -> Iterator[bytes]:
    """Yield the lines of a file as far as it can be read; what is left out is counted."""
    try:
        with path.open("rb") as file:
            yield from _lines(_chunks(file), left_out)
    except TruncatedError:
        left_out.add(*CUT_OFF)
    except NotImplementedError:
        left_out.add(*LZF)
    except OSError:
        left_out.add(*UNREADABLE)


def _lines(chunks: Iterator[bytes], left_out: LeftOut) -> Iterator[bytes]:
    """Yield the lines in chunks; no more than a line of `MAX_LINE_BYTES` is held."""
    held: list[bytes] = []
    size, is_skipping = 0, False
    for chunk in chunks:
        start = 0
        while (end := chunk.find(b"\n", start)) >= 0:
            if not is_skipping and size + end - start <= MAX_LINE_BYTES:
                yield b"".join((*held, chunk[start:end]))
            else:
                left_out.add(*LONG_LINE)
            held, size, is_skipping, start = [], 0, False, end + 1
        size += len(chunk) - start
        held.append(chunk[start:])
        if size > MAX_LINE_BYTES:
            held, is_skipping = [], True
    if is_skipping:
        left_out.add(*LONG_LINE)
    elif size:
        yield b"".join(held)


class _Stream(Protocol):
    def read(self, size: int) -> bytes: ...


# By the first bytes of a file: the name of pyarrow's codec.
_STANDARD = {
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\x1f\x8b": "gzip",
    b"\x04\x22\x4d\x18": "lz4",
    b"BZh": "bz2",
}
_LZ4_BLOCK = b"LZ4Block"
_SNAPPY = b"\x82SNAPPY\x00"
_LZF = b"ZV"


def _chunks(file: BinaryIO) -> Iterator[bytes]:
    """Yield what a file holds, decompressed, in pieces of at most 64 MB.

    Raises:
        TruncatedError: It ends within a block, or is damaged.
        NotImplementedError: It is compressed with LZF.
    """
    head = file.read(16)
    file.seek(0)
    if head.startswith(_LZ4_BLOCK):
        return _lz4_blocks(file)
    if head.startswith(_SNAPPY):
        return _snappy_blocks(file)
    if head.startswith(_LZF):
        raise NotImplementedError
    for magic, codec in _STANDARD.items():
        if head.startswith(magic):
            return _decompressed(file, codec)
    return iter(lambda: file.read(CHUNK_BYTES), b"")


def _decompressed(file: BinaryIO, codec: str) -> Iterator[bytes]:
    import pyarrow as pa

    stream, pieces = pa.CompressedInputStream(pa.PythonFile(file, "r"), codec), list[bytes]()
    while True:
        try:
            # A read that fails takes along what it had: small ones lose little of a log's end.
            pieces.append(stream.read(_PIECE_BYTES))
        except (OSError, EOFError):
            yield b"".join(pieces)
            raise TruncatedError from None
        if not pieces[-1] or len(pieces) == CHUNK_BYTES // _PIECE_BYTES:
            yield b"".join(pieces)
            if not pieces[-1]:
                return
            pieces = []


def _exactly(file: _Stream, size: int) -> bytes:
    content = file.read(size) if 0 <= size <= _MAX_BLOCK_BYTES else b""
    if len(content) != size:
        raise TruncatedError
    return content


def _lz4_blocks(file: BinaryIO) -> Iterator[bytes]:
    """Yield the blocks of lz4-java's `LZ4BlockOutputStream`, which is no LZ4 frame.

    Each has a header of 21 bytes: `LZ4Block`, the method in the high half of a byte (1: stored, 2:
    LZ4), then, little-endian, its compressed size, its size and a checksum. One of size 0 ends a
    stream; another may follow.
    """
    import pyarrow as pa

    codec = pa.Codec("lz4_raw")
    while head := file.read(21):
        if len(head) < 21 or not head.startswith(_LZ4_BLOCK):
            raise TruncatedError
        method, compressed, size, _ = struct.unpack("<BiiI", head[8:])
        content = _exactly(file, compressed)
        yield content if method >> 4 == 1 else _block(codec, content, size)


def _snappy_blocks(file: BinaryIO) -> Iterator[bytes]:
    """Yield the blocks of snappy-java's `SnappyOutputStream`, which is no framed Snappy.

    A header of 16 bytes, then for each block its size, big-endian, and Snappy's raw format, which
    begins with the size of the content as a varint. Another header may follow.
    """
    import pyarrow as pa

    codec = pa.Codec("snappy")
    while head := file.read(4):
        if len(head) < 4:
            raise TruncatedError
        if head == _SNAPPY[:4]:
            _exactly(file, 12)
            continue
        content = _exactly(file, struct.unpack(">i", head)[0])
        yield _block(codec, content, _varint(content))


def _varint(content: bytes) -> int:
    value = 0
    for index, byte in enumerate(content[:5]):
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return value
    raise TruncatedError


def _block(codec: object, content: bytes, size: int) -> bytes:
    if not 0 <= size <= _MAX_BLOCK_BYTES:
        raise TruncatedError
    if size == 0:
        return b""
    try:
        return codec.decompress(content, size, asbytes=True)  # type: ignore[attr-defined,no-any-return]
    except (OSError, ValueError):
        raise TruncatedError from None
