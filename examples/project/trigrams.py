"""Vectors of texts from the trigrams of their words: similar spellings are near each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

DIMENSION = 64


def embed(texts: Sequence[str]) -> NDArray[np.float32]:
    """One vector per text: its words' trigrams, hashed to an element each and counted there.

    A letter too few or too many changes some trigrams of one word, another order of words none. The
    hash also says whether to add or to subtract, so that trigrams which share an element cancel out
    rather than add up (Weinberger et al., Feature Hashing, 2009).

    Returns:
        Shape (texts, DIMENSION).
    """
    padded = [f" {text.lower()} ".encode() for text in texts]
    letters = np.frombuffer(b"".join(padded), np.uint8)
    rows = np.repeat(np.arange(len(texts)), [len(text) for text in padded])
    first, middle, last = letters[:-2], letters[1:-1], letters[2:]
    # None of them spans two words, let alone two texts.
    inside = middle != ord(" ")
    inside &= rows[:-2] == rows[2:]
    hashed = _fnv1a(first[inside], middle[inside], last[inside])
    elements = rows[1:-1][inside] * DIMENSION + hashed % DIMENSION
    signs = np.where(hashed >> 16 & 1, 1.0, -1.0)
    counts = np.bincount(elements, signs, minlength=len(texts) * DIMENSION)
    return counts.reshape(-1, DIMENSION).astype(np.float32)


def _fnv1a(*octets: NDArray[np.uint8]) -> NDArray[np.uint32]:
    """FNV-1a with 32 bits: the same everywhere, unlike Python's `hash`."""
    hashed = np.full(len(octets[0]), 2166136261, np.uint32)
    for octet in octets:
        hashed = (hashed ^ octet) * np.uint32(16777619)
    return hashed ^ (hashed >> 8)
