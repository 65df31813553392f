"""Ranges of a fragment's rows in the form that Lance takes row addresses in."""

from __future__ import annotations

import struct

# RoaringFormatSpec: bitmaps of runs, by the upper 16 bits; offsets follow from four of them on.
_RUN_COOKIE = 12_347
_OFFSETS_FROM = 4
_BLOCK = 1 << 16


def row_mask(fragment_id: int, start: int, stop: int) -> bytes:
    """The physical rows from `start` to before `stop` of a fragment, as `row_addr_allowlist`.

    It is what `lance.dataset.serialize_row_addrs` makes of their addresses, in runs: a count of
    fragments, and for each its id, the length of its bitmap and the bitmap, all little-endian
    (https://github.com/RoaringBitmap/RoaringFormatSpec).
    """
    bitmap = _runs(start, stop)
    return struct.pack("<III", 1, fragment_id, len(bitmap)) + bitmap


def _runs(start: int, stop: int) -> bytes:
    blocks = range(start // _BLOCK, -(-stop // _BLOCK))
    spans = [
        (max(start - block * _BLOCK, 0), min(stop - block * _BLOCK, _BLOCK) - 1) for block in blocks
    ]
    head = struct.pack("<I", _RUN_COOKIE | (len(blocks) - 1) << 16)
    head += ((1 << len(blocks)) - 1).to_bytes(-(-len(blocks) // 8), "little")
    for block, (first, last) in zip(blocks, spans, strict=True):
        head += struct.pack("<HH", block, last - first)
    containers = [struct.pack("<HHH", 1, first, last - first) for first, last in spans]
    if len(blocks) >= _OFFSETS_FROM:
        body = len(head) + 4 * len(blocks)
        for index, container in enumerate(containers):
            head += struct.pack("<I", body + index * len(container))
    return head + b"".join(containers)
