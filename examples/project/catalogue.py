"""Data that TPC-H lacks: names of parts as vectors, and misspelt inquiries of customers."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING

from trigrams import DIMENSION, embed

if TYPE_CHECKING:
    import lance
    import pyarrow as pa

# The number of parts per inquiry, and of inquiries per one that is a photograph without text.
PARTS_PER_INQUIRY = 10
INQUIRIES_PER_PHOTOGRAPH = 50


def part_names(part: lance.LanceDataset) -> pa.Table:
    """The parts' names and their vectors, in a table of their own.

    The table of parts changes with every price, and a join would have to look at all of it again.
    """
    rows = part.to_table(columns=["p_partkey", "p_name"])
    return rows.append_column("p_vector", _vectors(rows["p_name"].to_pylist()))


def inquiries(part_name: lance.LanceDataset, count: int, first: int = 1) -> pa.Table:
    """Return inquiries of customers from number `first` on; equal numbers have equal inquiries."""
    import pyarrow as pa

    names = part_name.to_table(columns=["p_name"])["p_name"].to_pylist()
    keys = range(first, first + count)
    texts = [_asked(names, key) for key in keys]
    return pa.table(
        {
            "i_inquirykey": pa.array(keys, pa.int64()),
            "i_text": pa.array(texts, pa.string()),
            "i_vector": _vectors(texts),
        }
    )


def _asked(names: Sequence[str], key: int) -> str | None:
    """Return most words of a part's name, in some order, some of them misspelt."""
    if key % INQUIRIES_PER_PHOTOGRAPH == 0:
        return None
    chance = random.Random(key)
    words = chance.choice(names).split()
    asked = chance.sample(words, len(words) - 1)
    return " ".join(_misspelt(word, chance) if chance.random() < 0.3 else word for word in asked)


def _misspelt(word: str, chance: random.Random) -> str:
    """Return a word without one of its inner letters."""
    place = chance.randrange(1, len(word) - 1)
    return word[:place] + word[place + 1 :]


def _vectors(texts: Sequence[str | None]) -> pa.Array:
    """Return fixed-size lists, as Lance prefers them; null where there is no text."""
    import numpy as np
    import pyarrow as pa

    values = embed([text or "" for text in texts])
    missing = pa.array(np.array([text is None for text in texts]))
    return pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), DIMENSION, mask=missing)
