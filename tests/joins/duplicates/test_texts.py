"""Near-duplicates of texts by MinHash bits, as the how-to makes them, beside true similarities."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

from tests.joins.duplicates.shop import Shop

ROOT = Path(__file__).parents[3]
WORDS = [f"word{number}" for number in range(2_000)]


@pytest.fixture(scope="module")
def how_to() -> dict[str, Any]:
    """Return what the code of the how-to defines."""
    text = (ROOT / "docs/how-to/duplicates.md").read_text(encoding="utf-8")
    [code] = re.findall(r"```python\n(.*?minhash_bits.*?)```", text, re.DOTALL)
    names: dict[str, Any] = {}
    exec(code, names)
    return names


def edited(text: str, share: float, chosen: np.random.Generator) -> str:
    """Return a text with a share of its words replaced, side by side."""
    words = text.split()
    count = round(share * len(words))
    start = int(chosen.integers(len(words) - count + 1))
    words[start : start + count] = chosen.choice(WORDS, count)
    return " ".join(words)


def similarity(one: set[str], two: set[str]) -> float:
    return len(one & two) / len(one | two)


def test_bits_estimate_the_true_similarity(how_to: dict[str, Any]) -> None:
    chosen = np.random.default_rng(5)
    errors = []
    for share in np.linspace(0.02, 0.6, 150):
        text = " ".join(chosen.choice(WORDS, int(chosen.integers(30, 120))))
        other = edited(text, float(share), chosen)
        true = similarity(*map(how_to["runs_of_words"], (text, other)))
        differing = how_to["minhash_bits"](text) ^ how_to["minhash_bits"](other)
        found = 1 - 2 * int(np.unpackbits(differing).sum()) / how_to["BITS"]
        errors.append((found - true) / np.sqrt((1 - true**2) / how_to["BITS"]))
    # In units of the standard error: 150 of them.
    assert abs(np.mean(errors)) < 4 / np.sqrt(150)
    assert 0.8 < np.std(errors) < 1.2


def test_groups_of_texts_are_those_of_true_similarities(
    how_to: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = np.random.default_rng(6)
    texts = []
    for copies in (0, 0, 1, 2, 3) * 6:
        text = " ".join(chosen.choice(WORDS, 100))
        # Similarities are over 0.9 or under 0.5: both far from 0.8 by the error of the bits.
        texts += [text, edited(text, 0.5, chosen)]
        texts += [edited(text, 0.01, chosen) for _ in range(copies)]
    bits = pa.array([how_to["minhash_bits"](text).tolist() for text in texts])
    rows = {"id": range(len(texts)), "v": bits.cast(pa.list_(pa.uint8(), how_to["BITS"] // 8))}
    shop = Shop.of(tmp_path, monkeypatch, pa.table(rows))
    shop.declare(metric="hamming", max_distance=51, select=["id"])
    shop.settle()

    runs = [how_to["runs_of_words"](text) for text in texts]
    groups = [{at} for at in range(len(texts))]
    for at, one in enumerate(runs):
        for other in range(at):
            if similarity(one, runs[other]) >= 0.8 and groups[at] is not groups[other]:
                groups[other] |= groups[at]
                for member in groups[other]:
                    groups[member] = groups[other]
    expected = {frozenset(group) for group in groups if len(group) > 1}
    assert len(expected) == 18
    assert {frozenset(ids) for ids in shop.groups().values()} == expected
    assert lance.dataset(shop.table).count_rows() == len(texts)
