"""Products with random names, some of them copies with a mistake in the name."""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import TYPE_CHECKING

FOLDER = Path(__file__).resolve().parent
# What makes vectors of texts.
sys.path.insert(0, str(FOLDER.parent / "project"))

from trigrams import DIMENSION, embed  # noqa: E402

if TYPE_CHECKING:
    import pyarrow as pa

PRODUCT = FOLDER / ".lancestat" / "product.lance"
WORDS = 5
_CONSONANTS, _VOWELS = "bdfgklmnprstvz", "aeiou"


def products(count: int, copies: int, seed: int = 1) -> pa.Table:
    """Return products as a table of `id`, `name`, `original` and `vector`, in random order.

    Args:
        count: How many different ones.
        copies: How many copies besides; `original` is the id of the product that a row stands for.
        seed: Of the random choices.
    """
    import pyarrow as pa

    chosen = random.Random(seed)
    words = [_word(chosen) for _ in range(2_000)]
    names = [" ".join(chosen.sample(words, WORDS)) for _ in range(count)]
    # Some products have several copies, and a copy may be copied.
    originals = list(range(count))
    for _ in range(copies):
        copied = chosen.randrange(len(names)) if chosen.random() < 0.5 else chosen.randrange(200)
        names.append(_misspelt(names[copied], chosen))
        originals.append(originals[copied])
    order = list(range(len(names)))
    chosen.shuffle(order)
    ids = {row: id for id, row in enumerate(order)}
    shuffled = [names[row] for row in order]
    return pa.table(
        {
            "id": pa.array(range(len(order)), pa.int64()),
            "name": shuffled,
            "original": pa.array([ids[originals[row]] for row in order], pa.int64()),
            "vector": pa.FixedSizeListArray.from_arrays(
                pa.array(embed(shuffled).ravel()), DIMENSION
            ),
        }
    )


def _word(chosen: random.Random) -> str:
    syllables = (chosen.choice(_CONSONANTS) + chosen.choice(_VOWELS) for _ in range(4))
    return "".join(syllables) + chosen.choice(_CONSONANTS)


def _misspelt(name: str, chosen: random.Random) -> str:
    """Return a name with two words swapped, or a letter too many, too few or in the wrong place."""
    words = name.split()
    first, second = chosen.sample(range(len(words)), 2)
    if chosen.random() < 0.25:
        words[first], words[second] = words[second], words[first]
        return " ".join(words)
    word = words[first]
    at = chosen.randrange(len(word) - 1)
    words[first] = chosen.choice(
        (
            word[:at] + word[at] + word[at:],
            word[:at] + word[at + 1 :],
            word[:at] + word[at + 1] + word[at] + word[at + 2 :],
        )
    )
    return " ".join(words)
