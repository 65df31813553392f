from __future__ import annotations

import json

import pytest

from lancestat.review.values import Diff, Risk
from tests.conftest import Golden
from tests.presentation.rendering import as_json, as_markdown, as_text
from tests.review.conftest import Lake, Sides
from tests.review.pairs import DATASETS, HARMLESS, NONE, RISKY, Pair

EMPTY = {"specs/shop.yml": "tables: []"}
SHOWN = {**RISKY, **HARMLESS}


@pytest.fixture(autouse=True)
def _datasets(lake: Lake) -> None:
    for uri, columns in DATASETS.items():
        lake.add(uri, columns)


def compare(sides: Sides, pair: Pair, *, with_datasets: bool = True) -> Diff:
    base, head = (
        {"specs/shop.yml": files} if isinstance(files, str) else {**EMPTY, **files}
        for files in (pair.base, pair.head)
    )
    return sides.diff(base, head, with_datasets=with_datasets)


@pytest.mark.parametrize("name", SHOWN)
def test_a_change_is_shown_with_its_consequences(sides: Sides, golden: Golden, name: str) -> None:
    diff = compare(sides, SHOWN[name])

    def placed(text: str) -> str:
        return text.replace(str(sides.root.resolve()), "ROOT") + "\n"

    golden(f"diff/{name}.txt", placed(as_text(diff)))
    golden(f"diff/{name}.md", placed(as_markdown(diff)))
    golden(f"diff/{name}.json", placed(json.dumps(as_json(diff), indent=2)))
    assert diff.risks == SHOWN[name].risks


def test_every_risk_is_shown_by_a_pair() -> None:
    assert frozenset().union(*(pair.risks for pair in RISKY.values())) == frozenset(Risk)


@pytest.mark.parametrize("name", NONE)
def test_equivalent_declarations_are_not_a_change(sides: Sides, lake: Lake, name: str) -> None:
    diff = compare(sides, NONE[name])
    assert diff.is_empty, as_text(diff)
    assert diff.unchanged > 0
    assert lake.asked == []


@pytest.mark.parametrize("name", [*SHOWN, *NONE])
def test_no_dataset_is_opened_without_need(sides: Sides, lake: Lake, name: str) -> None:
    pair = {**SHOWN, **NONE}[name]
    diff = compare(sides, pair, with_datasets=False)
    assert lake.asked == []
    assert diff.risks >= pair.risks - {Risk.COST_INCREASED}
